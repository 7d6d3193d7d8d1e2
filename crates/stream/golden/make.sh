#!/bin/sh
# Makes the streams beside it. They were made by Linux 6.18 and btrfs-progs 6.2; root and a loop device are needed.
set -e
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
cd "$work"
truncate -s 256M pool.img
mkfs.btrfs -q pool.img
mkdir mnt
mount -o loop,compress=zstd pool.img mnt
btrfs -q subvolume create mnt/s
cd mnt/s
echo hi >file
mkdir dir
ln -s target symlink
ln file dir/link
mkfifo fifo
mknod node c 1 3
python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('socket')"
setfattr -n user.comment -v value file
head -c 12288 /dev/zero | tr '\0' a >compressed
cp --reflink=always compressed dir/clone
truncate -s 1M holes
echo x >>holes
chmod 4755 file
cd ../..
btrfs -q subvolume snapshot -r mnt/s mnt/one
mv mnt/s/dir mnt/s/directory
echo more >>mnt/s/file
rm mnt/s/holes
rmdir mnt/s/nothing 2>/dev/null || true
setfattr -x user.comment mnt/s/file
truncate -s 100 mnt/s/compressed
chown 5:6 mnt/s/directory
btrfs -q subvolume snapshot -r mnt/s mnt/two
btrfs -q send -f "$here/full.v1" mnt/one
btrfs -q send --proto 2 --compressed-data -f "$here/full.v2" mnt/one
btrfs -q send -p mnt/one -f "$here/incremental.v1" mnt/two
umount mnt
rm -r "$work"

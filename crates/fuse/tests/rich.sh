#!/bin/sh
# Makes an image by the kernel: rich.sh IMAGE MOUNTPOINT. The mount is left in place, read-only.
set -eu
image=$1 at=$2
truncate -s 512M "$image"
mkfs.btrfs -q -d single -m single "$image" >/dev/null
mount -o loop "$image" "$at"
cd "$at"
mkdir -p plain/deep/deeper many
printf hello >plain/small
head -c 70000 /dev/urandom >plain/large
head -c 3000000 /dev/urandom >plain/larger
: >plain/empty
ln plain/small plain/deep/link
ln plain/small many/link
ln -s ../plain/small plain/deep/symlink
ln -s "$(printf '%0200d' 0)" plain/long-symlink
mknod plain/character c 5 1
mknod plain/block b 259 70000
mkfifo plain/fifo
python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('plain/socket')"
chmod 4755 plain/small
chmod 1777 many
chown 1234:4321 plain/large
touch -d '1901-12-25 01:02:03.456789' plain/empty
setfattr -n user.comment -v 'a value' plain/small
setfattr -n user.large -v "$(printf '%03000d' 0)" plain/large
setfattr -n trusted.hidden -v x plain/deep
setfattr -n btrfs.compression -v zstd plain/deep/deeper
setfacl -m u:65534:r,g:1234:rw plain/larger
setfacl -d -m u:1000:rwx plain/deep
echo shared >plain/acl && chmod 600 plain/acl && setfacl -m u:65534:r plain/acl
echo private >plain/private && chmod 600 plain/private
# Holes, preallocated space, data behind them.
truncate -s 5M plain/sparse
printf data | dd of=plain/sparse bs=1 seek=1000000 conv=notrunc status=none
fallocate -o 2M -l 1M plain/sparse
printf data | dd of=plain/sparse bs=1 seek=4000000 conv=notrunc status=none
for algorithm in zlib lzo zstd; do
    btrfs property set plain/deep/deeper compression $algorithm
    yes "compress me with $algorithm" | head -c 900000 >plain/deep/deeper/$algorithm
    yes "inline $algorithm" | head -c 1000 >plain/deep/deeper/$algorithm-inline
done
chattr +d plain/empty
touch plain/nocow && chattr +C plain/nocow && head -c 50000 /dev/urandom >plain/nocow
i=0
while [ $i -lt 2000 ]; do
    echo $i >"many/a file with a somewhat long name, so that few fit a page, number $i"
    i=$((i + 1))
done
btrfs -q subvolume create sub
btrfs -q subvolume create sub/inner
cp -a plain/small plain/deep sub/
echo inner >sub/inner/file
btrfs -q subvolume snapshot -r sub snapshot
btrfs -q subvolume snapshot sub plain/writable
echo changed >plain/writable/small
chattr +i plain/deep/symlink 2>/dev/null || chattr +i sub/small
sync
mount -o remount,ro "$at"

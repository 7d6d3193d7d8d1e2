#!/usr/bin/env bash
# brindle at work, in a minute, on image files: a pool of two disks and an SSD is made, mounted, filled, snapshot,
# examined, compared by the kernel's driver where that may be used, degraded, damaged, and read all the same.
set -euo pipefail

brindle=$(realpath "${BRINDLE:-target/release/brindle}")
root=$(dirname "$(dirname "$(realpath "$0")")")
dir=$(mktemp -d "${TMPDIR:-/tmp}/brindle-demo.XXXXXX")
mnt=$dir/mnt
mkdir "$mnt" "$dir/kernel"

cleanup() {
    mountpoint -q "$mnt" && "$brindle" umount "$mnt"
    mountpoint -q "$dir/kernel" && umount "$dir/kernel"
    rm -rf "$dir"
}
trap cleanup EXIT

step() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() { printf '$ brindle %s\n' "${*//$dir\//}"; "$brindle" "$@"; }

# Whether the kernel's own driver can be asked for its opinion.
has_referee() { [ "$(id -u)" -eq 0 ] && grep -qw btrfs /proc/filesystems; }

# same A B: the same names and the same bytes.
same() { diff -r --no-dereference "$1" "$2"; }

if ! [ -w /dev/fuse ]; then
    echo "brindle demo: no permission to use /dev/fuse, so nothing can be mounted here" >&2
    exit 1
fi

step "1. A pool on three image files: two hard disks and an SSD; data mirrored over the disks, metadata on the SSD"
for name in disk1 disk2 ssd; do truncate -s 1G "$dir/$name.img"; done
pool=("$dir/disk1.img" "$dir/disk2.img" "$dir/ssd.img")
run mkfs -L demo -d raid1 -m dup "$dir/disk1.img:bulk" "$dir/disk2.img:bulk" "$dir/ssd.img:fast"

step "2. Mounted over FUSE, and real files put in: this repository, compressed as it goes"
run mount -o compress=zstd "${pool[@]}" "$mnt"
run subvolume create "$mnt/sources"
tar -C "$root" --exclude=./target --exclude=./fuzz/target --exclude=./.git -cf - . | tar -C "$mnt/sources" -xf -
run subvolume snapshot -r "$mnt/sources" "$mnt/snapshot"
rm -r "$mnt/sources/docs"
head -c 32M /dev/urandom >"$mnt/random.bin"
ln "$mnt/random.bin" "$mnt/hard-link"
truncate -s 1G "$mnt/sparse"
printf 'the end' >>"$mnt/sparse"
run subvolume list "$mnt"
df -h "$mnt" | sed "s|$dir/||g"
mkdir "$dir/expected"
cp -a --sparse=always "$mnt/." "$dir/expected"
run umount "$mnt"

step "3. Where it landed: the chunks, and the devices that hold each"
run filesystem show "${pool[@]}"
run inspect dump-tree -t chunk "${pool[@]}" | grep -E 'CHUNK_ITEM|type (DATA|METADATA|SYSTEM)|stripe [0-9]+ devid'

step "4. Examined, by brindle and by btrfs-progs"
run check --check-data-csum "${pool[@]}"
if command -v btrfs >/dev/null && [ "$(id -u)" -eq 0 ]; then
    loops=()
    for image in "${pool[@]}"; do loops+=("$(losetup --find --show "$image")"); done
    echo '$ btrfs check --check-data-csum'
    checked=0
    btrfs check --check-data-csum "${loops[0]}" >"$dir/btrfs-check" 2>&1 || checked=$?
    tail -n 7 "$dir/btrfs-check" | sed "s|$dir/||g"
    if [ "$checked" -eq 0 ] && has_referee; then
        mount -t btrfs -o "ro$(printf ',device=%s' "${loops[@]}")" "${loops[0]}" "$dir/kernel"
        same "$dir/expected" "$dir/kernel" && echo "the Linux kernel mounts it and reads the same files, byte for byte"
        umount "$dir/kernel"
    fi
    for loop in "${loops[@]}"; do losetup -d "$loop"; done
    [ "$checked" -eq 0 ]
fi

step "5. A device is lost: read degraded, extracted whole"
run cp -o degraded "${pool[@]:1}" --path / "$dir/rescued"
same "$dir/expected" "$dir/rescued"
echo "nothing is missing"

step "6. A device rots: 64 MiB of one mirror overwritten with noise"
dd if=/dev/urandom of="${pool[0]}" bs=1M seek=70 count=64 conv=notrunc status=none
rm -rf "$dir/rescued"
run cp "${pool[@]}" --path / "$dir/rescued"
same "$dir/expected" "$dir/rescued"
echo "every bad sector was served from its other copy"

step "7. Examined again, and nothing changed: the rotten data is named by device and place"
run check --check-data-csum "${pool[@]}" | grep -m 3 expected || true

step "Shown: a pool of two disks and an SSD with its metadata on the SSD, made, mounted, filled and snapshot by brindle,
found sound by brindle and, where it was asked, by btrfs check and the Linux kernel; and read whole with a device
missing and with a device rotten."

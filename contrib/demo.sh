#!/usr/bin/env bash
# brindle at work, in a minute, on image files: a pool of mixed devices is made, filled by the kernel, and then
# listed, mounted, compared, extracted, degraded, damaged and examined, without the kernel's driver.
# Without root (which the kernel wants for filling a pool) it takes a golden image that a kernel made earlier.
set -euo pipefail

brindle=$(realpath "${BRINDLE:-target/release/brindle}")
root=$(dirname "$(dirname "$(realpath "$0")")")
dir=$(mktemp -d "${TMPDIR:-/tmp}/brindle-demo.XXXXXX")
mnt=$dir/mnt
loops=()
mkdir "$mnt" "$dir/kernel"

cleanup() {
    mountpoint -q "$mnt" && "$brindle" umount "$mnt"
    mountpoint -q "$dir/kernel" && umount "$dir/kernel"
    for loop in ${loops[@]+"${loops[@]}"}; do losetup -d "$loop"; done
    rm -rf "$dir"
}
trap cleanup EXIT

step() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() { printf '$ brindle %s\n' "${*//$dir\//}"; "$brindle" "$@"; }

can_make_pools() { [ "$(id -u)" -eq 0 ] && command -v btrfs >/dev/null && grep -qw btrfs /proc/filesystems; }

# Two "hard disks" and an "SSD": data mirrored over the disks, metadata on the SSD from the first chunk on.
# Brindle makes the pool; the kernel puts files in, for this version of brindle does not write files.
make_pool() {
    for name in disk1 disk2 ssd; do truncate -s 512M "$dir/$name.img"; done
    run mkfs -L demo -d raid1 -m dup "$dir/disk1.img:bulk" "$dir/disk2.img:bulk" "$dir/ssd.img:fast"
    pool=("$dir/disk1.img" "$dir/disk2.img" "$dir/ssd.img")
    for image in "${pool[@]}"; do loops+=("$(losetup --find --show "$image")"); done
    local options=compress=zstd
    for loop in "${loops[@]}"; do options+=,device=$loop; done
    mount -t btrfs -o "$options" "${loops[0]}" "$dir/kernel"
    btrfs -q subvolume create "$dir/kernel/sources"
    tar -C "$root" --exclude=./target --exclude=./fuzz/target --exclude=./.git -cf - . | tar -C "$dir/kernel/sources" -xf -
    btrfs -q subvolume snapshot -r "$dir/kernel/sources" "$dir/kernel/snapshot"
    head -c 8M /dev/urandom >"$dir/kernel/random.bin"
    setfattr -n user.comment -v 'written by the kernel' "$dir/kernel/random.bin"
    ln "$dir/kernel/random.bin" "$dir/kernel/hard-link"
    cp -a "$dir/kernel/." "$dir/expected"
    umount "$dir/kernel"
    for loop in "${loops[@]}"; do losetup -d "$loop"; done
    loops=()
}

take_golden_pool() {
    echo "not root, or no btrfs here to make a pool: taking the golden image raid1c3 instead"
    pool=()
    for number in 1 2 3; do
        zstd -q -d "$root/crates/testing/golden/raid1c3/dev$number.img.zst" -o "$dir/dev$number.img"
        pool+=("$dir/dev$number.img")
    done
}

# same A B: the same names and the same bytes.
same() { diff -r --no-dereference "$1" "$2"; }

step "1. A pool on three image files, made by brindle and filled by the kernel"
if can_make_pools; then make_pool; else take_golden_pool; fi
run filesystem show "${pool[@]}"

step "2. What is in it, without a mount and without root"
run ls -l "${pool[@]}"

step "3. Where it lies: the chunks, and the devices that hold each"
run inspect dump-tree -t chunk "${pool[@]}" | grep -E 'CHUNK_ITEM|type (DATA|METADATA|SYSTEM)|stripe [0-9]+ devid'

step "4. Mounted over FUSE, without the kernel's btrfs"
if [ -w /dev/fuse ]; then
    run mount "${pool[@]}" "$mnt"
    df -h "$mnt" | sed "s|$dir/||g"
    if [ -d "$dir/expected" ]; then
        same "$dir/expected" "$mnt"
        echo "every file in the mount is, byte for byte, what the kernel was given"
    fi
    run umount "$mnt"
else
    echo "no permission to use /dev/fuse: skipped"
fi

step "5. A device is lost: read degraded, extracted whole"
run cp -o degraded "${pool[@]:1}" --path / "$dir/rescued"
if [ -d "$dir/expected" ]; then
    same "$dir/expected" "$dir/rescued"
    echo "nothing is missing"
fi

step "6. A device rots: 64 MiB of one mirror overwritten with noise"
dd if=/dev/urandom of="${pool[0]}" bs=1M seek=70 count=64 conv=notrunc status=none
rm -rf "$dir/rescued"
run cp "${pool[@]}" --path / "$dir/rescued"
if [ -d "$dir/expected" ]; then
    same "$dir/expected" "$dir/rescued"
    echo "every bad sector was served from its other copy"
fi

step "7. Examined, and nothing changed: the trees are whole, the rotten data is named by device and place"
run check "${pool[@]}"
run check --check-data-csum "${pool[@]}" | grep -m 3 expected || true

step "Shown: a pool of two disks and an SSD with its metadata on the SSD, which brindle made and the Linux kernel filled,
listed, mounted, extracted with a device missing and with a device rotten, and examined by brindle alone."

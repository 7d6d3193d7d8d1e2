#!/usr/bin/env bash
# brindle at work, in a minute, on image files: a pool of two hard disks and an SSD is made, mounted and filled; what
# landed where is shown; it is examined, compared by the kernel's driver where that may be used; and a mirrored pool of
# the same files is degraded, damaged, and read all the same.
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

# What of each kind of block lies on fast devices, and what on bulk ones, by what `filesystem usage` says.
table() {
    "$brindle" filesystem usage "$1" | awk '
        function named(kind, class) {
            if (kind != "Data") return tolower(kind)
            return class == "fast" ? "small files and marked ones" : "all other data"
        }
        match($0, /^   (Data|Metadata|System),[a-zA-Z0-9]+ on (fast|bulk) devices: /) {
            split($1, kind, ","); used = $0; sub(/.*Used:/, "", used)
            held[named(kind[1], $3), $3] = used
        }
        END {
            printf "    %-29s %12s %12s\n", "", "on the SSD", "on the disks"
            count = split("metadata,system,small files and marked ones,all other data", rows, ",")
            for (row = 1; row <= count; row++)
                printf "    %-29s %12s %12s\n", rows[row], shown(rows[row], "fast"), shown(rows[row], "bulk")
        }
        function shown(row, class) { return (row, class) in held ? held[row, class] : "-" }'
}

step "1. A pool on three image files: two hard disks and an SSD, and what is to lie on the SSD beside metadata"
for name in disk1 disk2 ssd; do truncate -s 1G "$dir/$name.img"; done
pool=("$dir/disk1.img" "$dir/disk2.img" "$dir/ssd.img")
run mkfs -L demo -d single -m dup "$dir/disk1.img:bulk" "$dir/disk2.img:bulk" "$dir/ssd.img:fast"
run mount -o compress=zstd,ssd_metadata "${pool[@]}" "$mnt"
run property get "$mnt" allocation_hint | sed "s|$dir/||g"
run property set "$mnt" small_files 64K
mkdir "$mnt/database"
run property set "$mnt/database" tier fast

step "2. Real files put in over FUSE: this repository, compressed as it goes; a large file; one in the marked directory"
run subvolume create "$mnt/sources"
tar -C "$root" --exclude=./target --exclude=./fuzz/target --exclude=./.git -cf - . | tar -C "$mnt/sources" -xf -
run subvolume snapshot -r "$mnt/sources" "$mnt/snapshot"
rm -r "$mnt/sources/docs"
head -c 32M /dev/urandom >"$mnt/random.bin"
head -c 8M /dev/urandom >"$mnt/database/table"
ln "$mnt/random.bin" "$mnt/hard-link"
truncate -s 1G "$mnt/sparse"
printf 'the end' >>"$mnt/sparse"
run subvolume list "$mnt"
run filesystem sync "$mnt"

step "3. Where it landed"
table "$mnt"
echo
run filesystem usage "$mnt"
echo
echo "ten small appends, each with an fsync; what commits cost so far:"
for _ in {1..10}; do
    head -c 512 /dev/urandom >>"$mnt/database/log"
    sync "$mnt/database/log"
done
run filesystem commit-stats "$mnt"
landed=$(table "$mnt")
mkdir "$dir/expected"
cp -a --sparse=always "$mnt/." "$dir/expected"
run umount "$mnt"
# Metadata, small files and the marked one on the SSD alone, the rest on the disks alone.
awk '/all other data/ { if ($4 != "-" || $5 == "-") exit 1 } /metadata|marked/ { if ($NF != "-") exit 1 }' <<<"$landed" ||
    { echo "brindle demo: something lies on the wrong device" >&2; exit 1; }

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

step "5. The same files in a mirrored pool, filled as it is made; then a device is lost: read degraded, extracted whole"
mirror=("$dir/mirror1.img" "$dir/mirror2.img")
run mkfs --size 1G -d raid1 -m raid1 --rootdir "$dir/expected" "${mirror[@]}"
run cp -o degraded "${mirror[1]}" --path / "$dir/rescued"
same "$dir/expected" "$dir/rescued"
echo "nothing is missing"

step "6. A device rots: 64 MiB of one mirror overwritten with noise"
dd if=/dev/urandom of="${mirror[0]}" bs=1M seek=140 count=64 conv=notrunc status=none
rm -rf "$dir/rescued"
run cp "${mirror[@]}" --path / "$dir/rescued"
same "$dir/expected" "$dir/rescued"
echo "every bad sector was served from its other copy"

step "7. Examined again, and nothing changed: what is rotten is named by device and place"
run check --check-data-csum "${mirror[@]}" | grep -m 3 expected || true

step "Shown: a pool of two disks and an SSD with its metadata, small files and a marked directory on the SSD and all other
data on the disks, made, mounted, filled and snapshot by brindle, found sound by brindle and, where it was asked, by btrfs
check and the Linux kernel; and a mirrored pool read whole with a device missing and with a device rotten."

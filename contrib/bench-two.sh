#!/usr/bin/env bash
# Two builds of brindle and the kernel, in turns: reads of a GiB in order from single, raid0 and raid1 and by eight readers of a
# tree, cold and with the images in memory, extraction of a GiB cold and warm, examination of a warm pool. Medians, least and
# greatest, in milliseconds, and the median of the time that all processors together were busy with it.
# Needs root, btrfs-progs and some 8 GiB in $BENCH_DIR (default: a folder in $TMPDIR or /tmp).
#
#   contrib/bench-two.sh BEFORE AFTER        two binaries
#
# RUNS=5   how often each is measured
set -euo pipefail

before=$(realpath "$1")
after=$(realpath "$2")
here=$(dirname "$(realpath "$0")")
runs=${RUNS:-5}
dir=${BENCH_DIR:-${TMPDIR:-/tmp}/brindle-bench-two}
target=/dev/shm/brindle-bench-two
mnt=$dir/mnt
raw=$dir/raw.txt

[ "$(id -u)" -eq 0 ] || { echo "bench-two.sh: needs root, to make pools with the kernel" >&2; exit 1; }
mkdir -p "$mnt"
: >"$raw"
. "$here/bench-common.sh"
cleanup() {
    mountpoint -q "$mnt" && umount "$mnt"
    detach
    rm -rf "$target"
}
trap cleanup EXIT

# make_pool NAME PROFILE DEVICES
make_pool() {
    [ -e "$dir/$1.ready" ] && return
    for number in $(seq "$3"); do truncate -s 3G "$dir/$1-$number.img"; done
    attach "$dir/$1"-*.img
    mkfs.btrfs -q -f -d "$2" -m "$2" "${loops[@]}" >/dev/null
    btrfs device scan "${loops[@]}" >/dev/null
    mount "${loops[0]}" "$mnt"
    dd if=/dev/urandom of="$mnt/big" bs=1M count=1024 status=none
    [ "$1" = single ] && { mkdir "$mnt/tree"; python3 "$here/bench-tree.py" tree "$mnt/tree" 8000; }
    umount "$mnt"
    detach
    touch "$dir/$1.ready"
}

read_big() { dd if="$mnt/big" of=/dev/null bs=1M; }
read_tree() { find "$mnt/tree" -type f -print0 | xargs -0 -P8 -n 200 cat; }

binary_of() { if [ "$1" = before ]; then echo "$before"; else echo "$after"; fi; }

# mounted POOL WHO
mounted() {
    case $2 in
    kernel) attach "$dir/$1"-*.img; btrfs device scan "${loops[@]}" >/dev/null; mount -o ro "${loops[0]}" "$mnt" ;;
    *) "$(binary_of "$2")" mount -o ro "$dir/$1"-*.img "$mnt" >/dev/null ;;
    esac
    for heat in cold warm; do
        cold
        [ "$heat" = cold ] || cat "$dir/$1"-*.img >/dev/null
        timed "1-GiB-of-$1-$heat" "$2" read_big
        if [ "$1" = single ]; then
            cold
            [ "$heat" = cold ] || cat "$dir/$1"-*.img >/dev/null
            timed "tree-8-readers-$heat" "$2" read_tree
        fi
    done
    umount "$mnt"
    [ "$2" != kernel ] || detach
}

extracted() {
    local image=$dir/single-1.img
    rm -rf "$target"; mkdir "$target"; cold
    timed cp-cold "$1" "$(binary_of "$1")" cp "$image" --path big "$target/"
    cat "$image" >/dev/null
    rm -rf "$target"; mkdir "$target"
    timed cp-warm "$1" "$(binary_of "$1")" cp "$image" --path big "$target/"
    rm -rf "$target"
    timed check-data-warm "$1" "$(binary_of "$1")" check --check-data-csum "$image"
}

make_pool single single 1
make_pool raid0 raid0 2
make_pool raid1 raid1 2
load
for _ in $(seq "$runs"); do
    for pool in single raid0 raid1; do
        for who in before after kernel; do mounted "$pool" "$who"; done
    done
    for who in before after; do extracted "$who"; done
done
summary

#!/usr/bin/env bash
# Scrub, send and receive: brindle and the kernel with btrfs-progs, in turns, on the same raid1 of two image files, each with a GiB in
# one file and a tree of 8,000 files. Prints medians, least and greatest, in milliseconds, and the median of the time that all
# processors together were busy with it. Brindle is measured on a mount (`mount`) and on the devices (`devices`), and receives into a
# mount of the kernel as well (`into-kernel`).
# Needs root, btrfs-progs, some 6 GiB in $BENCH_DIR (default: a folder in $TMPDIR or /tmp), and 1.5 GiB in /dev/shm.
#
#   BRINDLE=target/release/brindle contrib/bench-care.sh [CASE...]      of: scrub send receive
#
# RUNS=5   how often each is measured
set -euo pipefail

brindle=$(realpath "${BRINDLE:-target/release/brindle}")
here=$(dirname "$(realpath "$0")")
runs=${RUNS:-5}
dir=${BENCH_DIR:-${TMPDIR:-/tmp}/brindle-bench-care}
mnt=$dir/mnt
raw=$dir/raw.txt
# Streams are read from memory: a disk would be what is measured.
streams=/dev/shm/brindle-bench-care

[ "$(id -u)" -eq 0 ] || { echo "bench-care.sh: needs root, to make pools with the kernel" >&2; exit 1; }
mkdir -p "$mnt" "$streams"
: >"$raw"
. "$here/bench-common.sh"
cleanup() {
    mountpoint -q "$mnt" && umount "$mnt"
    detach
    rm -rf "$streams"
}
trap cleanup EXIT

# new_pool NAME: attached, and mounted by the kernel.
new_pool() {
    rm -f "$dir/$1"-[12].img
    truncate -s 4G "$dir/$1"-1.img "$dir/$1"-2.img
    attach "$dir/$1"-[12].img
    mkfs.btrfs -q -f -d raid1 -m raid1 "${loops[@]}"
    btrfs device scan "${loops[@]}" >/dev/null
    mount -o noatime "${loops[0]}" "$mnt"
}

# The source has three snapshots: `big` of one file, `tree` of a tree, and `next`, in which a file in eight of the tree has changed.
make_source() {
    [ -e "$dir/source.ready" ] && return
    echo "making the source" >&2
    new_pool source
    btrfs subvolume create "$mnt/file" >/dev/null
    btrfs subvolume create "$mnt/files" >/dev/null
    dd if=/dev/urandom of="$mnt/file/big" bs=1M count=1024 status=none
    python3 "$here/bench-tree.py" tree "$mnt/files" 8000
    btrfs subvolume snapshot -r "$mnt/file" "$mnt/big" >/dev/null
    btrfs subvolume snapshot -r "$mnt/files" "$mnt/tree" >/dev/null
    find "$mnt/files" -type f | awk 'NR % 8 == 0' | while read -r file; do echo changed >>"$file"; done
    btrfs subvolume snapshot -r "$mnt/files" "$mnt/next" >/dev/null
    umount "$mnt"
    detach
    touch "$dir/source.ready"
}

warm() { cat "$dir/$1"-[12].img >/dev/null; }

# mounted POOL WHO: brindle mounts the image files, the kernel loop devices of them.
mounted() {
    case $2 in
    kernel | into-kernel)
        attach "$dir/$1"-[12].img
        btrfs device scan "${loops[@]}" >/dev/null
        mount -o noatime "${loops[0]}" "$mnt" ;;
    mount) "$brindle" mount -o noatime "$dir/$1"-[12].img "$mnt" >/dev/null ;;
    esac
}
# unmounted WHO
unmounted() {
    case $1 in
    kernel | into-kernel) umount "$mnt"; detach ;;
    mount) "$brindle" umount "$mnt" ;;
    esac
}

scrub() {
    case $1 in
    kernel) btrfs scrub start -B "$mnt" ;;
    mount) "$brindle" -q scrub start -B "$mnt" ;;
    devices) "$brindle" -q scrub start "$dir/source"-[12].img ;;
    esac
}
scrubs() {
    local who heat
    for heat in cold warm; do
        for who in kernel mount devices; do
            mounted source "$who"
            cold
            [ "$heat" = cold ] || warm source
            timed "scrub-$heat" "$who" scrub "$who"
            unmounted "$who"
        done
    done
}

# send WHO SNAPSHOT [PARENT]: through a pipe, as it is used.
send() {
    local who=$1 path=$2 parent=()
    case $who in
    kernel | mount)
        [ $# -lt 3 ] || parent=(-p "$mnt/$3")
        if [ "$who" = kernel ]; then btrfs -q send "${parent[@]}" "$mnt/$path"; else "$brindle" -q send "${parent[@]}" "$mnt/$path"; fi ;;
    devices)
        [ $# -lt 3 ] || parent=(-p "$3")
        "$brindle" -q send "$dir/source"-[12].img "${parent[@]}" --path "$path" ;;
    esac | cat
}
sends() {
    local who
    for who in kernel mount devices; do
        mounted source "$who"
        for what in big tree "next tree"; do
            cold
            warm source
            # shellcheck disable=SC2086 # the snapshot and its parent
            timed "send-${what/ /-from-}" "$who" send "$who" $what
        done
        unmounted "$who"
    done
}

# receive WHO STREAM: until it is durable.
receive() {
    case $1 in
    kernel) btrfs -q receive -f "$2" "$mnt" && sync -f "$mnt" ;;
    mount | into-kernel) "$brindle" -q receive -f "$2" "$mnt" && sync -f "$mnt" ;;
    devices) "$brindle" -q receive -f "$2" "$dir/copy"-[12].img ;;
    esac
}
receives() {
    local who
    if [ ! -e "$streams/next" ]; then
        mounted source kernel
        btrfs -q send -f "$streams/big" "$mnt/big"
        btrfs -q send -f "$streams/tree" "$mnt/tree"
        btrfs -q send -f "$streams/next" -p "$mnt/tree" "$mnt/next"
        unmounted kernel
    fi
    for who in kernel mount devices into-kernel; do
        new_pool copy
        unmounted kernel
        mounted copy "$who"
        timed receive-big "$who" receive "$who" "$streams/big"
        timed receive-tree "$who" receive "$who" "$streams/tree"
        timed receive-next-from-tree "$who" receive "$who" "$streams/next"
        unmounted "$who"
        rm -f "$dir"/copy-[12].img
    done
}

make_source
cases=("$@")
[ ${#cases[@]} -eq 0 ] && cases=(scrub send receive)
load
for _ in $(seq "$runs"); do
    for case in "${cases[@]}"; do
        case $case in
        scrub) scrubs ;;
        send) sends ;;
        receive) receives ;;
        *) echo "bench-care.sh: no case $case" >&2; exit 2 ;;
        esac
    done
done
summary
load

# A balance of the kernel's, interrupted. TMPDIR must lie where files can be cloned (xfs, btrfs), so that the device is
# taken at one moment.

# interrupted KIND WANTED: files and snapshots, balanced again and again until WANTED finds what it looks for in the tree
# of roots.
interrupted() {
    local kind=$1 wanted=$2 balance tries=0
    devices $S
    make_fs -n 4096 -m single
    mount_fs
    btrfs subvolume create "$MNT/work" >/dev/null
    interrupted_files "$kind" 1
    local snapshot
    for snapshot in 1 2 3; do
        btrfs subvolume snapshot "$MNT/work" "$MNT/snapshot$snapshot" >/dev/null
        interrupted_files "$kind" $((snapshot * 7))
    done
    btrfs filesystem sync "$MNT"
    while [ $((tries += 1)) -lt 200 ]; do
        btrfs balance start --force "-$kind" "$MNT" >/dev/null 2>&1 &
        balance=$!
        # Many commits, so that there are many states.
        while kill -0 $balance 2>/dev/null; do btrfs filesystem sync "$MNT"; done &
        while kill -0 $balance 2>/dev/null; do
            rm -f "$WORK/captured1"
            cp --reflink=always "$WORK/dev1" "$WORK/captured1"
            ! "$wanted" "$WORK/captured1" || break 2
        done
    done
    wait
    "$wanted" "$WORK/captured1" || { echo "$NAME: not caught in $tries balances" >&2; return 1; }
    umount "$MNT"
    use_capture
    store
}

# Files in steps of so many, each of a few items or blocks.
interrupted_files() {
    local number step=$2
    for ((number = 1; number <= 90; number += step)); do
        case $1 in
        m) text "$number $step" 1500 ;;
        d) text "$number $step" $((number * 400 + 3000)) ;;
        esac >"$MNT/work/file$number"
    done
}

text() { { yes "$1" || true; } | head -c "$2"; }

# Relocation trees, one of which at least is merged, or partly.
is_merging() {
    btrfs inspect-internal dump-tree -t root "$1" 2>/dev/null | awk '
        /[(]TREE_RELOC ROOT_ITEM / { trees++; inside = 1; next }
        /^\titem / { inside = 0 }
        inside && (/drop_progress key [(][1-9]/ || / refs 0$/) { merged++ }
        END { exit !(trees > 1 && merged) }'
}

# Relocation trees, and copies of data.
has_copies() {
    btrfs inspect-internal dump-tree -t root "$1" 2>/dev/null | awk '
        /[(]TREE_RELOC ROOT_ITEM / { trees++ }
        END { exit !(trees > 1) }' &&
        btrfs inspect-internal dump-tree -t 18446744073709551607 "$1" | grep ORPHAN_ITEM >/dev/null
}

image_interrupted_metadata_balance() { interrupted m is_merging; }
image_interrupted_data_balance() { interrupted d has_copies; }

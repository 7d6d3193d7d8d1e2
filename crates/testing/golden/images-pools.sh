# Pools with a history: converted, shrunk, grown, sprouted.

# Reservations fill the chunks that there are, so that each profile gets chunks of its own.
image_converted() {
    devices 256M 256M 256M 256M
    make_fs -d single -m dup
    mount_fs
    tree small
    local step=0 profile
    for profile in raid0 raid1 raid10 raid5 raid6 raid1c3 raid1c4; do
        step=$((step + 1))
        tree reservation "" "reservation-$step" 16
        tree compressed "" "data-$profile" 0
        btrfs filesystem sync "$MNT"
        # All that is left in single chunks, but only as many as the limit says.
        btrfs balance start -q -f "-dconvert=$profile,profiles=single,limit=1" "$MNT" >/dev/null
        # Writes go to the newest profile; a new single chunk is made by converting an empty one back.
        btrfs balance start -q -f -dconvert=single,profiles="$profile",usage=0 "$MNT" >/dev/null
    done
    btrfs balance start -q -f -mconvert=raid1c3,soft,limit=1 "$MNT" >/dev/null
    umount_fs
    store
}

image_removed_device() {
    devices $S $S $S $S
    make_fs -d raid1 -m raid1
    mount_fs
    tree small
    btrfs device remove "${DEVICE[2]}" "$MNT"
    umount_fs
    detach 2
    store
}

image_unequal() {
    devices 128M 256M 640M
    make_fs -d raid1 -m raid1
    mount_fs
    tree small
    tree reservation "" reservation 250
    umount_fs
    store
}

# The first device is a seed, never written again; the second one took the changes.
image_seed() {
    devices $S $S
    local sprout=${DEVICE[2]}
    unset "DEVICE[2]"
    make_fs -d single -m dup
    mount_fs
    tree small
    umount_fs
    btrfstune -S 1 "${DEVICE[1]}"
    mount_with ro
    "$MANIFEST" "$MNT" >"$WORK/out/manifest-seed"
    btrfs device add -f "$sprout" "$MNT" 2>/dev/null >&2
    mount -o remount,rw "$MNT"
    mkdir "$MNT/after"
    tree sizes after
    tree subvolumes after
    tree megabyte after
    rm "$MNT/megabyte"
    umount "$MNT"
    DEVICE[2]=$sprout
    MKFS+=" (device 1 alone); btrfstune -S 1; btrfs device add (device 2)"
    WHICH_TO_MOUNT=tail
    store
}

image_metadata_uuid() {
    devices $S
    make_fs -m single
    btrfstune -f -M 01234567-89ab-4cde-8f01-23456789abcd "${DEVICE[1]}" >/dev/null
    MKFS+='; btrfstune -M 01234567-89ab-4cde-8f01-23456789abcd'
    mount_fs
    tree small
    umount_fs
    store
}

image_label_max() {
    devices $S
    make_fs -m single -L "$(printf 'label with spaces, umlauts (ä), 255 bytes;%.0s' {1..6} | head -c 254)!"
    mount_fs
    tree sizes
    umount_fs
    store
}

# Pools with a history: converted, shrunk, grown, sprouted.

# Every profile at once. New data goes to the highest profile there is, so they come in that order; a
# reservation makes a second chunk of one, and converting only the newest chunk leaves the other. Chunks are
# a tenth of the pool, so the pool starts small and grows.
image_converted() {
    devices 384M 384M 384M 384M
    make_fs --byte-count $S -d single -m dup
    mount_fs
    tree small
    local before=single profile size=128 devid
    for profile in raid0 raid1 raid10 raid5 raid6; do
        tree reservation "" reservation $((size * 4 / 10 + 2))
        tree compressed "" "$profile" 2
        rm "$MNT/reservation"
        btrfs filesystem sync "$MNT"
        btrfs balance start -f "-dconvert=$profile,profiles=$before,limit=1" "$MNT" >/dev/null
        tree compressed "" "more-$profile" 2
        # Less than 256M is refused.
        before=$profile size=$((size < 256 ? 256 : size + 32))
        for devid in 1 2 3 4; do btrfs filesystem resize "$devid:${size}M" "$MNT" >/dev/null; done
    done
    btrfs balance start -f -mconvert=raid1c3 -sconvert=raid1c4 "$MNT" >/dev/null
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

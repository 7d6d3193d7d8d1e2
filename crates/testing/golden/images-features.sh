# Features of the format that the kernel writes by itself or on demand.

# The kernel keeps no cache for a block group below 100 MiB; a chunk is a tenth of the pool.
image_no_free_space_tree() {
    devices 1200M
    make_fs -m single -R ^free-space-tree
    mount_fs space_cache=v1
    tree reservation "" reservation 12
    tree small
    umount_fs
    # Once more, so that the caches hold what the last mount left.
    mount_fs space_cache=v1
    rm "$MNT/reservation"
    tree specials subvolumes
    umount_fs
    store
}

image_old_features() {
    devices $S
    make_fs -m single -O ^extref,^skinny-metadata,^no-holes -R ^free-space-tree
    mount_fs space_cache=v1
    tree standard
    umount_fs
    store
}

# The tree is given to it offline, and then the kernel writes to it.
image_block_group_tree() {
    devices 256M
    make_fs -m single
    detach 1
    python3 "$HERE/block_group_tree.py" "$WORK/dev1"
    attach 1
    MKFS+='; block_group_tree.py'
    mount_fs
    tree small
    tree reservation "" reservation 30
    btrfs balance start -f -mconvert=dup "$MNT" >/dev/null
    umount_fs
    CHECK= # btrfs-progs 6.2, as Debian builds it, does not know the feature
    store
}

image_quota() {
    devices $S
    make_fs -m single
    mount_fs
    tree small
    btrfs quota enable "$MNT"
    btrfs qgroup create 1/0 "$MNT"
    btrfs qgroup create 2/7 "$MNT"
    btrfs qgroup assign --no-rescan 0/256 1/0 "$MNT"
    btrfs qgroup assign --no-rescan 1/0 2/7 "$MNT"
    btrfs qgroup limit 50M 1/0 "$MNT"
    btrfs qgroup limit -e 30M 0/256 "$MNT"
    btrfs quota rescan -w "$MNT" >/dev/null
    btrfs subvolume create -i 1/0 "$MNT/in-group" >/dev/null
    tree sizes in-group
    btrfs filesystem sync "$MNT"
    btrfs qgroup show -pcre --raw "$MNT" >"$WORK/out/qgroups"
    umount_fs
    store
}

image_simple_quota() {
    devices $S
    make_fs -m single
    mount_fs
    tree sizes
    tree simple-quota
    tree subvolumes
    tree reflinks
    btrfs filesystem sync "$MNT"
    umount_fs
    CHECK= # btrfs-progs 6.2 does not know the feature
    store
}

# Images taken while mounted: a log tree; and what a crash leaves to be cleaned up.

image_log_tree() {
    devices $S
    make_fs -m single
    mount_fs
    tree before-log
    tree after-log
    capture
    umount "$MNT"
    use_capture
    local log_root
    log_root=$(btrfs inspect-internal dump-super "${DEVICE[1]}" | awk '$1 == "log_root" { print $2 }')
    [ "$log_root" != 0 ] || { echo "$NAME: the log was committed" >&2; return 1; }
    # What the kernel makes of the log, from a second copy.
    cp --sparse=always "$WORK/dev1" "$WORK/captured1"
    mount_with rw
    "$MANIFEST" "$MNT" >"$WORK/out/manifest-replayed"
    umount "$MNT"
    use_capture
    READ_WITH=ro,rescue=nologreplay
    store
}

# An unlinked file, and a deleted subvolume, each held open.
image_orphans() {
    devices $S
    make_fs -m single
    mount_fs
    tree small
    btrfs subvolume create "$MNT/doomed" >/dev/null
    tree sizes doomed
    local file subvolume
    exec {file}<"$MNT/sizes/131073" {subvolume}<"$MNT/doomed/sizes/4097"
    rm "$MNT/sizes/131073"
    btrfs subvolume delete "$MNT/doomed" >/dev/null
    btrfs filesystem sync "$MNT"
    capture
    exec {file}<&- {subvolume}<&-
    umount "$MNT"
    use_capture
    store
}

image_verity() {
    devices $S
    make_fs -m single
    mount_fs
    if ! tree verity 2>/dev/null; then
        echo "verity: not made, this kernel has no fs-verity" >&2
        return
    fi
    umount_fs
    store
}

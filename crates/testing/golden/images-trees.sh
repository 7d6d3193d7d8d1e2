# Trees of a particular shape.

image_default_subvolume() {
    devices $S
    make_fs -m single
    mount_fs
    tree small
    btrfs subvolume set-default "$MNT/subvolumes/volume/nested"
    umount_fs
    READ_WITH=ro,subvolid=5
    store
}

image_snapshots() {
    devices $S
    make_fs -m single
    mount_fs
    tree snapshots
    umount_fs
    store
}

image_many_links() {
    devices $S
    make_fs -m single
    mount_fs
    tree many-links
    umount_fs
    store
}

image_big_directory() {
    devices $S
    make_fs -m single
    mount_fs
    tree entries "" 1500
    umount_fs
    store
}

# Four levels, with few enough leaves to store: see tree.py, `deep`.
image_deep_tree() {
    devices 256M
    make_fs -m single -n 4096
    mount_fs
    tree deep "" 14900
    umount_fs
    store
}

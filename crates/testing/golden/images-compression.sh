# Compression, one directory for each level; the files are described in tree.py, `compressed`.

compressed_levels() { # ALGORITHM LEVEL...
    local algorithm=$1 level
    devices $S
    make_fs -m single
    for level in "${@:2}"; do
        mount_fs "compress-force=$algorithm${level:+:$level}"
        tree compressed "" "$algorithm" "${level:-0}"
        umount "$MNT"
    done
    # Not forced: what does not shrink is left alone, and a file that once did not is not tried again.
    mount_fs "compress=$algorithm"
    tree compressed "" "unforced-$algorithm" 0
    umount_fs
    store
}

image_zlib_levels() { compressed_levels zlib 1 2 3 4 5 6 7 8 9; }
image_zstd_levels() { compressed_levels zstd 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; }
image_lzo() { compressed_levels lzo ''; }

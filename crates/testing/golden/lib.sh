# Devices, mounts and the storing of an image, for make.sh. Each image is made in a subshell, with:
#   WORK    a scratch directory, MNT the mount point in it
#   DEVICE  the loop devices, by number; $WORK/dev<N> is the file behind each

declare -A DEVICE

start_image() {
    NAME=$1
    WORK=$(mktemp -d "${TMPDIR:-/tmp}/golden-$NAME.XXXXXX")
    MNT=$WORK/mnt
    MKFS= MOUNTED_WITH= READ_WITH=ro
    CHECK=yes
    WHICH_TO_MOUNT=head # or tail, where the last device is the sprout of a seed
    mkdir "$MNT" "$WORK/out"
    trap stop_image EXIT
    # One identity for each name, so that remaking an image changes less of it.
    FSID=$(printf '%s' "golden-$NAME" | md5sum |
        sed -E 's/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/\1-\2-4\3-8\4-\5/')
}

stop_image() {
    local device
    mountpoint -q "$MNT" && umount "$MNT"
    for device in "${DEVICE[@]}"; do
        btrfs device scan --forget "$device" 2>/dev/null
        losetup -d "$device"
    done
    rm -rf "$WORK"
}

# devices SIZE...: numbered from 1, as mkfs numbers them.
devices() {
    local size number=0
    for size; do
        number=$((number + 1))
        truncate -s "$size" "$WORK/dev$number"
        attach $number
    done
}

attach() { DEVICE[$1]=$(losetup -f --show "$WORK/dev$1"); }

detach() {
    btrfs device scan --forget "${DEVICE[$1]}" 2>/dev/null || true
    losetup -d "${DEVICE[$1]}"
    unset "DEVICE[$1]"
}

numbers() { printf '%s\n' "${!DEVICE[@]}" | sort -n; }

# make_fs OPTION...: on all devices there are.
make_fs() {
    local number paths=()
    for number in $(numbers); do paths+=("${DEVICE[$number]}"); done
    MKFS="mkfs.btrfs $*"
    mkfs.btrfs -q -f -U "$FSID" "$@" "${paths[@]}" >/dev/null 2>"$WORK/mkfs.err" || {
        cat "$WORK/mkfs.err" >&2
        return 1
    }
}

# mount_with OPTIONS: all devices there are.
mount_with() {
    local number options=$1
    for number in $(numbers); do options+=",device=${DEVICE[$number]}"; done
    mount -t btrfs -o "$options" "${DEVICE[$(numbers | "$WHICH_TO_MOUNT" -1)]}" "$MNT"
}

# Freed blocks are discarded at each commit, and so are holes in the stored image.
mount_fs() {
    MOUNTED_WITH=discard=sync,commit=300${1:+,$1}
    mount_with "$MOUNTED_WITH"
}

umount_fs() {
    fstrim "$MNT" 2>/dev/null || true
    umount "$MNT"
}

tree() { python3 "$HERE/tree.py" "$1" "$MNT${2:+/$2}" "${@:3}"; }

# Takes the devices as they are now, in the middle of things, for what is stored.
capture() {
    local number
    for number in $(numbers); do cp --sparse=always "$WORK/dev$number" "$WORK/captured$number"; done
}

use_capture() {
    local number
    for number in $(numbers); do
        detach "$number"
        mv "$WORK/captured$number" "$WORK/dev$number"
        attach "$number"
    done
}

# Stores the unmounted devices, and what the kernel says that is in them. Mounted read-only: nothing that
# is left over is cleaned up.
store() {
    local number out=$WORK/out
    for number in $(numbers); do
        zstd -q -f -19 --long=27 "$WORK/dev$number" -o "$out/dev$number.img.zst"
    done
    mount_with "$READ_WITH"
    "$MANIFEST" "$MNT" >"$out/manifest"
    about >"$out/about"
    umount "$MNT"
    [ -z "$CHECK" ] || check >"$WORK/check" 2>&1 || { tail -20 "$WORK/check" >&2; echo "$NAME: btrfs check fails" >&2; }
    rm -rf "${HERE:?}/$NAME"
    chmod 755 "$out"
    cp -r "$out" "$HERE/$NAME"
    printf '%-28s %7d bytes, manifest %7d\n' "$NAME" \
        "$(cat "$HERE/$NAME"/*.zst | wc -c)" "$(stat -c %s "$HERE/$NAME/manifest")"
}

# NAME=VALUE lines; a name may come several times.
about() {
    echo "mkfs=$MKFS"
    echo "mounted=$MOUNTED_WITH"
    echo "read=$READ_WITH"
    echo "kernel=$(uname -r)"
    echo "progs=$(btrfs --version | head -1)"
    local number
    for number in $(numbers); do echo "device=dev$number $(stat -c %s "$WORK/dev$number")"; done
    echo "default-$(btrfs subvolume get-default "$MNT" | sed 's/ID \([0-9]*\).*/subvolume=\1/')"
    btrfs subvolume list -p -u -q -a "$MNT" | sed 's/^/subvolume=/'
    btrfs filesystem df -b "$MNT" | sed -n 's/^\([A-Za-z+]*\), \([^:]*\): /space=\1 \2 /p'
    stat -f -c 'f_bsize=%s
f_blocks=%b
f_bfree=%f
f_bavail=%a
f_namelen=%l' "$MNT"
}

check() { btrfs check --readonly --check-data-csum "${DEVICE[$(numbers | "$WHICH_TO_MOUNT" -1)]}"; }

#!/usr/bin/env bash
# Two subvolumes of a pool of two disks, mounted by `mount -a` from an fstab as distributions write it. Needs root and loop
# devices. The helpers of mount(8) are those of $BRINDLE, in a namespace of its own.
set -euo pipefail
[ "$(id -u)" -eq 0 ] || { echo "fstab.sh: needs root" >&2; exit 1; }
brindle=$(realpath "${BRINDLE:-target/release/brindle}")
if [ "${1:-}" != --inside ]; then
    exec unshare --mount --propagation private "$0" --inside
fi

dir=$(mktemp -d "${TMPDIR:-/tmp}/brindle-fstab.XXXXXX")
loops=()
cleanup() {
    umount "$dir/home" "$dir/root" 2>/dev/null || true
    if [ ${#loops[@]} -gt 0 ]; then losetup --detach "${loops[@]}" || true; fi
    umount /usr/sbin || true
    rm -rf "$dir"
}
trap cleanup EXIT
mkdir "$dir/helpers" "$dir/root" "$dir/home"
for helper in {mount,umount}.{fuse,fuseblk}.brindle; do
    ln -s "$brindle" "$dir/helpers/$helper"
done
mount -t overlay -o "lowerdir=$dir/helpers:/usr/sbin" overlay /usr/sbin

truncate -s 1G "$dir/one.img" "$dir/two.img"
loops+=("$(losetup --find --show "$dir/one.img")" "$(losetup --find --show "$dir/two.img")")
uuid=5e5e5e5e-0000-4000-8000-$(printf %012x $$)
"$brindle" -q mkfs -m raid1 -d raid1 -U "$uuid" "${loops[@]}"
"$brindle" mount "${loops[@]}" "$dir/root"
"$brindle" subvolume create "$dir/root/@" >/dev/null
"$brindle" subvolume create "$dir/root/@home" >/dev/null
umount "$dir/root"

cat >"$dir/fstab" <<LINES
UUID=$uuid  $dir/root  fuse.brindle  subvol=@,noatime,nofail,x-systemd.device-timeout=30s  0 0
UUID=$uuid  $dir/home  fuse.brindle  subvol=@home,nosuid,nodev,nofail                     0 0
LINES
mount --all --fstab "$dir/fstab"
mount --all --fstab "$dir/fstab"
echo root >"$dir/root/file"
echo home >"$dir/home/file"
[ "$(findmnt -no FSTYPE "$dir/root")" = fuseblk.brindle ]
[ "$(cat "$dir/root/file" "$dir/home/file")" = $'root\nhome' ]
findmnt -no VFS-OPTIONS "$dir/home" | grep -q nosuid
if findmnt -no VFS-OPTIONS "$dir/root" | grep -q nosuid; then exit 1; fi
mount -o remount,ro "$dir/root"
if touch "$dir/root/other" 2>/dev/null; then exit 1; fi
mount -o remount,rw,commit=7 "$dir/root"
"$brindle" property get "$dir/root" mount_options | grep -q commit=7
touch "$dir/root/other"
"$brindle" device ready "${loops[1]}"
umount "$dir/root"
[ "$(cat "$dir/home/file")" = home ]
umount "$dir/home"
"$brindle" check "${loops[@]}" >/dev/null
btrfs check --readonly "${loops[0]}" >/dev/null 2>&1
echo "passed: fstab"

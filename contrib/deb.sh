#!/usr/bin/env bash
# Makes a Debian package of what was built, in target/deb. The same sources and toolchain make the same package.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(target/release/brindle --version | cut -d' ' -f2)
architecture=$(dpkg --print-architecture)
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.lock)}"
export SOURCE_DATE_EPOCH
work=target/deb/work
rm -rf "$work"
mkdir -p "$work/root/DEBIAN" "$work/debian"

ZSH_COMPLETIONS=/usr/share/zsh/vendor-completions RULES=/usr/lib/udev/rules.d contrib/install.sh "$work/root" /usr /usr/sbin /usr/lib/systemd/system --strip
find "$work/root/usr/share/man" -type f -exec gzip -9n {} +
gzip -9n "$work/root/usr/share/doc/brindle"/{CHANGELOG.md,THIRD-PARTY}
# Debian keeps the text of the Apache licence for all.
doc=$work/root/usr/share/doc/brindle
{
    echo 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/'
    echo 'Comment: The program contains crates of others, under licences of their own, which'
    echo ' /usr/share/doc/brindle/THIRD-PARTY.gz has.'
    echo
    echo 'Files: *'
    echo 'Copyright: the brindle developers'
    echo 'License: Expat or Apache-2.0'
    sed 's/^$/./; s/^/ /' "$doc/LICENSE-MIT"
    echo ' .'
    echo ' The Apache licence is in /usr/share/common-licenses/Apache-2.0.'
} >"$doc/copyright"
rm "$doc"/LICENSE-*

# The libraries that the program is linked with, and the versions of them that it needs.
printf 'Source: brindle\n\nPackage: brindle\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O root/usr/bin/brindle 2>/dev/null | sed 's/^shlibs:Depends=//')
cat >"$work/root/DEBIAN/control" <<CONTROL
Package: brindle
Version: $version
Architecture: $architecture
Maintainer: the brindle developers <brindle@localhost>
Installed-Size: $(du -sk --exclude=DEBIAN "$work/root" | cut -f1)
Depends: $depends
Recommends: fuse3
Suggests: btrfs-progs
Section: admin
Priority: optional
Description: btrfs in userspace, for pools that mix SSDs and hard disks
 Reads and writes btrfs pools without the kernel's driver: mounts them by FUSE, keeps metadata on SSDs and data on
 hard disks, writes what fsync makes durable to SSDs first, and verifies, corrects and copies out. The pools are those of
 the kernel, which mounts them as well.
CONTROL
install -m 755 crates/brindle/debian/prerm crates/brindle/debian/postrm "$work/root/DEBIAN/"
(cd "$work/root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$work/root/DEBIAN/md5sums"
find "$work/root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +

package=target/deb/brindle_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$work/root" "$package" >/dev/null
rm -rf "$work"
echo "$package"

#!/usr/bin/env bash
# Installs the Debian package in a Debian that has nothing else, uses it, and removes it: nothing is left behind.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" -eq 0 ] || { echo "package-test: needs root, for a chroot" >&2; exit 1; }

package=$(ls target/deb/brindle_*.deb)
suite=${SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
place=$(mktemp -d "${TMPDIR:-/tmp}/brindle-package.XXXXXX")
# debootstrap mounts /proc there, and leaves it if it is interrupted.
cleanup() {
    umount "$place/root/proc" "$place/root/sys" 2>/dev/null || true
    rm -rf --one-file-system "$place"
}
trap cleanup EXIT

debootstrap --variant=minbase "$suite" "$place/root" >"$place/log" 2>&1 || { tail "$place/log" >&2; exit 1; }
cp "$package" "$place/root/tmp/brindle.deb"
inside() { chroot "$place/root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin HOME=/root "$@"; }
# Documentation too, which images of containers leave out.
rm -f "$place/root"/etc/dpkg/dpkg.cfg.d/*
(cd "$place/root" && find . -path ./tmp -prune -o -path ./var -prune -o -print | sort) >"$place/before"

inside dpkg --install /tmp/brindle.deb
inside brindle --version
inside sh -ec '
    cd /tmp
    brindle -q mkfs --size 256M --rootdir /usr/share/doc/brindle image
    brindle ls image
    brindle check --check-data-csum image
    brindle -q restore image copy
    diff -r /usr/share/doc/brindle copy
    test -x /usr/sbin/mount.fuse.brindle
    brindle completions bash | cmp - /usr/share/bash-completion/completions/brindle
    gzip -t /usr/share/man/man1/brindle.1.gz /usr/share/man/man7/brindle.7.gz /usr/share/man/man8/mount.fuse.brindle.8.gz
    gzip -dc /usr/share/doc/brindle/THIRD-PARTY.gz | grep "^zstd-sys .*: BSD-3-Clause"
    grep THIRD-PARTY.gz /usr/share/doc/brindle/copyright
    test -f /usr/lib/systemd/system/brindle-tier@.service
    test -f /usr/lib/systemd/system/multi-user.target.wants/brindle-tier-recover.service
    grep -q "/usr/bin/brindle device ready" /usr/lib/udev/rules.d/65-brindle.rules
    brindle scrub start -B image
    test -d /var/lib/brindle
    rm -r image copy'
inside dpkg --verify brindle
inside dpkg --purge brindle
(cd "$place/root" && find . -path ./tmp -prune -o -path ./var -prune -o -print | sort) >"$place/after"
diff "$place/before" "$place/after"
[ ! -e "$place/root/var/lib/brindle" ] || { echo "package-test: /var/lib/brindle is left" >&2; exit 1; }
echo "package-test: installed, used and removed"

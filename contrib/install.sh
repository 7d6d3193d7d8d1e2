#!/usr/bin/env bash
# Installs what was built, or removes what was installed:
#   [BRINDLE=BINARY] [NOTICES=FILE] [ZSH_COMPLETIONS=DIR] [RULES=DIR] install.sh [--remove] DESTDIR PREFIX SBIN UNITS [--strip]
set -euo pipefail
cd "$(dirname "$0")/.."

remove=
[ "${1:-}" = --remove ] && { remove=yes; shift; }
[ $# -ge 4 ] || { echo "usage: install.sh [--remove] DESTDIR PREFIX SBIN UNITS [--strip]" >&2; exit 2; }
dest=$1 prefix=$2 sbin=$3 units=$4
strip=()
[ "${5:-}" = --strip ] && strip=(-s)
share=$dest$prefix/share
doc=$share/doc/brindle
bash=$share/bash-completion/completions/brindle
zsh=$dest${ZSH_COMPLETIONS:-$prefix/share/zsh/site-functions}/_brindle
rules=$dest${RULES:-$prefix/lib/udev/rules.d}/65-brindle.rules
fish=$share/fish/vendor_completions.d/brindle.fish

if [ "$remove" ]; then
    rm -rf "$doc"
    rm -f "$dest$prefix/bin/brindle" "$share"/man/man1/brindle.1 "$share"/man/man1/brindle-*.1 \
        "$share/man/man7/brindle.7" "$share/man/man8/mount.fuse.brindle.8" "$bash" "$zsh" "$fish" "$rules" "$dest$units/brindle-tier@.service" \
        "$dest$units/brindle-tier-recover.service" "$dest$units/multi-user.target.wants/brindle-tier-recover.service" \
        "$dest$sbin"/{mount,umount}.{fuse,fuseblk}.brindle
    exit
fi

brindle=${BRINDLE:-target/release/brindle}
# Made by `make build`: root may have no cargo.
notices=${NOTICES:-target/release/THIRD-PARTY}
[ -f "$notices" ] || { echo "install: $notices is not there: contrib/notices.sh >$notices makes it" >&2; exit 1; }
install -D -m 755 "${strip[@]}" "$brindle" "$dest$prefix/bin/brindle"
install -d "$dest$sbin"
for helper in {mount,umount}.{fuse,fuseblk}.brindle; do
    ln -sf "$prefix/bin/brindle" "$dest$sbin/$helper"
done

pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
"$brindle" man "$pages"
for section in 1 7 8; do
    install -d "$share/man/man$section"
    install -m 644 "$pages"/*."$section" "$share/man/man$section/"
done

for shell in bash zsh fish; do
    "$brindle" completions "$shell" >"$pages/$shell"
    install -D -m 644 "$pages/$shell" "${!shell}"
done

install -D -m 644 contrib/brindle-tier@.service "$dest$units/brindle-tier@.service"
install -D -m 644 contrib/brindle-tier-recover.service "$dest$units/brindle-tier-recover.service"
# Begun at each boot: without an interrupted run it does nothing.
install -d "$dest$units/multi-user.target.wants"
ln -sf ../brindle-tier-recover.service "$dest$units/multi-user.target.wants/brindle-tier-recover.service"
sed "s|@BIN@|$prefix/bin|" contrib/65-brindle.rules >"$pages/rules"
install -D -m 644 "$pages/rules" "$rules"
install -d "$doc/user"
install -m 644 README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$doc/"
install -m 644 "$notices" "$doc/THIRD-PARTY"
install -m 644 docs/user/*.md "$doc/user/"

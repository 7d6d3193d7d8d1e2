#!/usr/bin/env bash
# Examines what systemd and udev make of brindle: the units that are installed, those of the lines for fstab in
# docs/user/boot.md, the mount unit there, the units of docs/user/nas.md, and the rules for udev. Needs systemd's programs, not a running systemd.
set -euo pipefail
brindle=$(realpath "${BRINDLE:-target/release/brindle}")
cd "$(dirname "$0")/.."

for program in systemd-analyze udevadm; do
    command -v "$program" >/dev/null || { echo "skipped: units: $program is not installed"; exit 0; }
done
generator=/usr/lib/systemd/system-generators/systemd-fstab-generator
[ -x "$generator" ] || { echo "skipped: units: $generator is not installed"; exit 0; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/brindle-units.XXXXXX")
trap 'rm -rf "$dir"' EXIT

# The blocks of the page, by their first words.
block() {
    awk -v first="$1" '/^```/ { if (inside && index(text, first) == 1) printf "%s", text; inside = !inside; text = ""; next }
        inside { text = text $0 "\n" }' "docs/user/${2:-boot.md}"
}
verify() {
    timeout 120 systemd-analyze verify --man=no "$@" >"$dir/said" 2>&1 || { cat "$dir/said"; exit 1; }
    if grep -F "$(basename "$1")" "$dir/said"; then exit 1; fi
}

mkdir "$dir/units" "$dir/generated"
for unit in contrib/*.service; do
    sed "s|^\(Exec[A-Za-z]*=-\{0,1\}\)brindle |\1$brindle |" "$unit" >"$dir/units/$(basename "$unit")"
    verify "$dir/units/$(basename "$unit")"
done

block 'UUID=' >"$dir/fstab"
lines=$(wc -l <"$dir/fstab")
[ "$lines" -ge 4 ] || { echo "units: no lines for fstab in docs/user/boot.md"; exit 1; }
SYSTEMD_FSTAB=$dir/fstab SYSTEMD_LOG_TARGET=console "$generator" "$dir/generated" "$dir/generated" "$dir/generated"
[ "$(find "$dir/generated" -maxdepth 1 -name '*.mount' | wc -l)" -eq "$lines" ]
for unit in "$dir"/generated/*.mount; do
    verify "$unit"
    grep -qx 'Type=fuse.brindle' "$unit"
done
# The pool is waited for, and without it the machine starts all the same.
grep -q '^After=.*dev-disk-by' "$dir/generated/srv-pool.mount"
[ -L "$dir/generated/local-fs.target.wants/srv-pool.mount" ]
[ -L "$dir/generated/remote-fs.target.wants/srv-far.automount" ]

block '[Unit]' >"$dir/units/srv-pool.mount"
verify "$dir/units/srv-pool.mount"

for unit in 'scrub.service:Scrub of the pool' 'scrub.timer:Monthly' 'status.service:Health' 'status.timer:Hourly'; do
    name=brindle-${unit%%:*}
    block "[Unit]"$'\n'"Description=${unit#*:}" nas.md | sed "s|=brindle |=$brindle |" >"$dir/units/$name"
    [ -s "$dir/units/$name" ] || { echo "units: docs/user/nas.md has no $name"; exit 1; }
done
for unit in scrub.service status.service scrub.timer status.timer; do verify "$dir/units/brindle-$unit"; done

sed "s|@BIN@|$(dirname "$brindle")|" contrib/65-brindle.rules >"$dir/65-brindle.rules"
if udevadm verify --help >/dev/null 2>&1; then
    udevadm verify "$dir/65-brindle.rules" >"$dir/said" 2>&1 || { cat "$dir/said"; exit 1; }
else
    echo "skipped: units: udevadm of this version does not verify rules"
fi
echo "passed: units"

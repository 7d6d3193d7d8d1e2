#!/usr/bin/env bash
# Writes to standard output which crates the program is linked with, under which licences, and the texts of these:
#   contrib/notices.sh [--no-default-features]
# The same Cargo.lock, platform and features give the same bytes. Crates that take part in the build alone, for build scripts and
# procedural macros, are no part of the program. Sources are those that cargo has built from, vendored ones too.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

cargo=${CARGO:-cargo}
command -v "$cargo" >/dev/null || { echo "notices: needs cargo, which is not in PATH" >&2; exit 1; }
platform=${CARGO_BUILD_TARGET:-$("$cargo" -vV | sed -n 's/^host: //p')}
work=$(mktemp -d "${TMPDIR:-/tmp}/brindle-notices.XXXXXX")
trap 'rm -rf "$work"' EXIT

# Name, version, licence and repository of each crate.
"$cargo" tree --locked --target "$platform" --package brindle --edges normal,no-proc-macro --prefix none \
    --format '{p}|{l}|{r}' "$@" >"$work/tree"
sed 's/ (\*)$//' "$work/tree" | grep -v '^brindle[ -]' | sed -E 's/^([^ ]+) v([^ |]+)[^|]*/\1|\2/' | sort -u -t '|' -k 1,1 -k 2,2 >"$work/crates"
# Where the sources of all crates of Cargo.lock are.
"$cargo" metadata --locked --format-version 1 --filter-platform "$platform" >"$work/metadata"
grep -oE '"(id|manifest_path)":"[^"]*"' "$work/metadata" | awk -F'"' '
    $2 == "id" { crate = $4; sub(/.*[#\/]/, "", crate) }
    $2 == "manifest_path" { sub(/\/Cargo.toml$/, "", $4); print crate "|" $4 }' >"$work/places"

mkdir "$work/texts"
declare -A numbers=()
while IFS='|' read -r name version licence repository; do
    place=$(awk -F'|' -v crate="$name@$version" '$1 == crate { print $2 }' "$work/places")
    [ -d "$place" ] || { echo "notices: the sources of $name $version are not there" >&2; exit 1; }
    printf '%s %s: %s\n' "$name" "$version" "${licence:?of $name}"
    has_text=
    while IFS= read -r file; do
        tr -d '\r' <"$place/$file" >"$work/text"
        # Where it is offered, another licence is offered too, and taken.
        if grep -q 'GNU GENERAL PUBLIC LICENSE' "$work/text"; then continue; fi
        sum=$(sha256sum <"$work/text")
        if [ -z "${numbers[$sum]:-}" ]; then
            numbers[$sum]=$((${#numbers[@]} + 1))
            cp "$work/text" "$work/texts/${numbers[$sum]}"
        fi
        printf '    text %s: %s\n' "${numbers[$sum]}" "$file"
        has_text=yes
    done < <(cd "$place" && find . -type f -iregex '.*/\(un\)?\(licen[cs]e\|copying\|copyright\|notice\)[^/]*' | sed 's|^\./||' | sort)
    [ "$has_text" ] || printf '    without a text in its package: %s\n' "${repository:-no repository}"
done <"$work/crates" >"$work/list"

cat <<'HEAD'
Licences of what brindle is linked with

The program brindle contains the crates below, each under the licence that it names; where that is a choice, each of them is
offered. The texts, by their numbers, follow the list. brindle itself is MIT OR Apache-2.0.

The standard library of Rust is in the program too: MIT OR Apache-2.0, by the contributors of the Rust project
(https://github.com/rust-lang/rust).

HEAD
cat "$work/list"
for ((number = 1; number <= ${#numbers[@]}; number++)); do
    printf '\n---- text %s ----\n\n' "$number"
    cat "$work/texts/$number"
done

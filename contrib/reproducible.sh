#!/usr/bin/env bash
# Builds twice, in two directories of different length, and compares the bytes: the binary of brindle, or the library of another
# package of the workspace.
#   contrib/reproducible.sh [PACKAGE] [CARGO OPTION...]
# Takes the last commit. The flags here are those with which packagers get the same bytes (docs/dev/packaging.md).
set -euo pipefail
cd "$(dirname "$0")/.."

package=${1:-brindle}
[ $# -eq 0 ] || shift
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH
cargo_home=$(realpath "${CARGO_HOME:-$HOME/.cargo}")
work=$(mktemp -d "${TMPDIR:-/tmp}/brindle-reproducible.XXXXXX")
trap 'rm -rf "$work"' EXIT
unset CARGO_TARGET_DIR CARGO_BUILD_TARGET_DIR RUSTFLAGS

for directory in one a-directory-of-another-length; do
    source=$work/$directory
    mkdir "$source"
    git archive HEAD | tar -x -C "$source"
    # Paths in messages of panics and in debug information; libraries in C have them as well.
    separator=$(printf '\037')
    export CARGO_ENCODED_RUSTFLAGS="--remap-path-prefix=$source=/brindle${separator}--remap-path-prefix=$cargo_home=/cargo"
    export CFLAGS="-ffile-prefix-map=$source=/brindle -ffile-prefix-map=$cargo_home=/cargo"
    (cd "$source" && cargo build --release --locked --package "$package" "$@")
done

found=0
for built in "$work/one/target/release/$package" "$work/one/target/release/lib${package//-/_}.rlib"; do
    [ -f "$built" ] || continue
    found=1
    other=$work/a-directory-of-another-length/target/release/$(basename "$built")
    if ! cmp "$built" "$other"; then
        echo "reproducible: $(basename "$built") differs"
        exit 1
    fi
    if strings "$built" | grep -F -m 1 "$work"; then
        echo "reproducible: $(basename "$built") holds the path of its sources"
        exit 1
    fi
    sha256sum "$built" | sed "s|  .*|  $(basename "$built")|"
done
[ "$found" = 1 ] || { echo "reproducible: $package has no binary and no library"; exit 1; }
echo "reproducible: passed"

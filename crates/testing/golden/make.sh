#!/bin/bash
# Makes golden images with the kernel of this machine: make.sh NAME..., or make.sh --all. Needs root, loop
# devices, btrfs-progs, python3, zstd, acl. Each image is a function image_<name> with - for _.
set -euo pipefail
shopt -s nullglob
export LC_ALL=C
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/lib.sh"

# The common shape: make.sh's most images are the standard tree, or the small one, on some mkfs.
plain() { # TREE DEVICES MKFS-OPTION...
    local content=$1 sizes=$2
    shift 2
    devices $sizes
    make_fs "$@"
    mount_fs
    tree "$content"
    umount_fs
    store
}

S=128M # nearly the least that mkfs accepts

# Profiles.
image_single() { plain standard $S -d single -m single; }
image_dup() { plain standard 256M -d dup -m dup; }
image_raid0() { plain small "$S $S" -d raid0 -m raid0; }
image_raid1() { plain small "$S $S" -d raid1 -m raid1; }
image_raid1c3() { plain small "$S $S $S" -d raid1c3 -m raid1c3; }
image_raid1c4() { plain small "$S $S $S $S" -d raid1c4 -m raid1c4; }
image_raid10() { plain small "$S $S $S $S" -d raid10 -m raid10; }
image_raid5() { plain small "$S $S $S" -d raid5 -m raid5; }
image_raid5_wide() { plain small "$S $S $S $S $S" -d raid5 -m raid5; }
image_raid6() { plain small "$S $S $S $S" -d raid6 -m raid6; }
image_raid6_wide() { plain small "$S $S $S $S $S $S" -d raid6 -m raid6; }
image_raid1_metadata_raid0_data() { plain small "$S $S $S" -d raid0 -m raid1; }
image_mixed_block_groups() { plain small $S --mixed; }

# Checksums.
image_xxhash64() { plain standard $S --csum xxhash64 -m single; }
image_sha256() { plain small $S --csum sha256 -m single; }
image_blake2b() { plain small $S --csum blake2b -m single; }

# Node sizes.
image_node_4k() { plain standard $S -n 4096 -m single; }
image_node_8k() { plain standard $S -n 8192 -m single; }
image_node_32k() { plain standard $S -n 32768 -m single; }
image_node_64k() { plain standard $S -n 65536 -m single; }

# Features.
image_holes() { plain standard $S -m single -O ^no-holes; }

for part in "$HERE"/images-*.sh; do . "$part"; done

# In a process of its own, for the sake of set -e, which is void in `one || ...`.
one() {
    local function=image_${1//-/_}
    declare -F "$function" >/dev/null || { echo "make.sh: no image $1" >&2; exit 1; }
    start_image "$1"
    "$function"
}

names() { declare -F | sed -n 's/^declare -f image_//p' | tr _ -; }

[ $# -gt 0 ] || { echo "usage: make.sh --all | NAME..., one of:" $(names) >&2; exit 2; }
if [ "$1" = --one ]; then
    one "$2"
    exit
fi
if [ "$1" = --all ]; then set -- $(names); fi
if [ -z "${MANIFEST:-}" ]; then
    cargo build -q -p brindle-testing --bin manifest --manifest-path "$HERE/../Cargo.toml"
    MANIFEST=$(cargo metadata -q --no-deps --format-version 1 --manifest-path "$HERE/../Cargo.toml" |
        sed -E 's/.*"target_directory":"([^"]*)".*/\1/')/debug/manifest
    export MANIFEST
fi
failed=()
for name; do "$0" --one "$name" || failed+=("$name"); done
[ ${#failed[@]} -eq 0 ] || { echo "make.sh: failed: ${failed[*]}" >&2; exit 1; }

#!/bin/bash
# How far apart do sibling leaves lie after a long random life? The same operations (files made, grown, renamed and
# deleted in many directories, a sync every so often) are done on a pool that the kernel has mounted and on one that
# brindle has, and `brindle inspect tree-stats` looks at both. Root, for the kernel's mount.
#   contrib/siblings.sh [SYNCS [OPERATIONS_PER_SYNC]]       BRINDLE=path of the program
set -eu
brindle=${BRINDLE:-brindle}
syncs=${1:-40} operations=${2:-1500}
scratch=$(mktemp -d)
cleanup() {
    mountpoint -q "$scratch/mount" && umount "$scratch/mount"
    rm -rf "$scratch"
}
trap cleanup EXIT
mkdir "$scratch/mount"
cat > "$scratch/life.py" <<'PY'
import os, random, sys
top, syncs, operations = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
chance = random.Random(1)
for number in range(40):
    os.mkdir(f"{top}/d{number}")
names, last = [], 0
for sync in range(syncs):
    for _ in range(operations):
        what = chance.random()
        if what < 0.5 or len(names) < 100:
            last += 1
            name = f"{top}/d{chance.randrange(40)}/{last:x}-{'n' * chance.randrange(60)}"
            with open(name, "wb") as file:
                file.write(b"x" * chance.choice([0, 50, 700, 1500, 5000, 30000]))
            names.append(name)
            continue
        at = chance.randrange(len(names))
        name = names[at]
        if what < 0.85:
            names[at] = names[-1]
            names.pop()
            os.unlink(name)
        elif what < 0.93:
            last += 1
            names[at] = f"{top}/d{chance.randrange(40)}/{last:x}"
            os.rename(name, names[at])
        else:
            with open(name, "ab") as file:
                file.write(b"y" * 3000)
    descriptor = os.open(top, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    if len(sys.argv) > 4:
        os.system(f"{sys.argv[4]} filesystem sync {top}")
PY
make_image() {
    rm -f "$scratch/image"
    truncate -s 8G "$scratch/image"
    "$brindle" mkfs "$scratch/image" > "$scratch/log"
}
show() {
    echo "== $1"
    "$brindle" inspect tree-stats -b "$scratch/image"
}
make_image
mount -o loop "$scratch/image" "$scratch/mount"
python3 "$scratch/life.py" "$scratch/mount" "$syncs" "$operations" btrfs
umount "$scratch/mount"
show "the kernel"
make_image
"$brindle" mount "$scratch/image" "$scratch/mount"
python3 "$scratch/life.py" "$scratch/mount" "$syncs" "$operations" "$brindle"
"$brindle" umount "$scratch/mount"
show "brindle"

#!/usr/bin/env bash
# Real programs on a writable mount, each followed by umount and `btrfs check --check-data-csum`. Needs root, FUSE and
# btrfs-progs; a program that is not installed is passed over, and said so.
#
#   BRINDLE=target/release/brindle SETTINGS="plain zstd" contrib/programs.sh [CASE...]
#
# DEBS=100              packages that are unpacked
# TREE="docs crates/fs" parts of our sources that programs work on, instead of all
#
# All cases unless some are named, each in all settings: plain, zstd (compressed), nodesize (64 KiB), raid1 (two images).
set -euo pipefail

brindle=$(realpath "${BRINDLE:-target/release/brindle}")
here=$(dirname "$(realpath "$0")")
dir=$(mktemp -d "${TMPDIR:-/tmp}/brindle-programs.XXXXXX")
images=("$dir/one.img" "$dir/two.img")
mnt=$dir/mnt
work=$dir/work
packages=${DEBS:-100}
read -ra parts <<<"${TREE:-.}"
log=$dir/log

[ "$(id -u)" -eq 0 ] || { echo "programs.sh: needs root" >&2; exit 1; }
mkdir "$mnt"

cleanup() {
    if mountpoint -q "$mnt"; then umount -l "$mnt" || true; fi
    rm -rf "$dir"
}
trap cleanup EXIT

need() {
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || { echo "skipped: $case: $program is not installed"; return 1; }
    done
}

# A tree to work on: ours, as far as git knows it.
source_tree() {
    local from=$here/..
    if git -C "$from" rev-parse --git-dir >/dev/null 2>&1; then
        git -C "$from" archive HEAD "${parts[@]}" | tar -x -C "$1"
    else
        cp -a "$from/crates" "$from/docs" "$1/"
    fi
}

git_clone() {
    need git || return 0
    mkdir "$work/origin"
    source_tree "$work/origin"
    (
        cd "$work/origin"
        git init -q .
        git config user.email a@example.org && git config user.name a
        git add -A && git commit -qm first
    )
    git clone -q --no-hardlinks "$work/origin" "$mnt/clone"
    git -C "$mnt/clone" fsck --full --strict
    git -C "$mnt/clone" repack -adq
    git -C "$mnt/clone" status --porcelain | (! grep .)
    diff -r --exclude=.git "$work/origin" "$mnt/clone"
}

tar_both_ways() {
    need tar || return 0
    mkdir "$work/tree"
    source_tree "$work/tree"
    tar -C "$work/tree" -cf "$work/tree.tar" .
    mkdir "$mnt/tree"
    tar -C "$mnt/tree" -xpf "$work/tree.tar"
    tar -C "$mnt/tree" -df "$work/tree.tar"
    tar -C "$mnt" -czf "$mnt/again.tgz" tree
    tar -C "$mnt" -dzf "$mnt/again.tgz"
}

rsync_all() {
    need rsync setfacl setfattr || return 0
    local from=$work/rsync
    mkdir "$from"
    source_tree "$from"
    ln "$from/README.md" "$from/docs/hard-link"
    ln -s README.md "$from/symlink"
    mkfifo -m 600 "$from/pipe"
    mknod "$from/null" c 1 3
    setfacl -m u:1234:rw "$from/README.md"
    setfacl -d -m g:99:rx "$from/docs"
    setfattr -n user.key -v value "$from/README.md"
    setfattr -h -n trusted.link -v value "$from/symlink"
    truncate -s 10M "$from/sparse"
    chown 12:34 "$from/README.md"
    chmod 4751 "$from/README.md"
    touch -h -d '2001-02-03 04:05:06.789' "$from/symlink" "$from/docs"
    rsync -aHAX "$from/" "$mnt/copy/"
    same_for_rsync "$from" "$mnt/copy"
    rsync -aHAXS --inplace --ignore-times "$from/" "$mnt/copy/"
    same_for_rsync "$from" "$mnt/copy"
    # Some change, some go, and the way back.
    rm -r "$from/docs"
    find "$from" -name '*.rs' | sed -n 1,50p | while read -r file; do echo "// changed" >>"$file"; done
    rsync -aHAX --delete "$from/" "$mnt/copy/"
    same_for_rsync "$from" "$mnt/copy"
    rsync -aHAX "$mnt/copy/" "$work/back/"
    same_for_rsync "$from" "$work/back"
}

# What rsync would still do, by the contents.
same_for_rsync() {
    local left
    left=$(rsync -aHAXc --delete --dry-run --itemize-changes "$1/" "$2/")
    [ -z "$left" ] || { echo "rsync still sees: $left"; return 1; }
}

sqlite_wal() {
    need sqlite3 || return 0
    sqlite3 "$mnt/db" 'pragma journal_mode=wal; create table t(a integer primary key, b blob);' >/dev/null
    local writer
    for writer in 1 2 3; do
        for _ in $(seq 40); do
            echo "insert into t(b) values (randomblob(3000));"
        done | sqlite3 -cmd '.timeout 300000' "$mnt/db" &
    done
    wait
    [ "$(sqlite3 "$mnt/db" 'select count(*) from t; pragma integrity_check;')" = $'120\nok' ]
}

fio_verify() {
    need fio || return 0
    local common=(--directory="$mnt" --verify=crc32c --verify_fatal=1 --do_verify=1 --group_reporting --minimal --verify_state_save=0)
    fio "${common[@]}" --name=buffered --rw=randwrite --bs=4k --size=24M --numjobs=4 --fsync=200 >/dev/null
    fio "${common[@]}" --name=direct --rw=randwrite --bs=16k --size=24M --numjobs=2 --direct=1 \
        --ioengine=libaio --iodepth=8 >/dev/null
    fio "${common[@]}" --name=mapped --rw=randwrite --bs=4k --size=16M --ioengine=mmap >/dev/null
    fio "${common[@]}" --name=stream --rw=write --bs=1M --size=128M >/dev/null
}

eight_threads() {
    need python3 || return 0
    python3 - "$mnt" <<'PYTHON'
import os, random, sys, threading
root, failed = sys.argv[1], []
def work(number):
    try:
        rng = random.Random(number)
        own = os.path.join(root, f"thread-{number}")
        os.mkdir(own)
        held = {}
        for step in range(1500):
            name = f"f{rng.randrange(100)}"
            path = os.path.join(own, name)
            what = rng.random()
            if what < 0.45:
                held[name] = rng.randbytes(rng.choice([0, 10, 2000, 5000, 70000]))
                with open(path, "wb") as file:
                    file.write(held[name])
            elif what < 0.6 and name in held:
                extra = rng.randbytes(rng.randrange(9000))
                with open(path, "ab") as file:
                    file.write(extra)
                held[name] += extra
            elif what < 0.7 and name in held:
                os.unlink(path)
                del held[name]
            elif what < 0.8 and name in held:
                other = f"f{rng.randrange(100)}"
                os.rename(path, os.path.join(own, other))
                held[other] = held.pop(name)
            elif what < 0.85 and name in held:
                size = rng.randrange(80000)
                os.truncate(path, size)
                held[name] = held[name][:size].ljust(size, b"\0")
            elif name in held:
                with open(path, "rb") as file:
                    assert file.read() == held[name], path
            if step % 500 == 499:
                fd = os.open(own, os.O_RDONLY)
                os.fsync(fd)
                os.close(fd)
        assert sorted(os.listdir(own)) == sorted(held)
        for name, data in held.items():
            with open(os.path.join(own, name), "rb") as file:
                assert file.read() == data, name
    except BaseException as error:
        failed.append((number, repr(error)))
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
sys.exit(f"{failed}" if failed else 0)
PYTHON
}

# Packages made here, a hundred of them unless DEBS says otherwise, so that no archive has to be reached; dpkg makes
# every file durable.
dpkg_unpack() {
    need dpkg dpkg-deb || return 0
    local version
    source_tree_of_packages
    mkdir -p "$mnt/admin/updates" "$mnt/admin/info" "$mnt/admin/triggers" "$mnt/root"
    touch "$mnt/admin/status" "$mnt/admin/available"
    for version in 1 2; do
        pack $version
        dpkg --instdir="$mnt/root" --admindir="$mnt/admin" --log=/dev/null --force-depends \
            --unpack "$work/debs-$version"/*.deb >/dev/null
        [ "$(grep -c '^Status: install ok unpacked' "$mnt/admin/status")" -eq "$packages" ]
        dpkg --root="$mnt/root" --admindir="$mnt/admin" --verify
        diff -r --no-dereference "$work/packed-$version" "$mnt/root"
    done
}

source_tree_of_packages() {
    mkdir "$work/tree"
    source_tree "$work/tree"
}

# A version of each package: twelve files, a link of either kind, one that only root may run. What all have together
# is gathered in packed-VERSION.
pack() {
    local number name at file files
    mapfile -t files < <(find "$work/tree" -type f -size -64k | sort)
    mkdir "$work/debs-$1" "$work/packed-$1"
    for number in $(seq "$packages"); do
        name=piece-$number
        at=$work/package
        rm -rf "$at"
        mkdir -p "$at/DEBIAN" "$at/usr/share/$name"
        printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: nobody <n@example.org>\nDescription: a piece\n' \
            "$name" "$1" >"$at/DEBIAN/control"
        for file in $(seq $((number + $1)) $((number + $1 + 11))); do
            cp "${files[file % ${#files[@]}]}" "$at/usr/share/$name/$file"
        done
        ln "$at/usr/share/$name/$file" "$at/usr/share/$name/hard"
        ln -s "$file" "$at/usr/share/$name/soft"
        chmod 4700 "$at/usr/share/$name/$file"
        dpkg-deb --root-owner-group -Znone --build "$at" "$work/debs-$1/$name.deb" >/dev/null
        rm -r "$at/DEBIAN"
        cp -a "$at/." "$work/packed-$1/"
    done
}

cargo_build() {
    need cargo || return 0
    mkdir "$mnt/crate"
    (
        cd "$mnt/crate"
        cargo init -q --vcs none --name built .
        CARGO_TARGET_DIR=$mnt/crate/target cargo build -q --offline
        [ "$(target/debug/built)" = "Hello, world!" ]
    )
}

# Locks, leases, notification, and an overlay with its upper directory here.
interfaces() {
    need python3 || return 0
    python3 "$here/../crates/fuse/tests/scripts/interfaces.py" "$mnt" >"$work/said"
    grep -qx 'overlay 0' "$work/said" && grep -qx 'changed: lower/changedmore True' "$work/said"
}

# What an NFS server asks for.
file_handles() {
    need python3 || return 0
    local script=$here/../crates/fuse/tests/scripts/handles.py
    mkdir -p "$mnt/above/below"
    echo contents >"$mnt/above/below/file"
    python3 "$script" save "$mnt" "$work/handles" above/below/file above/below
    echo 2 >/proc/sys/vm/drop_caches
    [ "$(python3 "$script" open "$mnt" "$work/handles")" = $'contents\n\nbelow file in below' ]
}

cases=("$@")
[ ${#cases[@]} -eq 0 ] &&
    cases=(git_clone tar_both_ways rsync_all sqlite_wal fio_verify eight_threads dpkg_unpack cargo_build interfaces file_handles)
read -ra settings <<<"${SETTINGS:-plain zstd nodesize raid1}"

# A new pool, mounted.
begin() {
    local options=dev,suid make=() used=("${images[0]}")
    case $1 in
        plain) ;;
        zstd) options+=,compress=zstd ;;
        nodesize) make=(--nodesize 64k) ;;
        raid1) make=(-d raid1 -m raid1) used=("${images[@]}") ;;
        *) echo "programs.sh: no setting $1; there are plain, zstd, nodesize, raid1" >&2; exit 2 ;;
    esac
    rm -rf "${images[@]}" "$work"
    mkdir "$work"
    truncate -s 3G "${used[@]}"
    "$brindle" mkfs "${make[@]}" "${used[@]}" >/dev/null
    "$brindle" mount -o "$options" "${used[@]}" "$mnt"
}

# Unmounts it. What a program has left running may have it open for a moment.
end() {
    local said
    for _ in $(seq 300); do
        said=$(cd /; "$brindle" umount "$mnt" 2>&1) && return 0
        [[ $said == *busy* ]] || break
        sleep 0.2
    done
    echo "$said"
    return 1
}

# btrfs-progs look for the other devices of a pool among block devices only.
referee() {
    local loops=() status=0 image
    for image in "${images[@]}"; do
        if [ -e "$image" ]; then loops+=("$(losetup --find --show "$image")"); fi
    done
    if [ ${#loops[@]} -gt 1 ]; then btrfs device scan "${loops[@]}" >/dev/null; fi
    btrfs check --readonly --check-data-csum "${loops[0]}" || status=$?
    btrfs device scan --forget "${loops[@]}" >/dev/null 2>&1 || true
    losetup --detach "${loops[@]}"
    return $status
}

failures=0
for setting in "${settings[@]}"; do
    for case in "${cases[@]}"; do
        begin "$setting"
        # `set -e` does not reach into a condition, but into another shell it does.
        set +e
        (set -e; "$case") >"$log" 2>&1
        status=$?
        set -e
        grep '^skipped' "$log" || true
        if [ $status -eq 0 ] && end >>"$log" && referee >>"$log" 2>&1; then
            echo "passed: $setting: $case"
        else
            echo "FAILED: $setting: $case"
            tail -30 "$log"
            failures=$((failures + 1))
            if mountpoint -q "$mnt"; then umount -l "$mnt"; fi
        fi
    done
done
[ $failures -eq 0 ]

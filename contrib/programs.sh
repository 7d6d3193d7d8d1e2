#!/usr/bin/env bash
# Real programs on a writable mount, each followed by umount and `btrfs check --check-data-csum`. Needs root, FUSE and
# btrfs-progs; a program that is not installed is passed over, and said so.
#
#   BRINDLE=target/release/brindle contrib/programs.sh [CASE...]     all cases unless some are named
set -euo pipefail

brindle=$(realpath "${BRINDLE:-target/release/brindle}")
here=$(dirname "$(realpath "$0")")
dir=$(mktemp -d "${TMPDIR:-/tmp}/brindle-programs.XXXXXX")
image=$dir/pool.img
mnt=$dir/mnt
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
        git -C "$from" archive HEAD | tar -x -C "$1"
    else
        cp -a "$from/crates" "$from/docs" "$1/"
    fi
}

git_clone() {
    need git || return 0
    mkdir "$dir/origin"
    source_tree "$dir/origin"
    (
        cd "$dir/origin"
        git init -q .
        git config user.email a@example.org && git config user.name a
        git add -A && git commit -qm first
    )
    git clone -q --no-hardlinks "$dir/origin" "$mnt/clone"
    git -C "$mnt/clone" fsck --full --strict
    git -C "$mnt/clone" repack -adq
    git -C "$mnt/clone" status --porcelain | (! grep .)
    diff -r --exclude=.git "$dir/origin" "$mnt/clone"
}

tar_both_ways() {
    need tar || return 0
    mkdir "$dir/tree"
    source_tree "$dir/tree"
    tar -C "$dir/tree" -cf "$dir/tree.tar" .
    mkdir "$mnt/tree"
    tar -C "$mnt/tree" -xpf "$dir/tree.tar"
    tar -C "$mnt/tree" -df "$dir/tree.tar"
    tar -C "$mnt" -czf "$mnt/again.tgz" tree
    tar -C "$mnt" -dzf "$mnt/again.tgz"
}

rsync_all() {
    need rsync setfacl setfattr || return 0
    local from=$dir/rsync
    mkdir "$from"
    source_tree "$from"
    ln "$from/README.md" "$from/hard-link"
    ln -s README.md "$from/symlink"
    setfacl -m u:1234:rw "$from/README.md"
    setfattr -n user.key -v value "$from/README.md"
    truncate -s 10M "$from/sparse"
    chown 12:34 "$from/README.md"
    rsync -aHAXS "$from/" "$mnt/copy/"
    [ -z "$(rsync -aHAXSnic --delete "$from/" "$mnt/copy/")" ]
    rsync -aHAXS --inplace --ignore-times "$from/" "$mnt/copy/"
    [ -z "$(rsync -aHAXSnic --delete "$from/" "$mnt/copy/")" ]
}

sqlite_wal() {
    need sqlite3 || return 0
    sqlite3 "$mnt/db" 'pragma journal_mode=wal; create table t(a integer primary key, b blob);' >/dev/null
    local writer
    for writer in 1 2 3; do
        for _ in $(seq 40); do
            echo "insert into t(b) values (randomblob(3000));"
        done | sqlite3 -cmd '.timeout 20000' "$mnt/db" &
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

dpkg_unpack() {
    need dpkg-deb || return 0
    local packages=(/var/cache/apt/archives/*.deb)
    [ -e "${packages[0]}" ] || { echo "skipped: $case: no packages in /var/cache/apt/archives"; return 0; }
    local package
    for package in "${packages[@]:0:100}"; do
        dpkg-deb -x "$package" "$mnt/root"
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

cases=("$@")
[ ${#cases[@]} -eq 0 ] &&
    cases=(git_clone tar_both_ways rsync_all sqlite_wal fio_verify eight_threads dpkg_unpack cargo_build)
failures=0
for case in "${cases[@]}"; do
    rm -f "$image"
    truncate -s 3G "$image"
    mkfs.btrfs -q "$image" >/dev/null
    "$brindle" mount -o dev,suid "$image" "$mnt"
    # `set -e` does not reach into a condition, but into another shell it does.
    set +e
    (set -e; "$case") >"$log" 2>&1
    status=$?
    set -e
    grep '^skipped' "$log" || true
    if [ $status -eq 0 ] && (cd /; "$brindle" umount "$mnt") 2>>"$log" &&
        btrfs check --readonly --check-data-csum "$image" >>"$log" 2>&1; then
        echo "passed: $case"
    else
        echo "FAILED: $case"
        tail -30 "$log"
        failures=$((failures + 1))
        mountpoint -q "$mnt" && umount -l "$mnt"
    fi
done
[ $failures -eq 0 ]

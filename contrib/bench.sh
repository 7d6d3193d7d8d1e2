#!/usr/bin/env bash
# The comparisons of docs/dev/benchmarks.md: brindle and its peers in turns, five runs each, median and spread.
# Needs root, btrfs-progs and some 12 GiB in $BENCH_DIR (default: a folder in $TMPDIR or /tmp). A quiet machine
# is the reader's own business: the script prints the load when it begins and when it ends.
#
#   BRINDLE=target/release/brindle contrib/bench.sh [CASE...]      all cases but published-reads unless some are named
#
# RUNS=5        how often each is measured
# PEERS="..."   in `write` and `growth`, whom to measure, of: kernel null brindle fuse2fs
# PEER_RUNS=1   how often fuse2fs is, whose directories take time by the square of what they hold
# FILES=50000   in `write`, how many files are made and deleted; fuse2fs comes to an end with 5000
# LIMIT=300     seconds after which fuse2fs is stopped at one thing; what is printed for it then is "at least"
# COUNTS="..."  in `growth`, at how many files to measure
# READ_SIZE=10G in `published-reads`, the length of the file
# DEVICES="..." in `published-reads`, three block devices, which are overwritten; else loop devices, all on one disk,
#               where a policy has little to gain
set -euo pipefail

brindle=$(realpath "${BRINDLE:-target/release/brindle}")
here=$(dirname "$(realpath "$0")")
runs=${RUNS:-5}
peer_runs=${PEER_RUNS:-1}
files=${FILES:-50000}
limit=${LIMIT:-300}
read -ra peers <<<"${PEERS:-kernel null brindle fuse2fs}"
read -ra counts <<<"${COUNTS:-10000 1000000 5000000}"
dir=${BENCH_DIR:-${TMPDIR:-/tmp}/brindle-bench}
target=/dev/shm/brindle-bench
mnt=$dir/mnt
raw=$dir/raw.txt
loop=
three=()

[ "$(id -u)" -eq 0 ] || { echo "bench.sh: needs root, to make pools with the kernel" >&2; exit 1; }
mkdir -p "$mnt"
: >"$raw"
: >"$dir/stopped.txt"

cleanup() {
    mountpoint -q "$mnt" && umount "$mnt"
    [ -n "$loop" ] && losetup -d "$loop"
    [ ${#three[@]} -eq 0 ] || losetup -d "${three[@]}"
    rm -rf "$target"
}
trap cleanup EXIT

# make_image NAME SIZE: calls fill_NAME on the mounted pool, once.
make_image() {
    local image=$dir/$1.img
    [ -e "$image.ready" ] && return
    echo "making $1" >&2
    rm -f "$image"
    truncate -s "$2" "$image"
    mkfs.btrfs -q -f "$image" >/dev/null
    mount -o loop,noatime "$image" "$mnt"
    "fill_$1"
    umount "$mnt"
    touch "$image.ready"
}
fill_tree() { python3 "$here/bench-tree.py" tree "$mnt" 20000; }
fill_big() { dd if=/dev/urandom of="$mnt/big" bs=1M count=1024 status=none; }
fill_million() { python3 "$here/bench-tree.py" small "$mnt" 1000000; }

cold() { sync; echo 3 >/proc/sys/vm/drop_caches; }
warm() { cat "$1" >/dev/null; }

# timed CASE WHO COMMAND...: one line of the raw output, and one for who watches.
timed() {
    local name=$1 who=$2 start end least="" stopped=0 command=()
    shift 2
    [ "$who" = fuse2fs ] && command=(timeout "$limit")
    start=$(date +%s%N)
    "${command[@]}" "$@" >/dev/null 2>&1 || stopped=$?
    end=$(date +%s%N)
    if [ "$who" = fuse2fs ] && [ "$stopped" -eq 124 ]; then
        least=" (at least: stopped after $limit s)"
        echo "$name" >>"$dir/stopped.txt"
    elif [ "$stopped" -ne 0 ]; then
        echo "bench.sh: $name by $who failed with status $stopped: $*" >&2
        # What was stopped leaves less than the next thing expects.
        [ "$who" = fuse2fs ]
        return
    fi
    echo "$name $who $(((end - start) / 1000))" >>"$raw"
    printf '%s  %-22s %-14s %9.3f s%s\n' "$(date +%T)" "$name" "$who" "$(((end - start) / 1000))e-6" "$least" >&2
}
has_peer() { [[ " ${peers[*]} " == *" $1 "* ]]; }

fresh_target() { rm -rf "$target"; mkdir "$target"; }

# Extraction goes to a tmpfs: a disk would be what is measured. `btrfs restore -m -S -x` keeps owners, times,
# symbolic links and extended attributes, as brindle always does; without options it keeps contents only.
restore() { # CASE IMAGE cold|warm [OPTION...]
    local image=$dir/$2.img options=("${@:4}")
    for _ in $(seq "$runs"); do
        for who in btrfs brindle; do
            fresh_target
            if [ "$3" = cold ]; then cold; else warm "$image"; fi
            if [ $who = btrfs ]; then
                timed "$1" btrfs-restore btrfs restore ${options[@]+"${options[@]}"} "$image" "$target"
            else
                timed "$1" brindle-cp "$brindle" cp "$image" --path / "$target"
            fi
        done
    done
    fresh_target
}

# Both mount the same loop device, read-only; caches are dropped before each run.
mounted() { # CASE IMAGE FUNCTION
    loop=$(losetup --find --show --read-only "$dir/$2.img")
    for _ in $(seq "$runs"); do
        cold
        mount -o ro,noatime "$loop" "$mnt"
        timed "$1" kernel "$3"
        umount "$mnt"
        cold
        "$brindle" mount "$loop" "$mnt"
        timed "$1" brindle-mount "$3"
        umount "$mnt"
    done
    losetup -d "$loop"
    loop=
}
do_find() { find "$mnt" -printf '%s %m %T@ %n\n'; }
do_read_all() { find "$mnt" -type f -print0 | xargs -0 -n 500 cat; }
do_read_all_8() { find "$mnt" -type f -print0 | xargs -0 -n 200 -P 8 cat; }
do_sequential() { dd if="$mnt/big" of=/dev/null bs=1M; }

check() { # CASE IMAGE cold|warm
    local image=$dir/$2.img
    for _ in $(seq "$runs"); do
        for who in btrfs brindle; do
            if [ "$3" = cold ]; then cold; else warm "$image"; fi
            if [ $who = btrfs ]; then
                timed "$1" btrfs-check btrfs check --readonly "$image"
            else
                timed "$1" brindle-check "$brindle" check "$image"
            fi
        done
    done
}

memory() { # the most that brindle held, in KiB
    local peak
    fresh_target
    peak=$( { command time -f %M "$brindle" cp "$dir/million.img" --path / "$target" >/dev/null; } 2>&1 | tail -1)
    echo "memory-cp-million brindle $peak" >>"$raw"
    fresh_target
    peak=$( { command time -f %M "$brindle" check "$dir/million.img" >/dev/null; } 2>&1 | tail -1)
    echo "memory-check-million brindle $peak" >>"$raw"
}

# Images are made on the disk that holds $dir, from a tree of 20,000 small files that is in memory.
rootdir() {
    local tree=$dir/rootdir image=$dir/rootdir.img
    [ -d "$tree" ] || { mkdir "$tree"; python3 "$here/bench-tree.py" tree "$tree" 20000; }
    find "$tree" -type f -exec cat {} + >/dev/null
    for _ in $(seq "$runs"); do
        for who in btrfs ext4 brindle; do
            rm -f "$image"
            truncate -s 6G "$image"
            case $who in
                btrfs) timed rootdir mkfs.btrfs mkfs.btrfs -q --rootdir "$tree" "$image" ;;
                ext4) timed rootdir mkfs.ext4 mkfs.ext4 -q -F -d "$tree" "$image" ;;
                brindle) timed rootdir brindle-mkfs "$brindle" mkfs --rootdir "$tree" "$image" ;;
            esac
        done
    done
}

# Writing, through mounts of four kinds on one loop device, made anew for each run; `null` is a FUSE filesystem that
# does nothing (crates/transport/examples/null.rs), and says what FUSE itself costs.
write() {
    local null=${NULL:-$here/../target/release/examples/null} image=$dir/write.img who run
    local fio=(--directory="$mnt" --end_fsync=1 --fallocate=none --minimal)
    if has_peer null && [ ! -x "$null" ]; then
        echo "bench.sh: no $null: cargo build --release -p brindle-transport --example null" >&2
        exit 1
    fi
    command -v fuse2fs >/dev/null || echo "write: fuse2fs is not installed" >&2
    echo "write: fuse2fs runs $peer_runs times, and at most $limit s at one thing" >&2
    local tree=$dir/write-tree
    [ -e "$tree.tar" ] || {
        mkdir -p "$tree"
        python3 "$here/bench-tree.py" tree "$tree" 20000
        tar -C "$tree" -cf "$tree.tar" .
        rm -rf "$tree"
    }
    cat "$tree.tar" >/dev/null
    for run in $(seq "$runs"); do
        for who in "${peers[@]}"; do
            if [ "$who" = fuse2fs ]; then
                [ "$run" -le "$peer_runs" ] && command -v fuse2fs >/dev/null || continue
            fi
            echo "write: run $run of $runs, $who" >&2
            rm -f "$image"
            truncate -s 8G "$image"
            loop=$(losetup --find --show "$image")
            mount_written "$who"
            mkdir "$mnt/one" "$mnt/eight" "$mnt/tree"
            timed "create-$files" "$who" python3 "$here/bench-tree.py" create "$mnt/one" "$files" 1
            timed "delete-$files" "$who" python3 "$here/bench-tree.py" delete "$mnt/one" "$files" 1
            timed "create-$files-by-8" "$who" python3 "$here/bench-tree.py" create "$mnt/eight" "$files" 8
            timed "delete-$files-by-8" "$who" python3 "$here/bench-tree.py" delete "$mnt/eight" "$files" 8
            timed untar-20000 "$who" tar -C "$mnt/tree" -xf "$tree.tar"
            timed write-1GiB "$who" fio --name=sequential --rw=write --bs=1M --size=1G "${fio[@]}"
            timed write-4k-random "$who" fio --name=random --rw=randwrite --bs=4k --size=256M "${fio[@]}"
            unmount_written "$who"
            losetup -d "$loop"
            loop=
        done
    done
    rm -f "$image"
}
mount_written() {
    case $1 in
        kernel) mkfs.btrfs -q -f "$loop" >/dev/null && mount -o noatime "$loop" "$mnt" ;;
        ext4) mkfs.ext4 -q -F "$loop" && mount -o noatime "$loop" "$mnt" ;;
        brindle) mkfs.btrfs -q -f "$loop" >/dev/null && "$brindle" mount -o noatime "$loop" "$mnt" ;;
        notreelog) mkfs.btrfs -q -f "$loop" >/dev/null && "$brindle" mount -o noatime,notreelog "$loop" "$mnt" ;;
        locked) mkfs.btrfs -q -f "$loop" >/dev/null && "$brindle" mount -o noatime,log_prepare_locked "$loop" "$mnt" ;;
        fuse2fs) mkfs.ext4 -q -F "$loop" && fuse2fs -o noatime "$loop" "$mnt" ;;
        null)
            "$null" "$mnt" &
            until mountpoint -q "$mnt"; do sleep 0.1; done ;;
    esac
}
unmount_written() {
    case $1 in
        brindle | locked | notreelog) "$brindle" umount "$mnt" ;;
        *)
            umount "$mnt"
            # Whoever serves it lets go of the device a little later.
            until [ "$1" != fuse2fs ] || ! fuser -s "$loop" 2>/dev/null; do sleep 0.1; done ;;
    esac
}

# Many fsyncs, on one loop device made anew for each run; `notreelog` is brindle whose fsync is a commit, `locked` brindle that
# prepares what it logs under the lock of the log. The mixed job is the one by which the kernel's fast fsync was published, by
# amount of work instead of time, with one thread, with eight, and with eight in a subvolume each.
# IO_MIB=16: what each thread of the mixed job writes.
fsync() {
    local image=$dir/fsync.img who run amount=${IO_MIB:-16} number
    local fio=(fio --name=once --rw=randwrite --fsync=1 --fallocate=none --direct=0 --ioengine=sync --minimal --thread --overwrite=1)
    local mixed=(--bssplit=4k/20:8k/20:16k/20:32k/10:64k/10:128k/5:256k/5:512k/5:1m/5 --size=128M --io_size="${amount}M")
    for run in $(seq "$runs"); do
        for who in kernel ext4 notreelog locked brindle; do
            echo "fsync: run $run of $runs, $who" >&2
            rm -f "$image"
            truncate -s 8G "$image"
            loop=$(losetup --find --show "$image")
            mount_written "$who"
            mkdir "$mnt/one"
            lay_out "$mnt/one"
            timed fsync-4k-1000 "$who" "${fio[@]}" --directory="$mnt/one" --bs=4k --size=128M --io_size=4M
            timed fsync-4k-8x500 "$who" "${fio[@]}" --directory="$mnt/one" --bs=4k --size=128M --io_size=2M --numjobs=8
            timed "fsync-mixed-1x${amount}M" "$who" "${fio[@]}" --directory="$mnt/one" "${mixed[@]}"
            timed "fsync-mixed-8x${amount}M" "$who" "${fio[@]}" --directory="$mnt/one" "${mixed[@]}" --numjobs=8
            if [ "$who" = kernel ] || [ "$who" = brindle ] || [ "$who" = locked ]; then
                local eight=
                for number in 0 1 2 3 4 5 6 7; do
                    "$brindle" -q subvolume create "$mnt/$number"
                    eight=$eight${eight:+:}$mnt/$number
                done
                lay_out "$eight"
                timed "fsync-subvolumes-8x${amount}M" "$who" "${fio[@]}" --directory="$eight" "${mixed[@]}" --numjobs=8
            fi
            unmount_written "$who"
            losetup -d "$loop"
            loop=
        done
    done
    rm -f "$image"
}
# lay_out DIRECTORIES: the files of the jobs, written and synced.
lay_out() {
    fio --name=once --directory="$1" --rw=write --bs=1M --size=128M --numjobs=8 --fallocate=none --end_fsync=1 --minimal --thread >/dev/null
    sync -f "$mnt"
}

# Programs whose fsyncs are of new and renamed files, and of directories.
names() {
    local image=$dir/names.img who run
    for run in $(seq "$runs"); do
        for who in ext4 kernel notreelog brindle; do
            echo "names: run $run of $runs, $who" >&2
            rm -f "$image"
            truncate -s 8G "$image"
            loop=$(losetup --find --show "$image")
            mount_written "$who"
            mkdir "$mnt"/{spool,eight,package,sqlite,wal}
            timed spool-1000 "$who" python3 "$here/bench-names.py" spool "$mnt/spool" 1000 1
            timed spool-8x250 "$who" python3 "$here/bench-names.py" spool "$mnt/eight" 250 8
            timed package-2000 "$who" python3 "$here/bench-names.py" package "$mnt/package" 2000 1
            timed sqlite-500 "$who" python3 "$here/bench-names.py" sqlite "$mnt/sqlite" 500 1
            timed sqlite-wal-1000 "$who" python3 "$here/bench-names.py" sqlite-wal "$mnt/wal" 1000 1
            unmount_written "$who"
            losetup -d "$loop"
            loop=
        done
    done
    rm -f "$image"
}

# What grows with the number of files: operations of the library by itself (crates/fs/examples/operations.rs), and the
# rate at which one Python process makes the same files on the kernel's btrfs, system calls and interpreter included.
# It takes long, and is done once.
growth() {
    local operations=${OPERATIONS:-$here/../target/release/examples/operations} image=$dir/growth.img
    [ -x "$operations" ] || {
        echo "bench.sh: no $operations: cargo build --release -p brindle-fs --example operations" >&2
        exit 1
    }
    rm -f "$image"
    if has_peer brindle; then
        echo "growth: brindle, the library" >&2
        "$operations" "$image" "${counts[@]}"
        rm -f "$image"
    fi
    if has_peer kernel; then
        echo "growth: the kernel's btrfs, by a Python process" >&2
        truncate -s 64G "$image"
        loop=$(losetup --find --show "$image")
        mkfs.btrfs -q -f "$loop" >/dev/null
        mount -o noatime "$loop" "$mnt"
        python3 "$here/bench-tree.py" grow "$mnt" "${counts[@]}"
        umount "$mnt"
        losetup -d "$loop"
        loop=
        rm -f "$image"
    fi
}

# The job by which the read policy `roundrobin` was published: one file on raid1c3, read in order by one and by eight.
published_reads() {
    local devices jobs who name
    read -ra devices <<<"${DEVICES:-}"
    if [ ${#devices[@]} -eq 0 ]; then
        for name in 1 2 3; do
            rm -f "$dir/read$name.img"
            truncate -s "${READ_DEVICE_SIZE:-14G}" "$dir/read$name.img"
            three+=("$(losetup --find --show "$dir/read$name.img")")
        done
        devices=("${three[@]}")
    fi
    mkfs.btrfs -q -f -d raid1c3 -m raid1c3 "${devices[@]}" >/dev/null
    btrfs device scan "${devices[@]}" >/dev/null
    mount -o noatime "${devices[0]}" "$mnt"
    export DIRECTORY=$mnt SIZE=${READ_SIZE:-10G} JOBS
    # Written once, by the kernel, so that both read the same.
    fio --name=write --directory="$mnt" --filename=published --size="$SIZE" --rw=write --bs=1M --end_fsync=1 --minimal >/dev/null
    umount "$mnt"
    for _ in $(seq "$runs"); do
        for jobs in 1 8; do
            JOBS=$jobs
            for who in kernel pid roundrobin auto; do
                cold
                case $who in
                    kernel) mount -o ro,noatime "${devices[0]}" "$mnt" ;;
                    *) "$brindle" mount -o "ro,read_policy=$who" "${devices[@]}" "$mnt" ;;
                esac
                timed "published-reads-$jobs" "$who" fio "$here/published-reads.fio"
                umount "$mnt"
                # The server is done with the devices a little later.
                until ! fuser -s "${devices[0]}" 2>/dev/null; do sleep 0.1; done
            done
        done
    done
    [ ${#three[@]} -eq 0 ] || losetup -d "${three[@]}"
    three=()
    rm -f "$dir"/read[123].img
}

cases=("$@")
[ ${#cases[@]} -eq 0 ] && cases=(restore mount check memory rootdir write fsync names growth)
echo "load before: $(cut -d' ' -f1-3 /proc/loadavg)" >&2
for case in "${cases[@]}"; do
    case $case in
        restore)
            make_image tree 6G; make_image big 3G
            restore cp-tree-warm tree warm; restore cp-tree-cold tree cold
            restore cp-1GiB-warm big warm; restore cp-1GiB-cold big cold
            restore cp-tree-warm-mSx tree warm -m -S -x; restore cp-1GiB-warm-mSx big warm -m -S -x ;;
        mount)
            make_image tree 6G; make_image big 3G
            mounted find-stat-cold tree do_find
            mounted read-all-cold tree do_read_all
            mounted read-all-8-cold tree do_read_all_8
            mounted sequential-cold big do_sequential ;;
        check)
            make_image tree 6G; make_image million 8G
            check check-tree-warm tree warm; check check-tree-cold tree cold
            check check-million-warm million warm ;;
        memory) make_image million 8G; memory ;;
        rootdir) rootdir ;;
        write) write ;;
        fsync) fsync ;;
        names) names ;;
        growth) growth ;;
        published-reads) published_reads ;;
        *) echo "bench.sh: no case $case; there are restore, mount, check, memory, rootdir, write, fsync, names, growth, published-reads" >&2; exit 2 ;;
    esac
done
echo "load after: $(cut -d' ' -f1-3 /proc/loadavg)" >&2
[ -s "$dir/stopped.txt" ] && echo "fuse2fs was stopped, and took at least what is said, at: $(sort -u "$dir/stopped.txt" | xargs)"
sort -s -k1,2 "$raw" | awk -f "$here/bench-summary.awk"
echo "raw output: $raw" >&2

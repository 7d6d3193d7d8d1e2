#!/usr/bin/env python3
"""The published flash cache below an object store's XFS, in real time on modelled drives (root).

  BRINDLE=target/release/brindle bench-published-cache.py [CONFIGURATION...]

One SSD is cut as published: journal of the object store, log of XFS, cache; and there is one hard disk. XFS has inodes of 2048 bytes and
one allocation group. Configurations: bare (XFS on the disk, its log there), log (its log on the SSD) and cache (the log on the SSD, and
a write-back cache with skip_seq_thresh_kb=32). Work: `brindle lab run objects`, the three writes of 147 bytes, 496 bytes and 512 KiB
an object, for each number of CLIENTS (1 4 16), OBJECTS (2048) in all, RUNS (5) rounds in turns. Prints a table: MiB of objects a
second at the median with its range, the part of the disk's rate in order (by direct writes of 1 MiB, measured in each run), seeks
of the disk an object, and the part of the SSD's answers that were late. The filesystem is repaired (checked) afterwards.
"""
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile

BRINDLE = os.environ.get("BRINDLE", "brindle")
RUNS = int(os.environ.get("RUNS", "5"))
OBJECTS = int(os.environ.get("OBJECTS", "2048"))
CLIENTS = [int(number) for number in os.environ.get("CLIENTS", "1 4 16").split()]
SLICES = {"journal": (1 << 20, 2 << 30), "log": (3 << 30, 128 << 20), "cache": (4 << 30, 12 << 30)}


# Words by which mkfs.xfs takes one allocation group, as it did when the set-up was published; else it wants two.
ONE_GROUP = {"TEST_DIR": "x", "TEST_DEV": "x", "QA_CHECK_FS": "x"}


def run(*words):
    environment = {**os.environ, **ONE_GROUP} if words[0] == "mkfs.xfs" else None
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout.strip()


class Stand:
    """Drives, slices of the SSD, and what is mounted; undone in the opposite order."""

    def __init__(self, scratch):
        self.undo = []
        self.scratch = scratch

    def place(self, name):
        place = f"{self.scratch}/{name}"
        os.makedirs(place, exist_ok=True)
        return place

    def disk(self, model, size):
        place = self.place(model)
        device = run(BRINDLE, "lab", "disk", "--attach", "--size", size, model, place)
        self.undo.append((BRINDLE, "lab", "stop", place))
        return device

    def slice(self, device, name):
        offset, length = SLICES[name]
        words = ("losetup", "--find", "--show", "--direct-io=on", "--offset", str(offset), "--sizelimit", str(length))
        found = run(*words, device)
        self.undo.append(("losetup", "-d", found))
        return found

    def mount(self, device, name, *options):
        place = self.place(name)
        run("mount", *options, device, place)
        self.undo.append(("umount", place))
        return place

    def end(self):
        while self.undo:
            run(*self.undo.pop())


def rate_in_order(disk):
    """MiB a second of 2 GiB of direct writes of 1 MiB, four at once."""
    words = ["fio", "--name=rate", f"--filename={disk}", "--rw=write", "--bs=1m", "--size=2g", "--direct=1"]
    said = run(*words, "--ioengine=libaio", "--iodepth=4", "--output-format=json")
    return json.loads(said[said.index("{"):])["jobs"][0]["write"]["bw_bytes"] / (1 << 20)


def trial(configuration, clients, scratch):
    stand = Stand(scratch)
    try:
        ssd, hdd = stand.disk("ssd", "17G"), stand.disk("hdd", "64G")
        journal, log = stand.slice(ssd, "journal"), stand.slice(ssd, "log")
        rate = rate_in_order(hdd)
        home = hdd
        if configuration == "cache":
            flash = stand.slice(ssd, "cache")
            run(BRINDLE, "cache", "create", "-p", "back", "fsdc", flash, hdd)
            place = stand.place("cache")
            home = run(BRINDLE, "cache", "load", "--attach", flash, hdd, place)
            stand.undo.append((BRINDLE, "cache", "stop", place))
            run(BRINDLE, "cache", "set", "skip_seq_thresh_kb=32", place)
        outside = [] if configuration == "bare" else [f"logdev={log}"]
        log_options = [",".join([*outside, "size=128m"])]
        run("mkfs.xfs", "-q", "-f", "-K", "-i", "size=2048", "-d", "agcount=1", "-l", *log_options, home)
        options = ",".join([*outside, "logbsize=256k", "inode64", "noatime"])
        run("mkfs.xfs", "-q", "-f", "-K", journal)
        journals = stand.mount(journal, "journals")
        mounted = stand.mount(home, "store", "-o", options)
        disks = [word for name in ("ssd", "hdd") for word in ("--disk", stand.place(name))]
        work = ("--seed", "1", "--count", str(OBJECTS // clients), "--jobs", str(clients))
        said = run(BRINDLE, "lab", "run", "objects", "--json", *work, *disks, "--journal", journals, mounted)
        found = json.loads(said)
        phase = found["phases"][0]
        run(*stand.undo.pop())
        repair = ["xfs_repair", "-n", "-o", "force_geometry", *(["-l", log] if outside else []), home]
        run(*repair)
        return phase["bytes_per_second"] / (1 << 20), rate, phase["disks"][1]["seeks"] / phase["operations"], found
    finally:
        stand.end()


def main():
    # So that drives and mounts are undone then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    chosen = sys.argv[1:] or ["bare", "log", "cache"]
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(RUNS):
            for clients in CLIENTS:
                for configuration in chosen:
                    result = trial(configuration, clients, scratch)
                    found.setdefault((clients, configuration), []).append(result)
                    print(clients, configuration, *(f"{value:.2f}" for value in result[:3]), file=sys.stderr, flush=True)
    print("| clients | set-up | MiB/s | of the disk's rate | seeks an object |\n|---|---|---|---|---|")
    for (clients, configuration), results in found.items():
        speeds = sorted(result[0] for result in results)
        part = statistics.median(result[0] / result[1] for result in results)
        seeks = statistics.median(result[2] for result in results)
        print(
            f"| {clients} | {configuration} | {statistics.median(speeds):.0f} ({speeds[0]:.0f} to {speeds[-1]:.0f}) "
            f"| {part:.2f} | {seeks:.1f} |"
        )


main()

#!/usr/bin/env python3
"""Threads that change and fsync a file each, in a loop, on a modelled disk: fsyncs a second (root).

  BRINDLE=target/release/brindle bench-syncs.py [CONFIGURATION...]

Each configuration is one of NAME=PROGRAM (brindle by that program), btrfs and ext4 (the kernel's). On the disk MODEL (hdd), THREADS (8) threads
write 4 KiB and fsync, COUNT (40) times each; between two of its fsyncs a thread does nothing for a random time of up to PAUSE (0)
seconds. RUNS (5) rounds, the configurations in turns; each trial is printed, and the medians at the end.
"""
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

BRINDLE = os.environ.get("BRINDLE", "brindle")
MODEL = os.environ.get("MODEL", "hdd")
THREADS = int(os.environ.get("THREADS", "8"))
COUNT = int(os.environ.get("COUNT", "40"))
PAUSE = float(os.environ.get("PAUSE", "0"))


def run(*words):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def measure(directory):
    for number in range(THREADS):
        with open(f"{directory}/{number}", "wb") as file:
            file.write(os.urandom(16 << 10))
    run("sync", "-f", directory)
    start = threading.Barrier(THREADS + 1)

    def work(number):
        file = os.open(f"{directory}/{number}", os.O_WRONLY)
        start.wait()
        for count in range(COUNT):
            os.pwrite(file, os.urandom(4096), count % 4 * 4096)
            os.fsync(file)
            if PAUSE:
                time.sleep(random.random() * PAUSE)
        os.close(file)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    start.wait()
    begin = time.monotonic()
    for thread in threads:
        thread.join()
    return THREADS * COUNT / (time.monotonic() - begin)


def trial(configuration, scratch):
    name, _, program = configuration.partition("=")
    disk, mount = (f"{scratch}/{part}" for part in ("disk", "mount"))
    os.makedirs(disk, exist_ok=True)
    os.makedirs(mount, exist_ok=True)
    device = run(BRINDLE, "lab", "disk", "--attach", "--size", "16G", MODEL, disk)
    try:
        if name == "ext4":
            run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
        else:
            run(BRINDLE, "-q", "mkfs", "-f", "-m", "single", "-d", "single", device)
        if program:
            run(program, "-q", "mount", "-o", "noatime", device, mount)
        else:
            run("mount", "-t", name, "-o", "noatime", device, mount)
        try:
            rate = measure(mount)
        finally:
            run("umount", mount)
    finally:
        run(BRINDLE, "lab", "stop", disk)
    print(name, f"{rate:.1f}", flush=True)
    return name, rate


def main():
    configurations = sys.argv[1:] or [f"brindle={BRINDLE}", "btrfs", "ext4"]
    rates = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        for _ in range(int(os.environ.get("RUNS", "5"))):
            for configuration in configurations:
                name, rate = trial(configuration, scratch)
                rates.setdefault(name, []).append(rate)
    for name, taken in rates.items():
        print(f"{name}: median {statistics.median(taken):.1f} ({min(taken):.1f} to {max(taken):.1f})")


main()

#!/usr/bin/env python3
"""Fsyncs of small files beside a program that writes a large file: latencies on modelled disks (root).

  BRINDLE=target/release/brindle bench-stalls.py [CONFIGURATION...]

Each configuration is one of NAME=PROGRAM (brindle by that program, on an SSD and a hard disk), btrfs (the kernel's, on
both, metadata on the SSD) and ext4 (on the SSD alone). For SECONDS (20), one thread writes RATE (40) MiB a second to a
file, another one writes and fsyncs files of 4 KiB. Prints, for each, the number of fsyncs, and milliseconds at the median, at 90,
99 and 99.9 of 100, and at most. RUNS (5) rounds, the configurations in turns. OPTIONS (commit=5) are those of the mounts.
"""
import os
import subprocess
import sys
import tempfile
import threading
import time

BRINDLE = os.environ.get("BRINDLE", "brindle")
SECONDS = float(os.environ.get("SECONDS_EACH", "20"))
RATE = float(os.environ.get("RATE", "40"))
OPTIONS = os.environ.get("OPTIONS", "commit=5")


def run(*words):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def write(directory, ended):
    block, written, begin = os.urandom(1 << 20), 0, time.monotonic()
    file = os.open(f"{directory}/large", os.O_CREAT | os.O_WRONLY, 0o644)
    while not ended.is_set():
        os.write(file, block)
        written += 1
        ended.wait(max(0, written / RATE - (time.monotonic() - begin)))
    os.close(file)


def measure(directory):
    ended, taken, begin = threading.Event(), [], time.monotonic()
    writer = threading.Thread(target=write, args=(directory, ended))
    writer.start()
    while time.monotonic() - begin < SECONDS:
        before = time.monotonic()
        file = os.open(f"{directory}/small{len(taken) % 50}", os.O_CREAT | os.O_WRONLY, 0o644)
        os.write(file, b"s" * 4096)
        os.fsync(file)
        os.close(file)
        taken.append((time.monotonic() - before) * 1000)
        time.sleep(0.005)
    ended.set()
    writer.join()
    return sorted(taken)


def trial(configuration, scratch):
    name, _, program = configuration.partition("=")
    places = [f"{scratch}/{part}" for part in ("ssd", "hdd", "mount")]
    for place in places:
        os.makedirs(place, exist_ok=True)
    ssd, hdd, mount = places
    devices = [
        run(BRINDLE, "lab", "disk", "--attach", "--size", size, model, place)
        for model, size, place in (("ssd", "2G", ssd), ("hdd", "8G", hdd))
    ]
    try:
        if name == "ext4":
            run("mkfs.ext4", "-q", "-F", devices[0])
            run("mount", "-o", OPTIONS, devices[0], mount)
        else:
            classes = [f"{devices[0]}:fast", f"{devices[1]}:bulk"]
            run(BRINDLE, "mkfs", "-q", "-f", "-m", "single", "-d", "single", *classes)
            if program:
                run(program, "mount", "-o", OPTIONS, *devices, mount)
            else:
                run("btrfs", "device", "scan", *devices)
                run("mount", "-t", "btrfs", "-o", OPTIONS, devices[0], mount)
        try:
            taken = measure(mount)
        finally:
            run("umount", mount)
    finally:
        for place in (ssd, hdd):
            run(BRINDLE, "lab", "stop", place)
    at = [taken[min(len(taken) - 1, int(len(taken) * part))] for part in (0.5, 0.9, 0.99, 0.999)]
    print(name, len(taken), *(f"{value:.1f}" for value in [*at, taken[-1]]), flush=True)


def main():
    configurations = sys.argv[1:] or [f"brindle={BRINDLE}", "btrfs", "ext4"]
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(int(os.environ.get("RUNS", "5"))):
            for configuration in configurations:
                trial(configuration, scratch)


main()

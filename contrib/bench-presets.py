#!/usr/bin/env python3
"""Models of drives in real time, measured by fio, beside virtual time and the published figures.

  BRINDLE=target/release/brindle bench-presets.py [PRESET...]     root, fio, a quiet machine; 4 minutes

Each job of crates/lab/src/rates.rs runs for SECONDS_EACH (5), two seconds after its start, on a loop device of `brindle lab disk --attach`, by libaio and direct I/O.
Virtual time comes from the file VIRTUAL, which has the output of

  cargo test -p brindle-lab --lib presets_are -- --nocapture

Prints the table, and at the end how many of the jobs are within 5 % of virtual time. Where more than one answer in a thousand was over
1 ms late, the machine was busy: measure again.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

BRINDLE = os.environ.get("BRINDLE", "brindle")
SECONDS = os.environ.get("SECONDS_EACH", "5")
VIRTUAL = os.environ.get("VIRTUAL")
# A line of the test: preset, job, rate, published range.
LINE = re.compile(r"^(\S+) +(\w+)(?:\( *(\d+)\))? +(\d+) +(\S+) to (\S+)$")


def jobs_of(text):
    """Preset, job, queue depth, virtual rate, published range."""
    found = [LINE.match(line) for line in text.splitlines()]
    return [
        (at[1], at[2], int(at[3] or 0), float(at[4]), float(at[5]), float(at[6]))
        for at in found if at
    ]


def fio(device, job, depth):
    words = {
        "RandomReads": ["--rw=randread", "--bs=4k", f"--iodepth={depth}"],
        "RandomWrites": ["--rw=randwrite", "--bs=4k", f"--iodepth={depth}"],
        "Reads": ["--rw=read", "--bs=1m", "--iodepth=4"],
        "Writes": ["--rw=write", "--bs=1m", "--iodepth=4"],
        "SyncedWrites": ["--rw=write", "--bs=4k", "--iodepth=1", "--fdatasync=1"],
    }[job]
    # Zeros take no memory of the disk.
    common = [
        "fio", "--name=preset", f"--filename={device}", "--ioengine=libaio", "--direct=1", "--time_based",
        f"--runtime={SECONDS}", "--ramp_time=2", "--randrepeat=1", "--norandommap", "--zero_buffers=1", "--output-format=json",
    ]
    said = subprocess.run(common + words, check=True, stdout=subprocess.PIPE, text=True).stdout
    side = json.loads(said)["jobs"][0]["read" if "Reads" in job else "write"]
    return side["bw_bytes"] if job in ("Reads", "Writes") else side["iops"]


def measure(preset, job, depth):
    """The rate, and the share of answers that were late."""
    with tempfile.TemporaryDirectory() as place:
        line = [BRINDLE, "lab", "disk", "--attach", preset, place]
        device = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        try:
            rate = fio(device, job, depth)
            line = [BRINDLE, "lab", "stats", "--json", place]
            stats = json.loads(subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout)
        finally:
            subprocess.run([BRINDLE, "lab", "stop", place], check=True)
    return rate, stats["late_answers"] / max(stats["answers"], 1)


def short(number):
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 10 * factor or (unit != "k" and number >= factor):
            return f"{number / factor:.4g} {unit}"
    return f"{number:.4g}"


def main():
    if not VIRTUAL:
        raise SystemExit("VIRTUAL: no file with the output of the test presets_are")
    with open(VIRTUAL) as file:
        jobs = jobs_of(file.read())
    if not jobs:
        raise SystemExit(f"{VIRTUAL} has no line of the test presets_are")
    chosen = [job for job in jobs if not sys.argv[1:] or job[0] in sys.argv[1:]]
    print("| preset | job | fio, real time | virtual time | ratio | published | over 1 ms late |")
    print("|---|---|---|---|---|---|---|")
    near = 0
    for preset, job, depth, virtual, least, greatest in chosen:
        rate, late = measure(preset, job, depth)
        ratio = rate / virtual
        near += 0.95 <= ratio <= 1.05
        name = f"{job}({depth})" if depth else job
        print(
            f"| `{preset}` | {name} | {short(rate)} | {short(virtual)} | {ratio:.2f} "
            f"| {short(least)} to {short(greatest)} | {late * 100:.2f} % |",
            flush=True,
        )
    print(f"\n{near} of {len(chosen)} jobs are within 5 % of virtual time.")


if __name__ == "__main__":
    main()

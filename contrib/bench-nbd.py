#!/usr/bin/env python3
"""Speed of a served image file over NBD, beside nbdkit's file plugin, by fio's client.

  BRINDLE=target/release/brindle bench-nbd.py

Both serve the same file of SIZE (1) GiB, at a unix socket, and take turns: for each kind of request RUNS (5) rounds of
SECONDS_EACH (3) seconds. Prints requests per second of each at the median, the ratio with its range, and microseconds of the
servers' processor time for a request. SCRATCH (a directory) has the file, and so tells the filesystem below.
"""
import json
import os
import statistics
import subprocess
import tempfile
import time

BRINDLE = os.environ.get("BRINDLE", "brindle")
RUNS = int(os.environ.get("RUNS", "5"))
SECONDS = os.environ.get("SECONDS_EACH", "3")
SIZE = int(os.environ.get("SIZE", "1")) << 30
KINDS = [
    (words, block, depth)
    for block, depths in (("4k", (1, 32)), ("1m", (1, 8)))
    for depth in depths
    for words in ("randread", "randwrite")
]


def serve(server, socket, image):
    words = {
        "brindle": [BRINDLE, "-q", "export", "--socket", socket, image],
        "nbdkit": ["nbdkit", "--foreground", "--unix", socket, "file", image],
    }[server]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 10
    while not os.path.exists(socket):
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"{server} does not serve")
        time.sleep(0.01)
    return process


def processor_seconds(process):
    with open(f"/proc/{process.pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def trial(server, scratch, kind):
    work, block, depth = kind
    socket = f"{scratch}/{server}"
    process = serve(server, socket, f"{scratch}/image")
    try:
        fio = [
            "fio", "--name=nbd", "--ioengine=nbd", f"--uri=nbd+unix:///?socket={socket}", f"--rw={work}",
            f"--bs={block}", f"--iodepth={depth}", f"--size={SIZE}", "--time_based", f"--runtime={SECONDS}",
            "--randrepeat=1", "--norandommap", "--output-format=json",
        ]
        said = subprocess.run(fio, check=True, stdout=subprocess.PIPE, text=True, cwd=scratch).stdout
        used = processor_seconds(process)
    finally:
        process.terminate()
        process.wait()
        if os.path.exists(socket):
            os.remove(socket)
    job = json.loads(said[said.index("{"):])["jobs"][0]["read" if work == "randread" else "write"]
    return job["iops"], used / job["total_ios"] * 1e6


def main():
    with tempfile.TemporaryDirectory(dir=os.environ.get("SCRATCH")) as scratch:
        with open(f"{scratch}/image", "wb") as image:
            for _ in range(SIZE >> 20):
                image.write(os.urandom(1 << 20))
        print("| request | depth | brindle | nbdkit | ratio | processor, brindle | nbdkit |\n|---|---|---|---|---|---|---|")
        for kind in KINDS:
            rounds = []
            for number in range(RUNS):
                servers = ["brindle", "nbdkit"] if number % 2 == 0 else ["nbdkit", "brindle"]
                rounds.append({server: trial(server, scratch, kind) for server in servers})
            of = lambda server, index: statistics.median(found[server][index] for found in rounds)
            ratios = sorted(found["brindle"][0] / found["nbdkit"][0] for found in rounds)
            work, block, depth = kind
            print(
                f"| {work[4:]} {block} | {depth} | {of('brindle', 0):.0f} | {of('nbdkit', 0):.0f} "
                f"| {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) "
                f"| {of('brindle', 1):.1f} us | {of('nbdkit', 1):.1f} us |",
                flush=True,
            )


main()

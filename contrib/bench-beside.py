#!/usr/bin/env python3
"""One fsync of a new file of 4 KiB beside new files that are not synced: its time, and the bytes that it writes.

  bench-beside.py DIRECTORY LOOP COUNT    LOOP is the loop device of the filesystem; prints milliseconds and KiB
"""
import os
import sys
import time


def written(device):
    with open(f"/sys/block/{os.path.basename(device)}/stat", encoding="ascii") as stat:
        return int(stat.read().split()[6]) * 512


def main():
    directory, device, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.makedirs(f"{directory}/many")
    os.makedirs(f"{directory}/one")
    os.sync()
    # A first one, which may find that the log has no chunk.
    for name, number in (("first", 0), ("synced", count)):
        for other in range(number):
            os.close(os.open(f"{directory}/many/{other:06}", os.O_CREAT | os.O_WRONLY, 0o644))
        file = os.open(f"{directory}/one/{name}", os.O_CREAT | os.O_WRONLY, 0o644)
        os.write(file, b"f" * 4096)
        before, begin = written(device), time.monotonic()
        os.fsync(file)
        took, bytes_written = time.monotonic() - begin, written(device) - before
        os.close(file)
    print(f"{took * 1000:.2f} {bytes_written / 1024:.0f}")


main()

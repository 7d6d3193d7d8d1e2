#!/usr/bin/env python3
"""Fills a directory with files for contrib/bench.sh: the same bytes each time.

usage: bench-tree.py tree DIR COUNT      sizes as in a source tree, most below 16 KiB
       bench-tree.py small DIR COUNT     a thousand to a directory, nine in ten empty
       bench-tree.py create DIR COUNT N  empty files, by N processes, each in a directory of its own
       bench-tree.py delete DIR COUNT N  these files
       bench-tree.py grow DIR COUNT...   empty files, a thousand to a directory; at each number, how many a second
"""

import os
import random
import sys
import time


def tree(root, count):
    generator = random.Random(7)
    blob = generator.randbytes(1 << 20)
    for number in range(count):
        directory = f"{root}/d{number // 1000:03d}/s{number // 50 % 20:02d}"
        os.makedirs(directory, exist_ok=True)
        kind = generator.random()
        if kind < 0.3:
            size = generator.randrange(0, 2000)
        elif kind < 0.85:
            size = generator.randrange(2048, 16384)
        elif kind < 0.98:
            size = generator.randrange(16384, 131072)
        else:
            size = generator.randrange(131072, 1 << 20)
        start = generator.randrange(0, len(blob) - 1)
        with open(f"{directory}/file{number % 50:03d}.c", "wb") as file:
            file.write((blob[start:] + blob)[:size])


def small(root, count):
    for number in range(count):
        directory = f"{root}/d{number // 1000:04d}"
        if number % 1000 == 0:
            os.mkdir(directory)
        with open(f"{directory}/f{number % 1000:04d}", "wb") as file:
            if number % 10 == 0:
                file.write(b"x" * (number % 1000 * 5 + 10))


def spread(work, root, count, processes):
    children = []
    for process in range(processes):
        child = os.fork()
        if child == 0:
            work(f"{root}/p{process}", count // processes)
            os._exit(0)
        children.append(child)
    if any(os.waitpid(child, 0)[1] for child in children):
        sys.exit("a process failed")


def create(directory, count):
    os.mkdir(directory)
    for number in range(count):
        os.close(os.open(f"{directory}/file{number:06d}", os.O_CREAT | os.O_WRONLY, 0o644))


def delete(directory, count):
    for number in range(count):
        os.unlink(f"{directory}/file{number:06d}")
    os.rmdir(directory)


def grow(root, counts):
    done = 0
    print(f"{'files':>9} {'create/s':>9} {'sync ms':>9}")
    for count in counts:
        new, begin = count - done, time.monotonic()
        while done < count:
            directory = f"{root}/d{done // 1000:04d}"
            if done % 1000 == 0:
                os.mkdir(directory)
            os.close(os.open(f"{directory}/f{done % 1000:04d}", os.O_CREAT | os.O_WRONLY, 0o644))
            done += 1
        last = time.monotonic()
        os.sync()
        end = time.monotonic()
        print(f"{done:9} {new / (end - begin):9.0f} {1000 * (end - last):9.1f}", flush=True)


if sys.argv[1] == "grow":
    grow(sys.argv[2], [int(count) for count in sys.argv[3:]])
elif sys.argv[1] in ("create", "delete"):
    spread({"create": create, "delete": delete}[sys.argv[1]], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
else:
    {"tree": tree, "small": small}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))

#!/usr/bin/env python3
"""Fills a directory with files for contrib/bench.sh: the same bytes each time.

usage: bench-tree.py tree DIR COUNT      sizes as in a source tree, most below 16 KiB
       bench-tree.py small DIR COUNT     a thousand to a directory, nine in ten empty
"""

import os
import random
import sys


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


{"tree": tree, "small": small}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))

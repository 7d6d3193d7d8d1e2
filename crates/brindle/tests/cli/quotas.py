"""Processes that write, delete and share data of subvolumes, some of them members of a quota group, beside one that makes
snapshots of members, deletes them and has all counted anew:

    quotas.py BRINDLE DIRECTORY SEED [CALM]

With CALM there are no snapshots that make the numbers unknown, and no counting anew. Prints a line for each thing that the
last one has done. It ends when the mount does.
"""

import os
import random
import subprocess
import sys

WRITERS = 8
SUBVOLUMES = 4
FILES = 12
# Files that make the trees of subvolumes have more than one leaf.
SMALL = 400


def write(path, draw):
    with open(path, "r+b" if os.path.exists(path) else "wb") as file:
        file.seek(draw.randrange(16) * 4096)
        file.write(bytes([draw.randrange(256)]) * draw.choice([100, 3000, 20_000, 150_000]))
        if draw.randrange(6) == 0:
            os.fsync(file.fileno())


def share(path, draw, other):
    source, target = os.open(other, os.O_RDONLY), os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.copy_file_range(source, target, 1 << 16, 0, draw.randrange(4) * 4096)
    finally:
        os.close(source)
        os.close(target)


def cut(path, draw):
    os.truncate(path, draw.randrange(100_000))


def fill(directory):
    for number in range(SUBVOLUMES * SMALL):
        path = f"{directory}/sub{number % SUBVOLUMES}/small{number}"
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT))


def work(directory, seed):
    draw = random.Random(seed)
    paths = [f"{directory}/sub{s}/f{f}" for s in range(SUBVOLUMES) for f in range(FILES)]
    while True:
        path = draw.choice(paths)
        try:
            what = draw.randrange(12)
            if what >= 10:
                small = draw.randrange(SUBVOLUMES * SMALL)
                os.utime(f"{directory}/sub{small % SUBVOLUMES}/small{small}")
            elif what < 5:
                write(path, draw)
            elif what < 7:
                share(path, draw, draw.choice(paths))
            elif what < 8:
                cut(path, draw)
            else:
                os.unlink(path)
        except OSError:
            if not os.path.isdir(f"{directory}/sub0"):
                return


def care(brindle, directory, seed, calm):
    draw = random.Random(seed)
    alive, made = [], 0

    def run(*words):
        done = subprocess.run([brindle, "-q", *words], capture_output=True, check=False).returncode == 0
        print(*words, done, flush=True)
        return done

    while os.path.isdir(f"{directory}/sub0"):
        what = draw.randrange(8)
        if what < 3 and len(alive) < 4:
            made += 1
            # The last subvolume is part of no group.
            source = SUBVOLUMES - 1 if calm else draw.randrange(SUBVOLUMES)
            if run("subvolume", "snapshot", f"{directory}/sub{source}", f"{directory}/copy{seed}-{made}"):
                alive.append(made)
        elif what < 5 and alive:
            gone = alive.pop(draw.randrange(len(alive)))
            run("subvolume", "delete", f"{directory}/copy{seed}-{gone}")
        elif what < 6 and not calm:
            run("quota", "rescan", directory)
        else:
            run("filesystem", "sync", directory)


def main():
    brindle, directory, seed, calm = sys.argv[1], sys.argv[2], int(sys.argv[3]), "CALM" in sys.argv[4:]
    fill(directory)
    children = []
    for number in range(WRITERS + 1):
        child = os.fork()
        if child == 0:
            if number < WRITERS:
                work(directory, seed * 100 + number)
            else:
                care(brindle, directory, seed, calm)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


main()

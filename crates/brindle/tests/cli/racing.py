"""Processes that make, write, sync and unlink a few files, beside processes that change what the same names stand for:

    racing.py DIRECTORY SECONDS SEED [KIND]

KIND is one of KINDS; without it each round draws one. Exits with 1 and says why if the filesystem has turned read-only, or
answers what no order of the operations could give.
"""

import errno
import os
import random
import sys
import time

FILES = 4
MAKERS = CHANGERS = 4
# What an operation may meet that comes too late or too early.
RACED = {errno.ENOENT, errno.EEXIST, errno.ESTALE, errno.ENODATA}


def times(path, _):
    os.utime(path)


def mode(path, draw):
    os.chmod(path, 0o600 + draw.randrange(64))


def length(path, draw):
    os.truncate(path, draw.randrange(10_000))


def attribute(path, _):
    os.setxattr(path, "user.a", b"x")


def contents(path, _):
    with open(path, "rb") as file:
        file.read(10)


def link(path, _):
    os.link(path, path + "-linked")
    os.unlink(path + "-linked")


def name(path, draw):
    os.rename(path, path[:-1] + str(draw.randrange(FILES)))


KINDS = [times, mode, length, attribute, contents, link, name]


def make(path, draw):
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.write(file, b"\7" * (11 if draw.randrange(4) else 20_000))
        if draw.randrange(8) == 0:
            os.fsync(file)
    finally:
        os.close(file)
    os.unlink(path)


def race(directory, until, seed, kinds):
    """Returns what went wrong, if something did."""
    draw = random.Random(seed)
    while time.monotonic() < until:
        path = f"{directory}/r{draw.randrange(FILES)}"
        try:
            draw.choice(kinds)(path, draw)
        except OSError as error:
            if error.errno not in RACED:
                return f"{path}: {error}"
    return None


def main():
    directory, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    changes = [kind for kind in KINDS if kind.__name__ in sys.argv[4:]] or KINDS
    until = time.monotonic() + seconds
    children = []
    for number in range(MAKERS + CHANGERS):
        child = os.fork()
        if child == 0:
            wrong = race(directory, until, seed + number, [make] if number < MAKERS else changes)
            if wrong:
                print(wrong, file=sys.stderr, flush=True)
            os._exit(1 if wrong else 0)
        children.append(child)
    sys.exit(1 if any(os.waitpid(child, 0)[1] for child in children) else 0)


main()

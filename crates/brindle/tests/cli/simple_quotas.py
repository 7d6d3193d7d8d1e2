"""Subvolumes that share, delete and move data, and the numbers of their quota groups after each part of it:

    simple_quotas.py BRINDLE DIRECTORY [FURTHER]

DIRECTORY is a mount of the kernel or of brindle, without quotas; with FURTHER one on which this has run before. Prints the tables of `brindle qgroup show`.
"""

import os
import subprocess
import sys
import time

BRINDLE, DIRECTORY = sys.argv[1:3]
KIB = 1 << 10


def at(path):
    return f"{DIRECTORY}/{path}"


def brindle(*words):
    subprocess.run([BRINDLE, "-q", *words], check=True, stdout=subprocess.DEVNULL)


def write(path, offset, length):
    descriptor = os.open(at(path), os.O_WRONLY | os.O_CREAT, 0o644)
    os.pwrite(descriptor, os.urandom(length), offset)
    os.fsync(descriptor)
    os.close(descriptor)


def share(source, target):
    source, target = os.open(at(source), os.O_RDONLY), os.open(at(target), os.O_WRONLY | os.O_CREAT, 0o644)
    assert os.copy_file_range(source, target, os.fstat(source).st_size, 0, 0) > 0
    os.fsync(target)
    os.close(source)
    os.close(target)


def table():
    brindle("filesystem", "sync", DIRECTORY)
    show = [BRINDLE, "qgroup", "show", "--raw", "-pcre", DIRECTORY]
    return subprocess.run(show, check=True, capture_output=True, text=True).stdout


def show(what):
    # The kernel forgets the inode of a file behind the program's back, and it is counted until then.
    shown, before = table(), None
    while shown != before:
        time.sleep(0.1)
        shown, before = table(), shown
    print(what, flush=True)
    print(shown, end="", flush=True)


def deleted(*names):
    # They are cleaned up after a commit.
    brindle("subvolume", "delete", "--commit", *map(at, names))
    brindle("subvolume", "sync", DIRECTORY)


def main():
    write("before", 0, 512 * KIB)
    brindle("filesystem", "sync", DIRECTORY)
    brindle("quota", "enable", "--simple", DIRECTORY)
    brindle("qgroup", "create", "1/1", DIRECTORY)
    brindle("subvolume", "create", at("a"))
    brindle("qgroup", "assign", at("a"), "1/1", DIRECTORY)
    write("a/f", 0, 1024 * KIB)
    write("a/g", 0, 192 * KIB)
    brindle("subvolume", "create", at("a/within"))
    brindle("subvolume", "create", at("other"))
    share("a/f", "other/f")
    share("before", "other/before")
    brindle("subvolume", "snapshot", at("a"), at("copy"))
    brindle("subvolume", "snapshot", at("other"), at("a/copy-of-other"))
    write("copy/f", 0, 64 * KIB)
    write("other/h", 0, 448 * KIB)
    os.unlink(at("before"))
    show("shared")
    with open(at("other/planned"), "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 1024 * KIB)
        os.fsync(file.fileno())
    write("other/planned", 64 * KIB, 64 * KIB)
    os.truncate(at("other/planned"), 128 * KIB)
    write("a/within/twice", 0, 256 * KIB)
    write("a/within/twice", 64 * KIB, 64 * KIB)
    os.unlink(at("a/g"))
    show("written")
    deleted("a/within", "a/copy-of-other", "a")
    os.unlink(at("other/before"))
    show("deleted")
    os.unlink(at("other/f"))
    brindle("balance", "start", "--full-balance", DIRECTORY)
    show("moved")
    for name in ("f", "g"):
        os.unlink(at(f"copy/{name}"))
        show(f"without {name}")
    brindle("qgroup", "clear-stale", DIRECTORY)
    show("without stale groups")


def further():
    show("as left")
    write("copy/more", 0, 256 * KIB)
    share("other/h", "copy/h")
    brindle("qgroup", "assign", at("other"), "1/1", DIRECTORY)
    brindle("subvolume", "snapshot", at("copy"), at("other/copy"))
    show("shared again")
    deleted("other/copy", "other")
    show("deleted again")
    brindle("balance", "start", "--full-balance", DIRECTORY)
    os.unlink(at("copy/h"))
    show("nothing left")
    brindle("qgroup", "destroy", "0/258", DIRECTORY)
    brindle("quota", "disable", DIRECTORY)
    write("copy/uncounted", 0, 128 * KIB)
    brindle("quota", "enable", "--simple", DIRECTORY)
    os.unlink(at("copy/more"))
    write("copy/last", 0, 64 * KIB)
    show("counted from now on")


further() if "FURTHER" in sys.argv[3:] else main()

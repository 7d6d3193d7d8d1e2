"""Many of everything at once: `limits.py PLACE FILES RENAMES PROCESSES ROUNDS`. Files that are open at the same time; renames in a
directory that is being listed; processes that write and delete on a pool that they have filled. Nothing may hang, and nothing may
fail but for lack of room. The pool is to be small, for it is filled."""

import errno
import os
import random
import resource
import subprocess
import sys

place = sys.argv[1]
files, renames, processes, rounds = map(int, sys.argv[2:6])
NAME_BYTES = 255


def together(count, work):
    """Does work in processes of their own."""
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                work(number)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
    assert not failed, f"{len(failed)} of {count} processes failed"


def open_files():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    workers = max(8, files // (hard - 200) + 1)
    share = files // workers

    def work(number):
        resource.setrlimit(resource.RLIMIT_NOFILE, (share + 100, hard))
        own = os.path.join(place, f"open-{number}")
        os.mkdir(own)
        held = []
        for index in range(share):
            name = os.path.join(own, str(index).ljust(NAME_BYTES, "n"))
            held.append((name, os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)))
        for name, _ in held:
            os.unlink(name)
        assert os.listdir(own) == []
        for index, (_, file) in enumerate(held):
            if index % 16 == 0:
                os.pwrite(file, str(index).encode(), 0)
                assert os.pread(file, 20, 0) == str(index).encode() and os.fstat(file).st_nlink == 0
        for _, file in held:
            os.close(file)
        os.rmdir(own)
    together(workers, work)


def renamed_while_listed():
    listed, count = os.path.join(place, "listed"), 2000
    os.mkdir(listed)
    for number in range(count):
        os.close(os.open(os.path.join(listed, f"a{number}"), os.O_CREAT | os.O_WRONLY))
    done = os.path.join(place, "done")

    def work(number):
        if number == 0:
            for step in range(renames):
                index, turn = step % count, step // count % 2
                names = [os.path.join(listed, f"{letter}{index}") for letter in "ab"]
                os.rename(names[turn], names[1 - turn])
            os.close(os.open(done, os.O_CREAT | os.O_WRONLY))
            return
        is_last = False
        while not is_last:
            is_last = os.path.exists(done)
            numbers = [int(name[1:]) for name in os.listdir(listed)]
            # Each file is seen, by one of its names or by both.
            assert set(numbers) == set(range(count)) and len(numbers) <= 2 * count, len(set(numbers))
    together(4, work)
    for name in os.listdir(listed):
        os.unlink(os.path.join(listed, name))
    os.rmdir(listed)


def full():
    def work(number):
        rng = random.Random(number)
        own, held, refused = os.path.join(place, f"full-{number}"), [], 0
        try:
            os.mkdir(own)
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
            return
        for step in range(rounds):
            name = os.path.join(own, str(step))
            try:
                file = os.open(name, os.O_CREAT | os.O_WRONLY)
                try:
                    os.write(file, rng.randbytes(rng.choice([100, 5000, 300_000, 3_000_000])))
                    if rng.random() < 0.3:
                        os.fsync(file)
                finally:
                    held.append(name)
                    os.close(file)
                if rng.random() < 0.3:
                    os.rename(held[-1], held[-1] + "r")
                    held[-1] += "r"
            except OSError as error:
                assert error.errno == errno.ENOSPC, error
                refused += 1
                while len(held) > step // 4:
                    os.unlink(held.pop(rng.randrange(len(held))))
        for name in held:
            os.unlink(name)
        os.rmdir(own)
        if number == 0:
            print("refused", refused)
    together(processes, work)


open_files()
renamed_while_listed()
full()
# Not sync(2), which would have every pool of the machine commit, and other tests wait for a crash. It fails for contents that found
# no room.
subprocess.run(["sync", "-f", place], stderr=subprocess.DEVNULL)
left = sorted(name for name in os.listdir(place) if name != "done")
assert left == [], left

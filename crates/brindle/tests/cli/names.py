"""Programs that change names of a shared tree and sync them, for names.rs.

`work PLACE NOTES ROUND`: eight processes make, replace, link, move and remove names until the mount ends, and note what they
are about to do and what is durable. `look PLACE NOTES`: every name is as it was noted last, or as it was about to be.
"""
import json
import multiprocessing
import os
import random
import shutil
import sys

PROCESSES = 8
NAMES = 30


def sync_directory(path):
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(directory)
    os.close(directory)


def write(path, contents, flags=os.O_EXCL):
    file = os.open(path, os.O_CREAT | os.O_WRONLY | flags, 0o644)
    os.write(file, contents)
    os.fsync(file)
    os.close(file)


def summary(contents):
    return [len(contents), contents[:24].decode()]


class Worker:
    def __init__(self, place, notes, number, turn):
        self.shared, self.own = f"{place}/shared", f"{place}/own{number}"
        self.random = random.Random(turn * 100 + number)
        self.number, self.turn = number, turn
        self.notes = open(f"{notes}/{number}", "a", buffering=1)
        self.there = set()

    def note(self, state, name, value):
        self.notes.write(json.dumps([state, name, value]) + "\n")

    def replace(self, step, name):
        contents = f"{self.number} {self.turn} {step} ".encode() * self.random.choice([1, 300, 3000])
        new = f"{self.own}/new{self.turn}-{step}"
        self.note("begun", name, summary(contents))
        write(new, contents)
        os.rename(new, f"{self.shared}/{name}")
        sync_directory(self.shared)
        self.there.add(name)
        self.note("durable", name, summary(contents))

    def remove(self, name):
        self.note("begun", name, None)
        os.unlink(f"{self.shared}/{name}")
        self.there.remove(name)
        sync_directory(self.random.choice([self.shared, self.own]))
        self.note("durable", name, None)

    def move_directory(self):
        own = f"{self.own}/directory{self.random.randrange(4)}"
        shared = f"{self.shared}/directory{self.number}-{self.random.randrange(4)}"
        if not os.path.isdir(own):
            os.mkdir(own)
            write(f"{own}/file", b"x" * 5000)
        elif not os.path.exists(shared):
            os.rename(own, shared)
        else:
            shutil.rmtree(shared)

    def link(self, name):
        link = f"{self.own}/link{self.random.randrange(8)}"
        if os.path.exists(link):
            os.unlink(link)
        else:
            os.link(f"{self.shared}/{name}", link)

    def work(self):
        os.makedirs(self.own, exist_ok=True)
        for step in range(1 << 30):
            name = f"{self.number}-{self.random.randrange(NAMES)}"
            kind = self.random.randrange(8)
            if kind == 0 and name in self.there:
                self.remove(name)
            elif kind == 1:
                self.move_directory()
            elif kind == 2 and name in self.there:
                self.link(name)
            elif kind == 3:
                write(f"{self.own}/log", b"line" * 50, os.O_APPEND)
            else:
                self.replace(step, name)


def run(place, notes, number, turn):
    try:
        Worker(place, notes, number, turn).work()
    except OSError as error:
        # The mount has ended: ENOTCONN, ECONNABORTED, EIO; once it is unmounted nothing is there.
        if error.errno not in (107, 103, 5) and os.path.ismount(place):
            print(f"worker {number}: {error}", file=sys.stderr)
            sys.exit(1)


def work(place, notes, turn):
    os.makedirs(f"{place}/shared", exist_ok=True)
    workers = [
        multiprocessing.Process(target=run, args=(place, notes, number, turn)) for number in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sys.exit(any(worker.exitcode for worker in workers))


def look(place, notes):
    possible = {}
    for number in range(PROCESSES):
        for line in open(f"{notes}/{number}"):
            state, name, value = json.loads(line)
            if state == "durable":
                possible[name] = [value]
            else:
                possible.setdefault(name, [None]).append(value)
    for name, values in possible.items():
        path = f"{place}/shared/{name}"
        found = None
        if os.path.lexists(path):
            with open(path, "rb") as file:
                found = summary(file.read())
        if found not in values:
            print(f"{name}: found {found}, not one of {values}", file=sys.stderr)
            sys.exit(1)
    print(len(possible))


if sys.argv[1] == "work":
    work(sys.argv[2], sys.argv[3], int(sys.argv[4]))
else:
    look(sys.argv[2], sys.argv[3])

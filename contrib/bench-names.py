#!/usr/bin/env python3
"""Programs that change names and sync them, for bench.sh.

  bench-names.py spool DIRECTORY COUNT PROCESSES   mails: create, write, fsync, rename, fsync of the directory
  bench-names.py package DIRECTORY COUNT 1         files that replace others: create, write, fsync, rename over the old one
  bench-names.py sqlite DIRECTORY COUNT 1          transactions of SQLite, with a journal that is deleted after each
  bench-names.py sqlite-wal DIRECTORY COUNT 1      the same with a write-ahead log
"""
import multiprocessing
import os
import sqlite3
import sys


def write(path, contents):
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
    os.write(file, contents)
    os.fsync(file)
    os.close(file)


def spool(directory, count):
    os.makedirs(f"{directory}/tmp")
    os.makedirs(f"{directory}/new")
    new = os.open(f"{directory}/new", os.O_RDONLY | os.O_DIRECTORY)
    for mail in range(count):
        write(f"{directory}/tmp/{mail}", b"m" * 3000)
        os.rename(f"{directory}/tmp/{mail}", f"{directory}/new/{mail}")
        os.fsync(new)
    os.close(new)


def package(directory, count):
    for number in range(count):
        path = f"{directory}/{number % 20}"
        os.makedirs(path, exist_ok=True)
        write(f"{path}/{number // 40}.new", b"f" * 20000)
        os.rename(f"{path}/{number // 40}.new", f"{path}/{number // 40}")


def sqlite(directory, count, mode="DELETE"):
    database = sqlite3.connect(f"{directory}/database", isolation_level=None)
    database.execute(f"PRAGMA journal_mode={mode}")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, text TEXT)")
    for number in range(count):
        database.execute("INSERT INTO rows VALUES (?, ?)", (number, "text" * 50))
    database.close()


def sqlite_wal(directory, count):
    sqlite(directory, count, "WAL")


def main():
    kind, directory, count, processes = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    act = {"spool": spool, "package": package, "sqlite": sqlite, "sqlite-wal": sqlite_wal}[kind]
    directories = [f"{directory}/{number}" for number in range(processes)]
    for path in directories:
        os.makedirs(path)
    workers = [multiprocessing.Process(target=act, args=(path, count)) for path in directories]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sys.exit(any(worker.exitcode for worker in workers))


main()

"""What programs and other filesystems use of a filesystem beside files: locks, leases, notification, overlayfs. `interfaces.py PLACE`
works in PLACE and prints what became of it."""

import ctypes
import fcntl
import os
import select
import signal
import stat
import struct
import subprocess
import sys

libc = ctypes.CDLL(None, use_errno=True)
OFD_SETLK = 37
SETLEASE, GETLEASE = 1024, 1025
IN_ALL = 0xFFF


def attempt(name, act):
    try:
        result = act()
        print(name, "done" if result is None else result, flush=True)
    except OSError as error:
        print(name, error.strerror, flush=True)


def in_child(act):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        act()
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)


def lock(file, command, kind, start, length):
    fcntl.fcntl(file, command, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0))


def locks():
    one, other = open("locked", "w+"), open("locked", "r+")
    attempt("flock", lambda: fcntl.flock(one, fcntl.LOCK_EX))
    attempt("flock of another opening", lambda: fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB))
    attempt("posix", lambda: lock(one, fcntl.F_SETLK, fcntl.F_WRLCK, 0, 10))
    attempt("posix, the same process", lambda: lock(other, fcntl.F_SETLK, fcntl.F_WRLCK, 0, 10))
    in_child(lambda: attempt("posix, another process", lambda: lock(other, fcntl.F_SETLK, fcntl.F_RDLCK, 5, 1)))
    in_child(lambda: attempt("posix, beside it", lambda: lock(other, fcntl.F_SETLK, fcntl.F_WRLCK, 10, 1)))
    attempt("ofd", lambda: lock(one, OFD_SETLK, fcntl.F_RDLCK, 20, 10))
    attempt("ofd of another opening, to read", lambda: lock(other, OFD_SETLK, fcntl.F_RDLCK, 25, 1))
    attempt("ofd of another opening, to write", lambda: lock(other, OFD_SETLK, fcntl.F_WRLCK, 25, 10))
    one.close()
    attempt("after the end of it", lambda: fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB))


def waiting_lock():
    """A lock that is waited for is interrupted by a signal."""
    holder = open("waited", "w+")
    fcntl.flock(holder, fcntl.LOCK_EX)
    read, write = os.pipe()

    def wait():
        class Woken(Exception):
            pass

        def wake(*_):
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise Woken
        signal.signal(signal.SIGALRM, wake)
        waiter = open("waited", "r+")
        try:
            # Again and again: one that comes before the wait has begun does not end it.
            signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
            fcntl.flock(waiter, fcntl.LOCK_EX)
            os.write(write, b"lock")
        except Woken:
            os.write(write, b"woken")
    in_child(wait)
    print("lock that is waited for:", os.read(read, 10).decode())


def leases():
    with open("leased", "w") as out:
        out.write("x")
    reader = open("leased")
    attempt("lease to read", lambda: fcntl.fcntl(reader, SETLEASE, fcntl.F_RDLCK))
    attempt("lease", lambda: fcntl.fcntl(reader, GETLEASE))
    seen = []
    signal.signal(signal.SIGIO, lambda *_: seen.append(1))
    in_child(lambda: attempt("opened to write", lambda: os.open("leased", os.O_WRONLY | os.O_NONBLOCK) and None))
    print("told:", len(seen))
    attempt("lease given up", lambda: fcntl.fcntl(reader, SETLEASE, fcntl.F_UNLCK))


def notification():
    watcher = libc.inotify_init1(os.O_NONBLOCK)
    os.mkdir("watched")
    libc.inotify_add_watch(watcher, b"watched", IN_ALL)

    def work():
        with open("watched/file", "w") as out:
            out.write("contents")
        os.chmod("watched/file", 0o600)
        os.setxattr("watched/file", "user.name", b"value")
        os.link("watched/file", "watched/link")
        os.rename("watched/file", "watched/renamed")
        os.unlink("watched/link")
        os.mkdir("watched/directory")
        os.symlink("x", "watched/symlink")
        open("watched/renamed").read()
        os.truncate("watched/renamed", 1)
    in_child(work)
    while select.select([watcher], [], [], 0)[0]:
        events = os.read(watcher, 4096)
        while events:
            _, mask, _, length = struct.unpack("iIII", events[:16])
            print("event", hex(mask), events[16:16 + length].rstrip(b"\0").decode())
            events = events[16 + length:]


def overlay():
    for name in ("lower", "upper", "work", "merged"):
        os.mkdir(name)
    os.mkdir("lower/directory")
    for name in ("lower/kept", "lower/changed", "lower/gone", "lower/directory/inside"):
        with open(name, "w") as out:
            out.write(name)
    os.setxattr("lower/changed", "user.name", b"value")
    options = "lowerdir=lower,upperdir=upper,workdir=work,redirect_dir=on,index=on"
    mount = subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, "merged"], capture_output=True)
    print("overlay", mount.returncode)
    if mount.returncode:
        return print(mount.stderr)
    try:
        attempt("change", lambda: open("merged/changed", "a").write("more") and None)
        attempt("remove", lambda: os.unlink("merged/gone"))
        attempt("rename of a directory", lambda: os.rename("merged/directory", "merged/moved"))
        attempt("make", lambda: open("merged/new", "w").write("new") and None)
        attempt("directory anew", lambda: os.mkdir("merged/directory"))
        attempt("whiteout", lambda: os.rename("merged/kept", "merged/kept-elsewhere"))
        attempt("unnamed", lambda: os.close(os.open("merged", os.O_TMPFILE | os.O_RDWR, 0o600)))
        print("merged", sorted(os.listdir("merged")), os.listdir("merged/moved"), os.getxattr("merged/changed", "user.name"))
    finally:
        subprocess.run(["umount", "merged"], check=True)
    for name in sorted(os.listdir("upper")):
        told = os.lstat(f"upper/{name}")
        print("upper", name, oct(told.st_mode), told.st_rdev, sorted(x for x in os.listxattr(f"upper/{name}") if "origin" not in x))
    print("changed:", open("upper/changed").read(), stat.S_ISCHR(os.lstat("upper/gone").st_mode))


os.umask(0o022)
os.chdir(sys.argv[1])
os.mkdir("interfaces")
os.chdir("interfaces")
for part in (locks, waiting_lock, leases, notification, overlay):
    part()

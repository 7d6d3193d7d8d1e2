# Names and times at the limits of what there is.
import ctypes
import errno
import os
import subprocess

libc = ctypes.CDLL(None, use_errno=True)


class Time(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_int64), ("nanoseconds", ctypes.c_long)]


def note(what, act, *arguments):
    try:
        print(what, act(*arguments))
    except OSError as error:
        print(what, errno.errorcode[error.errno])


LAST = (1 << 63) - 1
for seconds in -LAST - 1, -LAST, -(1 << 31) - 1, -1 << 31, -3, -1, 0, 1 << 32, LAST - 1, LAST:
    for nanoseconds in 0, 1, 800_000_000, 999_999_999:
        open("times", "w").close()
        times = (Time * 2)(Time(seconds, nanoseconds), Time(seconds, nanoseconds))
        print(seconds, nanoseconds, libc.utimensat(-100, b"times", times, 0), flush=True)
        subprocess.run(["stat", "-c", "%.9X %.9Y", "times"], check=True)

os.mkdir("directory")
open("file", "w").close()
for name in "n" * 255, "n" * 256, "n" * 4000, "\u00e4" * 127 + "n", "\u00e4" * 128, "directory/" + "n" * 256:
    what = f"{len(name)} {name[:1]}"
    note(f"{what} stat", lambda: bool(os.stat(name)))
    note(f"{what} access", os.access, name, os.F_OK)
    note(f"{what} create", lambda: open(name, "w").close())
    note(f"{what} open", lambda: open(name).close())
    note(f"{what} mkdir", os.mkdir, name)
    note(f"{what} mkfifo", os.mkfifo, name)
    note(f"{what} symlink", os.symlink, "target", name)
    note(f"{what} link", os.link, "file", name)
    note(f"{what} rename to", os.rename, "file", name)
    note(f"{what} rename", os.rename, name, "file")
    note(f"{what} rmdir", os.rmdir, name)
    note(f"{what} unlink", os.unlink, name)
    note(f"{what} readlink", os.readlink, name)
    note(f"{what} chdir", os.chdir, name)
    open("file", "a").close()

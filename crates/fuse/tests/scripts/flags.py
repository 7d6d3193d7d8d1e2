# Changes of append-only and immutable files and directories, and how each turns out.
import ctypes
import errno
import os
import subprocess

libc = ctypes.CDLL(None, use_errno=True)


class Time(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_int64), ("nanoseconds", ctypes.c_long)]


TIMES = {"now": Time(0, (1 << 30) - 1), "omit": Time(0, (1 << 30) - 2), "at": Time(5, 0)}


def call(result):
    if result:
        raise OSError(ctypes.get_errno(), "refused")


def note(what, act, *arguments):
    try:
        print(what, act(*arguments))
    except OSError as error:
        print(what, errno.errorcode[error.errno])


def set_times(path, accessed, modified):
    call(libc.utimensat(-100, path.encode(), (Time * 2)(accessed, modified), 0))


def allocate(fd, mode, offset):
    call(libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(4096)))


def attributes(path):
    note(f"{path} touch", os.utime, path)
    for accessed, a in TIMES.items():
        for modified, m in TIMES.items():
            note(f"{path} {accessed} {modified}", set_times, path, a, m)
    note(f"{path} chmod", os.chmod, path, 0o700)
    note(f"{path} chown", os.chown, path, 1, 1)
    note(f"{path} setxattr", os.setxattr, path, "user.a", b"1")
    note(f"{path} removexattr", os.removexattr, path, "user.b")
    note(f"{path} link", os.link, path, path + "2")
    note(f"{path} rename", os.rename, path, path + "3")


def contents(path, fd):
    source = os.open("source", os.O_RDONLY)
    for offset in 0, 8192:
        note(f"{path} copy to {offset}", os.copy_file_range, source, fd, 4096, 0, offset)
        for mode in 0, 1, 3, 16, 17:
            note(f"{path} allocate {mode} {offset}", allocate, fd, mode, offset)
    note(f"{path} truncate", os.truncate, path, 100)
    note(f"{path} ftruncate", os.ftruncate, fd, 9000)
    note(f"{path} overwrite", os.pwrite, fd, b"over", 100)
    note(f"{path} fsync", os.fsync, fd)
    try:
        adding = os.open(path, os.O_WRONLY | os.O_APPEND)
    except OSError as error:
        print(path, "open", errno.errorcode[error.errno])
        return
    note(f"{path} copy by append", os.copy_file_range, source, adding, 4096, 0, 0)
    note(f"{path} append", os.write, adding, b"x")
    note(f"{path} allocate by append", allocate, adding, 0, 0)
    note(f"{path} truncate by append", os.ftruncate, adding, 5)
    os.close(adding)


def names(path):
    note(f"{path} create", lambda: open(f"{path}/y", "w").close())
    note(f"{path} unlink", os.unlink, f"{path}/x")
    note(f"{path} move into", os.rename, "source", f"{path}/source")
    note(f"{path} move out of", os.rename, f"{path}/source", "source")


with open("source", "wb") as file:
    file.write(b"s" * 8192)
for kind in "file", "directory":
    for flag in "a", "i":
        path = f"{kind} {flag}"
        if kind == "file":
            with open(path, "wb") as file:
                file.write(b"z" * 8192)
        else:
            os.mkdir(path)
            open(f"{path}/x", "w").close()
        fd = os.open(path, os.O_RDWR if kind == "file" else os.O_RDONLY)
        subprocess.run(["chattr", f"+{flag}", path], check=True)
        attributes(path)
        if kind == "file":
            contents(path, fd)
        else:
            names(path)
        os.close(fd)
        subprocess.run(["chattr", "-ai", path], check=True)
        stat = os.stat(path)
        print(path, stat.st_mode, stat.st_size if kind == "file" else "")

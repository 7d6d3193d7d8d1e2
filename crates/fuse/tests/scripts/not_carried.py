# Interfaces that FUSE does not carry, and what programs get from them.
import ctypes
import errno
import fcntl
import os
import struct

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.preadv2.restype = libc.pwritev2.restype = ctypes.c_ssize_t
ALL, FILESYSTEM = 0xFFFFFFFF, 0x100


class Buffer(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def note(what, act, *arguments):
    try:
        act(*arguments)
        print(what, "done")
    except OSError as error:
        print(what, errno.errorcode[error.errno])


def call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def transfer(name, flags):
    bytes_ = ctypes.create_string_buffer(4096)
    call(name, file, ctypes.byref(Buffer(ctypes.addressof(bytes_), 4096)), 1, ctypes.c_long(0), flags)


def watch(reports, mark):
    group = call("fanotify_init", reports, 0)
    try:
        call("fanotify_mark", group, 1 | mark, ctypes.c_ulong(2), -100, b".")
    finally:
        os.close(group)


def access_list(users):
    entries = [(1, 7, ALL)] + [(2, 7, 1000 + user) for user in range(users)] + [(4, 5, ALL), (16, 7, ALL), (32, 0, ALL)]
    value = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr("file", "system.posix_acl_access", value)


file = os.open("file", os.O_CREAT | os.O_RDWR)
os.write(file, b"x" * 10000)
note("FIEMAP", fcntl.ioctl, file, 0xC020660B, bytes(32))
note("freeze", fcntl.ioctl, os.open(".", os.O_RDONLY), 0xC0045877, 0)
for flag, word in [("NOWAIT", 8), ("ATOMIC", 0x40), ("DONTCACHE", 0x80)]:
    note(f"read {flag}", transfer, "preadv2", word)
    note(f"write {flag}", transfer, "pwritev2", word)
note("watch", watch, 0, FILESYSTEM)
note("watch with handles", watch, 0x200, 0)
note("watch all with handles", watch, 0x200, FILESYSTEM)
note("long list", access_list, 500)
note("longer list", access_list, 510)
page = libc.mmap(None, 12288, 3, 1, file, ctypes.c_long(0))
ctypes.memmove(page + 11000, b"abc", 3)
call("msync", ctypes.c_void_p(page), 12288, 4)
os.ftruncate(file, 12288)
print("behind the end", os.pread(file, 3, 11000), ctypes.string_at(page + 11000, 3))

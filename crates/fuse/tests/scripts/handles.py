"""File handles of a mount: `save PLACE FILE NAME...` writes the handles of names to a file, `open PLACE FILE` opens each of them and
prints what is there."""

import ctypes
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("kind", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]


def save(place, store, names):
    with open(store, "wb") as out:
        for name in names:
            handle, mount = Handle(bytes=128), ctypes.c_int()
            path = os.path.join(place, name).encode()
            if libc.name_to_handle_at(AT_FDCWD, path, ctypes.byref(handle), ctypes.byref(mount), 0):
                raise OSError(ctypes.get_errno(), name)
            out.write(bytes(handle))


def show(descriptor):
    if os.path.isdir(f"/proc/self/fd/{descriptor}"):
        # The kernel finds the directories above.
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        above = os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=descriptor)
        return " ".join([name, *sorted(os.listdir(descriptor)), "in", *sorted(os.listdir(above))])
    return os.pread(descriptor, 100, 0).decode()


def open_all(place, store):
    mount = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    data = open(store, "rb").read()
    size = ctypes.sizeof(Handle)
    for at in range(0, len(data), size):
        handle = Handle.from_buffer_copy(data[at:at + size])
        descriptor = libc.open_by_handle_at(mount, ctypes.byref(handle), os.O_RDONLY)
        print(os.strerror(ctypes.get_errno()) if descriptor < 0 else show(descriptor))
        if descriptor >= 0:
            os.close(descriptor)


if sys.argv[1] == "save":
    save(sys.argv[2], sys.argv[3], sys.argv[4:])
else:
    open_all(sys.argv[2], sys.argv[3])

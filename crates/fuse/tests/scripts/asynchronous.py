# Asynchronous writes past the page cache beside buffered reads: how often a read found what was there before a write that
# was over.
import ctypes
import mmap
import os
import struct
import threading

libc = ctypes.CDLL(None, use_errno=True)
IO_SETUP, IO_GETEVENTS, IO_SUBMIT = 206, 208, 209
IOCB_CMD_PWRITE = 1
LENGTH, ROUNDS = 4 << 20, 60

direct = os.open("shared", os.O_CREAT | os.O_RDWR | os.O_DIRECT)
page = mmap.mmap(-1, LENGTH)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
context = ctypes.c_ulong(0)
assert libc.syscall(IO_SETUP, 8, ctypes.byref(context)) == 0


def write(byte):
    page.seek(0)
    page.write(byte * LENGTH)
    block = struct.pack("<QIIHhIQQqQII", 0, 0, 0, IOCB_CMD_PWRITE, 0, direct, address, LENGTH, 0, 0, 0, 0)
    control = ctypes.create_string_buffer(block, len(block))
    pointer = ctypes.c_void_p(ctypes.addressof(control))
    event = ctypes.create_string_buffer(32)
    assert libc.syscall(IO_SUBMIT, context, 1, ctypes.byref(pointer)) == 1
    assert libc.syscall(IO_GETEVENTS, context, 1, 1, event, None) == 1
    assert struct.unpack("<QQqq", event.raw)[2] == LENGTH


is_over = False


def read():
    file = os.open("shared", os.O_RDONLY)
    while not is_over:
        for at in range(0, LENGTH, 65536):
            os.pread(file, 1, at)


write(b"\xff")
readers = [threading.Thread(target=read) for _ in range(3)]
for reader in readers:
    reader.start()
stale = 0
buffered = os.open("shared", os.O_RDONLY)
for round in range(ROUNDS):
    byte = bytes([round])
    write(byte)
    stale += os.pread(buffered, LENGTH, 0) != byte * LENGTH
is_over = True
for reader in readers:
    reader.join()
print("stale", stale)

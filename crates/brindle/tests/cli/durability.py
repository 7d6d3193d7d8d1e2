"""Writes to a mount and asks for durability as told on standard input, for durability.rs.

`prepare DIRECTORY ASKED`, `do DIRECTORY WRITE ASKED`, `leave` and `look DIRECTORY WRITE` are each answered by a line: "ok",
or the reason why not. What was written stays open until `leave`, for close(2) would write it back.
"""
import ctypes
import fcntl
import mmap
import os
import platform
import struct
import sys

SIZE = 65536
PAGE = 4096
libc = ctypes.CDLL(None, use_errno=True)


def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}")
    return result


def fill(path, byte, size=SIZE):
    with open(path, "wb") as file:
        file.write(byte * size)


def mark(path, flag):
    """What chattr(1) does."""
    fd = os.open(path, os.O_RDONLY)
    fcntl.ioctl(fd, 0x40086602, struct.pack("=ii", flag, 0))
    os.close(fd)


def prepare(d, asked):
    os.makedirs(d)
    for name, byte in (("file", b"f"), ("source", b"s"), ("gone", b"g")):
        fill(f"{d}/{name}", byte)
    os.mkdir(f"{d}/empty")
    if asked == "chattr+S":
        mark(f"{d}/file", 0x8)
    if asked == "chattr+D":
        mark(d, 0x10000)


# How a file is written: each returns a descriptor of what was written.

def opened(d, flags, name="file"):
    return os.open(f"{d}/{name}", os.O_RDWR | flags)


def write_buffered(d, flags, rwf):
    fd = opened(d, flags)
    os.pwritev(fd, [b"b" * 10000], SIZE - 5000, rwf)
    return fd


def aligned(byte):
    page = mmap.mmap(-1, 2 * PAGE)
    page[:] = byte * (2 * PAGE)
    return page


def write_direct(d, flags, rwf):
    fd = opened(d, flags | os.O_DIRECT)
    os.pwritev(fd, [aligned(b"d")], SIZE - PAGE, rwf)
    return fd


def write_mmap(d, flags, rwf):
    fd = opened(d, flags)
    write_mmap.mapped = mmap.mmap(fd, SIZE)
    write_mmap.mapped[5000:6000] = b"m" * 1000
    return fd


def write_fallocate(d, flags, rwf):
    fd = opened(d, flags)
    os.posix_fallocate(fd, 0, 100000)
    return fd


def write_truncate(d, flags, rwf):
    fd = opened(d, flags)
    os.ftruncate(fd, 1000)
    return fd


def write_copy(d, flags, rwf):
    fd, source = opened(d, flags), os.open(f"{d}/source", os.O_RDONLY)
    copied = os.copy_file_range(source, fd, SIZE, 0, SIZE)
    os.close(source)
    assert copied == SIZE, copied
    return fd


def write_xattr(d, flags, rwf):
    fd = opened(d, flags)
    os.setxattr(fd, "user.written", b"value")
    return fd


def write_chmod(d, flags, rwf):
    fd = opened(d, flags)
    os.fchmod(fd, 0o640)
    return fd


def write_rename(d, flags, rwf):
    os.rename(f"{d}/file", f"{d}/renamed")
    return opened(d, flags, "renamed")


def write_link(d, flags, rwf):
    os.link(f"{d}/file", f"{d}/linked")
    return opened(d, flags, "linked")


def write_create(d, flags, rwf):
    fd = opened(d, flags | os.O_CREAT | os.O_EXCL, "new")
    os.write(fd, b"n" * 100)
    return fd


def write_mkdir(d, flags, rwf):
    os.mkdir(f"{d}/made")
    return os.open(f"{d}/made", os.O_RDONLY)


def write_symlink(d, flags, rwf):
    os.symlink("there", f"{d}/symlink")
    return os.open(d, os.O_RDONLY)


def write_touch(d, flags, rwf):
    return opened(d, flags | os.O_CREAT | os.O_EXCL, "new")


def write_fifo(d, flags, rwf):
    os.mkfifo(f"{d}/fifo")
    return os.open(d, os.O_RDONLY)


def write_rmdir(d, flags, rwf):
    os.rmdir(f"{d}/empty")
    return os.open(d, os.O_RDONLY)


def write_unlink(d, flags, rwf):
    os.unlink(f"{d}/gone")
    return os.open(d, os.O_RDONLY)


# How durability is asked for afterwards.

def ask_msync(d, fd):
    write_mmap.mapped.flush()


def ask_directory(d, fd):
    directory = os.open(d, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(directory)
    os.close(directory)


def ask_syncfs(d, fd):
    call(306 if platform.machine() == "x86_64" else 267, ctypes.c_int(fd))


def aio(operation, fd, buffer=0, length=0, offset=0, flags=0):
    setup, submit, events = (206, 209, 208) if platform.machine() == "x86_64" else (0, 2, 4)
    context = ctypes.c_ulong(0)
    call(setup, ctypes.c_uint(1), ctypes.byref(context))
    block = ctypes.create_string_buffer(struct.pack(
        "<QIIHhIQQqQII", 0, 0, flags, operation, 0, fd, buffer, length, offset, 0, 0, 0))
    blocks = (ctypes.c_void_p * 1)(ctypes.addressof(block))
    assert call(submit, context, ctypes.c_long(1), blocks) == 1
    done = (ctypes.c_int64 * 4)()
    assert call(events, context, ctypes.c_long(1), ctypes.c_long(1), done, None) == 1
    if done[2] != length:
        raise OSError(int(-done[2]), "aio")
    call(setup + 1, context)


def ask_aio_fsync(d, fd):
    aio(2, fd)


def ask_aio_fdsync(d, fd):
    aio(3, fd)


def uring(operation, fd, buffer=0, length=0, offset=0, flags=0):
    parameters = ctypes.create_string_buffer(120)
    ring = call(425, ctypes.c_uint(1), parameters)
    sq = struct.unpack_from("<10I", parameters.raw, 40)
    cq = struct.unpack_from("<10I", parameters.raw, 80)
    sq_head, sq_tail, sq_array = sq[0], sq[1], sq[6]
    cq_head, cq_cqes = cq[0], cq[5]
    rings = mmap.mmap(ring, max(sq_array + 4, cq_cqes + 32), offset=0)
    entries = mmap.mmap(ring, 64, offset=0x10000000)
    entries[:64] = struct.pack("<BBHiQQIIQ24x", operation, 0, 0, fd, offset, buffer, length, flags, 7)
    struct.pack_into("<I", rings, sq_array, 0)
    struct.pack_into("<I", rings, sq_tail, struct.unpack_from("<I", rings, sq_tail)[0] + 1)
    assert call(426, ctypes.c_int(ring), ctypes.c_uint(1), ctypes.c_uint(1), ctypes.c_uint(1), None,
                ctypes.c_size_t(0)) == 1
    result = struct.unpack_from("<i", rings, cq_cqes + 8)[0]
    rings.close()
    entries.close()
    os.close(ring)
    if result != length:
        raise OSError(-result, "io_uring")


def ask_uring_fsync(d, fd):
    uring(3, fd)


def ask_uring_fdsync(d, fd):
    uring(3, fd, flags=1)


def queued_write(queue, operation, flags):
    def write(d, _flags, _rwf):
        fd = opened(d, os.O_DIRECT)
        page = aligned(b"d")
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        queue(operation, fd, address, 2 * PAGE, SIZE - PAGE, flags)
        return fd
    return write


RWF_DSYNC, RWF_SYNC = 2, 4
DIRECT_QUEUED = {
    "aio-dsync": queued_write(aio, 1, RWF_DSYNC),
    "aio-sync": queued_write(aio, 1, RWF_SYNC),
    "uring-dsync": queued_write(uring, 23, RWF_DSYNC),
    "uring-sync": queued_write(uring, 23, RWF_SYNC),
}
# Before the write: flags of open(2), and of pwritev2(2).
BEFORE = {
    "O_SYNC": (os.O_SYNC, 0),
    "O_DSYNC": (os.O_DSYNC, 0),
    "RWF_SYNC": (0, RWF_SYNC),
    "RWF_DSYNC": (0, RWF_DSYNC),
}
AFTER = {
    "fsync": lambda d, fd: os.fsync(fd),
    "fdatasync": lambda d, fd: os.fdatasync(fd),
    "msync": ask_msync,
    "directory": ask_directory,
    "sync": lambda d, fd: os.sync(),
    "syncfs": ask_syncfs,
    "aio-fsync": ask_aio_fsync,
    "aio-fdsync": ask_aio_fdsync,
    "uring-fsync": ask_uring_fsync,
    "uring-fdsync": ask_uring_fdsync,
    "close": lambda d, fd: None,
}


def do(d, write, asked):
    if asked in DIRECT_QUEUED:
        fd = DIRECT_QUEUED[asked](d, 0, 0)
    else:
        flags, rwf = BEFORE.get(asked, (0, 0))
        fd = globals()[f"write_{write}"](d, flags, rwf)
        AFTER.get(asked, AFTER["close"])(d, fd)
    do.left.append(fd)


do.left = []


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def expect(found, wanted):
    assert found == wanted, f"{len(found)} bytes, of {len(wanted)}: {found[-20:]}"


LOOKS = {
    "buffered": lambda d: expect(contents(f"{d}/file"), b"f" * (SIZE - 5000) + b"b" * 10000),
    "direct": lambda d: expect(contents(f"{d}/file"), b"f" * (SIZE - PAGE) + b"d" * 2 * PAGE),
    "mmap": lambda d: expect(contents(f"{d}/file"), b"f" * 5000 + b"m" * 1000 + b"f" * (SIZE - 6000)),
    "fallocate": lambda d: expect(contents(f"{d}/file"), b"f" * SIZE + bytes(100000 - SIZE)),
    "truncate": lambda d: expect(contents(f"{d}/file"), b"f" * 1000),
    "copy": lambda d: expect(contents(f"{d}/file"), b"f" * SIZE + b"s" * SIZE),
    "xattr": lambda d: expect(os.getxattr(f"{d}/file", "user.written"), b"value"),
    "chmod": lambda d: expect(oct(os.stat(f"{d}/file").st_mode & 0o777), oct(0o640)),
    "rename": lambda d: expect(contents(f"{d}/renamed") + str(os.path.exists(f"{d}/file")).encode(),
                               b"f" * SIZE + b"False"),
    "link": lambda d: expect(contents(f"{d}/linked") + contents(f"{d}/file"), b"f" * SIZE * 2),
    "create": lambda d: expect(contents(f"{d}/new"), b"n" * 100),
    "mkdir": lambda d: expect(os.listdir(f"{d}/made"), []),
    "symlink": lambda d: expect(os.readlink(f"{d}/symlink"), "there"),
    "touch": lambda d: expect(contents(f"{d}/new"), b""),
    "fifo": lambda d: expect(str(os.path.exists(f"{d}/fifo")), "True"),
    "rmdir": lambda d: expect(str(os.path.exists(f"{d}/empty")), "False"),
    "unlink": lambda d: expect(str(os.path.exists(f"{d}/gone")), "False"),
}


def let_go():
    """Closes what is left of a mount whose server is gone."""
    write_mmap.mapped = None
    for fd in do.left:
        try:
            os.close(fd)
        except OSError:
            pass
    do.left.clear()


def answer(words):
    match words:
        case ["prepare", d, asked]:
            prepare(d, asked)
        case ["do", d, write, asked]:
            do(d, write, asked)
        case ["leave"]:
            let_go()
        case ["look", d, write]:
            LOOKS[write](d)
        case _:
            raise ValueError(words)


for line in sys.stdin:
    try:
        answer(line.split())
        said = "ok"
    except Exception as error:
        said = f"{type(error).__name__}: {error}".replace("\n", " ")
    print(said, flush=True)

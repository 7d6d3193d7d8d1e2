# Every way to change what is in an append-only file, by descriptors that lost O_APPEND, and by those that may.
import ctypes
import errno
import fcntl
import mmap
import os
import subprocess
import time

libc = ctypes.CDLL(None, use_errno=True)
BEFORE = b"0123456789" * 1000


def says(what, expected, act, *arguments):
    try:
        found = act(*arguments)
    except OSError as error:
        found = errno.errorcode[error.errno]
    print("right:" if found == expected else f"WRONG, expected {expected}:", what, found)


def call(result):
    if result:
        raise OSError(ctypes.get_errno(), "refused")


def allocate(fd, mode, offset):
    call(libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(4096)))


def chattr(flags):
    subprocess.run(["chattr", flags, "log"], check=True)


def make():
    if os.path.exists("log"):
        chattr("-a")
    with open("log", "wb") as file:
        file.write(BEFORE)


def robbed(more=0):
    """A descriptor that has lost O_APPEND."""
    fd = os.open("log", os.O_RDWR | os.O_APPEND | more)
    fcntl.fcntl(fd, fcntl.F_SETFL, more)
    return fd


def stored():
    """What is in the file, past the page cache."""
    fd = os.open("log", os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, 1 << 16)
    length = os.readv(fd, [buffer])
    os.close(fd)
    return bytes(buffer[:length])


def holds(what, contents):
    print("right:" if stored() == contents else "WRONG:", what, "holds what it should")


def synced(fd):
    try:
        os.fsync(fd)
    except OSError as error:
        return errno.errorcode[error.errno]
    return None


def forgotten():
    """The kernel forgets what was refused, soon."""
    end = time.monotonic() + 60
    while open("log", "rb").read() != stored():
        if time.monotonic() > end:
            print("WRONG: the cache has what the file has not")
            return
        time.sleep(0.01)


# Through the cache.
make()
chattr("+a")
fd = robbed()
says("write", 4, os.pwrite, fd, b"evil", 0)
says("which is told", "EPERM", synced, fd)
holds("written", BEFORE)
forgotten()
# A page that was written again before that was refused again.
synced(fd)
says("across the end", 20, os.pwrite, fd, b"evil, then added 123", len(BEFORE) - 4)
says("which is told", "EPERM", synced, fd)
holds("across the end", BEFORE + b", then added 123")
forgotten()
synced(fd)
os.close(fd)

# Another program that appends loses nothing.
make()
chattr("+a")
fd, honest = robbed(), os.open("log", os.O_WRONLY | os.O_APPEND)
os.write(honest, b"first")
os.pwrite(fd, b"evil", len(BEFORE) - 100)
os.write(honest, b"second")
synced(fd)
synced(honest)
holds("shared", BEFORE + b"firstsecond")
forgotten()
synced(fd)
synced(honest)
for piece in range(20):
    os.write(honest, b"%d " % piece)
    if piece % 3 == 0:
        says("appended", None, synced, honest)
holds("appended", BEFORE + b"firstsecond" + b"".join(b"%d " % piece for piece in range(20)))
os.close(fd)
os.close(honest)

# Around the cache.
make()
chattr("+a")
fd = robbed(os.O_DIRECT)
buffer = mmap.mmap(-1, 4096)
says("write around the cache", "EPERM", os.pwritev, fd, [buffer], 0)
says("behind the end", 4096, os.pwritev, fd, [buffer], 12288)
os.close(fd)
holds("around the cache", BEFORE + bytes(12288 - len(BEFORE) + 4096))

# By memory.
make()
chattr("+a")
fd = os.open("log", os.O_RDWR | os.O_APPEND)
memory = mmap.mmap(fd, 8192)
memory[:4] = b"evil"
says("memory", "EPERM", memory.flush)
memory.close()
synced(fd)
os.close(fd)
holds("memory", BEFORE)

# By calls that change ranges.
make()
chattr("+a")
fd = robbed()
source = os.open("source", os.O_RDWR | os.O_CREAT)
os.write(source, b"evil" * 4096)
says("copy", "EPERM", os.copy_file_range, source, fd, 4096, 0, 0)
for mode in 3, 16, 17:
    says(f"allocate {mode}", "EPERM", allocate, fd, mode, 0)
says("truncate", "EPERM", os.ftruncate, fd, 5)
says("space behind the end", None, allocate, fd, 1, 1 << 20)
says("copy behind the end", 4096, os.copy_file_range, source, fd, 4096, 0, len(BEFORE))
says("and synced", None, synced, fd)
os.close(fd)
holds("ranges", BEFORE + b"evil" * 1024)

# A descriptor that is older than the attribute, and was not opened to append.
make()
fd = os.open("log", os.O_RDWR)
chattr("+a")
says("an older descriptor", 4, os.pwrite, fd, b"over", 0)
says("and synced", None, synced, fd)
holds("older", b"over" + BEFORE[4:])
other = robbed()
says("beside it", 4, os.pwrite, other, b"more", 4)
says("and synced", None, synced, other)
os.close(other)
os.close(fd)
fd = robbed()
says("and without it", 4, os.pwrite, fd, b"evil", 0)
says("which is told", "EPERM", synced, fd)
forgotten()
os.close(fd)
holds("without", b"overmore" + BEFORE[8:])

# A file that is not append-only any more.
fd = robbed()
chattr("-a")
says("without the attribute", 4, os.pwrite, fd, b"fine", 0)
says("and synced", None, synced, fd)
os.close(fd)
holds("without the attribute", b"finemore" + BEFORE[8:])

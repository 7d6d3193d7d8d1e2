# Privileges that files have left after each way to change them, by each kind of caller.
import ctypes, errno, mmap, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)
SIZE = 65536

def allocate(mode):
    def act(path):
        fd = os.open(path, os.O_RDWR)
        if libc.fallocate(fd, mode, ctypes.c_long(4096), ctypes.c_long(8192)):
            raise OSError(ctypes.get_errno(), "fallocate")
        os.close(fd)
    return act

def copy(offset, length):
    def act(path):
        source, target = os.open("source", os.O_RDONLY), os.open(path, os.O_RDWR)
        os.copy_file_range(source, target, length, 0, offset)
        os.close(target)
    return act

def write(flags, offset):
    def act(path):
        fd = os.open(path, os.O_RDWR | flags)
        page = mmap.mmap(-1, 4096)
        page.write(b"x" * 4096)
        os.pwrite(fd, page, offset)
        os.close(fd)
    return act

def truncate(size):
    return lambda path: os.truncate(path, size)

def nothing(path):
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, b"", 0)
    os.close(fd)

def mapped(path):
    fd = os.open(path, os.O_RDWR)
    mmap.mmap(fd, 4096)[0] = 1
    os.close(fd)

ACTS = {
    "allocate": allocate(0), "allocate keep size": allocate(1), "punch": allocate(3), "zero": allocate(16),
    "zero keep size": allocate(17), "unknown mode": allocate(64), "copy": copy(0, 8192), "copy odd": copy(5, 100), "copy none": copy(0, 0),
    "write": write(0, 0), "append": write(os.O_APPEND, 0), "write direct": write(os.O_DIRECT, 4096), "write behind directly": write(os.O_DIRECT, SIZE),
    "write synchronously": write(os.O_SYNC, 0), "nothing": nothing, "mapped": mapped,
    "shorten": truncate(100), "lengthen": truncate(SIZE * 2), "same size": truncate(SIZE),
    "empty at open": lambda path: os.close(os.open(path, os.O_RDWR | os.O_TRUNC)),
    "owner": lambda path: os.chown(path, -1, 4242), "mode": lambda path: os.chmod(path, 0o6711),
    "touch": lambda path: os.utime(path),
}
MODES = [0o6777, 0o2666, 0o4766, 0o777]
USERS = {"root": (0, 0, []), "member": (1000, 1001, [4242]), "stranger": (1001, 1001, []), "owner": (1000, 1001, [])}

def act_as(user):
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    uid, gid, groups = USERS[user]
    os.setgroups(groups); os.setresgid(gid, gid, gid); os.setresuid(uid, uid, uid)
    for name, act in ACTS.items():
        for mode in MODES:
            path = f"{user} {mode:o} {name}"
            try:
                act(path)
            except OSError as error:
                print(path, errno.errorcode[error.errno], flush=True)
    os._exit(0)

os.umask(0)
open("source", "wb").write(b"s" * SIZE)
for user in USERS:
    for name in ACTS:
        for mode in MODES:
            path = f"{user} {mode:o} {name}"
            with open(path, "wb") as file:
                file.write(b"a" * SIZE)
            os.chown(path, 1000, 4242)
            os.chmod(path, mode)
            os.setxattr(path, "security.capability", CAPABILITY)
    sys.stdout.flush()
    act_as(user)
    for name in ACTS:
        for mode in MODES:
            path = f"{user} {mode:o} {name}"
            has = "security.capability" in os.listxattr(path)
            print(path, oct(os.stat(path).st_mode & 0o7777), has)

# Calls that seldom come, and how each turns out: places of subvolumes in snapshots, flags, truncations, owners, attributes.
import ctypes
import errno
import fcntl
import itertools
import mmap
import os
import struct

libc = ctypes.CDLL(None, use_errno=True)
GET_FLAGS, SET_FLAGS, GET_VERSION = 0x80086601, 0x40086602, 0x80087601
KEEP_SIZE = 1


def note(what, act, *arguments, **named):
    try:
        print(what, act(*arguments, **named))
    except OSError as error:
        print(what, errno.errorcode[error.errno])


def call(name, *arguments):
    if getattr(libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), name)


def make_subvolume(directory, name):
    fcntl.ioctl(directory, 0x5000940E, bytearray(struct.pack("q4088s", 0, name.encode())))


def delete_subvolume(directory, name):
    fcntl.ioctl(directory, 0x5000940F, bytearray(struct.pack("q4088s", 0, name.encode())))


def make_snapshot(source, directory, name, is_read_only):
    flags = 2 if is_read_only else 0
    request = struct.pack("qQQ32s4040s", source, 0, flags, b"", name.encode())
    try:
        fcntl.ioctl(directory, 0x50009417, bytearray(request))
    except OSError as error:
        if error.errno != errno.ENOTTY:
            raise
        # FUSE carries no descriptor: brindle has a request of its own.
        request = struct.pack("QQ256s256s", os.fstat(source).st_ino, flags, b"", name.encode())
        fcntl.ioctl(directory, 0x4210EB01, bytearray(request))


def flags_of(file):
    return struct.unpack("q", fcntl.ioctl(file, GET_FLAGS, bytes(8)))[0] & 0xFFFFFFFF


def set_flags(file, flags):
    fcntl.ioctl(file, SET_FLAGS, struct.pack("q", flags))
    return hex(flags_of(file))


def new_file(name, contents=b""):
    file = os.open(name, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o644)
    os.write(file, contents)
    os.fsync(file)
    return file


def places(here):
    make_subvolume(here, "outer")
    outer = os.open("outer", os.O_RDONLY)
    make_subvolume(outer, "inner")
    for name, is_read_only in [("writable", False), ("read-only", True)]:
        make_snapshot(outer, here, name, is_read_only)
        place = f"{name}/inner"
        note("chmod", os.chmod, place, 0o700)
        note("chown", os.chown, place, 1, 1)
        note("chown to none", os.chown, place, -1, -1)
        note("touch", os.utime, place)
        note("set times", os.utime, place, (1, 1))
        for attribute in ["user.a", "trusted.a", "btrfs.compression"]:
            note(f"set {attribute}", os.setxattr, place, attribute, b"zlib")
            note(f"get {attribute}", os.getxattr, place, attribute)
            note(f"remove {attribute}", os.removexattr, place, attribute)
        note("attributes", os.listxattr, place)
        found = os.stat(place)
        print("stat", oct(found.st_mode), found.st_uid, found.st_nlink)
        file = os.open(place, os.O_RDONLY)
        note("flags", flags_of, file)
        note("set flags", set_flags, file, 0x80)
        note("version", fcntl.ioctl, file, GET_VERSION, bytes(8))
        note("sync", os.fsync, file)
        note("list", os.listdir, place)
        os.close(file)
        if not is_read_only:
            note("mkdir", os.mkdir, f"{place}/a")
        note("rename", os.rename, place, f"{name}/other")
        note("rmdir", os.rmdir, place)
    # Nothing of this has harmed the filesystem.
    os.mkdir("still-written")


def flags():
    words = [0, 4, 0x400, 0x404, 0x800000, 0x800004, 0x800400, 0x44, 0x800080, 0x800]
    for kind, before in itertools.product(["empty", "directory", "full"], [0, 4, 0x400, 0x800000]):
        for word in words:
            name = f"{kind}-{before:x}-{word:x}"
            if kind == "directory":
                os.mkdir(name)
                file = os.open(name, os.O_RDONLY)
            else:
                file = new_file(name)
            set_flags(file, before)
            if kind == "full":
                os.write(file, b"contents" * 1000)
                os.fsync(file)
            note(f"flags {name}", set_flags, file, word)
            os.close(file)
    file = new_file("random")
    set_flags(file, 4)
    os.write(file, os.urandom(1 << 20))
    os.fsync(file)
    note("not to be compressed", set_flags, file, flags_of(file) | 0x40)


def truncations():
    for size in [0, 4096, 5000, 1 << 17]:
        file = new_file(f"space-{size}", b"a" * size)
        for act in ["same", "grow", "shrink", "same by name"]:
            call("fallocate", file, KEEP_SIZE, ctypes.c_long(0), ctypes.c_long(1 << 20))
            os.fsync(file)
            before = os.fstat(file).st_blocks
            now = os.fstat(file).st_size
            if act == "same by name":
                os.truncate(f"space-{size}", now)
            else:
                os.ftruncate(file, {"same": now, "grow": now + 100, "shrink": now - 50}[act])
            os.fsync(file)
            print("space", size, act, before, os.fstat(file).st_blocks)


def renames():
    at = ctypes.c_int(-100)
    for flags, is_taken in itertools.product(range(9), [False, True]):
        names = [f"from-{flags}-{is_taken}", f"to-{flags}-{is_taken}"]
        for name in names[: 1 + is_taken]:
            new_file(name)
        note(f"rename {flags} {is_taken}", call, "renameat2", at, names[0].encode(), at, names[1].encode(), flags)
        print([oct(os.lstat(name).st_mode) if os.path.lexists(name) else None for name in names])


def owners():
    file = new_file("privileged")
    for mode, owner in itertools.product([0o6755, 0o6745, 0o2644, 0o4755], [(-1, -1), (0, 0), (-1, 0), (1, 1)]):
        os.fchmod(file, mode)
        os.fchown(file, *owner)
        print("owner", oct(mode), owner, oct(os.fstat(file).st_mode))
    os.fchmod(file, 0o6755)
    os.utime("privileged", (1, 1))
    print("times", oct(os.fstat(file).st_mode))


def extended():
    new_file("named")
    names = ["foo", "foo.bar", "user", "user.", "trusted.", "security.", "btrfs.", "btrfs.foo", "system.", "system.foo"]
    for name in names:
        note(f"set {name}", os.setxattr, "named", name, b"1")
        note(f"get {name}", os.getxattr, "named", name)
        note(f"remove {name}", os.removexattr, "named", name)
    for flags in [3, 2, 1, 1, 3]:
        note(f"set by {flags}", os.setxattr, "named", "user.x", b"1", flags)
    file = os.open("named", os.O_RDONLY)
    verity = struct.pack("IIIIQII8x", 1, 1, 4096, 0, 0, 0, 0) + bytes(88)
    note("verity", fcntl.ioctl, file, 0x40806685, verity)
    note("digest", fcntl.ioctl, file, 0xC0046686, bytes(100))
    note("tree of verity", fcntl.ioctl, file, 0xC0286687, bytes(40))
    note("version", lambda: fcntl.ioctl(file, GET_VERSION, bytes(8))[4:])


def deleted(here):
    make_subvolume(here, "gone")
    os.mkdir("gone/directory")
    file = new_file("gone/file", b"hello\n")
    directory = os.open("gone/directory", os.O_RDONLY)
    mapped = mmap.mmap(file, 6)
    delete_subvolume(here, "gone")
    note("name", os.stat, "gone")
    note("read", os.pread, file, 100, 0)
    note("write", os.pwrite, file, b"world!", 3)
    note("sync", os.fsync, file)
    note("read", os.pread, file, 100, 0)
    note("stat", lambda: (os.fstat(file).st_nlink, os.fstat(file).st_size))
    note("truncate", os.ftruncate, file, 100000)
    note("truncate", os.ftruncate, file, 5)
    note("allocate", os.posix_fallocate, file, 0, 1 << 20)
    note("chmod", os.fchmod, file, 0o600)
    note("set", os.setxattr, file, "user.a", b"1")
    note("get", os.getxattr, file, "user.a")
    note("times", os.utime, file, (1, 1))
    note("stat", lambda: (oct(os.fstat(file).st_mode), os.fstat(file).st_size, os.fstat(file).st_mtime))
    note("open", lambda: os.close(os.open("new", os.O_CREAT | os.O_RDWR, dir_fd=directory)))
    note("mkdir", os.mkdir, "below", dir_fd=directory)
    note("link", os.link, f"/proc/self/fd/{file}", "out")
    note("again", lambda: os.close(os.open(f"/proc/self/fd/{file}", os.O_RDWR)))
    make_subvolume(here, "other")
    other = os.open("other", os.O_RDONLY)
    note("snapshot", make_snapshot, other, here, "of-other", False)
    mapped[0:2] = b"ZZ"
    note("flush", mapped.flush)
    note("mapped", lambda: mapped[:])
    note("write", os.pwrite, file, b"x" * 100000, 0)
    mapped.close()
    os.close(file)
    os.close(directory)


here = os.open(".", os.O_RDONLY)
places(here)
flags()
truncations()
renames()
owners()
extended()
deleted(here)

#!/usr/bin/env python3
"""The contents of the golden images, and the ioctls that btrfs-progs 6.2 has no command for.

    tree.py WHAT DIRECTORY [ARGUMENT...]

makes WHAT (a function below, with - for _) in DIRECTORY. Nothing here is random but for fixed seeds.
File contents compress well, yet each block of each file differs from every other.
"""

import ctypes
import fcntl
import os
import random
import socket
import stat
import struct
import subprocess
import sys
import time

BLOCK = 4096
SIZES = [0, 1, 2047, 2048, 2049, 4095, 4096, 4097, 131071, 131072, 131073]
SMALL_SIZES = [0, 1, 2048, 2049, 4095, 4096, 4097, 131073]

FS_COMPR, FS_SYNC, FS_IMMUTABLE, FS_APPEND = 0x4, 0x8, 0x10, 0x20
FS_NODUMP, FS_NOATIME, FS_NOCOMP, FS_DIRSYNC, FS_NOCOW = 0x40, 0x80, 0x400, 0x10000, 0x800000

# Pairs whose names have one CRC-32C, and so share a DIR_ITEM or XATTR_ITEM key. Found by search.
COLLIDING_NAMES = [("collide-1371838", "collide-2000402"), ("collide-1371839", "collide-2000403")]

libc = ctypes.CDLL(None, use_errno=True)


# Building blocks.

def pattern(name, length, first_block=0):
    """A short line of text for each block, repeated to fill it: a shifted or misplaced block is seen."""
    out = bytearray()
    block = first_block
    while len(out) < length:
        line = b"%s %d\n" % (name.encode(), block)
        out += (line * (BLOCK // len(line) + 1))[:BLOCK]
        block += 1
    return bytes(out[:length])


def words(seed, length):
    """Text that compresses to about a half, and is hardly smaller in the stored image."""
    random_ = random.Random(seed)
    vocabulary = ["".join(random_.choices("abcdefghijklmnop", k=random_.randint(2, 9))) for _ in range(400)]
    out = " ".join(random_.choice(vocabulary) for _ in range(length // 3))
    return out.encode()[:length]


def noise(seed, length):
    return random.Random(seed).randbytes(length)


def write(path, data, offset=None):
    """With an offset, even 0, it is synced too, so that each call makes extents of its own."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    os.pwrite(descriptor, data, offset or 0)
    if offset is not None:
        os.fsync(descriptor)
    os.close(descriptor)


def touch(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644))


def fallocate(path, mode, offset, length):
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    result = libc.fallocate(descriptor, mode, ctypes.c_int64(offset), ctypes.c_int64(length))
    if result != 0:
        raise OSError(ctypes.get_errno(), "fallocate", path)
    os.fsync(descriptor)
    os.close(descriptor)


KEEP_SIZE, PUNCH_HOLE = 1, 3


def clone(source, source_offset, length, target, target_offset):
    """FICLONERANGE."""
    with open(source, "rb") as from_, open(target, "r+b" if os.path.exists(target) else "w+b") as to:
        request = struct.pack("=qQQQ", from_.fileno(), source_offset, length, target_offset)
        fcntl.ioctl(to, 0x4020940D, request)


def set_flags(path, flags):
    """FS_IOC_SETFLAGS."""
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.ioctl(descriptor, 0x40086602, struct.pack("l", flags))
    os.close(descriptor)


def subdirectory(parent, name):
    path = os.path.join(parent, name)
    os.makedirs(path, exist_ok=True)
    return path


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def sync(path):
    run("btrfs", "filesystem", "sync", path)


def wait_for_cleaner(path):
    """Until deleted subvolumes are gone. Each sync wakes the cleaner."""
    listing = ["btrfs", "subvolume", "list", "-d", path]
    while subprocess.run(listing, check=True, stdout=subprocess.PIPE).stdout:
        sync(path)
        time.sleep(0.05)
    sync(path)


# Parts of the standard tree.

def sizes(at, which=SIZES):
    at = subdirectory(at, "sizes")
    for size in which:
        write(f"{at}/{size}", pattern(f"size {size}", size))


def megabyte(at):
    write(f"{at}/megabyte", pattern("megabyte", (1 << 20) + 12345))


def holes(at):
    at = subdirectory(at, "holes")
    data = pattern("hole", 2 * BLOCK)
    write(f"{at}/start", data, 5 * BLOCK)
    write(f"{at}/middle", data, 0)
    write(f"{at}/middle", data[:100], 9 * BLOCK + 7)
    write(f"{at}/end", data, 0)
    os.truncate(f"{at}/end", 77777)
    touch(f"{at}/only")
    os.truncate(f"{at}/only", 3 * BLOCK + 1)
    write(f"{at}/large", b"far away", (20 << 20) + 5)
    write(f"{at}/punched", pattern("punched", 16 * BLOCK), 0)
    fallocate(f"{at}/punched", PUNCH_HOLE, 3 * BLOCK, 4 * BLOCK)
    fallocate(f"{at}/punched", PUNCH_HOLE, 10 * BLOCK + 100, 200)


def prealloc(at):
    at = subdirectory(at, "prealloc")
    fallocate(f"{at}/whole", 0, 0, 16 * BLOCK)
    fallocate(f"{at}/beyond-end", KEEP_SIZE, 0, 32 * BLOCK)
    write(f"{at}/beyond-end", pattern("beyond", 5000), 0)
    fallocate(f"{at}/partly-written", 0, 0, 64 * BLOCK)
    for block in (0, 3, 4, 20, 63):
        write(f"{at}/partly-written", pattern("partly", BLOCK, block), block * BLOCK)
    write(f"{at}/partly-written", b"in the middle of a block", 30 * BLOCK + 1000)


def reflinks(at):
    at = subdirectory(at, "reflinks")
    write(f"{at}/source", pattern("source", 32 * BLOCK), 0)
    clone(f"{at}/source", 0, 0, f"{at}/whole", 0)
    clone(f"{at}/source", 8 * BLOCK, 8 * BLOCK, f"{at}/middle", 2 * BLOCK)
    clone(f"{at}/source", 31 * BLOCK, BLOCK, f"{at}/backwards", 0)
    clone(f"{at}/source", 30 * BLOCK, BLOCK, f"{at}/backwards", BLOCK)
    clone(f"{at}/source", 0, 4 * BLOCK, f"{at}/source", 40 * BLOCK)
    # Bookends: the middle of an extent is referenced by nobody, then by a part of another file only.
    write(f"{at}/bookend", pattern("bookend", 32 * BLOCK), 0)
    write(f"{at}/bookend", pattern("new middle", 8 * BLOCK), 12 * BLOCK)
    write(f"{at}/bookend-kept", pattern("kept", 16 * BLOCK), 0)
    clone(f"{at}/bookend-kept", 4 * BLOCK, 4 * BLOCK, f"{at}/bookend-part", 0)
    os.unlink(f"{at}/bookend-kept")


def links(at, count=70, length=255):
    """Long enough together that one INODE_REF item cannot hold them."""
    at = subdirectory(at, "links")
    write(f"{at}/first", b"many names\n")
    for number in range(count):
        name = f"{number:03}-" + "link" * 64
        try:
            os.link(f"{at}/first", f"{at}/{name[:length]}")
        except OSError as error:
            print(f"tree.py: {number} links: {error.strerror}", file=sys.stderr)
            break
    os.link(f"{at}/first", f"{os.path.dirname(at)}/elsewhere")


def symlinks(at):
    at = subdirectory(at, "symlinks")
    os.symlink("a", f"{at}/short")
    os.symlink("../sizes/4096", f"{at}/valid")
    os.symlink(b"not \xff utf-8", f"{at}/odd-bytes")
    for length in (4095, 3900):
        try:
            os.symlink(("long/" * 1000)[:length], f"{at}/long")
            break
        except OSError as error:
            print(f"tree.py: symlink of {length}: {error.strerror}", file=sys.stderr)


def specials(at):
    at = subdirectory(at, "special")
    os.mkfifo(f"{at}/fifo", 0o640)
    os.mknod(f"{at}/char", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    os.mknod(f"{at}/block", 0o660 | stat.S_IFBLK, os.makedev(7, 300))
    os.mknod(f"{at}/large-numbers", 0o600 | stat.S_IFCHR, os.makedev(4095, 1048575))
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(at)
        listener.bind("socket")
        os.chdir(here)


def names(at):
    at = os.fsencode(subdirectory(at, "names"))
    odd = [b"n" * 255, "grüße-日本語-🦀".encode(), "e\u0301".encode(), "é".encode(), b"\xff\xfe\x80 not utf-8",
           b"new\nline", b"back\\slash", b" ", b"per%cent=x", b"...", b".hidden", b"-f", b"\x01\x7f"]
    odd += [name.encode() for pair in COLLIDING_NAMES for name in pair]
    for number, name in enumerate(odd):
        write(at + b"/" + name, b"odd name %d\n" % number)


def xattrs(at):
    at = subdirectory(at, "xattrs")
    for name in ("empty", "long", "several", "colliding"):
        touch(f"{at}/{name}")
    os.setxattr(f"{at}/empty", "user.empty", b"")
    os.setxattr(f"{at}/long", "user.long", pattern("xattr", 3000))
    for number in range(5):
        os.setxattr(f"{at}/several", f"user.{number}", b"\x00\xff\nvalue %d" % number)
    os.setxattr(f"{at}/several", "trusted.odd", b"seen by root only")
    os.setxattr(f"{at}/several", b"user.\xc3\xa9 \xff", b"odd name")
    os.setxattr(f"{at}/several", "user." + "n" * 250, b"longest name")
    for name in COLLIDING_NAMES[0]:
        os.setxattr(f"{at}/colliding", f"user.{name}", name.encode())
    # VFS_CAP_REVISION_2, cap_net_bind_service, effective.
    touch(f"{at}/capability")
    os.setxattr(f"{at}/capability", "security.capability", struct.pack("<5I", 0x2000001, 1 << 10, 0, 0, 0))
    subdirectory(at, "directory")
    os.setxattr(f"{at}/directory", "user.on-directory", b"yes")


def acls(at):
    at = subdirectory(at, "acls")
    touch(f"{at}/access")
    run("setfacl", "-m", "u:1000:rw,g:100:r,u:4294967294:x", f"{at}/access")
    directory = subdirectory(at, "default")
    run("setfacl", "-m", "d:u:1000:rwx,d:g:100:rx,u:7:r", directory)
    touch(f"{directory}/inherited")
    subdirectory(directory, "inherited-directory")


def flags(at):
    at = subdirectory(at, "flags")
    for name, bits in (("noatime", FS_NOATIME), ("nodump", FS_NODUMP), ("sync", FS_SYNC), ("nocomp", FS_NOCOMP),
                       ("append", FS_APPEND), ("immutable", FS_IMMUTABLE), ("all", FS_APPEND | FS_IMMUTABLE | FS_NODUMP)):
        write(f"{at}/{name}", f"flag {name}\n".encode())
        set_flags(f"{at}/{name}", bits)
    compressed = subdirectory(at, "compressed")
    set_flags(compressed, FS_COMPR)
    write(f"{compressed}/file", pattern("compressed", 20000))
    dirsync = subdirectory(at, "dirsync")
    set_flags(dirsync, FS_DIRSYNC)
    # Without copy-on-write there are no checksums either. The flag is taken while the file is empty.
    touch(f"{at}/nodatacow")
    set_flags(f"{at}/nodatacow", FS_NOCOW)
    write(f"{at}/nodatacow", pattern("nodatacow", 6 * BLOCK), 0)
    write(f"{at}/nodatacow", pattern("in place", BLOCK), 2 * BLOCK)
    with open(f"{at}/property", "wb") as file:
        os.setxattr(file.fileno(), "btrfs.compression", b"zstd")
        file.write(pattern("property", 3 * BLOCK))


def owners(at):
    at = subdirectory(at, "owners")
    for uid, gid, mode in ((1000, 100, 0o4755), (0, 65534, 0o2711), (65534, 0, 0o1777), (4294967294, 4294967294, 0)):
        path = f"{at}/{uid}-{gid}"
        touch(path)
        os.chown(path, uid, gid)
        os.chmod(path, mode)


def times(at):
    at = subdirectory(at, "times")
    for sec, nsec in ((0, 0), (1, 999999999), (-1, 1), (-2208988800, 500000000), (4294967296, 123456789),
                      (2**40, 1), (-(2**40), 999999999)):
        path = f"{at}/{sec}.{nsec}"
        touch(path)
        at_ns = sec * 10**9 + nsec
        os.utime(path, ns=(at_ns, at_ns))


def directories(at, count=200, depth=12):
    subdirectory(at, "empty")
    chain = at
    for level in range(depth):
        chain = subdirectory(chain, f"level-{level}")
    write(f"{chain}/bottom", b"the end\n")
    many = subdirectory(at, "many")
    for number in range(count):
        path = f"{many}/entry-{number:04}"
        if number % 10 == 0:
            os.mkdir(path)
        elif number % 3 == 0:
            write(path, b"%d\n" % number)
        else:
            touch(path)
    os.unlink(f"{many}/entry-0007")
    os.rename(f"{many}/entry-0008", f"{many}/renamed")


def subvolumes(at):
    at = subdirectory(at, "subvolumes")
    volume = f"{at}/volume"
    run("btrfs", "subvolume", "create", volume)
    write(f"{volume}/file", pattern("before", 10 * BLOCK), 0)
    write(f"{volume}/removed", pattern("removed", BLOCK), 0)
    write(f"{volume}/inline", b"before\n")
    run("btrfs", "subvolume", "create", f"{volume}/nested")
    run("btrfs", "subvolume", "create", f"{volume}/nested/deeper")
    write(f"{volume}/nested/deeper/file", b"in a nested subvolume\n")
    sync(at)
    run("btrfs", "subvolume", "snapshot", volume, f"{at}/snapshot")
    write(f"{volume}/file", pattern("after", 2 * BLOCK), BLOCK)
    write(f"{volume}/file", b"a few bytes", 7 * BLOCK + 50)
    write(f"{volume}/inline", b"after!\n")
    os.unlink(f"{volume}/removed")
    sync(at)
    run("btrfs", "subvolume", "snapshot", f"{at}/snapshot", f"{at}/snapshot-of-snapshot")
    write(f"{at}/snapshot-of-snapshot/file", pattern("third", BLOCK), 5 * BLOCK)
    run("btrfs", "subvolume", "snapshot", "-r", volume, f"{at}/read-only")
    run("btrfs", "subvolume", "create", f"{at}/deleted")
    write(f"{at}/deleted/file", pattern("deleted", 3 * BLOCK), 0)
    sync(at)
    run("btrfs", "subvolume", "delete", f"{at}/deleted")
    wait_for_cleaner(at)


def standard(at):
    """Everything."""
    sizes(at)
    megabyte(at)
    holes(at)
    prealloc(at)
    reflinks(at)
    links(at)
    symlinks(at)
    specials(at)
    names(at)
    xattrs(at)
    acls(at)
    flags(at)
    owners(at)
    times(at)
    directories(at)
    subvolumes(at)


def small(at):
    """One of each kind, where the image is about something else than files."""
    sizes(at, SMALL_SIZES)
    megabyte(at)
    holes(at)
    prealloc(at)
    reflinks(at)
    links(at, 5, 20)
    symlinks(at)
    specials(at)
    names(at)
    xattrs(at)
    directories(at, 20, 3)
    subvolumes(at)


# Contents of single images.

def compressed(at, label, level):
    """What the mount options make of it depends on the caller: inline, one extent, several, incompressible."""
    at = subdirectory(at, f"{label}-{level}")
    write(f"{at}/inline", pattern(f"inline {level}", 1500))
    write(f"{at}/block", pattern(f"block {level}", BLOCK))
    write(f"{at}/regular", pattern(f"regular {level}", 50001))
    write(f"{at}/several", pattern(f"several {level}", 2 * 131072 + 33000))
    sync(at)
    write(f"{at}/overwritten", pattern(f"first {level}", 131072), 0)
    write(f"{at}/overwritten", pattern(f"second {level}", 2 * BLOCK), 11 * BLOCK)
    if level in ("0", "1", "9", "15"):
        write(f"{at}/words", words(f"{label}{level}", 20000))
        write(f"{at}/tail", pattern(f"tail {level}", 131072) + noise(f"{label}{level}", 4500))
        write(f"{at}/sparse", words(f"{label}{level} sparse", 6000), 300000)


def reservation(at, name, mebibytes):
    """A preallocated file: fills chunks, and costs nothing in the stored image."""
    fallocate(f"{at}/{name}", 0, 0, int(mebibytes) << 20)


def entries(at, count):
    at = subdirectory(at, "big")
    for number in range(int(count)):
        touch(f"{at}/file number {number * 7919 % 100000}")


def many_links(at):
    """One inode with more names than an INODE_REF holds, in several directories."""
    links(at, 150)
    for directory in ("a", "b"):
        below = subdirectory(at, directory)
        for number in range(150):
            os.link(f"{at}/links/first", f"{below}/{number:03}" + directory * 200)


def crc32c(data, crc):
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc


def deep(at, count):
    """One leaf for each attribute, set in the order of their keys, so that the nodes above are
    full; then most are removed, but never so many that nodes are merged and a level is lost."""
    path = f"{at}/attributes"
    touch(path)
    hashed = sorted((crc32c(name.encode(), 0xFFFFFFFE), name) for name in (f"user.{n}" for n in range(int(count))))
    for _, name in hashed:
        os.setxattr(path, name, name.encode() + b"." * (3800 - len(name)))
    sync(at)
    for number, (_, name) in enumerate(hashed):
        if number % 11 not in (0, 4, 8):
            os.removexattr(path, name)


def snapshots(at):
    """A chain of snapshots, a change before each; and a fan of them from the first."""
    run("btrfs", "subvolume", "create", f"{at}/0")
    write(f"{at}/0/file", pattern("base", 64 * BLOCK), 0)
    directories(f"{at}/0", 40, 3)
    for number in range(1, 9):
        sync(at)
        run("btrfs", "subvolume", "snapshot", f"{at}/{number - 1}", f"{at}/{number}")
        write(f"{at}/{number}/file", pattern(f"change {number}", 2 * BLOCK), 7 * number * BLOCK)
        write(f"{at}/{number}/new-{number}", b"%d\n" % number)
        os.unlink(f"{at}/{number}/many/entry-{number + 20:04}")
        os.rename(f"{at}/{number}/many/entry-{number + 10:04}", f"{at}/{number}/moved-{number}")
    for number in range(4):
        run("btrfs", "subvolume", "snapshot", *(["-r"] if number % 2 else []), f"{at}/0", f"{at}/fan-{number}")
    write(f"{at}/0/file", pattern("last", 3 * BLOCK), 60 * BLOCK)
    # The source of later snapshots goes; its extents stay for their sake.
    run("btrfs", "subvolume", "delete", f"{at}/4")
    wait_for_cleaner(at)


def before_log(at):
    sizes(at, SMALL_SIZES)
    at = subdirectory(at, "log")
    for name in ("appended", "overwritten", "truncated", "renamed", "unlinked", "linked", "attribute", "replaced"):
        write(f"{at}/{name}", pattern(name, 5 * BLOCK))
    write(f"{at}/inline", b"short")
    write(f"{at}/not-synced", b"as it was")
    fallocate(f"{at}/prealloc", 0, 0, 16 * BLOCK)


def after_log(at):
    """Changes that are fsynced, and so live in the log tree; and some that are not, and so are lost."""
    run("btrfs", "subvolume", "create", f"{at}/other")
    sync(at)
    at = f"{at}/log"

    def fsync(path):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

    write(f"{at}/not-synced", b"LOST LOST")
    write(f"{at}/new", pattern("new", 3 * BLOCK + 100), 0)
    write(f"{at}/new-inline", b"new and short", 0)
    write(f"{at}/appended", pattern("more", 2 * BLOCK), 5 * BLOCK)
    write(f"{at}/overwritten", pattern("over", BLOCK), BLOCK)
    write(f"{at}/prealloc", pattern("prealloc", 2 * BLOCK), 4 * BLOCK)
    os.truncate(f"{at}/truncated", 6000)
    fsync(f"{at}/truncated")
    os.rename(f"{at}/renamed", f"{at}/renamed-after")
    fsync(f"{at}/renamed-after")
    os.link(f"{at}/linked", f"{at}/second-name")
    fsync(f"{at}/linked")
    os.setxattr(f"{at}/attribute", "user.logged", b"yes")
    fsync(f"{at}/attribute")
    os.unlink(f"{at}/unlinked")
    subdirectory(at, "directory")
    write(f"{at}/directory/inside", b"inside", 0)
    fsync(f"{at}/directory")
    write(f"{at}/replacement", b"replacement", 0)
    os.rename(f"{at}/replacement", f"{at}/replaced")
    fsync(f"{at}/replaced")
    fsync(at)
    write(f"{os.path.dirname(at)}/other/in-another-subvolume", pattern("other", BLOCK), 0)
    write(f"{at}/inline", b"LOST", None)


def simple_quota(at):
    """BTRFS_IOC_QUOTA_CTL, BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA."""
    descriptor = os.open(at, os.O_RDONLY)
    fcntl.ioctl(descriptor, 0xC0109428, bytearray(struct.pack("=QQ", 4, 0)))
    os.close(descriptor)


def verity(at):
    """FS_IOC_ENABLE_VERITY, SHA-256, blocks of 4 KiB; fails where the kernel has no fs-verity."""
    for size in (1, BLOCK, 140 * BLOCK + 1):
        write(f"{at}/verity-{size}", pattern("verity", size), 0)
        descriptor = os.open(f"{at}/verity-{size}", os.O_RDONLY)
        fcntl.ioctl(descriptor, 0x40806685, struct.pack("=IIIIQIIQ88x", 1, 1, BLOCK, 0, 0, 0, 0, 0))
        os.close(descriptor)


def main():
    what, at, *arguments = sys.argv[1:]
    os.umask(0o022)
    globals()[what.replace("-", "_")](at, *arguments)


main()

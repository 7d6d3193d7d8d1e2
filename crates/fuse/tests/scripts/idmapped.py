"""Files through a mount that maps owners: `idmapped.py PLACE TARGET` mounts PLACE at TARGET with 0 of the filesystem as 100000,
has several processes work there, and prints what became of it, as PLACE shows it and as TARGET does."""

import ctypes
import fcntl
import os
import signal
import stat
import subprocess
import sys

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_EMPTY_PATH = -100, 0x1000
CLONE_NEWUSER = 0x10000000
LINKAT, OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 265, 428, 429, 442
SUBVOL_CREATE = 0x5000940E
BASE, COUNT = 100000, 65536


def call(number, *arguments):
    done = libc.syscall(number, *arguments)
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done


class Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


def user_namespace():
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        libc.unshare(CLONE_NEWUSER)
        os.write(told, b"x")
        signal.pause()
    os.read(ready, 1)
    for ids in ("uid_map", "gid_map"):
        with open(f"/proc/{child}/{ids}", "w") as out:
            out.write(f"0 {BASE} {COUNT}")
    namespace = os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return namespace


def mount_mapped(place, target, namespace):
    tree = call(OPEN_TREE, AT_FDCWD, place.encode(), 1 | os.O_CLOEXEC)
    attributes = Attributes(set=0x100000, userns=namespace)
    call(MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, ctypes.byref(attributes), ctypes.sizeof(attributes))
    call(MOVE_MOUNT, tree, b"", AT_FDCWD, target.encode(), 4)
    os.close(tree)


def attempt(name, act):
    try:
        result = act()
        print(name, "done" if result is None else result, flush=True)
    except OSError as error:
        print(name, error.strerror, flush=True)


def in_child(act, become):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            become()
            act()
        except BaseException as error:
            print("failed", repr(error))
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)


def ordinary(uid, groups=()):
    def become():
        os.umask(0o022)
        os.setgroups(groups)
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    return become


def root_of(namespace):
    def become():
        os.umask(0o022)
        if libc.setns(namespace, CLONE_NEWUSER):
            raise OSError(ctypes.get_errno(), "setns")
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
    return become


def make(name):
    def act():
        with open(name, "x") as out:
            out.write("contents")
    return act


def unnamed(name):
    def act():
        file = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o640)
        call(LINKAT, AT_FDCWD, f"/proc/self/fd/{file}".encode(), AT_FDCWD, name.encode(), 0x400)
    return act


def access_list(user):
    # Owner, a named user, group, mask, others.
    entries = [(1, 7, -1), (2, 6, user), (4, 5, -1), (16, 7, -1), (32, 0, -1)]
    entry = lambda tag, bits, name: tag.to_bytes(2, "little") + bits.to_bytes(2, "little") + (name % 2**32).to_bytes(4, "little")
    return b"\2\0\0\0" + b"".join(entry(*line) for line in entries)


def set_list(name, user):
    return lambda: os.setxattr(name, "system.posix_acl_access", access_list(user))


def make_subvolume():
    here = os.open(".", os.O_RDONLY)
    fcntl.ioctl(here, SUBVOL_CREATE, bytearray(bytes(8) + b"subvolume".ljust(4088, b"\0")))


def user_works():
    attempt("make", make("by-user"))
    attempt("unnamed", unnamed("by-user-unnamed"))
    attempt("mkdir", lambda: os.mkdir("by-user-directory"))
    attempt("symlink", lambda: os.symlink("nowhere", "by-user-link"))
    attempt("fifo", lambda: os.mkfifo("by-user-fifo"))
    attempt("inherit", make("groups/by-user"))
    attempt("inherit mkdir", lambda: os.mkdir("groups/by-user-directory"))
    attempt("chown", lambda: os.chown("by-user", BASE + 5, -1))
    attempt("chgrp to a group of its own", lambda: os.chown("by-user", -1, BASE + 4))
    attempt("chgrp to another", lambda: os.chown("by-user", -1, BASE + 8))
    attempt("chmod of another's", lambda: os.chmod("of-5", 0o777))
    attempt("read what is for 7", lambda: open("for-7").read())
    attempt("rename in sticky", lambda: os.rename("sticky/of-5", "sticky/x"))
    attempt("setgid of a group that it is of", lambda: os.chmod("by-user", 0o2755))
    attempt("list", set_list("by-user", BASE + 7))
    attempt("list of a file with setgid of another group", set_list("setgid-of-another", BASE + 7))


def root_works():
    attempt("root: make", make("by-root"))
    attempt("root: chown", lambda: os.chown("by-root", 5, 6))
    attempt("root: chown of what is not mapped", lambda: os.chown("unmapped", 5, 6))
    attempt("root: device", lambda: os.mknod("by-root-null", stat.S_IFCHR | 0o666, os.makedev(1, 3)))
    attempt("root: list", set_list("by-root", 7))
    attempt("root: list of a file with setgid", set_list("setgid", 7))
    attempt("root: setxattr", lambda: os.setxattr("by-root", "user.name", b"value"))
    attempt("root: truncate", lambda: os.truncate("setuid", 1))
    attempt("root: utime", lambda: os.utime("by-root", (1, 2)))
    attempt("root: rename", lambda: os.rename("of-5", "renamed"))
    attempt("root: unlink", lambda: os.unlink("sticky/of-5"))
    attempt("root: map", lambda: os.stat("by-root").st_uid)


def prepare(place):
    os.umask(0)
    os.mkdir(place, 0o777)
    os.chdir(place)
    os.mkdir("groups")
    os.chown("groups", 3, 4)
    os.chmod("groups", 0o2777)
    os.mkdir("sticky")
    os.chown("sticky", 3, 3)
    os.chmod("sticky", 0o1777)
    for name, uid, gid, mode in [("of-5", 5, 5, 0o644), ("sticky/of-5", 5, 5, 0o644), ("for-7", 7, 7, 0o600), ("unmapped", 70000, 7, 0o644),
                                 ("setgid", 0, 9, 0o2755), ("setgid-of-another", 0, 9, 0o2755), ("setuid", 5, 5, 0o6777)]:
        make(name)()
        os.chown(name, uid, gid)
        os.chmod(name, mode)


def show(place):
    for above, directories, files in os.walk(place):
        directories.sort()
        for name in sorted(directories + files):
            path = os.path.join(above, name)
            told = os.lstat(path)
            line = [os.path.relpath(path, place), oct(told.st_mode), told.st_uid, told.st_gid]
            if not os.path.islink(path):
                line += [os.getxattr(path, name).hex() for name in os.listxattr(path) if name.startswith("system")]
            print(*line)


place, target = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
prepare(place)
namespace = user_namespace()
mount_mapped(place, target, namespace)
os.chdir(target)
in_child(user_works, ordinary(BASE, [BASE + 4]))
in_child(lambda: attempt("7 reads", lambda: open("for-7").read()), ordinary(BASE + 7))
in_child(lambda: attempt("an owner of nothing makes", make("by-nobody")), ordinary(1000))
attempt("root of all makes", make("by-0"))
in_child(root_works, root_of(namespace))
show(place)
show(target)
if len(sys.argv) > 3:
    # An ioctl does not tell the mount that it came by.
    in_child(lambda: attempt("subvolume", make_subvolume), ordinary(BASE))
    os.chdir(place)
    in_child(lambda: attempt("subvolume, by its own name", make_subvolume), ordinary(1000))
    attempt("subvolume of root", make_subvolume)
os.close(namespace)
os.chdir("/")
subprocess.run(["umount", target], check=True)

# Directories that change, or go, while they are open.
import errno
import os
import stat

COUNT = 1000


def note(what, act, *arguments):
    try:
        print(what, act(*arguments))
    except OSError as error:
        print(what, errno.errorcode[error.errno])


def make(directory, first, count):
    for number in range(first, first + count):
        open(f"{directory}/{number}", "w").close()


def rename_all(directory):
    seen = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            os.rename(entry.path, f"{directory}/T")
            os.rename(f"{directory}/T", entry.path)
            seen += 1
            if seen > 10 * COUNT:
                break
    return seen


def names(directory):
    return sorted(int(name) for name in os.listdir(directory))


# Each name is taken away and comes back behind all others.
os.mkdir("renamed")
make("renamed", 0, COUNT)
print("renamed", rename_all("renamed"), names("renamed") == list(range(COUNT)))
print("renamed again", rename_all("renamed"), names("renamed") == list(range(COUNT)))

# A listing that others overtake leaves nothing out of theirs, nor of the next ones.
os.mkdir("overtaken")
make("overtaken", 0, COUNT)
print("listed", names("overtaken") == list(range(COUNT)))
slow = os.scandir("overtaken")
first = next(slow).name
for step in range(5):
    make("overtaken", COUNT + step, 1)
    quick = os.scandir("overtaken")
    begun = [next(quick).name for _ in range(step * 200 + 1)]
    make("overtaken", 2 * COUNT + step, 1)
    expected = COUNT + 2 * step + 2
    print("overtaken", step, len(names("overtaken")) == expected)
    next(slow)
    print("quick", len(begun) + len(list(quick)) >= expected - 1, len(names("overtaken")) == expected)
print("slow", len(list(slow)) >= COUNT - 6, len(names("overtaken")) == COUNT + 10)

# A rewound listing shows what has come since.
os.mkdir("rewound")
make("rewound", 0, 3)
fd = os.open("rewound", os.O_RDONLY)
print("three", len(os.listdir(fd)))
make("rewound", 3, 2)
os.lseek(fd, 0, os.SEEK_SET)
print("five", len(os.listdir(fd)))
os.close(fd)


def mode_and_links(fd):
    status = os.fstat(fd)
    return oct(stat.S_IMODE(status.st_mode)), status.st_nlink


def remove(directory):
    fd = os.open(directory, os.O_RDONLY)
    os.rmdir(directory)
    print("has gone", os.path.exists(directory), directory in os.listdir("."))
    note("fstat", lambda: mode_and_links(fd)[1] == 0)
    note("fchmod", os.fchmod, fd, 0o710)
    note("changed", lambda: mode_and_links(fd)[0])
    note("setxattr", os.setxattr, fd, "user.a", b"1")
    note("getxattr", os.getxattr, fd, "user.a")
    note("utime", os.utime, fd, (1, 2))
    note("times", lambda: (os.fstat(fd).st_atime, os.fstat(fd).st_mtime))
    note("list", os.listdir, fd)
    note("create", lambda: os.open("a", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    note("mkdir", lambda: os.mkdir("a", dir_fd=fd))
    note("link", lambda: os.link("renamed/1", "a", dst_dir_fd=fd))
    note("rename", lambda: os.rename("renamed/1", "a", dst_dir_fd=fd))
    note("sync", os.fsync, fd)
    here = os.open(".", os.O_RDONLY)
    os.fchdir(fd)
    note("stat .", lambda: os.stat(".").st_nlink == 0)
    note("list .", os.listdir, ".")
    note("open .", lambda: os.close(os.open(".", os.O_RDONLY)))
    os.fchdir(here)
    os.close(here)
    os.close(fd)
    note("anew", os.mkdir, directory)
    note("and empty", os.listdir, directory)


def replace():
    os.mkdir("other")
    os.rename("other", "held")


os.mkdir("held")
remove("held")
os.rmdir("held")
os.mkdir("held")
fd = os.open("held", os.O_RDONLY)
replace()
note("replaced", lambda: mode_and_links(fd)[1] == 0)
note("fchmod", os.fchmod, fd, 0o700)
os.close(fd)
print("replacement", stat.S_IMODE(os.stat("held").st_mode) == 0o700, os.listdir("held"))

# What has lost its last name, for programs that still use it.
import errno
import os
import stat
import subprocess


def note(what, act, *arguments):
    try:
        print(what, act(*arguments))
    except OSError as error:
        print(what, errno.errorcode[error.errno])


def status(path):
    found = os.stat(path)
    return oct(found.st_mode), found.st_nlink, found.st_uid


def shell(command):
    done = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.returncode, done.stdout


def use(name):
    """Everything that a program does in its working directory."""
    note(f"{name} stat .", status, ".")
    note(f"{name} list", os.listdir, ".")
    note(f"{name} ls", shell, "ls -a")
    note(f"{name} stat x", os.stat, "x")
    note(f"{name} touch", lambda: open("x", "w").close())
    note(f"{name} mkdir", os.mkdir, "x")
    note(f"{name} symlink", os.symlink, "y", "x")
    note(f"{name} mkfifo", os.mkfifo, "x")
    note(f"{name} link", os.link, top + "/file", "x")
    note(f"{name} rename", os.rename, top + "/file", "x")
    note(f"{name} unlink", os.unlink, "x")
    note(f"{name} chmod", os.chmod, ".", 0o710)
    note(f"{name} chown", os.chown, ".", 1, 1)
    note(f"{name} setxattr", os.setxattr, ".", "user.a", b"1")
    note(f"{name} getxattr", os.getxattr, ".", "user.a")
    note(f"{name} utime", os.utime, ".", (1, 2))
    note(f"{name} times", lambda: (os.stat(".").st_atime, os.stat(".").st_mtime))
    note(f"{name} open", lambda: os.close(os.open(".", os.O_RDONLY)))
    note(f"{name} statvfs", lambda: os.statvfs(".").f_bsize)
    note(f"{name} changed", status, ".")
    note(f"{name} getcwd", os.getcwd)
    note(f"{name} cwd", lambda: os.readlink("/proc/self/cwd").endswith(" (deleted)"))
    note(f"{name} removed again", os.rmdir, ".")
    note(f"{name} chdir .", os.chdir, ".")


top = os.getcwd()
with open("file", "wb") as file:
    file.write(b"contents")

os.mkdir("plain")
os.chdir("plain")
os.rmdir("../plain")
use("plain")
note("above", lambda: os.path.samefile("..", top))
os.chdir("..")
print("back", os.getcwd() == top, os.listdir("."))

os.makedirs("a/b/c")
os.chdir("a/b/c")
for name in "a/b/c", "a/b", "a":
    os.rmdir(f"{top}/{name}")
use("deep")
note("deep ..", status, "..")
note("deep ../..", status, "../..")
note("deep ../../..", lambda: os.path.samefile("../../..", top))
note("deep list ..", os.listdir, "..")
note("deep chdir ..", os.chdir, "..")
use("above")
os.chdir(top)

os.mkdir("old")
os.mkdir("new")
os.chdir("old")
os.rename("../new", "../old")
use("replaced")
os.chdir(top)
note("replacement", status, "old")

# A commit in between changes nothing.
os.mkdir("durable")
os.chdir("durable")
os.rmdir("../durable")
fd = os.open(top, os.O_RDONLY)
os.fsync(fd)
os.close(fd)
use("durable")
os.chdir(top)

# Nor does a new directory of that name.
os.mkdir("again")
os.chdir("again")
os.rmdir("../again")
os.mkdir("../again")
note("again create", lambda: open("x", "w").close())
note("again is another", lambda: not os.path.samefile(".", "../again"))
os.chdir(top)
note("again", os.listdir, "again")

os.mkfifo("pipe")
fd = os.open("pipe", os.O_RDWR)
os.unlink("pipe")
note("pipe", lambda: (oct(os.fstat(fd).st_mode), os.fstat(fd).st_nlink))
note("pipe chmod", os.fchmod, fd, 0o600)
note("pipe changed", lambda: oct(os.fstat(fd).st_mode))
note("pipe write", os.write, fd, b"abc")
note("pipe read", os.read, fd, 3)
os.close(fd)

fd = os.open("file", os.O_PATH)
os.unlink("file")
note("path", lambda: (os.fstat(fd).st_nlink, os.fstat(fd).st_size))
note("path read", lambda: open(f"/proc/self/fd/{fd}", "rb").read())
note("path write", lambda: open(f"/proc/self/fd/{fd}", "ab").write(b" and more"))
note("path read", lambda: open(f"/proc/self/fd/{fd}", "rb").read())
note("path link", os.link, f"/proc/self/fd/{fd}", "linked")
os.close(fd)

os.symlink("target", "link")
fd = os.open("link", os.O_PATH | os.O_NOFOLLOW)
os.unlink("link")
note("link", lambda: (stat.S_ISLNK(os.fstat(fd).st_mode), os.fstat(fd).st_nlink))
note("link target", lambda: os.readlink("", dir_fd=fd))
os.close(fd)
print("left", sorted(os.listdir(".")))

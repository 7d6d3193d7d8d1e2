"""What `ceph.py` puts below OSDs, and crashes: caches and mounted pools."""

import os
import signal
import subprocess

from ceph_cluster import MIB, PATIENCE, as_user, folder_of_user, own, run, sparse, wait_for, while_here

BRINDLE = os.path.realpath(os.environ.get("BRINDLE", "target/release/brindle"))


class Server:
    """A server of brindle in the foreground."""

    def __init__(self, folder, is_there, *words):
        self.log = os.path.join(folder, "brindle.log")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(while_here(BRINDLE, *words), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        def ready():
            if self.process.poll() is not None:
                raise RuntimeError(f"{' '.join(words)}: {self.said()}")
            return is_there()
        wait_for(" ".join(words), ready)

    def said(self):
        with open(self.log) as log:
            return log.read()[-2000:]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def wait(self):
        if self.process.wait(PATIENCE) != 0:
            raise RuntimeError(self.said())


def umount(at):
    """Unmounts what a program that has just ended may have open for a moment."""
    words = ["umount", at] if os.geteuid() == 0 else ["fusermount3", "-u", at]
    wait_for(f"umount {at}", lambda: subprocess.run(words, stderr=subprocess.DEVNULL).returncode == 0)


def let_go(at):
    """Takes a mount without a server away."""
    run(*(["umount", "-l"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]), at, check=False)


def btrfs_check(devices):
    """Has btrfs-progs examine a pool; they look for its other devices among block devices only."""
    loops = []
    try:
        for device in devices:
            loops.append(run("losetup", "--find", "--show", device))
        run("btrfs", "device", "scan", *loops)
        run("btrfs", "check", "--readonly", "--check-data-csum", loops[0])
    finally:
        run("btrfs", "device", "scan", "--forget", *loops, check=False)
        for loop in loops:
            run("losetup", "--detach", loop, check=False)


class Disks:
    """An SSD and a hard disk: sparse files, whose server is killed; or modelled drives, whose power is cut, and what was not flushed is lost."""

    def __init__(self, folder, end, ssd_bytes):
        self.end, self.places, self.devices = end, [], []
        for model, size in (("ssd", ssd_bytes), ("hdd", 4096 * MIB)):
            at = os.path.join(folder, model)
            if end == "kill":
                self.devices.append(sparse(at, size))
            else:
                os.mkdir(at)
                self.devices.append(run(BRINDLE, "lab", "disk", "--attach", "--size", str(size), model, at))
                self.places.append(at)

    def crash(self, server, rng):
        # All disks at one moment: nothing is asked of one while the other is already without power.
        server.process.send_signal(signal.SIGSTOP)
        for place in self.places:
            mode, seed = rng.choice(["lost", "torn", "reordered"]), str(rng.randrange(1 << 30))
            run(BRINDLE, "lab", "cut", "--mode", mode, "--seed", seed, place)
        server.kill()

    def restore(self):
        for place, device in zip(self.places, self.devices):
            run(BRINDLE, "lab", "restore", place)
            # The kernel tells the first program that flushes of writes that the cut took.
            with open(device, "r+b", buffering=0) as block:
                try:
                    os.fsync(block.fileno())
                except OSError:
                    pass

    def remove(self):
        for place in self.places:
            run(BRINDLE, "lab", "stop", place, check=False)


class Block:
    """BlueStore on the cache of an SSD for a disk."""

    store = "bluestore"

    def __init__(self, folder, end):
        self.folder = folder
        self.osd, self.place = os.path.join(folder, "osd"), os.path.join(folder, "cache")
        self.disks = Disks(folder, end, 400 * MIB)
        self.devices = self.disks.devices
        os.mkdir(self.place)
        self.server, self.loop = None, None

    def make(self):
        run(BRINDLE, "cache", "create", "-p", "back", "osd", *self.devices)
        self.load()
        self.prepare()
        self.use()

    def prepare(self):
        folder_of_user(self.osd)

    def load(self):
        def is_there():
            with open(os.path.join(self.folder, "brindle.log")) as log:
                self.loop = next((line.strip() for line in log if line.startswith("/dev/loop") and line.endswith("\n")), None)
            return self.loop
        self.server = Server(self.folder, is_there, "cache", "load", "--foreground", "--attach", *self.devices, self.place)

    def use(self):
        """Makes the device that of the OSD."""
        own(self.loop)
        block = os.path.join(self.osd, "block")
        if os.path.lexists(block):
            os.unlink(block)
        os.symlink(self.loop, block)

    def again(self):
        """A new server after the crash of the last one."""
        run("losetup", "--detach", self.loop)
        let_go(self.place)
        self.disks.restore()
        self.load()
        self.use()

    def end(self):
        self.examine()
        run(BRINDLE, "cache", "stop", self.place)
        self.server.wait()

    def examine(self):
        run(*as_user("ceph-bluestore-tool", "fsck", "--deep", "1", "--path", self.osd))

    def remove(self):
        if self.loop:
            run("losetup", "--detach", self.loop, check=False)
        if self.server:
            let_go(self.place)
            self.server.kill()
        self.disks.remove()


class Cache(Block):
    """FileStore on XFS there."""

    store = "filestore"

    def __init__(self, folder, end):
        super().__init__(folder, end)
        self.mount_point = os.path.join(folder, "mnt")
        self.osd = os.path.join(self.mount_point, "osd")
        os.mkdir(self.mount_point)

    def prepare(self):
        run("mkfs.xfs", "-q", self.loop)
        run("mount", self.loop, self.mount_point)
        folder_of_user(self.osd)
        umount(self.mount_point)

    def use(self):
        run("mount", self.loop, self.mount_point)

    def again(self):
        umount(self.mount_point)
        super().again()

    def examine(self):
        umount(self.mount_point)
        run("xfs_repair", "-n", self.loop)

    def remove(self):
        if os.path.ismount(self.mount_point):
            let_go(self.mount_point)
        super().remove()


class Pool:
    """A pool of a local SSD and other devices, mounted."""

    def __init__(self, folder, ssd, bulk, *options):
        self.folder, self.ssd, self.bulk, self.options = folder, ssd, bulk, options
        self.mount_point = os.path.join(folder, "mnt")
        os.mkdir(self.mount_point)
        self.server = None

    def make(self):
        run(BRINDLE, "mkfs", *self.options, f"{self.ssd}:fast", *[f"{device}:bulk" for device in self.bulk])
        self.mount(*self.bulk)

    def mount(self, *bulk):
        self.server = Server(self.folder, lambda: os.path.ismount(self.mount_point),
                             "mount", "--foreground", self.ssd, *bulk, self.mount_point)

    def again(self):
        """A new mount after the server of the last one was killed."""
        let_go(self.mount_point)
        self.mount(*self.bulk)

    def unmount(self):
        umount(self.mount_point)
        self.server.wait()

    def end(self):
        self.unmount()
        run(BRINDLE, "check", "--check-data-csum", self.ssd, *self.bulk)

    def remove(self):
        if self.server:
            let_go(self.mount_point)
            self.server.kill()


class Store(Pool):
    """FileStore on a pool of an SSD and a hard disk."""

    store = "filestore"

    def __init__(self, folder, end):
        self.disks = Disks(folder, end, 1024 * MIB)
        ssd, hdd = self.disks.devices
        super().__init__(folder, ssd, [hdd], "-d", "single", "-m", "single")
        self.osd = os.path.join(self.mount_point, "osd")

    def make(self):
        super().make()
        folder_of_user(self.osd)

    def again(self):
        let_go(self.mount_point)
        self.disks.restore()
        self.mount(*self.bulk)

    def end(self):
        super().end()
        btrfs_check(self.disks.devices)

    def remove(self):
        super().remove()
        self.disks.remove()

#!/usr/bin/python3
"""Ceph above brindle and below it: a cluster of Debian's packages on this machine, its OSDs and brindle's servers killed. Needs root but for `images`.

    BRINDLE=target/release/brindle contrib/ceph.py [cache|block|store|images]... [kill|cut]...
    contrib/ceph.py start DIRECTORY
    contrib/ceph.py stop DIRECTORY

cache       A FileStore OSD on XFS on `brindle cache` (SSD and disk, write-back), beside an OSD that is away at the end.
block       A BlueStore OSD on such a cache itself.
store       A FileStore OSD on a mounted pool of an SSD and a hard disk.
images      A pool of a local SSD and two RBD images, data in raid1 on these.
kill, cut   The server below the OSD is killed; or the power of its disks, which are modelled, is cut at one moment, and what was not flushed
            is lost, torn or reordered, as SEED says. Both unless told otherwise.
start, stop A cluster of a monitor, a manager and two OSDs in a directory that does not exist yet, to try things with; its end and removal.

Of the first three, `rados bench` verifies what it wrote, and clients overwrite objects, pieces of objects and omaps while the OSD is killed, and
then what is below it crashes; each write that was acknowledged must be there, also with the OSD alone, deep scrubs must find no difference, and
`xfs_repair -n`, `ceph-bluestore-tool fsck --deep` or `btrfs check` nothing to complain of. Of images, files are written and synced while an OSD is killed, the cluster
hangs, and brindle's server is killed.

The daemons of Ceph run as the user that calls, or as `ceph` if that is root, on the loopback interface and without authentication.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
from ceph_below import BRINDLE, Block, Cache, Pool, Store, btrfs_check
from ceph_cluster import MIB, PATIENCE, Cluster, as_user, folder_of_user, run, sparse, start, stop, wait_for, while_here

PROGRAM = os.path.realpath(__file__)
SEED = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
SECONDS = float(os.environ.get("SECONDS", "6"))
CASES = ("cache", "block", "store", "images")
ENDS = ("kill", "cut")


# Objects of the load: whole ones, and pieces of large ones.
OBJECTS, PIECES, PIECE = 48, 64, 32768


def contents(slot, version):
    """What a version of a slot holds."""
    rng = random.Random(slot * 1_000_003 + version)
    head = f"{slot} {version}\n".encode()
    return head + rng.randbytes((rng.choice([100, 5000, 70_000, 300_000]) if slot < OBJECTS else PIECE) - len(head))


def objects_client(conf, begin):
    """Writes versions of slots, and prints each when it is acknowledged. A whole object has its version in an omap key and an attribute too."""
    import rados
    with rados.Rados(conffile=conf) as cluster, cluster.open_ioctx("load") as pool:
        rng, version = random.Random(int(begin)), int(begin)
        while True:
            version += 1
            slot = rng.randrange(OBJECTS + PIECES)
            print(f"asked {slot} {version}", flush=True)
            if slot < OBJECTS:
                with rados.WriteOpCtx() as operation:
                    operation.write_full(contents(slot, version))
                    pool.set_omap(operation, ("version", f"version {version}"), (str(version).encode(), b"x" * 500))
                    pool.operate_write_op(operation, f"object {slot}")
                pool.set_xattr(f"object {slot}", "version", str(version).encode())
            else:
                pool.write(f"pieces {slot % 4}", contents(slot, version), slot // 4 * PIECE)
            print(f"done {slot} {version}", flush=True)


def files_client(folder, begin):
    """Writes files durably, and prints each; every third gets another name."""
    version = int(begin)
    while True:
        version += 1
        print(f"asked {version} {version}", flush=True)
        at = path_of(folder, version)
        os.makedirs(os.path.dirname(at), exist_ok=True)
        name = at + ".new" if version % 3 == 0 else at
        with open(name, "wb") as file:
            file.write(contents(version % OBJECTS, version))
            file.flush()
            os.fsync(file.fileno())
            if name != at:
                os.rename(name, at)
                os.fsync(file.fileno())
        print(f"done {version} {version}", flush=True)


def path_of(folder, version):
    return os.path.join(folder, str(version % 7), str(version))


class Load:
    """A client that writes, and what was asked and acknowledged of each slot."""

    def __init__(self, client, target):
        self.client, self.target = client, target
        self.asked, self.done = {}, {}
        self.process, self.begin, self.count = None, 0, 0

    def start(self):
        self.process = subprocess.Popen([sys.executable, PROGRAM, "--client", self.client, self.target, str(self.begin)],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            if line.endswith("\n"):
                word, slot, version = line.split()
                self.begin = int(version)
                (self.asked if word == "asked" else self.done)[int(slot)] = int(version)
                self.count += word == "done"

    def end(self):
        self.process.kill()
        self.thread.join()
        self.process.wait()

    def ended(self):
        """Waits until the client has ended by itself, at an error."""
        self.process.wait(PATIENCE)
        self.thread.join()

    def goes_on(self, more):
        """Waits until so many further writes are acknowledged."""
        aim = self.count + more

        def there():
            if self.process.poll() is not None:
                raise RuntimeError(f"the client has ended after {self.count} writes")
            return self.count >= aim
        wait_for(f"{more} writes", there)

    def verify(self, snapshot=None, held=None):
        """Each slot has its last acknowledged version, or the one that was asked for last. Returns the versions that are there."""
        import rados
        found = {}
        with rados.Rados(conffile=self.target) as cluster, cluster.open_ioctx("load") as pool:
            if snapshot:
                pool.set_read(pool.lookup_snap(snapshot).snap_id)
            for slot, version in (held or self.done).items():
                allowed = {version} if held else {version, self.asked[slot]}
                if slot < OBJECTS:
                    name, offset, length = f"object {slot}", 0, 1 << 20
                else:
                    name, offset, length = f"pieces {slot % 4}", slot // 4 * PIECE, PIECE
                data = pool.read(name, length, offset)
                there = [one for one in allowed if contents(slot, one) == data]
                if not there:
                    raise RuntimeError(f"{name} at {offset}: {data[:20]} and {len(data)} bytes, not those of {allowed}")
                found[slot] = there[0]
                if slot < OBJECTS:
                    verify_object(pool, name, there[0], held)
        if not held:
            self.asked, self.done = dict(found), dict(found)
        return found


def verify_object(pool, name, version, held):
    import rados
    with rados.ReadOpCtx() as operation:
        keys, _ = pool.get_omap_vals_by_keys(operation, ("version",))
        pool.operate_read_op(operation, name)
        value = dict(keys).get("version")
    if value != str(version).encode():
        raise RuntimeError(f"{name}: the data has version {version}, the omap {value}")
    if not held and int(pool.get_xattr(name, "version")) > version:
        raise RuntimeError(f"{name}: the attribute has version {pool.get_xattr(name, 'version')}, the data {version}")


def below(kind, folder, end):
    """FileStore on a mount of brindle or on a cache of it."""
    place = folder_of_user(folder, "place")
    lower, cluster = kind(place, end), Cluster(folder_of_user(folder, "cluster"))
    try:
        lower.make()
        cluster.make()
        load, osd = Load("objects", cluster.conf), cluster.add_osd(lower.osd, lower.store)
        other = cluster.add_osd()
        for pool in ("bench", "load"):
            cluster.pool(pool)
        cluster.wait_until_clean()
        cluster.bench("write", "-b", "1048576", "--max-objects", "96", "--no-cleanup")
        load.start()
        load.goes_on(100)
        cluster.end_osd(osd, signal.SIGKILL)
        load.goes_on(30)
        cluster.start_osd(osd)
        load.goes_on(100)
        load.end()
        cluster.wait_until_clean()
        held = load.verify()
        run("rados", "-c", cluster.conf, "-p", "load", "mksnap", "held")
        # From here on the OSD is alone: each byte is what brindle has kept.
        cluster.end_osd(other, signal.SIGTERM)
        load.start()
        load.goes_on(100)
        time.sleep(SECONDS)
        lower.disks.crash(lower.server, random.Random(SEED))
        cluster.daemons[f"ceph-osd.{osd}"].wait(PATIENCE)
        load.end()
        lower.again()
        cluster.start_osd(osd)
        load.verify()
        load.verify("held", held)
        for kind in ("seq", "rand"):
            cluster.bench(kind)
        cluster.start_osd(other)
        cluster.wait_until_clean()
        groups = cluster.deep_scrub()
        load.verify()
        for name in (other, osd):
            cluster.end_osd(name, signal.SIGTERM)
        lower.end()
        return f"{load.count} writes were acknowledged and are there, {groups} placement groups are the same on both OSDs"
    except BaseException:
        cluster.tell()
        raise
    finally:
        cluster.remove()
        lower.remove()


class Exports:
    """RBD images, each served by a qemu-nbd of its own."""

    NAMES = ("one", "two")

    def __init__(self, cluster):
        self.cluster, self.servers = cluster, {}

    def make(self):
        self.cluster.ceph("osd", "pool", "create", "rbd")
        self.cluster.ceph("osd", "pool", "application", "enable", "rbd", "rbd")
        for name in self.NAMES:
            run("rbd", "-c", self.cluster.conf, "create", "--size", "1024", f"rbd/{name}")
            self.serve(name)

    def at(self, name):
        return os.path.join(self.cluster.folder, "run", f"{name}.sock")

    def serve(self, name):
        if os.path.exists(self.at(name)):
            os.unlink(self.at(name))
        log = open(os.path.join(self.cluster.folder, "log", f"qemu-nbd.{name}"), "a")
        words = ["qemu-nbd", "--persistent", "--shared", "4", "--discard", "unmap", "-k", self.at(name), "-f", "raw",
                 f"rbd:rbd/{name}:conf={self.cluster.conf}"]
        self.servers[name] = subprocess.Popen(as_user(*while_here(*words)), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for(f"export of {name}", lambda: os.path.exists(self.at(name)))

    def kill(self, name):
        self.servers[name].kill()
        self.servers[name].wait()

    def uris(self, timeout):
        return [f"nbd+unix:///?socket={self.at(name)}&x-timeout={timeout}" for name in self.NAMES]

    def copies(self, folder):
        """Copies of the images, as files."""
        for name in self.NAMES:
            run("rbd", "-c", self.cluster.conf, "export", f"rbd/{name}", os.path.join(folder, name))
        return [os.path.join(folder, name) for name in self.NAMES]

    def remove(self):
        for server in self.servers.values():
            server.kill()
            server.wait()


def verify_files(load):
    for version in load.done:
        with open(path_of(load.target, version), "rb") as file:
            if file.read() != contents(version % OBJECTS, version):
                raise RuntimeError(f"file {version} is not as it was written")


def images(folder):
    """A pool of brindle whose bulk devices are RBD images."""
    place = os.path.join(folder, "place")
    os.mkdir(place)
    cluster = Cluster(folder_of_user(folder, "cluster"))
    exports, pool = Exports(cluster), None
    try:
        cluster.make()
        osds = [cluster.add_osd() for _ in range(2)]
        exports.make()
        cluster.wait_until_clean()
        pool = Pool(place, sparse(os.path.join(place, "ssd"), 1024 * MIB), exports.uris(240), "-d", "raid1", "-m", "single")
        pool.make()
        load = Load("files", pool.mount_point)
        daemons_die(cluster, osds, exports, pool, load)
        image_hangs(exports, pool, load)
        cluster_hangs(cluster, exports, pool, load)
        exports.remove()
        if os.geteuid() == 0:
            btrfs_check([pool.ssd, *exports.copies(place)])
        return f"{load.count} files were synced and are there"
    except BaseException:
        cluster.tell()
        raise
    finally:
        if pool:
            pool.remove()
        exports.remove()
        cluster.remove()


def daemons_die(cluster, osds, exports, pool, load):
    """An OSD, the server of an image, and that of the mount are killed."""
    load.start()
    load.goes_on(100)
    cluster.end_osd(osds[0], signal.SIGKILL)
    load.goes_on(100)
    cluster.start_osd(osds[0])
    load.goes_on(100)
    cluster.wait_until_clean()
    # The successor breaks the lock of the image when the cluster has given its holder up, after half a minute.
    exports.kill("one")
    exports.serve("one")
    load.goes_on(100)
    pool.server.kill()
    load.end()
    pool.again()
    verify_files(load)
    pool.end()


def image_hangs(exports, pool, load):
    """An image that hangs is a disk that is gone: the pool goes on, and takes it in again later."""
    pool.bulk = one, two = exports.uris(10)
    pool.mount(one, two)
    load.start()
    load.goes_on(30)
    exports.servers["two"].send_signal(signal.SIGSTOP)
    load.goes_on(30)
    load.end()
    exports.servers["two"].send_signal(signal.SIGCONT)
    pool.unmount()
    pool.mount("-o", "degraded", one)
    load.start()
    load.goes_on(30)
    run(BRINDLE, "device", "rejoin", two, pool.mount_point)
    load.goes_on(30)
    load.end()
    pool.end()


def cluster_hangs(cluster, exports, pool, load):
    """A cluster that hangs leaves no copy to go on with; afterwards everything is there that was synced."""
    pool.mount(*pool.bulk)
    load.start()
    load.goes_on(30)
    for daemon in cluster.osds():
        daemon.send_signal(signal.SIGSTOP)
    load.ended()
    status = run(BRINDLE, "status", pool.mount_point, check=False)
    if "read-only" not in status or "has not answered for 10 s" not in pool.server.said():
        raise RuntimeError(f"the cluster hangs: {status}")
    for daemon in cluster.osds():
        daemon.send_signal(signal.SIGCONT)
    pool.server.kill()
    pool.bulk = exports.uris(240)
    pool.again()
    verify_files(load)
    pool.end()


def attempt(case, end):
    """Plays a case in a new folder; returns true if all is as it should be."""
    folder = tempfile.mkdtemp(prefix="brindle-ceph.")
    os.chmod(folder, 0o755)
    kinds = {"cache": Cache, "block": Block, "store": Store}
    title = case if case == "images" else f"{case}: {end}"
    try:
        told = images(folder) if case == "images" else below(kinds[case], folder, end)
        print(f"passed: {title}: {told}", flush=True)
        return True
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        print(f"FAILED: {title}, SEED={SEED}: {error}", flush=True)
        return False
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(words):
    # Ends by a signal remove the cluster too.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    if words[:1] in (["start"], ["stop"]) and len(words) == 2:
        {"start": start, "stop": stop}[words[0]](words[1])
        return
    unknown = [word for word in words if word not in (*CASES, *ENDS)]
    if unknown:
        sys.exit(f"ceph.py: no {unknown[0]}; there are {', '.join((*CASES, *ENDS))}, start DIRECTORY, stop DIRECTORY")
    for program in ("ceph-mon", "ceph-mgr", "ceph-osd", "rados", "rbd", "qemu-nbd"):
        if shutil.which(program) is None:
            print(f"skipped: {program} is not installed")
            return
    # The user of Ceph may not enter every directory.
    os.chdir("/")
    passed = True
    for case in [word for word in words if word in CASES] or CASES:
        if case != "images" and os.geteuid() != 0:
            print(f"skipped: {case}: needs root")
            continue
        for end in [word for word in words if word in ENDS] or ENDS if case != "images" else ENDS[:1]:
            passed &= attempt(case, end)
    sys.exit(0 if passed else 1)


CLIENTS = {"objects": objects_client, "files": files_client}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--client"]:
        CLIENTS[sys.argv[2]](*sys.argv[3:])
    else:
        main(sys.argv[1:])

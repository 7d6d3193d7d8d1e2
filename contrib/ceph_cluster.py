"""A cluster of Debian's packages of Ceph on this machine: a monitor, a manager, and OSDs, below one folder, as an ordinary user.

Its daemons run as the user that calls, or as `ceph` if that is root, on the loopback interface and without authentication.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid

# No step takes as long; a machine that is busy is waited for.
PATIENCE = 300
MIB = 1 << 20


def run(*words, check=True, **more):
    """Output of a program that must succeed."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL, **more)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.returncode}: {done.stdout[-3000:]}")
    return done.stdout.strip()


def wait_for(what, condition):
    """The first true value of a condition."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.2)
    raise RuntimeError(f"waited in vain: {what}")


def as_user(*words):
    """The same words, to be run by an ordinary user."""
    if os.geteuid() != 0:
        return list(words)
    return ["setpriv", "--reuid=ceph", "--regid=ceph", "--clear-groups", *words]


def while_here(*words):
    """The same words, for a program that is killed when this one ends, however that is."""
    return ["setpriv", "--pdeathsig=KILL", *words]


def own(path):
    if os.geteuid() == 0:
        shutil.chown(path, "ceph", "ceph")


def folder_of_user(path, *more):
    path = os.path.join(path, *more)
    os.mkdir(path)
    own(path)
    return path


def sparse(path, size):
    with open(path, "wb") as file:
        file.truncate(size)
    return path


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Cluster:
    """A monitor, a manager, and OSDs, all below one folder."""

    SETTINGS = """[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{port}/0]
public_addr = 127.0.0.1
ms_bind_msgr1 = false
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
keyring = {folder}/keyring
run_dir = {folder}/run
admin_socket = {folder}/run/$name.$pid
log_file = {folder}/log/$name
log_to_stderr = false
err_to_stderr = true
mon_data = {folder}/mon
mgr_data = {folder}/mgr
osd_data = {folder}/osd$id
mon_osd_min_down_reporters = 1
mon_osd_down_out_interval = 0
mon_data_avail_crit = 1
mon_warn_on_pool_no_redundancy = false
mgr_initial_modules =
osd_pool_default_size = 2
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
osd_crush_initial_weight = 1
osd_memory_target = 939524096
osd_max_scrubs = 8
osd_scrub_backoff_ratio = 0
osd_scrub_load_threshold = 1000
osd_journal_size = 100
bluestore_cache_autotune = false
bluestore_cache_size = 33554432
bluestore_block_size = 4294967296
bluestore_block_wal_create = false
bluestore_block_db_create = false
filestore_fiemap = true
filestore_seek_data_hole = true
filestore_max_xattr_value_size_other = 8192
filestore_max_inline_xattr_size_other = 8192
filestore_max_inline_xattrs_other = 10
journal_force_aio = true
"""

    def __init__(self, folder, stays=False):
        self.folder, self.stays = folder, stays
        self.conf = os.path.join(folder, "ceph.conf")
        self.daemons = {}

    def make(self):
        for name in ("run", "log", "mon", "mgr"):
            folder_of_user(self.folder, name)
        fsid, port = str(uuid.uuid4()), free_port()
        with open(self.conf, "w") as conf:
            conf.write(self.SETTINGS.format(fsid=fsid, port=port, folder=self.folder))
        monmap, keyring = os.path.join(self.folder, "monmap"), os.path.join(self.folder, "keyring")
        run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{port}/0]", monmap)
        run("ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        own(keyring)
        run(*as_user("ceph-mon", "-c", self.conf, "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring))
        self.start("ceph-mon", "a")
        self.start("ceph-mgr", "x")

    def start(self, program, name):
        log = open(os.path.join(self.folder, "log", f"{program}.{name}.err"), "a")
        words = [program, "-c", self.conf, "-f", "-i", name]
        words = as_user(*(words if self.stays else while_here(*words)))
        daemon = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.daemons[f"{program}.{name}"] = daemon
        with open(os.path.join(self.folder, "pids"), "a") as pids:
            pids.write(f"{daemon.pid}\n")

    def ceph(self, *words):
        return run("ceph", "-c", self.conf, "--connect-timeout", "60", *words)

    def ask(self, *words):
        done = subprocess.run(["ceph", "-c", self.conf, "--connect-timeout", "60", "-f", "json", *words],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"ceph {' '.join(words)}: {done.stderr}")
        return json.loads(done.stdout)

    def add_osd(self, folder=None, kind="bluestore"):
        """A new OSD, in a folder of the caller or with BlueStore on a sparse file."""
        own_id = str(uuid.uuid4())
        name = self.ceph("osd", "new", own_id).splitlines()[-1]
        folder = folder or folder_of_user(self.folder, f"osd{name}")
        with open(self.conf, "a") as conf:
            conf.write(f"[osd.{name}]\nosd_objectstore = {kind}\nosd_data = {folder}\nosd_journal = {folder}/journal\n")
        run(*as_user("ceph-osd", "-c", self.conf, "-i", name, "--mkfs", "--osd-uuid", own_id))
        self.start_osd(name)
        return name

    def up_from(self, name):
        """The epoch in which an OSD came up that is up; else 0."""
        return next((osd["up_from"] for osd in self.ask("osd", "dump")["osds"] if str(osd["osd"]) == name and osd["up"]), 0)

    def start_osd(self, name):
        before = self.up_from(name)
        self.start("ceph-osd", name)
        daemon = self.daemons[f"ceph-osd.{name}"]

        def is_up():
            if daemon.poll() is not None:
                raise RuntimeError(f"osd.{name} has ended: {self.words_of(f'ceph-osd.{name}.err')}")
            return self.up_from(name) > before
        wait_for(f"osd.{name}", is_up)

    def end_osd(self, name, how):
        """Ends an OSD by a signal, and returns when the monitor knows."""
        daemon = self.daemons[f"ceph-osd.{name}"]
        daemon.send_signal(how)
        daemon.wait()
        self.ceph("osd", "down", name)

    def osds(self):
        return [daemon for name, daemon in self.daemons.items() if name.startswith("ceph-osd.")]

    def pool(self, name):
        self.ceph("osd", "pool", "create", name)
        self.ceph("osd", "pool", "application", "enable", name, "rados")

    def groups(self):
        return self.ask("pg", "dump", "pgs")["pg_stats"]

    def wait_until_clean(self):
        wait_for("active+clean", lambda: all(group["state"].startswith("active+clean") for group in self.groups()))

    def deep_scrub(self):
        """Compares all copies of all objects."""
        before = {group["pgid"]: group["last_deep_scrub_stamp"] for group in self.groups()}
        for group in before:
            self.ceph("pg", "deep-scrub", group)
        wait_for("deep scrubs", lambda: all(before[group["pgid"]] != group["last_deep_scrub_stamp"] for group in self.groups()))
        bad = [group["pgid"] for group in self.groups() if "inconsistent" in group["state"]]
        if bad:
            raise RuntimeError(f"copies differ in {bad}: {self.ceph('health', 'detail')}")
        return len(before)

    def bench(self, kind, *more):
        said = run("rados", "-c", self.conf, "-p", "bench", "bench", "60" if kind == "write" else "4", kind, "-t", "8", *more)
        if "not correct" in said:
            raise RuntimeError(said)

    def words_of(self, log):
        return run("tail", "-n", "20", os.path.join(self.folder, "log", log), check=False)

    def tell(self):
        """Prints the ends of the errors of all daemons."""
        for log in sorted(os.listdir(os.path.join(self.folder, "log"))):
            if log.endswith(".err"):
                print(f"--- {log}\n{self.words_of(log)}", flush=True)

    def remove(self):
        for daemon in reversed(self.daemons.values()):
            if daemon.poll() is None:
                daemon.send_signal(signal.SIGCONT)
                daemon.kill()
            daemon.wait()


def start(folder):
    """A cluster that stays."""
    folder = os.path.realpath(folder)
    os.mkdir(folder)
    own(folder)
    cluster = Cluster(folder, stays=True)
    try:
        cluster.make()
        for _ in range(2):
            cluster.add_osd()
        cluster.wait_until_clean()
    except BaseException:
        cluster.tell()
        cluster.remove()
        raise
    print(f"ceph -c {cluster.conf} status")


def stop(folder):
    """Ends the daemons that `start` has started, and removes all."""
    folder = os.path.realpath(folder)
    with open(os.path.join(folder, "pids")) as pids:
        for pid in reversed(pids.read().split()):
            try:
                with open(f"/proc/{pid}/cmdline") as words:
                    is_ours = os.path.join(folder, "ceph.conf") in words.read().split("\0")
            except FileNotFoundError:
                continue
            if is_ours:
                os.kill(int(pid), signal.SIGKILL)
                wait_for(f"the end of {pid}", lambda pid=pid: not os.path.exists(f"/proc/{pid}"))
    shutil.rmtree(folder)

#!/usr/bin/python3
"""Databases on pools of modelled disks, killed and cut under load. Needs root, FUSE, loop devices and btrfs-progs.

    BRINDLE=target/release/brindle contrib/databases.py [kill|cut|logs]... [POOL]...

kill, cut   PostgreSQL (pgbench, and clients that count), SQLite in three journal modes, LMDB and RocksDB write at the same time on
            one mount. Then the server of the mount is killed with SIGKILL; or the power of all disks is cut at one moment, and what was not
            flushed is lost, torn or reordered. After a new mount and the recovery of each database every transaction that
            was acknowledged must be there, each database must pass its own check, and the pool `btrfs check`.
logs        Each workload by itself: of its syncs, 99 in a hundred must be logged, not committed, as commit-stats counts them. Also for
            deliveries of mail, git commits, an upgrade by dpkg, and the writes of an object store.

The pools are `common` (an SSD and two hard disks, raid1) and `mixed` (an SSD and a hard disk, single); unless told otherwise kill and cut
go over both, logs over the first. A database that is not installed is passed over, and said so. SEED repeats the fate of writes
that were not flushed, SECONDS is the time under load.
"""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

PROGRAM = os.path.realpath(__file__)
BRINDLE = os.path.realpath(os.environ.get("BRINDLE", "target/release/brindle"))
SECONDS = float(os.environ.get("SECONDS", "4"))
SEED = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
# Share of syncs that must be logs.
LOGGED = 0.99

POOLS = {
    "common": (["ssd", "hdd", "hdd"], ["-d", "raid1", "-m", "raid1"]),
    "mixed": (["ssd", "hdd"], ["-d", "single", "-m", "single"]),
}


def run(*words, check=True, **more):
    """Output of a program that must succeed."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.returncode}: {done.stdout}")
    return done.stdout.strip()


class Pool:
    """A pool of modelled disks, and its mount."""

    def __init__(self, name, folder):
        models, options = POOLS[name]
        self.folder = folder
        self.mount_point = os.path.join(folder, "mnt")
        os.mkdir(self.mount_point)
        self.disks, self.devices, self.server = [], [], None
        for number, model in enumerate(models):
            at = os.path.join(folder, f"disk{number}")
            os.mkdir(at)
            self.devices.append(run(BRINDLE, "lab", "disk", "--attach", "--size", "4G", model, at))
            self.disks.append(at)
        run(BRINDLE, "mkfs", *options, *self.devices)

    def mount(self):
        words = [BRINDLE, "mount", "--foreground", "-o", "allow_other", *self.devices, self.mount_point]
        # A process that is about to end holds the mount that was taken away, and so its devices.
        for _ in range(600):
            with open(os.path.join(self.folder, "mount.log"), "w") as log:
                self.server = subprocess.Popen(words, stdout=log, stderr=log)
            while self.server.poll() is None:
                if os.path.ismount(self.mount_point):
                    return
                time.sleep(0.02)
            if "is in use" not in self.log():
                break
            time.sleep(0.1)
        raise RuntimeError(f"no mount: {self.log()}")

    def log(self):
        with open(os.path.join(self.folder, "mount.log")) as log:
            return log.read()

    def unmount(self):
        said = ""
        for _ in range(100):
            said = run(BRINDLE, "umount", self.mount_point, check=False)
            if not os.path.ismount(self.mount_point):
                self.server.wait()
                return
            time.sleep(0.1)
        raise RuntimeError(f"no umount: {said}")

    def kill(self):
        self.server.kill()
        self.server.wait()

    def cut(self, rng):
        # All disks at one moment: nothing is asked of the others while one is already without power.
        self.server.send_signal(signal.SIGSTOP)
        for disk in self.disks:
            mode, seed = rng.choice(["lost", "torn", "reordered"]), str(rng.randrange(1 << 30))
            run(BRINDLE, "lab", "cut", "--mode", mode, "--seed", seed, disk)
        self.kill()

    def let_go(self):
        """Takes a mount without a server away."""
        run("umount", "-l", self.mount_point)

    def restore(self):
        for disk, device in zip(self.disks, self.devices):
            run(BRINDLE, "lab", "restore", disk)
            # The kernel tells the first program that flushes of writes that the cut took.
            block = os.open(device, os.O_RDWR)
            try:
                os.fsync(block)
            except OSError:
                pass
            os.close(block)

    def referee(self):
        run("btrfs", "device", "scan", *self.devices)
        run("btrfs", "check", "--readonly", "--check-data-csum", self.devices[0])
        run("btrfs", "device", "scan", "--forget", *self.devices, check=False)

    def stats(self):
        """Syncs that were logged, and commits instead by reason."""
        log = json.loads(run(BRINDLE, "filesystem", "commit-stats", "--json", self.mount_point))["log"]
        return log["fsyncs"], log["commits_instead"]

    def remove(self):
        if self.server is not None and self.server.poll() is None:
            run("umount", "-l", self.mount_point, check=False)
            self.server.kill()
            self.server.wait()
        elif os.path.ismount(self.mount_point):
            run("umount", "-l", self.mount_point, check=False)
        for disk in self.disks:
            for _ in range(100):
                run(BRINDLE, "lab", "stop", disk, check=False)
                if not os.path.ismount(disk):
                    break
                time.sleep(0.1)


class Client:
    """A program that prints the number of each transaction as it is acknowledged."""

    def __init__(self, *words, **more):
        self.acknowledged = 0
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, **more)
        self.thread = threading.Thread(target=self.count)
        self.thread.start()

    def count(self):
        for line in self.process.stdout:
            if line.endswith("\n"):
                self.acknowledged = int(line)

    def end(self):
        self.process.kill()
        self.thread.join()
        self.process.wait()


def contents(number):
    """What transaction `number` writes."""
    return f"{number}:".encode() * 40


def tell(number):
    print(number, flush=True)


def expect(name, found, acknowledged):
    """The rows found are those of the first transactions, all acknowledged ones among them."""
    if len(found) < acknowledged:
        raise RuntimeError(f"{name}: {acknowledged} transactions were acknowledged, {len(found)} are there")
    for number, value in enumerate(found, 1):
        if value != contents(number):
            raise RuntimeError(f"{name}: transaction {number} is {value[:20]}")


class Sqlite:
    def __init__(self, mode):
        self.name = f"SQLite {mode}"
        self.mode = mode

    def is_there(self):
        return True

    def begin(self, folder):
        self.path = os.path.join(folder, f"sqlite-{self.mode}")
        database = self.open()
        database.execute("create table t(a integer primary key, b blob)")
        database.close()
        self.client = Client(sys.executable, PROGRAM, "--client", "sqlite", self.mode, self.path)

    def open(self):
        return open_sqlite(self.path, self.mode)

    def end(self):
        self.client.end()

    def verify(self):
        database = self.open()
        expect(self.name, [row[0] for row in database.execute("select b from t order by a")], self.client.acknowledged)
        if database.execute("pragma integrity_check").fetchall() != [("ok",)]:
            raise RuntimeError(f"{self.name}: integrity_check")
        database.close()
        return self.client.acknowledged


def open_sqlite(path, mode):
    database = sqlite3.connect(path, isolation_level=None)
    database.execute(f"pragma journal_mode={mode}")
    # Without `extra` the removal of a rollback journal, which is the commit, is not synced.
    database.execute("pragma synchronous=extra")
    return database


def sqlite_client(mode, path):
    database, number = open_sqlite(path, mode), 0
    while True:
        number += 1
        database.execute("insert into t values (?, ?)", (number, contents(number)))
        tell(number)


class Lmdb:
    name = "LMDB"

    def is_there(self):
        return subprocess.run([sys.executable, "-c", "import lmdb"], stderr=subprocess.DEVNULL).returncode == 0

    def begin(self, folder):
        self.path = os.path.join(folder, "lmdb")
        self.client = Client(sys.executable, PROGRAM, "--client", "lmdb", self.path)

    def end(self):
        self.client.end()

    def verify(self):
        import lmdb
        with lmdb.open(self.path, map_size=1 << 30) as environment, environment.begin() as transaction:
            expect(self.name, [value for _, value in transaction.cursor()], self.client.acknowledged)
        return self.client.acknowledged


def lmdb_client(path):
    import lmdb
    environment, number = lmdb.open(path, map_size=1 << 30), 0
    while True:
        number += 1
        with environment.begin(write=True) as transaction:
            transaction.put(number.to_bytes(8, "big"), contents(number))
        tell(number)


class RocksDb:
    name = "RocksDB"

    def __init__(self, scratch):
        self.program = os.path.join(scratch, "rocksdb-client")

    def is_there(self):
        if os.path.exists(self.program):
            return True
        source = os.path.join(os.path.dirname(PROGRAM), "rocksdb-client.cc")
        words = ["g++", "-O1", "-std=c++17", "-o", self.program, source, "-lrocksdb"]
        return subprocess.run(words, stderr=subprocess.DEVNULL).returncode == 0

    def begin(self, folder):
        self.path = os.path.join(folder, "rocksdb")
        self.client = Client(self.program, "write", self.path)

    def end(self):
        self.client.end()

    def verify(self):
        run(self.program, "verify", self.path, str(self.client.acknowledged))
        return self.client.acknowledged


class PostgreSql:
    name = "PostgreSQL"

    def __init__(self, scratch):
        self.scratch = os.path.join(scratch, "postgres")
        self.bin = None

    def is_there(self):
        base = "/usr/lib/postgresql"
        versions = sorted(os.listdir(base), key=float) if os.path.isdir(base) else []
        self.bin = os.path.join(base, versions[-1], "bin") if versions else None
        return self.bin is not None

    def command(self, program, *words):
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", os.path.join(self.bin, program), *words]

    def sql(self, text):
        return run(*self.command("psql", "-X", "-q", "-A", "-t", "-h", self.scratch, "-d", "postgres", "-c", text))

    def start(self):
        # Its own messages lie beside the pool, so that they can be read after a failure.
        log = open(os.path.join(self.scratch, "log"), "a")
        settings = ["-c", f"unix_socket_directories={self.scratch}", "-c", "listen_addresses=", "-c", "max_connections=40"]
        self.server = subprocess.Popen(self.command("postgres", "-D", self.path, *settings), stdout=log, stderr=log)
        for _ in range(600):
            if subprocess.run(self.command("pg_isready", "-q", "-h", self.scratch)).returncode == 0:
                return
            if self.server.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError("PostgreSQL does not start: " + run("tail", "-20", log.name))

    def begin(self, folder):
        self.path = os.path.join(folder, "postgresql")
        shutil.rmtree(self.scratch, ignore_errors=True)
        for path in (self.scratch, self.path):
            os.mkdir(path, 0o700)
            shutil.chown(path, "postgres", "postgres")
        run(*self.command("initdb", "-D", self.path, "-A", "trust"))
        self.start()
        run(*self.command("pgbench", "-h", self.scratch, "-i", "-q", "-s", "1", "postgres"))
        self.sql("create extension amcheck; create table t(client int, a int, b text, primary key (client, a))")
        self.bench = subprocess.Popen(
            self.command("pgbench", "-h", self.scratch, "-n", "-c", "4", "-T", "3600", "-l",
                         f"--log-prefix={self.scratch}/pgbench", "postgres"),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.clients = [
            Client(sys.executable, PROGRAM, "--client", "postgresql", str(number),
                   *self.command("psql", "-X", "-q", "-A", "-t", "-h", self.scratch, "-d", "postgres"))
            for number in range(3)]

    def end(self):
        for client in self.clients:
            client.end()
        self.bench.send_signal(signal.SIGTERM)
        self.server.send_signal(signal.SIGQUIT)
        self.bench.wait()
        self.server.wait()

    def verify(self):
        pid = os.path.join(self.path, "postmaster.pid")
        if os.path.exists(pid):
            os.unlink(pid)
        self.start()
        acknowledged = 0
        for number, client in enumerate(self.clients):
            rows = self.sql(f"select b from t where client = {number} order by a").split()
            expect(f"{self.name}, client {number}", [row.encode() for row in rows], client.acknowledged)
            acknowledged += client.acknowledged
        done = 0
        for name in os.listdir(self.scratch):
            if name.startswith("pgbench"):
                with open(os.path.join(self.scratch, name)) as log:
                    done += sum(1 for line in log if line.endswith("\n"))
        found = int(self.sql("select count(*) from pgbench_history"))
        if found < done:
            raise RuntimeError(f"pgbench: {done} transactions were acknowledged, {found} are there")
        sums = self.sql("select (select sum(abalance) from pgbench_accounts) = (select coalesce(sum(delta), 0) from pgbench_history)")
        if sums != "t":
            raise RuntimeError("pgbench: the balances are not the sum of the history")
        self.sql("select bt_index_check(c.oid, i.indisunique and c.relname not like 'pg\\_%') from pg_index i "
                 "join pg_class c on c.oid = i.indexrelid join pg_am m on m.oid = c.relam "
                 "where m.amname = 'btree' and c.relpersistence = 'p' and i.indisvalid")
        damage = self.sql("select c.relname, v.msg from pg_class c, lateral verify_heapam(c.oid) v where c.relkind = 'r'")
        if damage:
            raise RuntimeError(f"PostgreSQL, verify_heapam: {damage}")
        self.server.send_signal(signal.SIGINT)
        self.server.wait()
        return acknowledged + done


def postgresql_client(number, *psql):
    process = subprocess.Popen(psql, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    count = 0
    while True:
        count += 1
        value = contents(count).decode()
        process.stdin.write(f"insert into t values ({number}, {count}, '{value}') returning a;\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if line.strip() != str(count):
            sys.exit(1)
        tell(count)


def databases(scratch):
    every = [PostgreSql(scratch), Sqlite("delete"), Sqlite("truncate"), Sqlite("wal"), Lmdb(), RocksDb(scratch)]
    there = [database for database in every if database.is_there()]
    for database in every:
        if database not in there:
            print(f"skipped: {database.name} is not installed")
    return there


def crash(end, pool, there, rng):
    """One load, one end, one recovery; says how many transactions of each database were acknowledged."""
    pool.mount()
    for database in there:
        database.begin(pool.mount_point)
    time.sleep(SECONDS)
    if end == "kill":
        pool.kill()
    else:
        pool.cut(rng)
    for database in there:
        database.end()
    pool.let_go()
    if end == "cut":
        pool.restore()
    pool.mount()
    counts = [f"{database.name} {database.verify()}" for database in there]
    pool.unmount()
    pool.referee()
    return "acknowledged and there: " + ", ".join(counts)


class Mail:
    """Deliveries to maildirs: written, fsync, renamed, fsync of the directory; some are taken away."""
    name = "mail spool"

    def is_there(self):
        return True

    def begin(self, folder):
        self.client = Client(sys.executable, PROGRAM, "--client", "mail", os.path.join(folder, "mail"))

    def end(self):
        self.client.end()


def mail_client(path):
    for name in ("", "tmp", "new", "cur"):
        os.mkdir(os.path.join(path, name))
    directories = {name: os.open(os.path.join(path, name), os.O_RDONLY) for name in ("new", "cur")}
    number = 0
    while True:
        number += 1
        temporary = os.path.join(path, "tmp", str(number))
        with open(temporary, "wb") as file:
            file.write(contents(number) * (1 + number % 30))
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, os.path.join(path, "new", str(number)))
        os.fsync(directories["new"])
        if number > 5:
            os.rename(os.path.join(path, "new", str(number - 5)), os.path.join(path, "cur", f"{number - 5}:2,S"))
            os.fsync(directories["cur"])
        if number > 20 and number % 3 == 0:
            os.unlink(os.path.join(path, "cur", f"{number - 20}:2,S"))
        tell(number)


class Git:
    """Commits, each object and reference synced."""
    name = "git commit"

    def is_there(self):
        return shutil.which("git") is not None

    def begin(self, folder):
        self.client = Client(sys.executable, PROGRAM, "--client", "git", os.path.join(folder, "git"))

    def end(self):
        self.client.end()


def git_client(path):
    run("git", "init", "-q", path)
    options = ["-c", "core.fsync=all", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "gc.auto=0"]
    number = 0
    while True:
        number += 1
        with open(os.path.join(path, f"file{number % 7}"), "wb") as file:
            file.write(contents(number))
        run("git", *options, "add", "-A", cwd=path)
        run("git", *options, "commit", "-q", "-m", str(number), cwd=path)
        tell(number)


class Dpkg:
    """An upgrade of packages, each file synced."""
    name = "dpkg upgrade"

    def __init__(self, scratch):
        self.scratch = os.path.join(scratch, "dpkg")

    def is_there(self):
        return shutil.which("dpkg-deb") is not None

    def begin(self, folder):
        if not os.path.isdir(self.scratch):
            self.pack()
        self.client = Client(sys.executable, PROGRAM, "--client", "dpkg", self.scratch, os.path.join(folder, "dpkg"))

    def pack(self):
        rng = random.Random(1)
        for version in (1, 2):
            for number in range(40):
                tree = os.path.join(self.scratch, "tree")
                share = os.path.join(tree, "usr", "share", f"piece-{number}")
                os.makedirs(share)
                os.mkdir(os.path.join(tree, "DEBIAN"))
                with open(os.path.join(tree, "DEBIAN", "control"), "w") as control:
                    control.write(f"Package: piece-{number}\nVersion: {version}\nArchitecture: all\n"
                                  "Maintainer: nobody <n@example.org>\nDescription: a piece\n")
                for file in range(12):
                    with open(os.path.join(share, str(file)), "wb") as out:
                        out.write(rng.randbytes(rng.choice([100, 2000, 9000, 50000])))
                os.symlink("1", os.path.join(share, "soft"))
                run("dpkg-deb", "--root-owner-group", "-Znone", "--build", tree,
                    os.path.join(self.scratch, f"{version}-{number}.deb"))
                shutil.rmtree(tree)

    def end(self):
        self.client.end()


def dpkg_client(packages, path):
    for name in ("admin/updates", "admin/info", "admin/triggers", "root"):
        os.makedirs(os.path.join(path, name))
    for name in ("status", "available"):
        open(os.path.join(path, "admin", name), "w").close()
    number = 0
    while True:
        for version in (1, 2):
            debs = [os.path.join(packages, f"{version}-{piece}.deb") for piece in range(40)]
            run("dpkg", f"--instdir={path}/root", f"--admindir={path}/admin", "--log=/dev/null", "--force-downgrade",
                "--force-depends", "--unpack", *debs)
            number += 40
            tell(number)


class Objects:
    """The three writes of an object store, with its journal."""
    name = "object store"

    def is_there(self):
        return True

    def begin(self, folder):
        self.client = Client(BRINDLE, "lab", "run", "objects", "--count", "100000", "--jobs", "4", folder)

    def end(self):
        self.client.end()


def logs(pool, workload):
    """Share of the syncs of a workload that were logged."""
    pool.mount()
    workload.begin(pool.mount_point)
    before, commits_before = pool.stats()
    time.sleep(SECONDS)
    after, commits = pool.stats()
    workload.end()
    pool.unmount()
    logged = after - before
    instead = {why: commits[why] - commits_before[why] for why in commits if commits[why] > commits_before[why]}
    syncs = logged + sum(instead.values())
    told = f"{logged} of {syncs} syncs were logged" + (f", commits for {instead}" if instead else "")
    if syncs == 0 or logged < LOGGED * syncs:
        raise RuntimeError(told)
    return told


def attempt(title, name, action):
    """Runs an action on a new pool; returns true if all is as it should be."""
    folder = tempfile.mkdtemp(prefix="brindle-databases.")
    os.chmod(folder, 0o755)
    pool = None
    try:
        pool = Pool(name, folder)
        print(f"passed: {title}: {action(pool)}", flush=True)
        return True
    except (RuntimeError, OSError, sqlite3.Error, subprocess.SubprocessError) as error:
        print(f"FAILED: {title}, SEED={SEED}: {error}\n{pool.log()[-2000:] if pool and pool.server else ''}", flush=True)
        return False
    finally:
        if pool is not None:
            pool.remove()
        shutil.rmtree(folder, ignore_errors=True)


def main(words):
    if os.geteuid() != 0:
        sys.exit("databases.py: needs root")
    ends = [word for word in words if word in ("kill", "cut", "logs")] or ["kill", "cut", "logs"]
    names = [word for word in words if word in POOLS] or list(POOLS)
    unknown = [word for word in words if word not in ("kill", "cut", "logs", *POOLS)]
    if unknown:
        sys.exit(f"databases.py: no {unknown[0]}; there are kill, cut, logs, {', '.join(POOLS)}")
    # The user of PostgreSQL may not enter every directory.
    os.chdir("/")
    scratch = tempfile.mkdtemp(prefix="brindle-databases-scratch.")
    os.chmod(scratch, 0o755)
    passed, rng = True, random.Random(SEED)
    try:
        there = databases(scratch)
        for name in names:
            for end in [end for end in ends if end != "logs"]:
                passed &= attempt(f"{name}: {end}", name, lambda pool, end=end: crash(end, pool, there, rng))
            if "logs" in ends and (name in words or name == "common"):
                others = [Mail(), Git(), Dpkg(scratch), Objects()]
                for workload in there + [other for other in others if other.is_there()]:
                    passed &= attempt(f"{name}: logs: {workload.name}", name,
                                      lambda pool, workload=workload: logs(pool, workload))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(0 if passed else 1)


CLIENTS = {"sqlite": sqlite_client, "lmdb": lmdb_client, "postgresql": postgresql_client, "mail": mail_client,
           "git": git_client, "dpkg": dpkg_client}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--client"]:
        CLIENTS[sys.argv[2]](*sys.argv[3:])
    else:
        main(sys.argv[1:])

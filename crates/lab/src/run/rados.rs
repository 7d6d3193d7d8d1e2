//! A real object store: Ceph, with the benchmark of its own.
//!
//! One OSD has a FileStore in the directory of the run, and its journal there or elsewhere. Clients write objects for a while, each
//! acknowledged when the journal has it; then they read them in order, and then anywhere, each time from a store that starts anew, on a cold
//! filesystem where that is asked for. What is read is compared with what was written.
//!
//! The monitor's data lie in a directory of the host, for its syncs are none of the store's. Monitor and OSD listen on the loopback
//! interface, without authentication, by the user of Ceph if the caller is root.

use super::RunOptions;
use super::daemon::{Account, Daemon};
use super::phase::{Done, Phase, measure, nothing};
use super::program::{command, end_of, output};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

/// Programs that it needs.
pub(super) const PROGRAMS: [&str; 7] =
    ["ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "rados", "setpriv"];
/// User that the servers run as where the caller is root.
const USER: &str = "ceph";
/// Longest time of an operation, which an OSD that has ended, or finds an object damaged, never answers.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of an object.
const OBJECT_BYTES: u64 = 512 << 10;
/// Configuration of a cluster. Attributes are small enough for every filesystem. Ceph takes the kernel's btrfs as an experiment alone;
/// its snapshots are not used.
const SETTINGS: &str = "[global]
enable_experimental_unrecoverable_data_corrupting_features = btrfs
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_bind_msgr1 = false
public_addr = 127.0.0.1
log_to_stderr = false
err_to_stderr = true
mon_allow_pool_size_one = true
mon_data_avail_crit = 1
mon_data_avail_warn = 1
osd_crush_chooseleaf_type = 0
osd_crush_initial_weight = 1
osd_fast_shutdown = false
osd_max_object_name_len = 256
osd_max_object_namespace_len = 64
osd_objectstore = filestore
osd_pool_default_min_size = 1
osd_pool_default_pg_autoscale_mode = off
osd_pool_default_pg_num = 8
osd_pool_default_size = 1
osd_journal_size = 256
filestore_btrfs_snap = false
filestore_max_inline_xattr_size_other = 2048
filestore_max_inline_xattrs_other = 10
filestore_max_xattr_value_size_other = 2048
";

/// A monitor, and the place of an OSD.
struct Cluster {
    /// Data of the monitor, and logs.
    folder: TempDir,
    account: Account,
    jobs: String,
    seconds: String,
    patience: Duration,
}

impl Cluster {
    fn make(place: &Path, journal: &Path, options: &RunOptions) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("brindle-lab-ceph-").tempdir()?;
        let account = Account::of(USER)?;
        account.own(folder.path())?;
        let seconds = options.time.map_or(1, |time| time.as_secs().max(1));
        let (jobs, seconds) = (options.jobs.to_string(), seconds.to_string());
        let cluster = Self { folder, account, jobs, seconds, patience: PATIENCE };
        let [store, journal] = [(place, "store"), (journal, "store-journal")]
            .map(|(place, name)| fs::canonicalize(place).map(|place| place.join(name)));
        let (store, journal) = (store?, journal?);
        for path in [&cluster.path("run"), &cluster.path("mon"), &store, &journal] {
            cluster.account.make_directory(path)?;
        }
        cluster.configure(&store, &journal)?;
        Ok(cluster)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the configuration, and makes the monitor's data.
    fn configure(&self, store: &Path, journal: &Path) -> io::Result<()> {
        let (id, port) = (new_uuid()?, free_port()?);
        let monitor = format!("[v2:127.0.0.1:{port}/0]");
        let folder = self.folder.path().display();
        let settings = format!(
            "{SETTINGS}fsid = {id}\nmon_host = {monitor}\nkeyring = {folder}/keyring\nmon_data = {folder}/mon\n\
             run_dir = {folder}/run\nadmin_socket = {folder}/run/$name.$pid\nlog_file = {folder}/$name.log\n\
             osd_data = {}\nosd_journal = {}/journal\n",
            store.display(),
            journal.display(),
        );
        fs::write(self.path("conf"), settings)?;
        let (map, keys) = (self.path("monmap"), self.path("keyring"));
        let mut maker = command("monmaptool")?;
        output(maker.args(["--create", "--fsid", &id, "--addv", "a", &monitor]).arg(&map))?;
        let mut maker = command("ceph-authtool")?;
        output(maker.arg("--create-keyring").arg(&keys).args([
            "--gen-key",
            "-n",
            "mon.",
            "--cap",
            "mon",
            "allow *",
        ]))?;
        self.account.own(&keys)?;
        let mut maker = self.command("ceph-mon")?;
        output(maker.args(["--mkfs", "-i", "a", "--monmap"]).arg(map).arg("--keyring").arg(keys))?;
        Ok(())
    }

    /// A program of Ceph, with the configuration of the cluster.
    fn command(&self, program: &str) -> io::Result<Command> {
        let mut command = self.account.command(program, "KILL")?;
        command.arg("-c").arg(self.path("conf"));
        Ok(command)
    }

    /// A question to the monitor, or an order.
    fn ask(&self, words: &[&str]) -> io::Result<Vec<u8>> {
        output(self.command("ceph")?.args(["--connect-timeout", "60", "-f", "json"]).args(words))
    }

    fn start(&self, name: &'static str, program: &str, id: &str) -> io::Result<Daemon> {
        let mut command = self.command(program)?;
        command.args(["-f", "-i", id]);
        Daemon::start(name, command, self.path(&format!("{program}.err")), Signal::KILL)
    }

    fn start_monitor(&self) -> io::Result<Daemon> {
        let mut monitor = self.start("the monitor of Ceph", "ceph-mon", "a")?;
        let mut look = self.command("ceph")?;
        look.args(["--connect-timeout", "5", "mon", "stat"]);
        let look = Mutex::new(look);
        monitor.wait_until(|| {
            Ok(look.lock().unwrap_or_else(PoisonError::into_inner).output()?.status.success())
        })?;
        Ok(monitor)
    }

    /// Makes the OSD's data, and the pool.
    fn make_store(&self) -> io::Result<()> {
        let id = new_uuid()?;
        self.ask(&["osd", "new", &id])?;
        output(self.command("ceph-osd")?.args(["-i", "0", "--mkfs", "--osd-uuid", &id]))?;
        self.ask(&["osd", "pool", "create", "bench"])?;
        Ok(())
    }

    /// The epoch in which the OSD came up; none while it is down.
    fn up_from(&self) -> io::Result<Option<u64>> {
        let state: Value = serde_json::from_slice(&self.ask(&["osd", "dump"])?)?;
        let osd = &state["osds"][0];
        Ok(osd["up_from"].as_u64().filter(|_| osd["up"].as_u64() == Some(1)))
    }

    fn start_store(&self) -> io::Result<Daemon> {
        let before = self.up_from()?.unwrap_or(0);
        let mut store = self.start("the OSD of Ceph", "ceph-osd", "0")?;
        store.wait_until(|| Ok(self.up_from()?.is_some_and(|epoch| epoch > before)))?;
        Ok(store)
    }

    /// Clients that write, or read and compare, and the time that they took.
    fn bench(&self, kind: &str, more: &[&str]) -> io::Result<(Done, Duration)> {
        let mut client = self.command("rados")?;
        client.arg(format!("--rados-osd-op-timeout={}", self.patience.as_secs()));
        client.args(["-p", "bench", "bench", &self.seconds, kind, "-t", &self.jobs, "--run-name", "lab"]);
        let told = client.args(["--format", "json"]).args(more).output()?;
        let [said, errors] = [&told.stdout, &told.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        if !told.status.success() || errors.contains("not correct") {
            let said = errors + said;
            return Err(io::Error::other(format!("rados bench {kind}: {}: {}", told.status, end_of(&said))));
        }
        outcome(&said).ok_or_else(|| io::Error::other(format!("rados bench has said {:?}", end_of(&said))))
    }

    fn measure(&self, name: &str, kind: &str, options: &RunOptions) -> io::Result<Phase> {
        let time = Mutex::new(Duration::ZERO);
        let more: &[&str] = if kind == "write" { &["-b", "524288", "--no-cleanup"] } else { &[] };
        let job = |_: u64| {
            let (done, elapsed) = self.bench(kind, more)?;
            *time.lock().unwrap_or_else(PoisonError::into_inner) = elapsed;
            Ok(done)
        };
        let phase = measure(name, &RunOptions { jobs: 1, ..options.clone() }, job, nothing)?;
        // Without the start of the program, and its connection.
        Ok(Phase { elapsed: time.into_inner().unwrap_or_else(PoisonError::into_inner), ..phase })
    }
}

/// Objects of a benchmark, and its time, from its JSON, before which it says more.
fn outcome(said: &str) -> Option<(Done, Duration)> {
    let told: Value = serde_json::from_str(&said[said.find('{')?..]).ok()?;
    let text = |name: &str| told[name].as_str();
    let operations = text("total_writes_made").or_else(|| text("total_reads_made"))?.parse().ok()?;
    let elapsed = Duration::try_from_secs_f64(text("total_time_run")?.parse().ok()?).ok()?;
    Some((Done { operations, bytes: operations * OBJECT_BYTES, ..Done::default() }, elapsed))
}

fn new_uuid() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

pub(super) fn rados(place: &Path, journal: &Path, options: &RunOptions) -> io::Result<Vec<Phase>> {
    let cluster = Cluster::make(place, journal, options)?;
    let monitor = cluster.start_monitor()?;
    cluster.make_store()?;
    let mut phases = Vec::new();
    for (name, kind) in [("write", "write"), ("read", "seq"), ("random read", "rand")] {
        if kind != "write" {
            options.make_cold()?;
        }
        let mut store = cluster.start_store()?;
        let phase = cluster.measure(name, kind, options);
        phases.push(phase.or_else(|error| store.check().and(Err(error)))?);
        store.stop(Signal::TERM)?;
    }
    monitor.stop(Signal::TERM)?;
    Ok(phases)
}

#[cfg(test)]
mod tests {
    use super::super::program::find;
    use super::*;
    use crate::run::tests::options;
    use std::os::unix::fs::PermissionsExt;

    /// Files below a directory that are as large as an object.
    fn objects_of(directory: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(directory).expect("ours").map(|entry| entry.expect("ours"));
        let below = entries.flat_map(|entry| match entry.file_type().expect("ours") {
            kind if kind.is_dir() => objects_of(&entry.path()),
            kind if kind.is_file() && entry.metadata().expect("ours").len() == OBJECT_BYTES => {
                vec![entry.path()]
            }
            _ => Vec::new(),
        });
        below.filter(|path| path.to_string_lossy().contains("object")).collect()
    }

    #[test]
    fn outcomes_are_those_that_the_benchmark_tells() {
        let said = "hints = 1\n{\"datas\":[],\"total_time_run\":\"2.5\",\"total_writes_made\":\"10\",\"bandwidth\":\"2\"}\n";
        let (done, elapsed) = outcome(said).expect("JSON");
        assert_eq!((done.operations, done.bytes), (10, 10 * OBJECT_BYTES));
        assert_eq!(elapsed, Duration::from_millis(2500));
        let (done, _) = outcome(&said.replace("writes", "reads")).expect("JSON");
        assert_eq!(done.operations, 10);
        assert!(outcome("hints = 1\n").is_none());
        assert!(outcome("{\"total_time_run\":\"2\"}").is_none());
    }

    #[test]
    fn objects_are_written_read_and_compared() {
        if let Some(name) = PROGRAMS.iter().find(|name| find(name).is_none()) {
            // It is no package of the tests; `make ceph` has it, and runs this.
            println!("{name} is not installed");
            return;
        }
        let (scratch, journal) = (tempfile::tempdir().expect("room"), tempfile::tempdir().expect("room"));
        for directory in [&scratch, &journal] {
            // The store has a user of its own.
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("ours");
        }
        let second = Some(Duration::from_secs(1));
        let options = RunOptions { jobs: 2, time: second, ..options(scratch.path()) };
        let phases = rados(scratch.path(), journal.path(), &options).expect("room");
        let names: Vec<_> = phases.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(names, ["write", "read", "random read"]);
        for phase in &phases {
            assert!(phase.operations > 0 && phase.elapsed > Duration::ZERO, "{phase:?}");
            assert_eq!(phase.bytes, phase.operations * OBJECT_BYTES);
        }
        assert!(
            phases[1].operations <= phases[0].operations,
            "each object is read once at most, in its time"
        );
        assert!(journal.path().join("store-journal/journal").exists());

        let [other, elsewhere] = ["other", "elsewhere"].map(|name| scratch.path().join(name));
        for directory in [&other, &elsewhere] {
            fs::create_dir(directory).expect("new");
        }
        let mut cluster = Cluster::make(&other, &elsewhere, &options).expect("room");
        cluster.patience = Duration::from_secs(2);
        let monitor = cluster.start_monitor().expect("it starts");
        cluster.make_store().expect("room");
        let store = cluster.start_store().expect("it starts");
        cluster.measure("write", "write", &options).expect("room");
        store.stop(Signal::TERM).expect("it ends");
        for object in objects_of(&other) {
            fs::write(object, vec![7; 512 << 10]).expect("ours");
        }
        let store = cluster.start_store().expect("it starts again");
        let error =
            cluster.measure("read", "seq", &options).expect_err("the store knows its checksum").to_string();
        // Ceph's client is known to crash as it gives up.
        let is_given_up = error.contains("timed out") || error.contains("signal");
        assert!(error.starts_with("rados bench seq: ") && is_given_up, "{error}");
        let processes = [store.id(), monitor.id()];
        drop((store, monitor));
        for process in processes {
            assert!(!Path::new(&format!("/proc/{process}")).exists(), "nothing of it is left");
        }
    }
}

//! A real database: PostgreSQL, with its own benchmark.
//!
//! A cluster is made with checksums of its pages and loaded; then each client does transactions that write; then each reads rows anywhere.
//! The server starts anew before each phase, on a filesystem that is cold where that is asked for. At the end the sums that every
//! transaction keeps must agree, each transaction must be there, and each page must have its checksum.
//!
//! The server listens on a socket without a name in any directory, by a user of its own if the caller is root, and ends with the caller,
//! also if that is killed.

use super::RunOptions;
use super::daemon::{Account, Daemon};
use super::phase::{Done, Phase, measure, nothing};
use super::program::output;
use rustix::fs::syncfs;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Programs that it needs.
pub(super) const PROGRAMS: [&str; 7] =
    ["postgres", "initdb", "pgbench", "psql", "pg_isready", "pg_checksums", "setpriv"];
/// Bytes of the database for each unit of its scale.
const SCALE_BYTES: u64 = 16 << 20;
/// Rows of accounts for each unit of its scale.
const SCALE_ROWS: u64 = 100_000;
/// User that a server runs as where the caller is root.
const USER: &str = "postgres";

/// Number of the next server of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A cluster of databases.
struct Cluster {
    place: PathBuf,
    socket: String,
    account: Account,
    clients: String,
    count: String,
}

impl Cluster {
    fn make(place: &Path, options: &RunOptions) -> io::Result<Self> {
        let place = fs::canonicalize(place)?.join("cluster");
        let account = Account::of(USER)?;
        account.make_directory(&place)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let cluster = Self {
            place,
            socket: format!("@brindle-lab-{}-{number}", std::process::id()),
            account,
            clients: options.jobs.to_string(),
            count: options.count.to_string(),
        };
        let mut initdb = cluster.command("initdb")?;
        initdb.args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]);
        // All of it is synced after this, at once.
        output(initdb.args(["--no-sync", "--data-checksums", "--pgdata"]).arg(cluster.data()))?;
        Ok(cluster)
    }

    fn data(&self) -> PathBuf {
        self.place.join("data")
    }

    /// A program of PostgreSQL, as the user of the server; it ends with the caller.
    fn command(&self, program: &str) -> io::Result<Command> {
        // The server ends without a checkpoint then, which may take minutes.
        self.account.command(program, if program == "postgres" { "QUIT" } else { "TERM" })
    }

    /// A client of the server.
    fn client(&self, program: &str) -> io::Result<Command> {
        let mut command = self.command(program)?;
        command.args(["--username=postgres", "--host"]).arg(&self.socket);
        Ok(command)
    }

    fn start(&self) -> io::Result<Daemon> {
        let mut command = self.command("postgres")?;
        command.arg("-D").arg(self.data()).args(["-c", "listen_addresses=", "-c"]);
        command.arg(format!("unix_socket_directories={}", self.socket));
        command.arg("-c").arg(format!("max_connections={}", self.clients.parse().unwrap_or(1) + 20));
        // Its last signal ends its processes at once, without a checkpoint.
        let mut server = Daemon::start("PostgreSQL", command, self.place.join("log"), Signal::QUIT)?;
        server.wait_until(|| Ok(self.client("pg_isready")?.stdout(Stdio::null()).status()?.success()))?;
        Ok(server)
    }

    /// Answer of the server to a statement.
    fn sql(&self, statement: &str) -> io::Result<String> {
        let mut client = self.client("psql")?;
        client.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statement, "postgres"]);
        Ok(String::from_utf8_lossy(&output(&mut client)?).trim().to_owned())
    }

    /// Transactions of all clients. The latency of each comes from the log of the benchmark, which lies beside the cluster and is not synced.
    fn transactions(&self, name: &str, options: &[&str]) -> io::Result<Done> {
        let prefix = self.place.join(name);
        let mut client = self.client("pgbench")?;
        client.args(["--no-vacuum", "--log", "--client", &self.clients, "--transactions", &self.count]);
        client.arg("--log-prefix").arg(&prefix).args(options).arg("postgres");
        output(&mut client)?;
        let mut done = Done::default();
        for entry in fs::read_dir(&self.place)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&format!("{name}.")) {
                done.latencies.extend(latencies(&fs::read_to_string(entry.path())?)?);
            }
        }
        done.operations = done.latencies.len() as u64;
        Ok(done)
    }

    /// Fails unless each acknowledged transaction is there, whole.
    fn verify(&self, transactions: u64) -> io::Result<()> {
        let sums = "select count(*), sum(delta) = (select sum(abalance) from pgbench_accounts), \
                    sum(delta) = (select sum(tbalance) from pgbench_tellers), \
                    sum(delta) = (select sum(bbalance) from pgbench_branches) from pgbench_history";
        let found = self.sql(sums)?;
        if found == format!("{transactions}|t|t|t") {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "the database is wrong: of {transactions} transactions, and of whether their sums agree, it says {found}"
        )))
    }
}

/// Latencies of the log of a benchmark, whose third column has microseconds.
fn latencies(log: &str) -> io::Result<Vec<Duration>> {
    let latency = |line: &str| {
        let column = line.split(' ').nth(2).and_then(|word| word.parse().ok());
        column
            .map(Duration::from_micros)
            .ok_or_else(|| io::Error::other(format!("pgbench has written {line:?}")))
    };
    log.lines().map(latency).collect()
}

pub(super) fn pgbench(place: &Path, options: &RunOptions) -> io::Result<Vec<Phase>> {
    let cluster = Cluster::make(place, options)?;
    let scale = (options.file_bytes / SCALE_BYTES).max(1);
    let one = RunOptions { jobs: 1, ..options.clone() };
    let start = || {
        syncfs(File::open(place)?)?;
        options.make_cold()?;
        cluster.start()
    };
    let load = |_: u64| {
        let mut client = cluster.client("pgbench")?;
        client.args(["--initialize", "--quiet", "--scale"]).arg(scale.to_string()).arg("postgres");
        output(&mut client)?;
        cluster.sql("checkpoint")?;
        Ok(Done { operations: scale * SCALE_ROWS, ..Done::default() })
    };
    let server = start()?;
    let mut phases = vec![measure("load", &one, load, nothing)?];
    server.stop(Signal::INT)?;
    for (name, words) in [("read-write", &[][..]), ("read-only", &["--select-only"])] {
        let server = start()?;
        phases.push(measure(name, &one, |_| cluster.transactions(name, words), nothing)?);
        if name == "read-only" {
            cluster.verify(options.jobs * options.count)?;
        }
        server.stop(Signal::INT)?;
    }
    output(cluster.command("pg_checksums")?.args(["--check", "--pgdata"]).arg(cluster.data()))?;
    Ok(phases)
}

#[cfg(test)]
mod tests {
    use super::super::program::find;
    use super::*;
    use crate::run::tests::options;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn latencies_are_those_of_the_log() {
        let log = "0 1 4021 0 1699555555 1000\n1 1 17 0 1699555555 2000\n";
        let expected = [4021, 17].map(Duration::from_micros);
        assert_eq!(latencies(log).expect("two lines"), expected);
        latencies("0 1 failed 0 1 2\n").expect_err("no time");
    }

    #[test]
    fn database_is_loaded_written_read_and_right_at_the_end() {
        if let Some(name) = PROGRAMS.iter().find(|name| find(name).is_none()) {
            // It is no package of the tests; `make programs` has it.
            println!("{name} is not installed");
            return;
        }
        let scratch = tempfile::tempdir().expect("room");
        // The server has a user of its own.
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).expect("ours");
        let options = RunOptions { count: 4, jobs: 2, file_bytes: 1 << 20, ..options(scratch.path()) };
        let phases = pgbench(scratch.path(), &options).expect("room");
        let told: Vec<_> = phases
            .iter()
            .map(|phase| (phase.name.as_str(), phase.operations, phase.latencies.len()))
            .collect();
        assert_eq!(told, [("load", 100_000, 0), ("read-write", 8, 8), ("read-only", 8, 8)]);

        let cluster = Cluster {
            place: fs::canonicalize(scratch.path().join("cluster")).expect("there"),
            socket: format!("@brindle-lab-test-{}", std::process::id()),
            account: Account::of(USER).expect("there is one"),
            clients: "1".to_owned(),
            count: "1".to_owned(),
        };
        let server = cluster.start().expect("it starts again");
        let process = server.id();
        cluster.verify(8).expect("all are there");
        let error = cluster.verify(9).expect_err("one is missing").to_string();
        assert!(error.ends_with("it says 8|t|t|t"), "{error}");
        cluster
            .sql("update pgbench_accounts set abalance = abalance + 1 where aid = 7")
            .expect("it is a row");
        let error = cluster.verify(8).expect_err("sums differ").to_string();
        assert!(error.ends_with("it says 8|f|t|t"), "{error}");
        drop(server);
        assert!(!Path::new(&format!("/proc/{process}")).exists(), "nothing of it is left");
        fs::remove_dir_all(cluster.data().join("global")).expect("ours");
        let error = cluster.start().err().expect("it is damaged").to_string();
        assert!(error.starts_with("PostgreSQL does not start: ") && error.len() > 40, "{error}");
    }
}

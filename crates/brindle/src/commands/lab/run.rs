//! `lab run`: a workload on a directory, with its times and the counts of the modelled disks below.

use crate::commands::quantity::parse_size;
use crate::commands::usage::wrong_usage;
use crate::format::{Align, UnitMode, write_table};
use crate::options::JsonOption;
use crate::output;
use anyhow::{Context, Result};
use brindle_lab::{Client, DiskCounts, PhaseRecord, RunOptions, RunRecord, Suite, run as run_suite};
use brindle_uapi::mount_table;
use clap::Args;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const MANUAL: &str = "\
SUITES
  fsync       each job makes --count files of 4 KiB: written, fsync, renamed,
              fsync of the directory
  files       each job makes --count empty files, 10000 a directory, and removes
              them; with a sync after each
  reads       a file of --size is written with an fsync; then each job reads all
              of it in order, in pieces of 64 KiB, and --count blocks of 4 KiB
              anywhere
  objects     each job puts --count objects of 512 KiB, as an object store that
              journals does: a record of the object in a journal of 256 MiB that
              all jobs share, with fdatasync; then the object, 147 bytes at the
              end of a log and 496 bytes of a state overwritten, without a sync;
              a sync of all every 5 s, and when the journal is full. The latency
              is that of the journal
  cases       the 73 published cases of small and large files, each --count
              requests or --seconds: files of 16 KiB, --size in all, by blocks
              of 1 and 4 KiB; a file of --size by blocks of 4 and 32 KiB; read
              and written, at random and in order, with an fsync each 100
              requests, through the page cache (general) and past it (direct),
              by 1 and 8 threads; --count empty files made and removed. `1x4K`
              is one thread and blocks of 4 KiB. Writes are measured up to a
              sync of all. With --defragment, small files are read in order
              again after the writes, and after a defragmentation of their
              metadata. With --reference, cases more than 20 % slower than
              there are poor
  upgrade     --count packages are replaced as dpkg does: files written beside
              the old ones, synced (not with --no-sync, as dpkg
              --force-unsafe-io), renamed over them; lists and the status of all
              packages written and synced. The latency is that of a package
  dpkg        --count packages are made and installed by dpkg, then replaced by
              their next version; or those of --packages, without their scripts,
              twice. It has a root and a database of its own, and touches
              nothing of the host; with --no-sync it is given --force-unsafe-io.
              Bytes are those of the archives. Needs dpkg
  pgbench     a database of PostgreSQL of about --size, with checksums, is
              loaded; each of --jobs clients does --count transactions that
              write, and --count that read; then sums, number of transactions
              and checksums must be right. The server listens on no port, runs
              as postgres where the caller is root, and ends with the caller.
              Needs postgresql 14 or later
  rados       Ceph with an OSD whose FileStore and journal are in the directory:
              --jobs clients write objects of 512 KiB for --seconds, read them
              in order, and anywhere, with the OSD started anew before; what is
              read is compared. The monitor's data are in a temporary directory
              of the host; both run as ceph where the caller is root. Needs
              ceph-mon, ceph-osd, ceph-common
  untar       a tree of --count files, 512 bytes to 64 KiB, is written, and
              synced at the end
  walk        each job asks for names and attributes of such a tree
  mail        each job delivers --count mails (written, fsync, renamed, fsync of
              the directory), and reads, marks and deletes others. The latency
              is that of a delivery
  home        --seconds of a home server's time: a log that is synced, mails,
              documents, photos, reads, with the pauses between them; so its
              latencies and the requests of the disks count, not its time
  overwrites  a file of --size is written and read in order; --count blocks of 4
              KiB anywhere are overwritten, with fdatasync after 64; and it is
              read in order again; with --defragment once more, after
              `brindle filesystem defragment`
  threads     each job writes 4 KiB to 1 MiB anywhere in a file of its own of
              --size, with an fsync after each write, up to --count times or
              --seconds (the published job of 8 threads)

  Jobs, sizes and times are those of the suite unless told otherwise: 1000
  operations by 1 job on 1G; cases 128M and 10 s; upgrade and dpkg 200 packages;
  pgbench 8 jobs, 256M; rados 16 jobs, 20 s; untar and walk 20000 files; home
  60 s; overwrites 10000 blocks; threads 8 jobs, 128M, 200 s.

  The run works in DIRECTORY/brindle-lab-run, which it makes and removes. Before
  reads, the pages of the file are dropped; a filesystem in userspace may have
  caches of its own, and --drop-caches drops all that the kernel has. Metadata
  is read cold by `brindle lab compare` alone, which mounts the filesystem anew
  in between. Compare filesystems by the same disks, options and seed, several
  times in turn, and tell the model lines.

EXAMPLES
    brindle lab run fsync --disk /run/ssd --disk /run/disk /mnt
    brindle lab run files --count 100000 --json --disk /run/disk /mnt
    brindle lab run objects --count 200 --jobs 4 --journal /ssd \\
        --disk /run/disk /mnt
    brindle lab run reads --jobs 8 --size 4G --drop-caches --disk /run/disk /mnt
    brindle lab run dpkg --packages /var/cache/apt/archives --disk /run/disk \\
        /mnt
    brindle lab run cases --seconds 2 --json /ext4 > reference.json
    brindle lab run cases --seconds 2 --reference reference.json /mnt

EXIT STATUS
  0  success
  1  failure; the directory of the run is removed where that is possible
  2  wrong usage";

/// Run a workload on a directory, and show its times and the counts of the disks below
///
/// The directory may be on any filesystem. The counts of the disks are set to 0 before the run.
#[derive(Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct RunCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Directory on which a modelled disk is mounted, whose counts are wanted; may be given several times
    #[arg(long, value_name = "MOUNTPOINT")]
    disk: Vec<PathBuf>,
    /// Operations of each job: files, packages, mails, transactions, random reads or writes
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    count: Option<u64>,
    /// Jobs that run side by side
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    jobs: Option<u64>,
    /// Size of the large file, or of the database, with an optional suffix (K, M, G, T)
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size)]
    size: Option<u64>,
    /// Time after which a case of `cases`, a phase of `rados`, or the work of `home` or `threads`, ends
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seconds: Option<u64>,
    /// Directory for the journal of `objects` or `rados`, where it is not that of the run
    #[arg(long, value_name = "DIRECTORY")]
    journal: Option<PathBuf>,
    /// Sync no files of packages in `upgrade` and `dpkg`
    #[arg(long)]
    no_sync: bool,
    /// Defragment the file of `overwrites` (btrfs), or the metadata of the small files of `cases` (mounts of brindle), and
    /// read it again
    #[arg(long)]
    defragment: bool,
    /// Directory of Debian packages for `dpkg`
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "count")]
    packages: Option<PathBuf>,
    /// Seed of contents and places
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Drop all caches of the host before each phase (root)
    #[arg(long)]
    drop_caches: bool,
    /// Leave the files of the run
    #[arg(long)]
    keep: bool,
    /// Output of an earlier run with --json: phases that are more than 20 % slower are poor
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// fsync, files, reads, objects, cases, upgrade, dpkg, pgbench, rados, untar, walk, mail, home, overwrites or threads
    suite: Suite,
    /// Directory to work in
    directory: PathBuf,
}

/// The smallest file to read.
const SIZE_MIN: u64 = 64 << 10;

/// Runs the command.
pub(crate) fn run(command: &RunCommand) -> Result<ExitCode> {
    let suite = command.suite;
    if command.size.is_some_and(|size| size < SIZE_MIN) {
        return wrong_usage(format!("--size {}: the file has 64K or more", command.size.unwrap_or(0)));
    }
    if command.journal.is_some() && !suite.takes_journal() {
        return wrong_usage(format!("--journal: the suite {suite} has no journal"));
    }
    if command.packages.is_some() && suite != Suite::Dpkg {
        return wrong_usage(format!("--packages: the suite {suite} installs none"));
    }
    if command.no_sync && !suite.takes_packages() {
        return wrong_usage(format!("--no-sync: the suite {suite} has no packages"));
    }
    if command.defragment && !suite.takes_defragmentation() {
        return wrong_usage(format!("--defragment: the suite {suite} reads nothing that was torn"));
    }
    if command.jobs.is_some_and(|jobs| jobs > 1) && !suite.takes_jobs() {
        return wrong_usage(format!("--jobs: the suite {suite} has jobs of its own"));
    }
    if command.seconds.is_some() && !suite.takes_time() {
        return wrong_usage(format!("--seconds: the suite {suite} ends when its work is done"));
    }
    let reference = command.reference.as_deref().map(read_reference).transpose()?;
    let options = options(command)?;
    options.disks.iter().try_for_each(Client::reset)?;
    let phases = run_suite(suite, &options)?;
    let statuses = options.disks.iter().map(Client::status).collect::<Result<Vec<_>, _>>()?;
    let kind = filesystem_of(&command.directory)?;
    let mut record = RunRecord::new(suite, &kind, &options, &phases, &statuses);
    if let Some(reference) = &reference {
        record.compare(reference);
    }
    if command.json.json {
        output::print_json(&serde_json::to_value(&record)?)?;
    } else {
        let mut out = output::stdout();
        print(&mut out, &record)?;
        out.flush()?;
    }
    for (disk, path) in record.disks.iter().zip(&command.disk) {
        if disk.late_answers > disk.answers / 1000 {
            let (late, answers) = (disk.late_answers, disk.answers);
            tracing::warn!(
                "{}: {late} of {answers} answers were more than 1 ms late: measure again on a quieter machine",
                path.display()
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn options(command: &RunCommand) -> Result<RunOptions> {
    let defaults = RunOptions::of(command.suite, command.directory.clone());
    Ok(RunOptions {
        journal: command.journal.clone(),
        packages: command.packages.clone(),
        count: command.count.unwrap_or(defaults.count),
        jobs: command.jobs.unwrap_or(defaults.jobs),
        file_bytes: command.size.unwrap_or(defaults.file_bytes),
        time: command.seconds.map(Duration::from_secs).or(defaults.time),
        seed: command.seed,
        syncs: !command.no_sync,
        drops_caches: command.drop_caches,
        defragmenter: command.defragment.then(std::env::current_exe).transpose()?,
        keeps_files: command.keep,
        disks: command.disk.iter().map(|path| Client::at(path)).collect::<Result<_, _>>()?,
        ..defaults
    })
}

fn read_reference(path: &Path) -> Result<RunRecord> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is no output of `brindle lab run --json`", path.display()))
}

/// Type of the filesystem that holds a directory.
fn filesystem_of(directory: &Path) -> Result<String> {
    let failed = || format!("cannot tell the filesystem of {}", directory.display());
    let path = directory.canonicalize().with_context(failed)?;
    let mounts = mount_table::read().with_context(failed)?;
    let mount = path.ancestors().find_map(|above| mount_table::at(&mounts, above));
    Ok(mount.map_or_else(|| "unknown".to_owned(), |mount| String::from_utf8_lossy(&mount.kind).into_owned()))
}

fn print(out: &mut dyn Write, record: &RunRecord) -> io::Result<()> {
    let RunRecord { suite, filesystem, count, jobs, seed, .. } = record;
    writeln!(out, "suite {suite} on {filesystem}: count {count}, jobs {jobs}, seed {seed}")?;
    let is_compared = record.phases.iter().any(|phase| phase.poor.is_some());
    let mut head =
        words(["PHASE", "OPERATIONS", "SECONDS", "PER SECOND", "MB/S", "P50 MS", "P99 MS", "MAX MS"]);
    if is_compared {
        head.extend(words(["OF REFERENCE", ""]));
    }
    let rows: Vec<_> = std::iter::once(head.clone())
        .chain(record.phases.iter().map(|phase| phase_row(phase, is_compared)))
        .collect();
    let mut columns = vec![Align::Right; head.len()];
    columns[0] = Align::Left;
    write_table(out, &columns, &rows)?;
    if record.disks.is_empty() {
        return Ok(());
    }
    let head = ["READS", "READ", "WRITES", "WRITTEN", "FLUSHES", "SEEKS", "WAKE-UPS", "BANDS"];
    let mut rows = vec![[words(["PHASE", "MODELLED DISK"]), words(head)].concat()];
    for phase in &record.phases {
        for (counts, disk) in phase.disks.iter().zip(&record.disks) {
            rows.push(counts_row(&phase.name, &disk.model, counts));
        }
    }
    for disk in &record.disks {
        rows.push(counts_row("all", &disk.model, &disk.counts));
    }
    let mut columns = [Align::Right; 10];
    columns[..2].fill(Align::Left);
    writeln!(out)?;
    write_table(out, &columns, &rows)
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

fn phase_row(phase: &PhaseRecord, is_compared: bool) -> Vec<String> {
    let milliseconds = |time: Option<u64>| {
        time.map_or_else(
            || "-".to_owned(),
            |time| format!("{:.3}", Duration::from_nanos(time).as_secs_f64() * 1e3),
        )
    };
    let rate = if phase.bytes > 0 { format!("{:.1}", phase.bytes_per_second / 1e6) } else { "-".to_owned() };
    let mut row = vec![
        phase.name.clone(),
        phase.operations.to_string(),
        format!("{:.3}", phase.seconds()),
        if phase.is_refused() { "refused".to_owned() } else { format!("{:.1}", phase.operations_per_second) },
        rate,
        milliseconds(phase.latency_p50_ns),
        milliseconds(phase.latency_p99_ns),
        milliseconds(phase.latency_max_ns),
    ];
    if is_compared {
        let ratio = phase.reference_per_second.filter(|other| *other > 0.0);
        row.push(
            ratio.map_or_else(
                || "-".to_owned(),
                |other| format!("{:.2}", phase.operations_per_second / other),
            ),
        );
        row.push(if phase.poor == Some(true) { "poor".to_owned() } else { String::new() });
    }
    row
}

fn counts_row(phase: &str, model: &str, counts: &DiskCounts) -> Vec<String> {
    let size = |bytes| UnitMode::DEFAULT.format(bytes);
    vec![
        phase.to_owned(),
        model.to_owned(),
        counts.reads.to_string(),
        size(counts.read_bytes),
        counts.writes.to_string(),
        size(counts.written_bytes),
        counts.flushes.to_string(),
        counts.seeks.to_string(),
        counts.wake_ups.to_string(),
        counts.bands.to_string(),
    ]
}

//! Operations a second of the library by itself, without FUSE, as a pool grows.
//!
//! `operations IMAGE COUNT...` makes an image file with a pool, and creates empty files in it, a thousand to a
//! directory, up to the first number; measures; goes on to the next number. A row says:
//!
//! - `create/s`: files created on the way to this number, commits included;
//! - `stat/s`, `unlink/s`: lookups with attributes, and deletions, of files here and there;
//! - `blocks`, `reads`: tree blocks that were written and read for each of these deletions, the last commit included, and
//!   `each`: deletions to a commit;
//! - `append/s`: files here and there that get a block of data each, every one followed by a commit;
//! - `commit ms`: how long these commits took, median and maximum;
//! - `last ms`: the commit of all that was created since the last one;
//! - `nodes MiB`: the memory that cached tree blocks hold; `peak MiB`: the most that the process ever held.
//!
//! `METADATA_MEMORY` in the environment says how many MiB tree blocks may take, as the mount option does.

use brindle_care::mkfs::{MkfsOptions, NewDevice, mkfs};
use brindle_device::{FileDevice, WritableDevice};
use brindle_fs::{CommitStatistics, Filesystem, FsError, InodeId, NewInode, OpenOptions, WriteOptions};
use brindle_ondisk::Uuid;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const IMAGE_BYTES: u64 = 64 << 30;
const FILES_PER_DIRECTORY: u64 = 1000;
/// Number of files that are looked at, or deleted and made again, at each number.
const SAMPLE: u64 = 10_000;
/// Number of commits that are timed.
const COMMITS: u64 = 30;

/// A pool that grows.
struct Growing {
    filesystem: Filesystem,
    directories: Vec<InodeId>,
    count: u64,
    random: u64,
}

/// A number, and what was found there.
struct Row {
    created: f64,
    last: Duration,
    looked_up: f64,
    unlinked: f64,
    deletions: Deletions,
    appended: f64,
    commits: Vec<Duration>,
}

/// Cost of deletions.
struct Deletions {
    /// Tree blocks written, for each.
    written: f64,
    /// Tree blocks read, for each.
    read: f64,
    /// Operations in a commit.
    each: f64,
}

impl Growing {
    fn new(image: &Path) -> Result<Self, Box<dyn Error>> {
        let device: Arc<dyn WritableDevice> = Arc::new(FileDevice::create(image, IMAGE_BYTES)?);
        mkfs(
            &[NewDevice::new(Arc::clone(&device))],
            &MkfsOptions::new(Uuid([0x5e; 16]), [9; 16], 1_700_000_000),
        )?;
        let mut options = OpenOptions::default();
        if let Ok(mib) = std::env::var("METADATA_MEMORY") {
            options.pool.cache_bytes = mib.parse::<usize>()? << 20;
        }
        let filesystem = Filesystem::open_writable(vec![device], &options, &WriteOptions::default())?;
        Ok(Self { filesystem, directories: Vec::new(), count: 0, random: 7 })
    }

    fn measure(&mut self, count: u64) -> Result<Row, FsError> {
        let begin = Instant::now();
        let new = count.saturating_sub(self.count);
        while self.count < count {
            self.create()?;
        }
        let last = Instant::now();
        self.filesystem.commit()?;
        let (created, last) = (rate(new, begin.elapsed()), last.elapsed());

        let begin = Instant::now();
        for _ in 0..SAMPLE {
            let (directory, name) = self.any();
            let found = self.filesystem.lookup(directory, &name)?.ok_or(FsError::NotFound(name))?;
            self.filesystem.attributes(found.inode)?;
        }
        let looked_up = rate(SAMPLE, begin.elapsed());

        let (begin, mut commits) = (Instant::now(), Vec::new());
        for _ in 0..COMMITS {
            self.append()?;
            let begin = Instant::now();
            self.filesystem.commit()?;
            commits.push(begin.elapsed());
        }
        let appended = rate(COMMITS, begin.elapsed());
        commits.sort_unstable();

        self.filesystem.commit()?;
        let (before, read) = self.counted();
        let sample = SAMPLE.min(self.count / 2);
        let begin = Instant::now();
        let mut removed = Vec::new();
        while removed.len() < usize::try_from(sample).expect("a sample is small") {
            let (directory, name) = self.any();
            match self.filesystem.unlink(directory, &name) {
                Ok(()) => removed.push((directory, name)),
                Err(FsError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let unlinked = rate(sample, begin.elapsed());
        self.filesystem.commit()?;
        let (after, read) = (self.counted().0, self.counted().1 - read);
        let blocks = after.total.block_count() - before.total.block_count();
        let deletions = Deletions {
            written: ratio(blocks, sample),
            read: ratio(read, sample),
            each: ratio(sample, after.commits - before.commits),
        };
        for (directory, name) in removed {
            self.filesystem.create(directory, &name, &empty(0o100_644))?;
        }
        Ok(Row { created, last, looked_up, unlinked, deletions, appended, commits })
    }

    /// Counters of commits, and number of blocks not found in memory.
    fn counted(&self) -> (CommitStatistics, u64) {
        let pool = self.filesystem.pool();
        (pool.commit_statistics(), pool.cache_statistics().misses)
    }

    fn create(&mut self) -> Result<(), FsError> {
        if self.count % FILES_PER_DIRECTORY == 0 {
            let name = format!("d{:04}", self.count / FILES_PER_DIRECTORY);
            let root = self.filesystem.root();
            self.directories.push(self.filesystem.create(root, name.as_bytes(), &empty(0o40_755))?.id);
        }
        let (directory, name) = self.place(self.count);
        self.filesystem.create(directory, &name, &empty(0o100_644))?;
        self.count += 1;
        Ok(())
    }

    /// A block at the end of some file, brought to the device.
    fn append(&mut self) -> Result<(), FsError> {
        let (directory, name) = self.any();
        let found = self.filesystem.lookup(directory, &name)?.ok_or(FsError::NotFound(name))?;
        let file = self.filesystem.open_file(found.inode)?;
        self.filesystem.append(&file, &[7; 4096])?;
        self.filesystem.write_back(&file)
    }

    fn place(&self, number: u64) -> (InodeId, Vec<u8>) {
        let directory = usize::try_from(number / FILES_PER_DIRECTORY).expect("directories are in memory");
        (self.directories[directory], format!("f{:04}", number % FILES_PER_DIRECTORY).into_bytes())
    }

    /// Returns a random file.
    fn any(&mut self) -> (InodeId, Vec<u8>) {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.place((self.random >> 33) % self.count)
    }
}

fn empty<'a>(mode: u32) -> NewInode<'a> {
    NewInode { mode, umask: 0, uid: 0, gid: 0, rdev: 0, target: None }
}

#[expect(clippy::cast_precision_loss, reason = "a rate to be read by people")]
fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}

#[expect(clippy::cast_precision_loss, reason = "to be read by people")]
fn ratio(count: u64, of: u64) -> f64 {
    count as f64 / of.max(1) as f64
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// The most memory that this process ever held, in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let image = arguments.next().ok_or("usage: operations IMAGE COUNT...")?;
    let counts: Vec<u64> = arguments.map(|count| count.parse()).collect::<Result<_, _>>()?;
    if counts.contains(&0) {
        return Err("a count is at least 1".into());
    }
    let mut growing = Growing::new(Path::new(&image))?;
    println!(
        "{:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7} {:>7} {:>9} {:>9}",
        "files",
        "create/s",
        "last ms",
        "stat/s",
        "append/s",
        "commit ms",
        "max ms",
        "unlink/s",
        "blocks",
        "reads",
        "each",
        "nodes MiB",
        "peak MiB"
    );
    for count in counts {
        let row = growing.measure(count)?;
        let median = row.commits[row.commits.len() / 2];
        let slowest = *row.commits.last().expect("some commits are timed");
        let pool = growing.filesystem.pool();
        let nodes = pool.cache_statistics().nodes * usize::try_from(pool.nodesize())? / (1 << 20);
        println!(
            "{:>9} {:>9.0} {:>9.1} {:>9.0} {:>9.1} {:>9.2} {:>9.2} {:>9.0} {:>7.2} {:>7.2} {:>7.0} {:>9} {:>9}",
            growing.count,
            row.created,
            milliseconds(row.last),
            row.looked_up,
            row.appended,
            milliseconds(median),
            milliseconds(slowest),
            row.unlinked,
            row.deletions.written,
            row.deletions.read,
            row.deletions.each,
            nodes,
            peak_mib()
        );
    }
    growing.filesystem.shutdown()?;
    Ok(())
}

//! The record of a scrub: what is known of the last one of a pool, as text. One small file for each pool, in a directory that
//! outlives a crash; a mount is asked for the same text while it scrubs.
//!
//! The file is replaced as a whole, so that a crash leaves the old one or the new one. It is stored at the beginning, every
//! few seconds and at the end; a process that is killed leaves a record of a scrub that runs, with the process that ran it.

use super::{DeviceProgress, DeviceState, Fault, ScrubCounts, ScrubReport};
use brindle_ondisk::{DevId, Uuid};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// First line of the text.
const HEAD: &str = "brindle-scrub 1";

/// Error of a record.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The text is not that of a record.
    #[error("the record of the scrub makes no sense: {0:?}")]
    Text(String),
}

/// The last scrub of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubRecord {
    /// UUID of the pool.
    pub fsid: String,
    /// Begin, in seconds since 1970; of one that was resumed, the first one.
    pub started: u64,
    /// Process that scrubs, and its start by the kernel's clock; 0 if none does.
    pub process: (u64, u64),
    /// True if errors are only looked for.
    pub read_only: bool,
    /// Progress.
    pub report: ScrubReport,
}

impl ScrubRecord {
    /// The record of a pool in a directory, if there is one.
    pub fn load(directory: &Path, fsid: &Uuid) -> Result<Option<Self>, RecordError> {
        let path = path_of(directory, &fsid.to_string());
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(RecordError::Io { path, source }),
            Ok(text) => Self::parse(&text).map(Some),
        }
    }

    /// Stores it in a directory; it is durable when this returns.
    pub fn store(&self, directory: &Path) -> Result<(), RecordError> {
        let path = path_of(directory, &self.fsid);
        let new = path.with_extension("new");
        let stored = fs::create_dir_all(directory).and_then(|()| {
            // It names files, which not all users may know.
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(self.to_text().as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(directory)?.sync_all()
        });
        stored.map_err(|source| RecordError::Io { path, source })
    }

    /// The scrub is done by the calling process from now on.
    pub fn claim(&mut self) {
        let pid = std::process::id().into();
        self.process = (pid, start_of(pid).unwrap_or(0));
    }

    /// Returns true while the process that scrubs is alive, and has not ended the scrub.
    pub fn is_running(&self) -> bool {
        let (pid, start) = self.process;
        pid != 0 && self.report.is_running() && start_of(pid) == Some(start)
    }

    /// The scrub is done by no process: devices that were being scrubbed are interrupted.
    pub fn interrupt(&mut self) {
        self.process = (0, 0);
        for device in &mut self.report.devices {
            if device.state == DeviceState::Running {
                device.state = DeviceState::Cancelled;
            }
        }
    }

    /// Time that it has taken: that of the device that took longest.
    pub fn duration(&self) -> Duration {
        self.report.devices.iter().map(|device| device.duration).max().unwrap_or_default()
    }

    /// The text.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let (pid, start) = self.process;
        let _ = writeln!(text, "{HEAD}\nfsid {}\nstarted {}", self.fsid, self.started);
        let _ = writeln!(text, "process {pid} {start}\nread_only {}", u8::from(self.read_only));
        for device in &self.report.devices {
            let state = match &device.state {
                DeviceState::Running => "running",
                DeviceState::Finished => "finished",
                DeviceState::Cancelled => "cancelled",
                DeviceState::Asleep => "asleep",
                DeviceState::Missing => "missing",
                DeviceState::Failed(_) => "failed",
            };
            let numbers: Vec<String> = numbers_of(device).iter().map(u64::to_string).collect();
            let _ = writeln!(text, "device {state} {} {}", numbers.join(" "), plain(&device.name));
            if let DeviceState::Failed(why) = &device.state {
                let _ = writeln!(text, "failure {}", plain(why));
            }
        }
        let _ = writeln!(text, "faults {}\nunlisted {}", self.report.fault_count, self.report.unlisted);
        for fault in &self.report.faults {
            let _ = writeln!(text, "fault {}\nerrors {}", plain(&fault.text), fault.errors);
            for (path, offset) in &fault.files {
                let _ = writeln!(text, "file {offset} {}", escape(path));
            }
        }
        text
    }

    /// The record of a text.
    pub fn parse(text: &str) -> Result<Self, RecordError> {
        let mut record = Self::default();
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Err(RecordError::Text(text.lines().next().unwrap_or_default().to_owned()));
        }
        for line in lines {
            record.take_line(line).ok_or_else(|| RecordError::Text(line.to_owned()))?;
        }
        if !text.contains("\nunlisted ") {
            // Earlier versions kept the first faults, whatever their files.
            record.report.unlisted = record.report.left_out();
        }
        Ok(record)
    }

    fn take_line(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ')?;
        let report = &mut self.report;
        match word {
            "fsid" => rest.clone_into(&mut self.fsid),
            "started" => self.started = rest.parse().ok()?,
            "process" => {
                let (pid, start) = rest.split_once(' ')?;
                self.process = (pid.parse().ok()?, start.parse().ok()?);
            }
            "read_only" => self.read_only = rest != "0",
            "device" => report.devices.push(device_of(rest)?),
            "failure" => report.devices.last_mut()?.state = DeviceState::Failed(rest.to_owned()),
            "faults" => report.fault_count = rest.parse().ok()?,
            "unlisted" => report.unlisted = rest.parse().ok()?,
            "fault" => report.faults.push(Fault { text: rest.to_owned(), files: Vec::new(), errors: 1 }),
            "errors" => report.faults.last_mut()?.errors = rest.parse().ok()?,
            "file" => {
                let (offset, path) = rest.split_once(' ')?;
                report.faults.last_mut()?.files.push((unescape(path)?, offset.parse().ok()?));
            }
            // Later versions may say more.
            _ => {}
        }
        Some(())
    }
}

fn path_of(directory: &Path, fsid: &str) -> PathBuf {
    directory.join(format!("scrub-{fsid}.status"))
}

/// Start of a process by the kernel's clock, in ticks; `None` if it has ended, whether or not its parent knows.
fn start_of(pid: u64) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_whitespace();
    if matches!(words.next()?, "Z" | "X") {
        return None;
    }
    const START: usize = 18;
    words.nth(START)?.parse().ok()
}

const NUMBERS: usize = 19;

fn numbers_of(device: &DeviceProgress) -> [u64; NUMBERS] {
    let counts = &device.counts;
    [
        device.devid.get(),
        device.last_physical,
        device.total_bytes,
        device.done_bytes,
        device.limit,
        u64::try_from(device.duration.as_millis()).unwrap_or(u64::MAX),
        counts.data_extents,
        counts.tree_extents,
        counts.data_bytes,
        counts.tree_bytes,
        counts.read_errors,
        counts.csum_errors,
        counts.verify_errors,
        counts.no_csum,
        counts.super_errors,
        counts.parity_errors,
        counts.uncorrectable_errors,
        counts.corrected_errors,
        counts.correctable_errors,
    ]
}

fn device_of(line: &str) -> Option<DeviceProgress> {
    let mut words = line.splitn(NUMBERS + 2, ' ');
    let state = match words.next()? {
        "running" => DeviceState::Running,
        "finished" => DeviceState::Finished,
        "cancelled" => DeviceState::Cancelled,
        "asleep" => DeviceState::Asleep,
        "missing" => DeviceState::Missing,
        "failed" => DeviceState::Failed(String::new()),
        _ => return None,
    };
    let mut numbers = [0; NUMBERS];
    for number in &mut numbers {
        *number = words.next()?.parse().ok()?;
    }
    let [devid, last_physical, total_bytes, done_bytes, limit, duration, counts @ ..] = numbers;
    let [data_extents, tree_extents, data_bytes, tree_bytes, read_errors, csum_errors, counts @ ..] = counts;
    let [verify_errors, no_csum, super_errors, parity_errors, counts @ ..] = counts;
    let [uncorrectable_errors, corrected_errors, correctable_errors] = counts;
    let counts = ScrubCounts {
        data_extents,
        tree_extents,
        data_bytes,
        tree_bytes,
        read_errors,
        csum_errors,
        verify_errors,
        no_csum,
        super_errors,
        parity_errors,
        uncorrectable_errors,
        corrected_errors,
        correctable_errors,
        read_bytes: 0,
    };
    let (devid, duration) = (DevId::new(devid), Duration::from_millis(duration));
    let name = words.next().unwrap_or_default().to_owned();
    Some(DeviceProgress {
        devid,
        name,
        state,
        counts,
        last_physical,
        total_bytes,
        done_bytes,
        limit,
        duration,
    })
}

/// Text of one line.
fn plain(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// A path as text of one line: bytes that are no plain characters, and `%`, as `%XX`.
fn escape(path: &[u8]) -> String {
    let one = |byte: &u8| match byte {
        b'!'..=b'~' if *byte != b'%' => char::from(*byte).to_string(),
        byte => format!("%{byte:02x}"),
    };
    path.iter().map(one).collect()
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        let (byte, behind) = match first {
            b'%' => {
                let (digits, behind) = behind.split_at_checked(2)?;
                (u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?, behind)
            }
            byte => (*byte, behind),
        };
        bytes.push(byte);
        rest = behind;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> ScrubRecord {
        let counts =
            ScrubCounts { data_bytes: 7, csum_errors: 2, correctable_errors: 1, ..Default::default() };
        let device = |devid, state| DeviceProgress {
            devid: DevId::new(devid),
            name: "/dev/a disk".to_owned(),
            state,
            counts,
            last_physical: 1 << 30,
            total_bytes: 5,
            done_bytes: 4,
            limit: 3,
            duration: Duration::from_millis(1500),
        };
        let failed = DeviceState::Failed("the reason".to_owned());
        let files = vec![(b"/a b%\n\xff".to_vec(), 4096)];
        let fault = Fault { text: "data at logical 5".to_owned(), files, errors: 3 };
        let devices =
            vec![device(1, DeviceState::Running), device(2, failed), device(3, DeviceState::Asleep)];
        let report = ScrubReport { devices, faults: vec![fault], fault_count: 9, unlisted: 2 };
        ScrubRecord { fsid: Uuid([7; 16]).to_string(), started: 11, process: (0, 0), read_only: true, report }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = record();
        assert_eq!(ScrubRecord::parse(&record.to_text()).expect("text"), record);
        assert!(ScrubRecord::parse("something else").is_err());
        let earlier = record.to_text().replace("unlisted 2\n", "").replace("errors 3\n", "");
        let earlier = ScrubRecord::parse(&earlier).expect("text").report;
        assert_eq!((earlier.unlisted, earlier.left_out(), record.report.left_out()), (8, 8, 6));
        assert!(
            ScrubRecord::parse(&record.to_text().replace("device running 1", "device running x")).is_err()
        );
        let directory = std::env::temp_dir().join(format!("brindle-scrub-record-{}", std::process::id()));
        assert_eq!(ScrubRecord::load(&directory, &Uuid([7; 16])).expect("no file is no error"), None);
        record.store(&directory).expect("room");
        assert_eq!(ScrubRecord::load(&directory, &Uuid([7; 16])).expect("text"), Some(record));
        fs::remove_dir_all(&directory).expect("ours");
    }

    #[test]
    fn a_process_that_has_ended_scrubs_no_more() {
        let mut record = record();
        assert!(!record.is_running());
        record.claim();
        assert!(record.is_running());
        record.process.1 += 1;
        assert!(!record.is_running(), "another process of the same number");
        record.claim();
        record.interrupt();
        assert!(!record.is_running() && record.report.is_cancelled());
    }
}

//! Pools in memory that are written.

use super::layout::Layout;
use brindle_check::{CheckOptions, Finding, NoProgress};
use brindle_device::{Device, WritableDevice};
use brindle_fs::{Filesystem, FixedHost, FsError, Host, OpenOptions, Timestamp, WriteOptions};
use brindle_ondisk::{Uuid, to_u64};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The time that it always is, in seconds.
const NOW: i64 = 1_800_000_000;
/// Number of findings of a check that are shown.
const FINDINGS_SHOWN: usize = 12;
/// Devices that were found asleep when a pool was opened.
pub(crate) static FOUND_ASLEEP: AtomicU64 = AtomicU64::new(0);

/// A pool of devices in memory.
#[derive(Clone)]
pub(crate) struct Pool {
    pub(crate) devices: Vec<Arc<dyn WritableDevice>>,
    pub(crate) open: OpenOptions,
    pub(crate) write: WriteOptions,
}

impl Pool {
    /// A new one.
    pub(crate) fn new(layout: &Layout) -> Self {
        Self::on(layout.new_devices(), layout)
    }

    /// One that is on these devices.
    pub(crate) fn on(devices: Vec<Arc<dyn WritableDevice>>, layout: &Layout) -> Self {
        let now = Timestamp { seconds: NOW, nanoseconds: 5 };
        let host = Arc::new(Numbers { now, next: AtomicU64::new(generation(&devices) << 20) });
        Self {
            devices,
            open: OpenOptions::default(),
            write: WriteOptions {
                host,
                compression: layout.compression(),
                // A test that wants logs says so: without them an fsync is a commit, which promises more.
                tree_log: false,
                small_file_bytes: (layout.fast > 0).then_some(16 << 10),
                ..WriteOptions::default()
            },
        }
    }

    /// Opens it to write.
    pub(crate) fn open(&self) -> Result<Filesystem, FsError> {
        let filesystem = Filesystem::open_writable(self.devices.clone(), &self.open, &self.write)?;
        let devices = filesystem.pool().volume().devices();
        FOUND_ASLEEP.fetch_add(to_u64(devices.iter().filter(|device| device.is_asleep).count()), Relaxed);
        Ok(filesystem)
    }

    /// Findings of brindle's own check.
    pub(crate) fn check(&self) -> Result<(), String> {
        check(&self.devices)
    }
}

/// Findings of brindle's own check.
pub(crate) fn check(devices: &[Arc<dyn WritableDevice>]) -> Result<(), String> {
    let options = CheckOptions { check_data_csum: true, threads: Some(1), ..CheckOptions::default() };
    findings(devices, &options, |_, _| true)
}

/// Findings of brindle's own check among the wanted ones.
pub(crate) fn findings(
    devices: &[Arc<dyn WritableDevice>],
    options: &CheckOptions,
    is_wanted: impl Fn(&str, &Finding) -> bool,
) -> Result<(), String> {
    let devices = devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
    let report = brindle_check::check(devices, options, &NoProgress).map_err(|error| error.to_string())?;
    let findings = report.findings().filter(|(pass, finding)| is_wanted(pass, finding)).take(FINDINGS_SHOWN);
    let findings: Vec<String> = findings.map(|(pass, finding)| format!("{pass}: {finding}")).collect();
    if findings.is_empty() { Ok(()) } else { Err(findings.join("\n")) }
}

/// A host that never says the same UUID for two things that are on disk, and says the same ones in the same run.
#[derive(Debug)]
struct Numbers {
    now: Timestamp,
    next: AtomicU64,
}

impl Host for Numbers {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn new_uuid(&self) -> Uuid {
        let number = self.next.fetch_add(1, Relaxed);
        let mut uuid = FixedHost::new(self.now).new_uuid();
        uuid.0[8..].copy_from_slice(&number.to_be_bytes());
        uuid.0[8] |= 0x80;
        uuid
    }
}

/// The greatest generation of a superblock.
fn generation(devices: &[Arc<dyn WritableDevice>]) -> u64 {
    let of = |device: &Arc<dyn WritableDevice>| {
        let mut bytes = [0; 8];
        device.read_at(0x1_0048, &mut bytes).map_or(0, |()| u64::from_le_bytes(bytes))
    };
    devices.iter().map(of).max().unwrap_or_default()
}

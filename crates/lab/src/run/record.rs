//! A run as it is written down: the JSON of `brindle lab run`, a reference of a later run, and the raw output behind a report.

use super::{Phase, RunOptions, Suite, is_poor};
use crate::{Activity, Status};
use brindle_sim::DriveCounts;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Name of the suite.
    pub suite: String,
    /// Type of the filesystem.
    pub filesystem: String,
    /// Operations of each job.
    pub count: u64,
    /// Jobs side by side.
    pub jobs: u64,
    /// Size of the large file, in bytes.
    pub size: u64,
    /// Time after which a phase ends.
    #[serde(default)]
    pub seconds: Option<u64>,
    /// Seed of contents and places.
    pub seed: u64,
    /// True if the files of packages were synced.
    #[serde(default)]
    pub syncs: Option<bool>,
    /// True if the caches of the host were dropped before each phase.
    pub caches_dropped: bool,
    /// Its phases.
    pub phases: Vec<PhaseRecord>,
    /// Disks below it.
    pub disks: Vec<DiskRecord>,
}

/// A phase of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseRecord {
    /// Name.
    pub name: String,
    /// Operations; none where the filesystem refuses them.
    pub operations: u64,
    /// Bytes that they read or wrote.
    pub bytes: u64,
    /// Time of all.
    pub elapsed_ns: u64,
    /// Operations a second.
    pub operations_per_second: f64,
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Median of the latencies.
    pub latency_p50_ns: Option<u64>,
    /// The latency that 99 of 100 do not exceed.
    pub latency_p99_ns: Option<u64>,
    /// The greatest.
    pub latency_max_ns: Option<u64>,
    /// Latencies that a share of all does not exceed: the share in thousandths, and the time.
    #[serde(default)]
    pub latency_curve: Vec<(u32, u64)>,
    /// Counts of each disk.
    #[serde(default)]
    pub disks: Vec<DiskCounts>,
    /// Times and places of the requests of each disk; of the first round of a comparison alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub activity: Vec<Activity>,
    /// Operations a second of the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_per_second: Option<f64>,
    /// True if it is more than 20 % slower than the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poor: Option<bool>,
}

/// Counts of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCounts {
    /// Reads.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Operations of a hard disk's head that do not go on where the last one ended.
    pub seeks: u64,
    /// Starts of platters that had stopped.
    pub wake_ups: u64,
    /// Bands that a shingled hard disk has rewritten.
    #[serde(default)]
    pub bands: u64,
}

/// A disk of a run, with the counts of all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskRecord {
    /// Line of its model.
    pub model: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Its counts.
    #[serde(flatten)]
    pub counts: DiskCounts,
    /// Answers to requests.
    pub answers: u64,
    /// Of these, those that came more than 1 ms after their modelled time.
    pub late_answers: u64,
    /// The greatest delay of an answer.
    pub lateness_max_ns: u64,
}

/// Points of a latency curve, in thousandths of all operations.
const CURVE: [u32; 12] = [1, 10, 50, 100, 250, 500, 750, 900, 950, 990, 999, 1000];

impl From<&DriveCounts> for DiskCounts {
    fn from(counts: &DriveCounts) -> Self {
        Self {
            reads: counts.reads,
            read_bytes: counts.read_bytes,
            writes: counts.writes,
            written_bytes: counts.written_bytes,
            flushes: counts.flushes,
            discards: counts.discards,
            seeks: counts.seeks,
            wake_ups: counts.wake_ups,
            bands: counts.bands,
        }
    }
}

impl From<&Status> for DiskRecord {
    fn from(status: &Status) -> Self {
        Self {
            model: status.model.clone(),
            size_bytes: status.size_bytes,
            counts: DiskCounts::from(&status.counts),
            answers: status.lateness.answers,
            late_answers: status.lateness.late,
            lateness_max_ns: status.lateness.max_ns,
        }
    }
}

impl From<&Phase> for PhaseRecord {
    fn from(phase: &Phase) -> Self {
        let percent = |percent| phase.latency(percent).map(nanoseconds);
        let point = |&thousandths: &u32| {
            let rank = (phase.latencies.len() * thousandths as usize).div_ceil(1000);
            phase.latencies.get(rank.saturating_sub(1)).map(|time| (thousandths, nanoseconds(*time)))
        };
        Self {
            name: phase.name.clone(),
            operations: phase.operations,
            bytes: phase.bytes,
            elapsed_ns: nanoseconds(phase.elapsed),
            operations_per_second: phase.rate(),
            bytes_per_second: phase.byte_rate(),
            latency_p50_ns: percent(50),
            latency_p99_ns: percent(99),
            latency_max_ns: percent(100),
            latency_curve: CURVE.iter().filter_map(point).collect(),
            disks: phase.disks.iter().map(DiskCounts::from).collect(),
            activity: phase.activity.clone(),
            reference_per_second: None,
            poor: None,
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl PhaseRecord {
    /// Returns true if the filesystem has refused its requests.
    pub fn is_refused(&self) -> bool {
        self.operations == 0
    }

    /// Time of all, in seconds.
    pub fn seconds(&self) -> f64 {
        Duration::from_nanos(self.elapsed_ns).as_secs_f64()
    }
}

impl RunRecord {
    /// Writes a run down.
    pub fn new(
        suite: Suite,
        filesystem: &str,
        options: &RunOptions,
        phases: &[Phase],
        disks: &[Status],
    ) -> Self {
        Self {
            suite: suite.name().to_owned(),
            filesystem: filesystem.to_owned(),
            count: options.count,
            jobs: options.jobs,
            size: options.file_bytes,
            seconds: options.time.map(|time| time.as_secs()),
            seed: options.seed,
            syncs: suite.takes_packages().then_some(options.syncs),
            caches_dropped: options.drops_caches,
            phases: phases.iter().map(PhaseRecord::from).collect(),
            disks: disks.iter().map(DiskRecord::from).collect(),
        }
    }

    /// Compares each phase with the one of the same name of a reference: is it poor?
    pub fn compare(&mut self, reference: &Self) {
        for phase in &mut self.phases {
            let Some(other) = reference.phases.iter().find(|other| other.name == phase.name) else {
                continue;
            };
            phase.reference_per_second = Some(other.operations_per_second);
            phase.poor = Some(is_poor(phase.operations_per_second, other.operations_per_second));
        }
    }

    /// Returns true if more than one answer in a thousand of any disk was late.
    pub fn has_late_answers(&self) -> bool {
        self.disks.iter().any(|disk| disk.late_answers > disk.answers / 1000)
    }
}

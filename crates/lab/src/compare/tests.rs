//! Records for tests of results and reports.

use super::*;
use crate::{DiskCounts, DiskRecord, PhaseRecord};

/// The head of a plan on a machine.
pub(crate) fn head(plan: &Plan) -> Head {
    let comparison = Comparison {
        brindle: "brindle".into(),
        results: PathBuf::new(),
        scratch: PathBuf::new(),
        hdd: "hdd".to_owned(),
        ssd: "ssd".to_owned(),
        seed: 1,
        version: "0.1.0".to_owned(),
        commit: Some("cafe".to_owned()),
    };
    let head = comparison.head(plan);
    Head { kernel: "Linux 6.18".to_owned(), processors: 2, memory_bytes: 24 << 30, ..head }
}

/// A step that took these seconds, of which its only phase took half.
pub(crate) fn step(step: &Step<'_>, seconds: f64) -> StepRecord {
    let elapsed = Duration::from_secs_f64(seconds);
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).expect("short");
    let (half, operations) = (elapsed / 2, 100);
    let counts =
        DiskCounts { writes: 300, written_bytes: 3 << 20, flushes: 70, seeks: 90, ..DiskCounts::default() };
    let phase = PhaseRecord {
        name: step.work.name.to_owned(),
        operations,
        bytes: 1 << 20,
        elapsed_ns: nanoseconds(half),
        operations_per_second: 100.0 / half.as_secs_f64(),
        bytes_per_second: 1_048_576.0 / half.as_secs_f64(),
        latency_p50_ns: Some(nanoseconds(half / 200)),
        latency_p99_ns: Some(nanoseconds(half / 50)),
        latency_max_ns: Some(nanoseconds(half / 25)),
        latency_curve: [(10, 400), (500, 200), (900, 100), (990, 50), (1000, 25)]
            .map(|(share, part)| (share, nanoseconds(half / part)))
            .to_vec(),
        disks: step.configuration.disks.iter().map(|_| counts).collect(),
        activity: Vec::new(),
        reference_per_second: None,
        poor: None,
    };
    let disk = |kind: &DiskKind| DiskRecord {
        model: kind.name().to_owned(),
        size_bytes: 1 << 30,
        counts,
        answers: 400,
        late_answers: 0,
        lateness_max_ns: 0,
    };
    StepRecord {
        work: step.work.name.to_owned(),
        configuration: step.configuration.name.to_owned(),
        round: step.round,
        began: 1_795_000_000,
        elapsed_ns: nanoseconds(elapsed),
        load: 0.5,
        commands: Vec::new(),
        run: Some(RunRecord {
            suite: step.work.suite.name().to_owned(),
            filesystem: step.configuration.filesystem.name().to_owned(),
            count: 100,
            jobs: 1,
            size: 1 << 20,
            seconds: None,
            seed: 1,
            syncs: None,
            caches_dropped: true,
            phases: vec![phase],
            disks: step.configuration.disks.iter().map(disk).collect(),
        }),
        checks: vec![CheckRecord { command: "check".to_owned(), passed: true, output: String::new() }],
        error: None,
    }
}

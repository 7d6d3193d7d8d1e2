//! Figures of a comparison: for each phase and configuration the values of all rounds, and the counts that explain them.

use crate::compare::{Configuration, DiskKind, Results, StepRecord};
use crate::{Activity, DiskCounts, PhaseRecord};

/// A phase of a work.
#[derive(Clone, Debug)]
pub(super) struct PhaseFigures {
    pub(super) work: String,
    pub(super) suite: String,
    pub(super) phase: String,
    /// In the order of [`CONFIGURATIONS`](crate::compare::CONFIGURATIONS).
    pub(super) figures: Vec<Figure>,
}

/// A phase on a configuration.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    pub(super) configuration: &'static Configuration,
    /// Speeds of the valid rounds, in ascending order: operations a second, or of work that goes by the clock the inverse of
    /// the 99th percentile of its latencies.
    pub(super) speeds: Vec<f64>,
    /// Bytes a second, in ascending order.
    pub(super) byte_rates: Vec<f64>,
    /// Times, in seconds, in ascending order.
    pub(super) seconds: Vec<f64>,
    /// Median latency of each share of operations.
    pub(super) curve: Vec<(u32, f64)>,
    /// Median counts of each disk.
    pub(super) disks: Vec<DiskCounts>,
    /// Times and places of the requests of each disk, in one round.
    pub(super) activity: Vec<Activity>,
    /// True if the filesystem has refused it.
    pub(super) is_refused: bool,
}

/// Suite that goes by the clock.
const CLOCKED: &str = "home";

/// The middle of some values.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.len() % 2, values.get(middle)) {
        (1, middle) => middle.copied(),
        (_, Some(upper)) => Some(f64::midpoint(values[middle - 1], *upper)),
        (_, None) => None,
    }
}

fn median_count(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

impl Figure {
    /// The median of its speeds.
    pub(super) fn speed(&self) -> Option<f64> {
        median(&self.speeds)
    }

    /// The least and the greatest speed.
    pub(super) fn spread(&self) -> Option<(f64, f64)> {
        Some((*self.speeds.first()?, *self.speeds.last()?))
    }

    /// Latency of a share of operations, in milliseconds.
    pub(super) fn latency(&self, thousandths: u32) -> Option<f64> {
        self.curve.iter().find(|(share, _)| *share == thousandths).map(|(_, time)| *time)
    }

    /// Disks of a configuration, as its name tells them.
    pub(super) fn group(&self) -> &'static str {
        group_of(self.configuration)
    }
}

/// Disks of a configuration, as its name tells them: the part after the filesystem, without the mode of brindle's write-back.
pub(super) fn group_of(configuration: &'static Configuration) -> &'static str {
    let disks = configuration.name.split_once('-').map_or("", |(_, disks)| disks);
    disks.split('-').next().unwrap_or(disks)
}

/// All figures of some results, in the order of works and phases.
pub(super) fn figures(results: &Results) -> Vec<PhaseFigures> {
    let valid: Vec<&StepRecord> = results.done().filter(|step| step.is_valid()).collect();
    let mut phases: Vec<PhaseFigures> = Vec::new();
    for step in &valid {
        let Some(run) = &step.run else { continue };
        for phase in &run.phases {
            if !phases.iter().any(|known| known.work == step.work && known.phase == phase.name) {
                let (work, suite, phase) = (step.work.clone(), run.suite.clone(), phase.name.clone());
                phases.push(PhaseFigures { work, suite, phase, figures: Vec::new() });
            }
        }
    }
    for phase in &mut phases {
        for configuration in &crate::compare::CONFIGURATIONS {
            let of_step = |step: &&StepRecord| {
                let is_it = step.work == phase.work && step.configuration == configuration.name;
                let run = step.run.as_ref().filter(|_| is_it)?;
                run.phases.iter().find(|other| other.name == phase.phase).cloned()
            };
            let records: Vec<PhaseRecord> = valid.iter().filter_map(of_step).collect();
            if !records.is_empty() {
                phase.figures.push(figure(configuration, &records, phase.suite == CLOCKED));
            }
        }
    }
    phases
}

fn figure(configuration: &'static Configuration, records: &[PhaseRecord], is_clocked: bool) -> Figure {
    let sorted = |of: &dyn Fn(&PhaseRecord) -> f64| {
        let mut values: Vec<f64> = records.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let speed = |record: &PhaseRecord| {
        let latency = record.latency_p99_ns.filter(|_| is_clocked).map(seconds);
        latency.map_or(record.operations_per_second, |latency| 1.0 / latency.max(1e-9))
    };
    let shares = records.first().map_or(&[][..], |record| &record.latency_curve);
    let point = |&(share, _): &(u32, u64)| {
        let of = |record: &PhaseRecord| {
            record
                .latency_curve
                .iter()
                .find(|(other, _)| *other == share)
                .map(|(_, time)| seconds(*time) * 1e3)
        };
        Some((share, median(&records.iter().filter_map(of).collect::<Vec<_>>())?))
    };
    let disks = (0..configuration.disks.len()).map(|disk| {
        let count = |of: &dyn Fn(&DiskCounts) -> u64| {
            median_count(records.iter().filter_map(|record| record.disks.get(disk)).map(of))
        };
        DiskCounts {
            reads: count(&|disk| disk.reads),
            read_bytes: count(&|disk| disk.read_bytes),
            writes: count(&|disk| disk.writes),
            written_bytes: count(&|disk| disk.written_bytes),
            flushes: count(&|disk| disk.flushes),
            discards: count(&|disk| disk.discards),
            seeks: count(&|disk| disk.seeks),
            wake_ups: count(&|disk| disk.wake_ups),
            bands: count(&|disk| disk.bands),
        }
    });
    Figure {
        configuration,
        speeds: sorted(&speed),
        byte_rates: sorted(&|record| record.bytes_per_second),
        seconds: sorted(&PhaseRecord::seconds),
        curve: shares.iter().filter_map(point).collect(),
        disks: disks.collect(),
        activity: records
            .iter()
            .find(|record| !record.activity.is_empty())
            .map_or_else(Vec::new, |record| record.activity.clone()),
        is_refused: records.iter().all(PhaseRecord::is_refused),
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    std::time::Duration::from_nanos(nanoseconds).as_secs_f64()
}

/// A brindle figure beside a kernel's on the same disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// Slower in every round than the other one in any.
    Behind,
    /// Neither.
    Level,
    /// Faster in every round than the other one in any.
    Ahead,
}

/// The least ratio that is a difference where there is only one round.
const LEAST_DIFFERENCE: f64 = 1.05;

/// Compares two figures: ranges that overlap, or medians within 5 %, are level.
pub(super) fn verdict(ours: &Figure, theirs: &Figure) -> Option<(Verdict, f64)> {
    let ((low, high), (other_low, other_high)) = (ours.spread()?, theirs.spread()?);
    let ratio = ours.speed()? / theirs.speed().filter(|speed| *speed > 0.0)?;
    let verdict = if low > other_high && ratio > LEAST_DIFFERENCE {
        Verdict::Ahead
    } else if high < other_low && ratio < 1.0 / LEAST_DIFFERENCE {
        Verdict::Behind
    } else {
        Verdict::Level
    };
    Some((verdict, ratio))
}

/// Counts in words: those of an SSD first, as in the name of the configuration.
pub(super) fn counts_text(figure: &Figure, of: impl Fn(DiskKind, &DiskCounts) -> Option<String>) -> String {
    let kinds = figure.configuration.disks.iter();
    let words =
        kinds.zip(&figure.disks).map(|(kind, counts)| of(*kind, counts).unwrap_or_else(|| "-".to_owned()));
    words.collect::<Vec<_>>().join(" + ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(speeds: &[f64]) -> Figure {
        let configuration = Configuration::find("brindle-ssd+hdd-all").expect("there is one");
        let (byte_rates, seconds) = (speeds.to_vec(), speeds.to_vec());
        let (curve, disks) = (Vec::new(), Vec::new());
        Figure {
            configuration,
            speeds: speeds.to_vec(),
            byte_rates,
            seconds,
            curve,
            disks,
            activity: Vec::new(),
            is_refused: false,
        }
    }

    #[test]
    fn medians_are_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median_count([5, 1, 9].into_iter()), 5);
    }

    #[test]
    fn only_ranges_that_do_not_overlap_differ() {
        let of = |ours: &[f64], theirs: &[f64]| {
            verdict(&figure(ours), &figure(theirs)).map(|(verdict, _)| verdict)
        };
        assert_eq!(of(&[12.0, 13.0], &[10.0, 11.0]), Some(Verdict::Ahead));
        assert_eq!(of(&[8.0, 9.0], &[10.0, 11.0]), Some(Verdict::Behind));
        assert_eq!(of(&[8.0, 10.5], &[10.0, 11.0]), Some(Verdict::Level));
        assert_eq!(of(&[10.3], &[10.0]), Some(Verdict::Level));
        assert_eq!(of(&[10.0], &[0.0]), None);
        assert_eq!(of(&[], &[1.0]), None);
    }

    #[test]
    fn groups_are_the_disks() {
        let names = ["ext4-hdd", "brindle-ssd+hdd-off", "btrfs-ssd+hdd", "brindle-ssd+2hdd", "xfs-cache"];
        let groups = names.map(|name| group_of(Configuration::find(name).expect("there is one")));
        assert_eq!(groups, ["hdd", "ssd+hdd", "ssd+hdd", "ssd+2hdd", "cache"]);
    }
}

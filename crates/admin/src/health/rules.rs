//! Judgement on the facts of a pool: a pure function of them and the time.

use super::{
    BadSuperblock, DeviceHealth, Job, LessRedundant, PoolHealth, RoomHealth, Writing, less_redundant,
};
use crate::CacheLines;
use crate::pool::InterruptedReplacement;
use brindle_cache::ERROR_COUNTERS;
use brindle_care::scrub::{DeviceState, ScrubRecord};
use brindle_ondisk::{DevId, RootId, Uuid};
use brindle_policy::tier::Content;
use std::path::PathBuf;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// A fact that is in order.
    Note,
    /// The pool wants a look.
    Attention,
    /// Data is lost, or one more failure may lose some.
    Risk,
}

impl Severity {
    /// Its name, for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Attention => "attention",
            Self::Risk => "risk",
        }
    }
}

/// State of a pool in a word, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Nothing is wrong.
    Ok,
    /// Something else wants a look.
    Attention,
    /// There is little room left.
    Full,
    /// Devices or a scrub have counted errors.
    Errors,
    /// A device is missing, or lacks writes.
    Degraded,
    /// Nothing is written any more.
    ReadOnly,
    /// The pool can't be read, or the server of its mount has ended.
    Down,
}

impl State {
    /// All states.
    pub const ALL: [Self; 7] =
        [Self::Ok, Self::Attention, Self::Full, Self::Errors, Self::Degraded, Self::ReadOnly, Self::Down];

    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Attention => "attention",
            Self::Full => "full",
            Self::Errors => "errors",
            Self::Degraded => "degraded",
            Self::ReadOnly => "read-only",
            Self::Down => "down",
        }
    }
}

/// A fact that a status tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The pool is read-only.
    ReadOnly(String),
    /// The kernel was interrupted while it replaced a device: until that is ended, the pool is only read.
    Replacing(InterruptedReplacement),
    /// A tree can't be read, in any copy, for a reason.
    DamagedTree(RootId, String),
    /// A device is not there.
    Missing(DevId, Uuid),
    /// The return of a missing device to the pool was begun and not ended: the device is there, and has a part of its contents.
    ReturnStopped(DevId, PathBuf),
    /// Devices are smaller than they ought to be, as `tier apply` or `tier watch` was interrupted.
    Fenced(Vec<DevId>),
    /// Block groups have fewer copies than others of the same content.
    LessRedundant(LessRedundant),
    /// A copy of a superblock is bad.
    BadSuperblock(BadSuperblock),
    /// A device has missed transactions, and is not written.
    LeftOut(DevId, String),
    /// A device lacks writes that it failed to take.
    Behind(DevId, String),
    /// A device has counted errors.
    DeviceErrors(DevId, String, [u64; 5]),
    /// A device is a cache on two SSDs of which one has the dirty blocks alone; the state of the mirror.
    CacheDegraded(DevId, String),
    /// A device is a cache whose SSD was given up; the SSD.
    CacheWithoutSsd(DevId, String),
    /// A device is a cache whose SSDs or disk failed requests: names of counters, and counts.
    CacheErrors(DevId, Vec<(&'static str, u64)>),
    /// The last scrub found errors that it could not correct.
    Uncorrectable(u64),
    /// The last scrub found errors, and was not to correct them.
    Correctable(u64),
    /// The last scrub has not looked at a device, for a reason.
    NotScrubbed(DevId, String),
    /// There is little room left for a content.
    Full(Content, RoomHealth),
    /// Metadata has no room on fast devices any more.
    MetadataSpills,
    /// Data waits in the write-back tier, and can't be destaged: bytes and reason.
    WaitingStuck(u64, String),
    /// Data waits in the write-back tier: bytes, and seconds for which the oldest have waited.
    Waiting(u64, Option<u64>),
    /// A scrub runs: percent.
    ScrubRuns(Option<u64>),
    /// The last scrub left devices that were asleep: their number.
    ScrubLeft(usize),
    /// The last scrub was cancelled or interrupted: percent.
    ScrubStopped(Option<u64>),
    /// The last scrub came to its end: seconds since its begin, and errors that it corrected.
    Scrubbed(u64, u64),
    /// No scrub is known of.
    NeverScrubbed,
    /// The numbers of quota groups are wrong.
    WrongQuotas,
    /// A job runs or is paused.
    Job(Job),
}

/// Room below which a pool counts as full: a twentieth, or this if that is less.
const ROOM_BYTES: u64 = 10 << 30;
/// Seconds after which data that waits in the write-back tier wants a look: a day.
const WAITING_SECONDS: u64 = 86_400;

impl Finding {
    /// Its severity.
    pub fn severity(&self) -> Severity {
        match self {
            Self::ReadOnly(_)
            | Self::DamagedTree(..)
            | Self::Missing(..)
            | Self::LeftOut(..)
            | Self::Behind(..)
            | Self::CacheDegraded(..)
            | Self::Uncorrectable(_) => Severity::Risk,
            Self::LessRedundant(groups) if groups.is_at_risk() => Severity::Risk,
            Self::Replacing(_)
            | Self::ReturnStopped(..)
            | Self::Fenced(_)
            | Self::LessRedundant(_)
            | Self::BadSuperblock(_)
            | Self::DeviceErrors(..)
            | Self::CacheWithoutSsd(..)
            | Self::CacheErrors(..)
            | Self::Correctable(_)
            | Self::NotScrubbed(..)
            | Self::WrongQuotas
            | Self::Full(..)
            | Self::WaitingStuck(..) => Severity::Attention,
            Self::Waiting(_, Some(seconds)) if *seconds > WAITING_SECONDS => Severity::Attention,
            Self::MetadataSpills
            | Self::Waiting(..)
            | Self::ScrubRuns(_)
            | Self::ScrubStopped(_)
            | Self::ScrubLeft(_)
            | Self::Scrubbed(..)
            | Self::NeverScrubbed
            | Self::Job(_) => Severity::Note,
        }
    }

    /// The state of a pool of which it is the worst finding.
    pub fn state(&self) -> State {
        match self {
            _ if self.severity() == Severity::Note => State::Ok,
            Self::ReadOnly(_) => State::ReadOnly,
            Self::DamagedTree(..) => State::Errors,
            Self::Missing(..) | Self::LeftOut(..) | Self::Behind(..) | Self::CacheDegraded(..) => {
                State::Degraded
            }
            Self::LessRedundant(groups) if groups.is_at_risk() => State::Degraded,
            Self::BadSuperblock(_)
            | Self::DeviceErrors(..)
            | Self::CacheWithoutSsd(..)
            | Self::CacheErrors(..)
            | Self::Uncorrectable(_)
            | Self::Correctable(_) => State::Errors,
            Self::Full(..) => State::Full,
            _ => State::Attention,
        }
    }

    /// Its name, for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ReadOnly(_) => "read_only",
            Self::Replacing(_) => "replacement_interrupted",
            Self::DamagedTree(..) => "tree_damaged",
            Self::Missing(..) => "device_missing",
            Self::ReturnStopped(..) => "rejoin_interrupted",
            Self::Fenced(_) => "tier_fenced",
            Self::LessRedundant(_) => "less_redundant",
            Self::BadSuperblock(_) => "superblock_bad",
            Self::LeftOut(..) => "device_left_out",
            Self::Behind(..) => "device_behind",
            Self::DeviceErrors(..) => "device_errors",
            Self::CacheDegraded(..) => "cache_degraded",
            Self::CacheWithoutSsd(..) => "cache_without_ssd",
            Self::CacheErrors(..) => "cache_errors",
            Self::Uncorrectable(_) => "scrub_uncorrectable",
            Self::Correctable(_) => "scrub_correctable",
            Self::NotScrubbed(..) => "device_not_scrubbed",
            Self::Full(..) => "full",
            Self::MetadataSpills => "metadata_spills",
            Self::WaitingStuck(..) => "write_back_stuck",
            Self::Waiting(..) => "write_back_waits",
            Self::ScrubRuns(_) => "scrub_runs",
            Self::ScrubStopped(_) => "scrub_stopped",
            Self::ScrubLeft(_) => "scrub_left_sleeping",
            Self::Scrubbed(..) => "scrubbed",
            Self::NeverScrubbed => "never_scrubbed",
            Self::WrongQuotas => "quotas_inconsistent",
            Self::Job(_) => "job",
        }
    }
}

/// Findings about a pool at a time, in seconds since 1970; the worst first.
pub fn findings(pool: &PoolHealth, now: u64) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Writing::Refused(why) = &pool.writing {
        found.push(Finding::ReadOnly(why.clone()));
    }
    found.extend(pool.replacement.clone().map(Finding::Replacing));
    let damaged = pool.damaged_trees.iter();
    found.extend(damaged.map(|(tree, why)| Finding::DamagedTree(*tree, why.clone())));
    pool.devices.iter().for_each(|device| judge_device(device, &mut found));
    let begun = pool.begun_returns.iter();
    found.extend(begun.map(|(devid, path)| Finding::ReturnStopped(*devid, path.clone())));
    if !pool.fenced.is_empty() {
        found.push(Finding::Fenced(pool.fenced.clone()));
    }
    found.extend(less_redundant(pool).into_iter().map(Finding::LessRedundant));
    found.extend(pool.bad_superblocks.iter().cloned().map(Finding::BadSuperblock));
    pool.caches.iter().for_each(|(devid, lines)| judge_cache(DevId::new(*devid), lines, &mut found));
    judge_space(pool, &mut found);
    judge_write_back(pool, now, &mut found);
    if pool.has_wrong_quotas {
        found.push(Finding::WrongQuotas);
    }
    found.extend(pool.jobs.iter().cloned().map(Finding::Job));
    match &pool.scrub {
        Some((record, is_running)) => judge_scrub(record, *is_running, now, &mut found),
        None => found.push(Finding::NeverScrubbed),
    }
    // Of the same severity they stay in their order.
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity()));
    found
}

/// State of a pool with these findings.
pub fn state_of(findings: &[Finding]) -> State {
    findings.iter().map(Finding::state).max().unwrap_or(State::Ok)
}

/// Severity of the worst of these findings.
pub fn severity_of(findings: &[Finding]) -> Severity {
    findings.iter().map(Finding::severity).max().unwrap_or(Severity::Note)
}

fn judge_device(device: &DeviceHealth, found: &mut Vec<Finding>) {
    let (devid, path) = (device.devid, || device.path.clone());
    if device.is_missing {
        found.push(Finding::Missing(devid, device.uuid));
    } else if device.is_stale {
        found.push(Finding::LeftOut(devid, path()));
    } else if device.is_behind {
        found.push(Finding::Behind(devid, path()));
    }
    if let Some(errors) = device.errors.filter(|errors| *errors != [0; 5]) {
        found.push(Finding::DeviceErrors(devid, path(), errors));
    }
}

fn judge_cache(devid: DevId, lines: &CacheLines, found: &mut Vec<Finding>) {
    let line = |name: &str| lines.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let given_up = line("given_up");
    match (line("mirror"), given_up) {
        (Some(mirror), _) if mirror.starts_with("degraded") => {
            found.push(Finding::CacheDegraded(devid, mirror.to_owned()));
        }
        (_, Some(ssd)) => found.push(Finding::CacheWithoutSsd(devid, ssd.to_owned())),
        (_, None) => {}
    }
    let count =
        |name: &'static str| Some((name, line(name)?.parse::<u64>().ok()?)).filter(|(_, count)| *count > 0);
    let errors: Vec<(&'static str, u64)> = ERROR_COUNTERS.into_iter().filter_map(count).collect();
    if !errors.is_empty() {
        found.push(Finding::CacheErrors(devid, errors));
    }
}

fn judge_space(pool: &PoolHealth, found: &mut Vec<Finding>) {
    // A pool that is not written needs no room, and may not know of any.
    if matches!(pool.writing, Writing::Refused(_)) {
        return;
    }
    let space = &pool.space;
    for (content, room) in [(Content::Data, space.data), (Content::Metadata, space.metadata)] {
        let least = (room.used_bytes.saturating_add(room.room_bytes) / 20).min(ROOM_BYTES);
        if room.used_bytes > 0 && room.room_bytes < least {
            found.push(Finding::Full(content, room));
        }
    }
    if space.has_tiers && space.metadata.preferred_bytes == Some(0) {
        found.push(Finding::MetadataSpills);
    }
}

fn judge_write_back(pool: &PoolHealth, now: u64, found: &mut Vec<Finding>) {
    let Some(tier) = pool.write_back.as_ref().filter(|tier| tier.waiting_bytes > 0) else { return };
    found.push(match &tier.obstacle {
        Some(why) => Finding::WaitingStuck(tier.waiting_bytes, why.clone()),
        None => Finding::Waiting(tier.waiting_bytes, tier.since.map(|since| now.saturating_sub(since))),
    });
}

fn judge_scrub(record: &ScrubRecord, is_running: bool, now: u64, found: &mut Vec<Finding>) {
    let counts = record.report.counts();
    if counts.uncorrectable_errors > 0 {
        found.push(Finding::Uncorrectable(counts.uncorrectable_errors));
    }
    if counts.correctable_errors > 0 {
        found.push(Finding::Correctable(counts.correctable_errors));
    }
    let devices = &record.report.devices;
    for device in devices {
        if let DeviceState::Failed(why) = &device.state {
            found.push(Finding::NotScrubbed(device.devid, why.clone()));
        }
    }
    let sum = |of: fn(&brindle_care::scrub::DeviceProgress) -> u64| devices.iter().map(of).sum::<u64>();
    let (done, total) = (sum(|device| device.done_bytes), sum(|device| device.total_bytes));
    let percent = (total > 0).then(|| done.min(total).saturating_mul(100) / total);
    let is_stopped = devices.iter().any(|device| device.state == DeviceState::Cancelled);
    let left = record.report.left().count();
    found.push(match () {
        () if is_running => Finding::ScrubRuns(percent),
        () if is_stopped => Finding::ScrubStopped(percent),
        () if left > 0 => Finding::ScrubLeft(left),
        () => Finding::Scrubbed(now.saturating_sub(record.started), counts.corrected_errors),
    });
}

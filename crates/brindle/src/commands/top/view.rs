//! Rates between two samples: the values that the screen and JSON show.

use super::sample::Sample;
use crate::commands::device_contents::DeviceContents;
use crate::commands::status::json;
use brindle_admin::CacheLines;
use brindle_admin::activity::{Activity, CountedBy, DeviceActivity};
use brindle_admin::health::{DeviceHealth, GroupHealth, Job};
use brindle_device::{Operation, Tally};
use brindle_fs::SyncMeasure;
use brindle_uapi::message::{CommitsReport, Histogram, MetadataCache};
use std::time::Duration;

/// A pool in an interval.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// Seconds since 1970 at the end of the interval.
    pub(super) now: u64,
    /// Its length.
    pub(super) interval: Duration,
    /// Label or UUID of the pool.
    pub(super) name: String,
    /// UUID.
    pub(super) uuid: String,
    /// State in a word.
    pub(super) state: &'static str,
    /// Mount point.
    pub(super) place: String,
    /// Server of the mount.
    pub(super) server: &'static str,
    /// Devices by their ids.
    pub(super) devices: Vec<DeviceView>,
    /// Block groups.
    pub(super) groups: Vec<GroupHealth>,
    /// The cache of metadata.
    pub(super) cache: Option<CacheView>,
    /// Devices that are flash caches.
    pub(super) flash_caches: Vec<FlashCacheView>,
    /// Data that waits on fast devices.
    pub(super) write_back: Option<WriteBackView>,
    /// Fsyncs and commits.
    pub(super) syncs: Option<SyncView>,
    /// Jobs.
    pub(super) jobs: Vec<Job>,
}

/// A device in an interval.
#[derive(Clone, Debug)]
pub(super) struct DeviceView {
    pub(super) devid: u64,
    pub(super) path: String,
    pub(super) class: Option<String>,
    /// Busy, idle, asleep, or the trouble with it.
    pub(super) state: &'static str,
    /// Time since the last request, where the mount knows it.
    pub(super) idle: Option<Duration>,
    pub(super) counted_by: CountedBy,
    /// By [`Operation`].
    pub(super) rates: [Rate; 4],
    pub(super) in_flight: u64,
    pub(super) contents: Option<DeviceContents>,
    pub(super) total_bytes: u64,
    pub(super) unallocated_bytes: u64,
}

/// Requests of one operation in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rate {
    /// Requests a second.
    pub(super) requests: f64,
    /// Bytes a second.
    pub(super) bytes: f64,
    /// Mean time of a request; `None` without any.
    pub(super) latency: Option<Duration>,
}

/// The cache of metadata in an interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheView {
    /// Lookups a second.
    pub(super) lookups: f64,
    /// Share of these that were hits; `None` without any.
    pub(super) hit_ratio: Option<f64>,
    /// The same since the mount was made.
    pub(super) hit_ratio_ever: Option<f64>,
    pub(super) used_bytes: u64,
    pub(super) capacity_bytes: u64,
}

/// A device that is a flash cache, in an interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlashCacheView {
    pub(super) devid: u64,
    /// Bytes that are read, a second.
    pub(super) read: f64,
    /// Share of these that the flash had; `None` without any.
    pub(super) hit_ratio: Option<f64>,
    /// The same since the cache was opened, or since its counters were set to 0.
    pub(super) hit_ratio_ever: Option<f64>,
    pub(super) used_bytes: u64,
    pub(super) capacity_bytes: u64,
    /// Bytes that the disk lacks.
    pub(super) dirty_bytes: u64,
    /// Bytes a second that were written to the disk for that.
    pub(super) cleaned: f64,
}

/// The write-back tier.
#[derive(Clone, Debug)]
pub(super) struct WriteBackView {
    pub(super) mode: String,
    pub(super) waiting_bytes: u64,
    pub(super) capacity_bytes: u64,
    /// Age of the oldest data.
    pub(super) age: Option<Duration>,
    /// Bytes a second that were destaged.
    pub(super) destaged: f64,
}

/// Fsyncs and commits in an interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct SyncView {
    /// Fsyncs a second that the log took.
    pub(super) by_log: f64,
    /// Fsyncs a second that were commits.
    pub(super) by_commit: f64,
    /// Writes of the log a second.
    pub(super) log_writes: f64,
    /// Upper bounds of the time of half of the fsyncs, and of 99 of 100 of them.
    pub(super) percentiles: Option<[Duration; 2]>,
    /// Commits a second.
    pub(super) commits: f64,
    /// The longest commit since the mount was made.
    pub(super) longest_commit: Duration,
}

impl View {
    /// The interval between two samples.
    pub(super) fn between(before: &Sample, after: &Sample) -> Self {
        let interval = after.at.saturating_sub(before.at);
        let (health, earlier) = (&after.health, &before.health);
        let activity = |health: &Option<Activity>, devid| {
            let devices = health.iter().flat_map(|activity| &activity.devices);
            devices.into_iter().find(|device| device.devid == devid).cloned()
        };
        let devices = health.devices.iter().map(|device| {
            let now = activity(&health.activity, device.devid);
            let then = activity(&earlier.activity, device.devid);
            let contents =
                after.contents.as_ref().map(|all| all.get(&device.devid.get()).copied().unwrap_or_default());
            device_view(device, now.as_ref(), then.as_ref(), interval, contents)
        });
        let flash_caches = health.caches.iter().map(|(devid, now)| {
            let then = earlier.caches.iter().find(|(before, _)| before == devid).map(|(_, lines)| lines);
            flash_cache_view(*devid, then, now, interval)
        });
        let cache = |health: &Option<Activity>| health.as_ref().and_then(|activity| activity.cache);
        let destaged =
            |of: &Sample| of.health.write_back.as_ref().and_then(|tier| tier.destaged).map_or(0, |it| it.0);
        let write_back = health.write_back.as_ref().map(|tier| WriteBackView {
            mode: tier.mode.to_string(),
            waiting_bytes: tier.waiting_bytes,
            capacity_bytes: tier.capacity_bytes,
            age: tier.since.map(|since| Duration::from_secs(after.now.saturating_sub(since))),
            destaged: rate(destaged(before), destaged(after), interval),
        });
        Self {
            now: after.now,
            interval,
            name: after.name.clone(),
            uuid: health.fsid.to_string(),
            state: after.state.name(),
            place: health.mountpoints.first().map_or_else(String::new, |place| place.display().to_string()),
            server: json::server(health.server),
            devices: devices.collect(),
            groups: health.space.groups.clone(),
            cache: cache(&health.activity).map(|now| cache_view(cache(&earlier.activity), now, interval)),
            flash_caches: flash_caches.collect(),
            write_back,
            syncs: health.commits.as_ref().map(|now| sync_view(earlier.commits.as_ref(), now, interval)),
            jobs: jobs(after),
        }
    }
}

/// Growth of a counter, a second; 0 where it has begun anew.
fn rate(before: u64, after: u64, interval: Duration) -> f64 {
    let seconds = interval.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let growth = after.saturating_sub(before) as f64;
    if seconds > 0.0 { growth / seconds } else { 0.0 }
}

/// A share; `None` of nothing.
fn share(part: u64, whole: u64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    let ratio = part as f64 / whole as f64;
    (whole > 0).then_some(ratio)
}

fn device_view(
    device: &DeviceHealth,
    now: Option<&DeviceActivity>,
    then: Option<&DeviceActivity>,
    interval: Duration,
    contents: Option<DeviceContents>,
) -> DeviceView {
    let tally =
        |of: Option<&DeviceActivity>, number: usize| of.map_or(Tally::default(), |of| of.tallies[number]);
    let rates: [Rate; 4] =
        std::array::from_fn(|number| rate_of(&tally(then, number), &tally(now, number), interval));
    let is_busy = now.is_some_and(|now| now.in_flight > 0) || rates.iter().any(|rate| rate.requests > 0.0);
    let state = match json::device_state(device) {
        "ok" if is_busy => "busy",
        "ok" if now.is_some_and(|now| now.is_asleep) => "asleep",
        "ok" => "idle",
        "left_out" => "left out",
        trouble => trouble,
    };
    DeviceView {
        devid: device.devid.get(),
        path: device.path.clone(),
        class: device.class.map(|class| class.to_string()),
        state,
        idle: now.and_then(|now| now.idle),
        counted_by: now.map_or(CountedBy::Nothing, |now| now.counted_by),
        rates,
        in_flight: now.map_or(0, |now| now.in_flight),
        contents,
        total_bytes: device.total_bytes,
        unallocated_bytes: device.total_bytes.saturating_sub(device.allocated_bytes),
    }
}

fn rate_of(before: &Tally, after: &Tally, interval: Duration) -> Rate {
    let requests = after.requests.saturating_sub(before.requests);
    let time_ns = after.time_ns.saturating_sub(before.time_ns);
    Rate {
        requests: rate(before.requests, after.requests, interval),
        bytes: rate(before.bytes, after.bytes, interval),
        latency: (requests > 0).then(|| Duration::from_nanos(time_ns / requests.max(1))),
    }
}

impl DeviceView {
    /// Mean time of reads and writes.
    pub(super) fn latency(&self) -> Option<Duration> {
        let [read, write] =
            [Operation::Read, Operation::Write].map(|operation| self.rates[operation as usize]);
        let seconds = |rate: Rate| rate.latency.map_or(0.0, |time| time.as_secs_f64()) * rate.requests;
        let requests = read.requests + write.requests;
        (requests > 0.0).then(|| Duration::from_secs_f64((seconds(read) + seconds(write)) / requests))
    }
}

fn cache_view(before: Option<MetadataCache>, after: MetadataCache, interval: Duration) -> CacheView {
    let before = before.unwrap_or_default();
    let (hits, misses) = (after.hits.saturating_sub(before.hits), after.misses.saturating_sub(before.misses));
    CacheView {
        lookups: rate(0, hits + misses, interval),
        hit_ratio: share(hits, hits + misses),
        hit_ratio_ever: share(after.hits, after.hits.saturating_add(after.misses)),
        used_bytes: after.used_bytes,
        capacity_bytes: after.capacity_bytes,
    }
}

fn flash_cache_view(
    devid: u64,
    before: Option<&CacheLines>,
    after: &CacheLines,
    interval: Duration,
) -> FlashCacheView {
    let number = |lines: Option<&CacheLines>, name: &str| -> u64 {
        let line = lines.and_then(|lines| lines.iter().find(|(found, _)| found == name));
        line.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
    };
    let now = |name: &str| number(Some(after), name);
    // Counters that were set to 0 meanwhile have grown from there.
    let growth = |name: &str| match number(before, name) {
        then if then <= now(name) => now(name) - then,
        _ => now(name),
    };
    let bytes = |blocks: u64| blocks.saturating_mul(now("block_bytes"));
    FlashCacheView {
        devid,
        read: rate(0, bytes(growth("reads")), interval),
        hit_ratio: share(growth("read_hits"), growth("reads")),
        hit_ratio_ever: share(now("read_hits"), now("reads")),
        used_bytes: bytes(now("cached_blocks")),
        capacity_bytes: bytes(now("blocks")),
        dirty_bytes: bytes(now("dirty_blocks")),
        cleaned: rate(0, bytes(growth("cleanings")), interval),
    }
}

fn sync_view(before: Option<&CommitsReport>, after: &CommitsReport, interval: Duration) -> SyncView {
    let since = |of: fn(&CommitsReport) -> u64| rate(before.map_or(0, of), of(after), interval);
    let time = |report: &CommitsReport| {
        let position = SyncMeasure::ALL.iter().position(|measure| *measure == SyncMeasure::Time);
        report.histograms[position.unwrap_or(0)]
    };
    SyncView {
        by_log: since(|report| report.log[1]),
        by_commit: since(|report| report.log_commits.iter().sum()),
        log_writes: since(|report| report.log[0]),
        percentiles: percentiles(before.map(time).as_ref(), &time(after)),
        commits: since(|report| report.commits),
        longest_commit: Duration::from_nanos(after.longest_ns),
    }
}

/// Upper bounds of the half and of 99 of 100 of the values between two histograms of microseconds.
fn percentiles(before: Option<&Histogram>, after: &Histogram) -> Option<[Duration; 2]> {
    let then = |index: usize| before.map_or(0, |before| before.buckets[index]);
    let counts: Vec<u64> =
        after.buckets.iter().enumerate().map(|(index, now)| now.saturating_sub(then(index))).collect();
    let all: u64 = counts.iter().sum();
    let bound = |percent: u64| {
        let mut left = (all * percent).div_ceil(100);
        let index = counts.iter().position(|count| {
            let is_it = *count >= left;
            left = left.saturating_sub(*count);
            is_it
        });
        // Bucket N holds values below the power N of two.
        Duration::from_micros(1u64 << index.unwrap_or(0))
    };
    (all > 0).then(|| [bound(50), bound(99)])
}

/// Jobs, the scrub among them.
fn jobs(sample: &Sample) -> Vec<Job> {
    let mut jobs = sample.health.jobs.clone();
    if let Some((record, true)) = &sample.health.scrub {
        let sum = |of: fn(&brindle_care::scrub::DeviceProgress) -> u64| {
            record.report.devices.iter().map(of).sum::<u64>()
        };
        let progress = Some((sum(|device| device.done_bytes), sum(|device| device.total_bytes)));
        jobs.push(Job { name: "scrub".to_owned(), is_running: true, progress });
    }
    jobs
}

//! Drives never stand still: random mixes of requests, each answered within a number of steps.

use super::*;
use crate::Random;
use proptest::prelude::*;

const KIB: u64 = 1 << 10;
/// Events without an answer and without progress of the time, in a row.
const STEPS_IN_PLACE_MAX: u32 = 4;
/// Events for each request, on average: commands, seeks, and pieces of the write cache.
const STEPS_PER_REQUEST_MAX: u64 = 64;
/// Longest time of a request, in nanoseconds: flushes that empty a full cache are the longest.
const WAIT_NS_MAX: u64 = 400_000_000_000;

/// A persistent cache that is full now and then.
const SMALL_SHINGLES: ShingleParameters = ShingleParameters {
    band_bytes: 2 << 20,
    cache_bytes: 16 << 20,
    map_entries: 64,
    clean_idle_ns: 1_000_000_000,
    hold_ns: 500_000_000,
};

/// A mix of requests.
#[derive(Clone, Copy, Debug)]
struct Mix {
    seed: u64,
    /// Requests under way at once, at most.
    depth: usize,
    /// Weights of reads, writes, flushes and discards.
    weights: [u64; 4],
    /// Range of offsets, in bytes.
    range: u64,
    /// Longest pause before a request, in nanoseconds.
    pause_ns: u64,
    /// Longest request, in blocks.
    blocks: u64,
    write_cache_bytes: u64,
    spin_down_ns: Option<u64>,
    /// Longest time by which the drive is looked at too late, in nanoseconds.
    late_ns: u64,
    /// Time of a command of a hard disk, in nanoseconds.
    command_ns: u64,
}

fn mix() -> impl Strategy<Value = Mix> {
    let range = prop_oneof![Just(256 * KIB), Just(64 << 20), Just(249_000_000_000)];
    let pause = prop_oneof![Just(0), Just(100_000), Just(10_000_000), Just(3_000_000_000)];
    let cache = prop_oneof![Just(64 * KIB), Just(1 << 20), Just(64 << 20)];
    let sleep = prop_oneof![Just(None), Just(Some(1_000_000)), Just(Some(1_000_000_000))];
    let blocks = prop_oneof![Just(1u64), Just(40), Just(256)];
    let late = prop_oneof![Just(0), Just(50_000), Just(20_000_000), Just(5_000_000_000)];
    let weights = [0..4u64, 0..4u64, 0..3u64, 0..2u64]
        .prop_filter("something is asked", |weights| weights.iter().sum::<u64>() > 0);
    let command = prop_oneof![Just(0), Just(43_000)];
    (any::<u64>(), 1..100usize, weights, range, pause, blocks, cache, (sleep, late, command)).prop_map(
        |(
            seed,
            depth,
            weights,
            range,
            pause_ns,
            blocks,
            write_cache_bytes,
            (spin_down_ns, late_ns, command_ns),
        )| Mix {
            seed,
            depth,
            weights,
            range,
            pause_ns,
            blocks,
            write_cache_bytes,
            spin_down_ns,
            late_ns,
            command_ns,
        },
    )
}

/// Chooses requests: anywhere, or the neighbours of the one before, on either side.
struct Chooser {
    mix: Mix,
    random: Random,
    last: (u64, u64),
}

impl Chooser {
    fn choose(&mut self) -> DriveRequestKind {
        let Mix { weights, range, blocks, .. } = self.mix;
        // One in sixteen is empty.
        let length = (1 + self.random.below(blocks)) * 4 * KIB * u64::from(self.random.below(16) > 0);
        let (start, end) = self.last;
        let offset = match self.random.below(4) {
            0 => end,
            1 => start.saturating_sub(length),
            2 => start,
            _ => self.random.below(range / 4096) * 4096,
        };
        let offset = offset.min(range);
        self.last = (offset, offset + length);
        let mut pick = self.random.below(weights.iter().sum());
        let index = weights.iter().position(|weight| {
            let is_picked = pick < *weight;
            pick = pick.saturating_sub(*weight);
            is_picked
        });
        match index {
            Some(0) => DriveRequestKind::Read(offset, length),
            Some(1) => DriveRequestKind::Write(offset, length),
            Some(2) => DriveRequestKind::Flush,
            _ => DriveRequestKind::Discard(offset, length),
        }
    }
}

/// Runs a mix, and returns the reason for which it does not end.
fn run(mut drive: Drive, mix: Mix, count: u64) -> Result<(), String> {
    let mut chooser = Chooser { mix, random: Random::new(mix.seed), last: (0, 0) };
    let mut pauses = Random::new(mix.seed).fork(1);
    let mut lateness = Random::new(mix.seed).fork(2);
    let (mut now, mut asked, mut steps, mut in_place) = (0u64, 0u64, 0u64, 0u32);
    let mut open = std::collections::HashMap::new();
    let mut arrival = 0;
    let mut answered = Vec::new();
    loop {
        while open.len() < mix.depth && asked < count && arrival <= now {
            drive.submit(DriveRequest { id: asked, kind: chooser.choose(), at_ns: now });
            open.insert(asked, now);
            asked += 1;
            arrival = now + pauses.below(mix.pause_ns + 1);
        }
        let asks = (open.len() < mix.depth && asked < count).then_some(arrival);
        if open.is_empty() && asks.is_none() {
            return Ok(());
        }
        let Some(event) = drive.next_event_ns().into_iter().chain(asks).min() else {
            return Err(format!("{} requests wait, and nothing is due", open.len()));
        };
        steps += 1;
        in_place = if event > now { 0 } else { in_place + 1 };
        now = now.max(event) + lateness.below(mix.late_ns + 1);
        drive.advance(now, &mut answered);
        for completion in answered.drain(..) {
            in_place = 0;
            let since = open.remove(&completion.id).ok_or("an answer to nothing")?;
            if completion.at_ns < since || completion.at_ns > now {
                return Err(format!("asked at {since}, answered at {}, now {now}", completion.at_ns));
            }
            if completion.at_ns - since > WAIT_NS_MAX {
                return Err(format!("request {} waited for {} ns", completion.id, completion.at_ns - since));
            }
        }
        if in_place > STEPS_IN_PLACE_MAX || steps > count * STEPS_PER_REQUEST_MAX {
            return Err(format!("{} requests wait after {steps} steps, {in_place} in place", open.len()));
        }
    }
}

/// All presets, the hard disks with the caches and pauses of the mix.
fn drives(mix: Mix) -> [Drive; 5] {
    let hard_disk = |parameters: HardDiskParameters| {
        let write_cache_bytes = mix.write_cache_bytes.min(parameters.write_cache_bytes);
        let Mix { spin_down_ns, command_ns, .. } = mix;
        let parameters = HardDiskParameters { write_cache_bytes, spin_down_ns, command_ns, ..parameters };
        Drive::HardDisk(Box::new(HardDisk::new(parameters)))
    };
    [
        hard_disk(HardDiskParameters::default()),
        hard_disk(HardDiskParameters::old()),
        hard_disk(HardDiskParameters { shingles: Some(SMALL_SHINGLES), ..HardDiskParameters::default() }),
        Drive::sata_ssd(),
        Drive::nvme(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_request_is_answered(mix in mix()) {
        for (number, drive) in drives(mix).into_iter().enumerate() {
            prop_assert_eq!(run(drive, mix, 300), Ok(()), "drive {}", number);
        }
    }
}

/// Answers all that a drive was asked, each with its time.
fn finish(drive: &mut Drive, mut now: u64) -> Vec<Completion> {
    let mut answered = Vec::new();
    for _ in 0..100_000 {
        let Some(event) = drive.next_event_ns() else { return answered };
        now = now.max(event);
        drive.advance(now, &mut answered);
    }
    panic!("{} answers, and no end", answered.len());
}

fn reads_of(offsets: impl Iterator<Item = (u64, u64)>) -> Vec<Completion> {
    let mut drive = Drive::hard_disk();
    for (id, (at_ns, offset)) in offsets.enumerate() {
        drive.submit(DriveRequest { id: id as u64, kind: DriveRequestKind::Read(offset, 4096), at_ns });
    }
    finish(&mut drive, 0)
}

#[test]
fn read_does_not_wait_for_one_before_it_that_is_still_on_its_way() {
    assert_eq!(reads_of([(0, 1 << 30), (50_000, (1 << 30) - 4096)].into_iter()).len(), 2);
}

#[test]
fn reads_in_descending_order_are_more_than_the_queue_holds() {
    assert_eq!(reads_of((0..100).rev().map(|block| (0, (1 << 30) + block * 4096))).len(), 100);
}

#[test]
fn empty_requests_are_answered() {
    let drives = [
        Drive::hard_disk(),
        Drive::old_hard_disk(),
        Drive::shingled_disk(),
        Drive::sata_ssd(),
        Drive::nvme(),
    ];
    for mut drive in drives {
        let kinds =
            [DriveRequestKind::Read(8192, 0), DriveRequestKind::Write(8192, 0), DriveRequestKind::Flush];
        for (id, kind) in kinds.into_iter().enumerate() {
            drive.submit(DriveRequest { id: id as u64, kind, at_ns: 0 });
        }
        assert_eq!(finish(&mut drive, 0).len(), 3);
    }
}

#[test]
fn many_flushes_in_the_queue_are_answered_in_their_order() {
    let mut drive = Drive::hard_disk();
    drive.submit(DriveRequest { id: 0, kind: DriveRequestKind::Write(0, 4096), at_ns: 0 });
    for id in 1..100_000 {
        drive.submit(DriveRequest { id, kind: DriveRequestKind::Flush, at_ns: 0 });
    }
    let ids: Vec<u64> = finish(&mut drive, 0).iter().map(|completion| completion.id).collect();
    assert_eq!(ids, (0..100_000).collect::<Vec<_>>());
}

#[test]
fn write_gets_its_turn_beside_reads_that_never_end() {
    let mut drive = Drive::hard_disk();
    let mut random = Random::new(4);
    let far = |random: &mut Random| 1_000_000_000_000 + random.below(1 << 20) * 4096;
    drive.submit(DriveRequest { id: 1000, kind: DriveRequestKind::Read(1 << 40, 4096), at_ns: 0 });
    // The cache is full, and one write finds no room.
    for id in 0..65 {
        drive.submit(DriveRequest { id, kind: DriveRequestKind::Write(id << 30, 1 << 20), at_ns: 0 });
    }
    let (mut now, mut id, mut open, mut answered) = (0, 1001, 1, Vec::new());
    while !answered.iter().any(|completion: &Completion| completion.id == 64) {
        while open < 4 {
            drive.submit(DriveRequest {
                id,
                kind: DriveRequestKind::Read(far(&mut random), 4096),
                at_ns: now,
            });
            (id, open) = (id + 1, open + 1);
        }
        now = now.max(drive.next_event_ns().expect("it is at work"));
        let before = answered.len();
        drive.advance(now, &mut answered);
        open -= answered[before..].iter().filter(|completion| completion.id >= 1000).count();
        assert!(now < 3_000_000_000, "the write waits for ever");
    }
    assert!(now > 700_000_000, "reads come first: {now}");
}

#[test]
fn platters_stop_when_idle_and_start_when_no_cache_can_answer() {
    let parameters =
        HardDiskParameters { spin_down_ns: Some(10_000_000_000), ..HardDiskParameters::default() };
    let mut drive = Drive::HardDisk(Box::new(HardDisk::new(parameters)));
    let mut id = 0;
    let mut take = |drive: &mut Drive, at_ns: u64, kind: DriveRequestKind| {
        id += 1;
        drive.submit(DriveRequest { id, kind, at_ns });
        let mut answers = finish(drive, at_ns);
        let answer = answers.pop().expect("an answer");
        assert!(answers.is_empty() && answer.id == id);
        answer.at_ns - at_ns
    };
    let second = 1_000_000_000;
    let far = DriveRequestKind::Read(1 << 40, 4096);
    assert!(take(&mut drive, second, far) < second);
    // The cache answers, which keeps the platters turning.
    assert!(take(&mut drive, 9 * second, far) < second / 1000);
    assert!(take(&mut drive, 18 * second, DriveRequestKind::Read(0, 4096)) < second);
    assert_eq!(drive.counts().wake_ups, 0);
    // Asleep: what is cached and what the write cache takes does not wait; what was written is, at last.
    assert!(take(&mut drive, 40 * second, far) < second / 1000);
    assert!(take(&mut drive, 41 * second, DriveRequestKind::Flush) < second / 1000);
    assert_eq!(drive.counts().wake_ups, 0);
    let woken = take(&mut drive, 60 * second, DriveRequestKind::Read(1 << 38, 4096));
    assert!((7 * second..8 * second).contains(&woken), "{woken}");
    assert!(take(&mut drive, 100 * second, DriveRequestKind::Write(0, 4096)) < second / 1000);
    let flushed = take(&mut drive, 108 * second, DriveRequestKind::Flush);
    assert!(flushed < second, "the cache was drained: {flushed}");
    assert_eq!(drive.counts().wake_ups, 2);
}

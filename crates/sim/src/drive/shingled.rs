//! Shingled disks: nothing is lost between log and bands, and times are those of known disks.

use super::shingles::Shingles;
use super::tests::{near, sequential};
use super::*;
use crate::Random;
use brindle_interval::Interval;
use std::collections::HashMap;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
const SECOND: u64 = 1_000_000_000;
const SMALL: ShingleParameters = ShingleParameters {
    band_bytes: MIB,
    cache_bytes: 16 * MIB,
    map_entries: 64,
    clean_idle_ns: SECOND,
    hold_ns: SECOND / 2,
};

fn disk(change: impl FnOnce(&mut HardDiskParameters, &mut ShingleParameters)) -> Drive {
    let mut parameters = HardDiskParameters::shingled();
    let mut shingles = parameters.shingles.expect("it is shingled");
    change(&mut parameters, &mut shingles);
    Drive::HardDisk(Box::new(HardDisk::new(HardDiskParameters { shingles: Some(shingles), ..parameters })))
}

/// Lets a drive do what it does by itself; returns the time of its last event.
fn settle(drive: &mut Drive, mut now: u64) -> u64 {
    for _ in 0..1_000_000 {
        let Some(event) = drive.next_event_ns() else { return now };
        now = event;
        drive.advance(now, &mut Vec::new());
    }
    panic!("it never rests");
}

/// Asks, and returns the time of the answer.
fn ask(drive: &mut Drive, at_ns: u64, kind: DriveRequestKind) -> u64 {
    drive.submit(DriveRequest { id: 7, kind, at_ns });
    let mut answered = Vec::new();
    while answered.is_empty() {
        drive.advance(drive.next_event_ns().expect("it is at work"), &mut answered);
    }
    answered[0].at_ns
}

/// Blocks of the platters, and the blocks that the disk should have.
#[derive(Default)]
struct Contents {
    platters: HashMap<u64, u64>,
    disk: Vec<u64>,
    writes: u64,
}

impl Contents {
    fn write(&mut self, shingles: &Shingles, range: Interval) {
        for block in range.start / BLOCK..range.end / BLOCK {
            self.writes += 1;
            self.disk[usize::try_from(block).expect("few")] = self.writes;
            self.platters.insert(Self::place(shingles, block), self.writes);
        }
    }

    fn place(shingles: &Shingles, block: u64) -> u64 {
        let places = shingles.places(block * BLOCK, (block + 1) * BLOCK);
        assert_eq!((places.len(), places[0].length()), (1, BLOCK));
        places[0].start / BLOCK
    }

    fn verify(&self, shingles: &Shingles) {
        for (block, known) in (0..).zip(&self.disk) {
            let found = self.platters.get(&Self::place(shingles, block)).copied().unwrap_or(0);
            assert_eq!(found, *known, "block {block}");
        }
        let whole = shingles.places(0, self.disk.len() as u64 * BLOCK);
        assert_eq!(whole.iter().map(Interval::length).sum::<u64>(), self.disk.len() as u64 * BLOCK);
    }

    /// A band is rewritten, with what the log had when it began; `between` happens meanwhile.
    fn clean(&mut self, shingles: &mut Shingles, mut between: impl FnMut(&mut Self, &mut Shingles)) {
        let visit = shingles.clean().expect("something lies in the log");
        let band = visit.places[0];
        let start = (band.start - shingles.base()) / BLOCK;
        let merged: Vec<u64> = (start..start + band.length() / BLOCK)
            .map(|block| self.platters.get(&Self::place(shingles, block)).copied().unwrap_or(0))
            .collect();
        while !shingles.finish_clean() {
            between(self, shingles);
            let visit = shingles.clean().expect("it goes on");
            if visit.is_write && visit.places == [band] {
                for (block, value) in (band.start / BLOCK..).zip(&merged) {
                    self.platters.insert(block, *value);
                }
            }
        }
    }
}

#[test]
fn every_block_lies_where_it_was_written_last() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let blocks = 8 * MIB / BLOCK - 100;
        let mut shingles = Shingles::new(SMALL, blocks * BLOCK);
        let mut contents =
            Contents { disk: vec![0; usize::try_from(blocks).expect("few")], ..Contents::default() };
        let mut ranges = Random::new(seed).fork(1);
        let mut append = move |contents: &mut Contents, shingles: &mut Shingles| {
            let mut ranges: Vec<_> = (0..1 + ranges.below(4))
                .map(|_| {
                    let start = ranges.below(blocks);
                    (start, (start + 1 + ranges.below(100)).min(blocks))
                })
                .collect();
            ranges.sort_unstable();
            ranges.dedup_by(|next, last| next.0 < last.1);
            let ranges: Vec<_> = ranges
                .iter()
                .map(|(start, end)| Interval { start: start * BLOCK, end: end * BLOCK })
                .collect();
            shingles.append(&ranges);
            ranges.iter().for_each(|range| contents.write(shingles, *range));
        };
        for _ in 0..400 {
            if shingles.is_full() {
                contents.clean(&mut shingles, |_, _| ());
            }
            match random.below(4) {
                0 if !shingles.is_empty() && !shingles.is_full() => {
                    contents.clean(&mut shingles, |contents, shingles| {
                        if !shingles.is_full() {
                            append(contents, shingles);
                        }
                    });
                }
                1 => {
                    let band = random.below(7) * MIB;
                    let range = Interval { start: band + random.below(256) * BLOCK, end: band + MIB };
                    shingles.write_in_place(range);
                    contents.write(&shingles, range);
                }
                _ if !shingles.is_full() => append(&mut contents, &mut shingles),
                _ => (),
            }
            contents.verify(&shingles);
        }
        while !shingles.is_empty() {
            contents.clean(&mut shingles, |_, _| ());
            contents.verify(&shingles);
        }
    }
}

#[test]
fn stream_goes_to_its_bands() {
    let mut drive = Drive::shingled_disk();
    near(sequential(&mut drive, 0, true), 190.0, 8.0);
    settle(&mut drive, 0);
    assert!(drive.counts().bands <= 2, "only its end: {:?}", drive.counts());
}

#[test]
fn band_is_rewritten_while_idle_in_the_time_of_known_disks() {
    let mut drive = Drive::shingled_disk();
    let written = ask(&mut drive, 0, DriveRequestKind::Write(4_000_000_000_000, BLOCK));
    let flushed = ask(&mut drive, written, DriveRequestKind::Flush);
    assert!(flushed - written < SECOND / 20, "a seek and a revolution: {flushed}");
    let seconds = (settle(&mut drive, flushed) - written - SECOND) as f64 / 1e9;
    assert!((0.6..1.6).contains(&seconds), "{seconds}");
    assert_eq!(drive.counts().bands, 1);
}

#[test]
fn random_writes_are_fast_until_the_persistent_cache_is_full() {
    let mut drive = disk(|disk, shingles| {
        disk.write_cache_bytes = MIB;
        shingles.map_entries = 4000;
    });
    let mut random = Random::new(1);
    let mut now = 0;
    let mut rate = |count: u32| {
        let begin = now;
        for _ in 0..count {
            now = ask(&mut drive, now, DriveRequestKind::Write(random.below(1 << 30) * BLOCK, BLOCK));
        }
        f64::from(count) * 1e9 / (now - begin) as f64
    };
    let (fast, _, slow) = (rate(3800), rate(600), rate(200));
    assert!(fast > 1000.0, "{fast}");
    assert!(slow < 4.0, "{slow}");
}

#[test]
fn read_of_scattered_writes_seeks_until_their_band_is_rewritten() {
    let mut drive = Drive::shingled_disk();
    let mut now = 0;
    for block in (0..64).rev() {
        now = ask(&mut drive, now, DriveRequestKind::Write(block * 2 * BLOCK, BLOCK));
        now = ask(&mut drive, now, DriveRequestKind::Flush);
    }
    // What is asked for is read without a look at the write cache, which is empty.
    let read = |drive: &mut Drive, now: u64, block: u64| {
        let now = ask(drive, now, DriveRequestKind::Read(1 << 40, BLOCK));
        let before = drive.counts().seeks;
        let end = ask(drive, now, DriveRequestKind::Read(block * BLOCK, 64 * BLOCK));
        (end, end - now, drive.counts().seeks - before)
    };
    let (now, scattered, seeks) = read(&mut drive, now, 0);
    assert!(seeks >= 64 && scattered > SECOND / 4, "{seeks}, {scattered}");
    let now = settle(&mut drive, now);
    assert_eq!(drive.counts().bands, 1);
    let (_, whole, seeks) = read(&mut drive, now, 64);
    assert!(seeks == 1 && whole < SECOND / 20, "{seeks}, {whole}");
}

#[test]
fn reads_come_between_the_steps_of_cleaning() {
    let mut drive = Drive::shingled_disk();
    let mut now = 0;
    for band in 0..4 {
        now = ask(&mut drive, now, DriveRequestKind::Write(band << 35, BLOCK));
    }
    now = ask(&mut drive, now, DriveRequestKind::Flush) + SECOND + SECOND / 100;
    drive.advance(now, &mut Vec::new());
    let read = ask(&mut drive, now, DriveRequestKind::Read(1 << 40, BLOCK));
    assert!(read - now < SECOND / 3, "one step at most: {}", read - now);
    settle(&mut drive, read);
    assert_eq!(drive.counts().bands, 4);
}

#[test]
fn platters_stop_after_the_last_band_is_rewritten() {
    let mut drive = disk(|disk, _| disk.spin_down_ns = Some(SECOND / 2));
    let now = ask(&mut drive, 0, DriveRequestKind::Write(1 << 40, BLOCK));
    let now = ask(&mut drive, now, DriveRequestKind::Flush);
    assert!(!drive.is_asleep(now + SECOND - 1), "it has work");
    let rested = settle(&mut drive, now);
    assert!(!drive.is_asleep(rested) && drive.is_asleep(rested + SECOND));
    assert_eq!(drive.counts().wake_ups, 0);
}

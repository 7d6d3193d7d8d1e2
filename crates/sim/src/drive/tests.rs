//! The drives against what is known of such: the table of published and measured figures, within what the model was seen
//! to reach when it was made.

use super::*;
use crate::Random;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GB: u64 = 1_000_000_000;
const DISK_BYTES: u64 = 2_000_398_934_016;

/// Runs requests at a queue depth of `depth`, each as soon as one before it is answered; returns the time in seconds.
pub(super) fn run(
    drive: &mut Drive,
    depth: usize,
    count: u64,
    mut next: impl FnMut(u64) -> DriveRequestKind,
) -> (f64, u64) {
    let (mut now, mut asked, mut open, mut answered) = (0, 0, 0, Vec::new());
    let mut sum = 0u64;
    loop {
        while open < depth && asked < count {
            drive.submit(DriveRequest { id: asked, kind: next(asked), at_ns: now });
            (asked, open) = (asked + 1, open + 1);
        }
        let Some(event) = drive.next_event_ns().filter(|_| open > 0) else { break };
        now = event;
        drive.advance(now, &mut answered);
        for completion in answered.drain(..) {
            open -= 1;
            sum = sum.wrapping_mul(31).wrapping_add(completion.at_ns ^ completion.id);
        }
    }
    assert_eq!((asked, open), (count, 0), "every request is answered");
    (now as f64 / 1e9, sum)
}

fn random_reads(drive: &mut Drive, depth: usize, count: u64, bytes: u64) -> f64 {
    let mut random = Random::new(1);
    let read = |_| DriveRequestKind::Read(random.below(bytes / 4096) * 4096, 4096);
    count as f64 / run(drive, depth, count, read).0
}

/// Random writes per second. Those that a cache of `cache` bytes has swallowed at once do not count.
fn random_writes(drive: &mut Drive, depth: usize, count: u64, bytes: u64, cache: u64) -> f64 {
    let mut random = Random::new(1);
    let write = |_| DriveRequestKind::Write(random.below(bytes / 4096) * 4096, 4096);
    (count - cache / 4096) as f64 / run(drive, depth, count, write).0
}

/// Sequential throughput in MB/s.
pub(super) fn sequential(drive: &mut Drive, start: u64, is_write: bool) -> f64 {
    let count = 2000;
    let kind = |index| match is_write {
        true => DriveRequestKind::Write(start + index * MIB, MIB),
        false => DriveRequestKind::Read(start + index * MIB, MIB),
    };
    count as f64 * MIB as f64 / 1e6 / run(drive, 4, count, kind).0
}

/// One write, one flush, in turn; flushes a second.
fn flushed_writes(drive: &mut Drive, count: u64, mut offset: impl FnMut(u64) -> u64) -> f64 {
    let kind = |index: u64| match index % 2 {
        0 => DriveRequestKind::Write(offset(index / 2), 4096),
        _ => DriveRequestKind::Flush,
    };
    count as f64 / run(drive, 1, 2 * count, kind).0
}

#[track_caller]
pub(super) fn near(found: f64, known: f64, percent: f64) {
    let off = (found / known - 1.0) * 100.0;
    println!("{found:.1} against {known}: {off:+.1} %");
    assert!(off.abs() <= percent, "{found:.1} is {off:+.1} % off {known}");
}

#[test]
fn a_hard_disk_seeks_as_it_should() {
    near(random_reads(&mut Drive::hard_disk(), 1, 4000, DISK_BYTES), 78.0, 2.0);
    near(random_reads(&mut Drive::hard_disk(), 4, 4000, DISK_BYTES), 105.0, 8.0);
    near(random_reads(&mut Drive::hard_disk(), 32, 8000, DISK_BYTES), 185.6, 3.0);
    near(random_reads(&mut Drive::hard_disk(), 1, 4000, 230 * GB), 127.0, 6.0);
    near(random_reads(&mut Drive::hard_disk(), 32, 8000, 230 * GB), 322.6, 3.0);
    near(random_reads(&mut Drive::hard_disk(), 32, 8000, 4 * GB), 522.8, 5.0);
}

#[test]
fn a_hard_disk_streams_as_it_should() {
    near(sequential(&mut Drive::hard_disk(), 0, false), 219.8, 1.0);
    near(sequential(&mut Drive::hard_disk(), DISK_BYTES - 3 * GB, false), 106.3, 2.0);
    near(sequential(&mut Drive::hard_disk(), 0, true), 219.8, 4.0);
    near(sequential(&mut Drive::old_hard_disk(), 0, false), 115.3, 2.0);
}

#[test]
fn a_hard_disk_writes_and_flushes_as_it_should() {
    near(random_writes(&mut Drive::hard_disk(), 1, 40_000, DISK_BYTES, 64 * MIB), 221.0, 3.0);
    near(random_writes(&mut Drive::hard_disk(), 32, 40_000, DISK_BYTES, 64 * MIB), 221.0, 3.0);
    near(flushed_writes(&mut Drive::hard_disk(), 1000, |index| index * 4 * KIB), 119.7, 0.5);
    let mut random = Random::new(1);
    let anywhere = |_| random.below(DISK_BYTES / 4096) * 4096;
    near(flushed_writes(&mut Drive::hard_disk(), 2000, anywhere), 75.3, 3.0);
}

#[test]
fn streams_take_a_hard_disk_from_each_other() {
    let mut at = [0u64; 4];
    let kind = |index: u64| {
        let stream = usize::try_from(index % 4).expect("few");
        at[stream] += 128 * KIB;
        DriveRequestKind::Read(stream as u64 * 400 * GB + at[stream], 128 * KIB)
    };
    let (seconds, _) = run(&mut Drive::hard_disk(), 4, 4000, kind);
    near(4000.0 * 128.0 * 1024.0 / 1e6 / seconds, 15.0, 25.0);
}

#[test]
fn a_hard_disk_knows_what_it_has_read_and_what_it_was_given() {
    let mut drive = Drive::hard_disk();
    let far = DISK_BYTES / 2;
    let plan = [
        DriveRequestKind::Read(far, 4096),
        DriveRequestKind::Read(far, 4096),
        DriveRequestKind::Write(0, 4096),
        DriveRequestKind::Read(0, 4096),
    ];
    let mut times = Vec::new();
    let mut now = 0;
    for (id, kind) in plan.into_iter().enumerate() {
        drive.submit(DriveRequest { id: id as u64, kind, at_ns: now });
        let mut answered = Vec::new();
        while answered.is_empty() {
            now = drive.next_event_ns().expect("it is at work");
            drive.advance(now, &mut answered);
        }
        times.push(now);
    }
    let took: Vec<u64> =
        std::iter::once(times[0]).chain(times.windows(2).map(|pair| pair[1] - pair[0])).collect();
    assert!(took[0] > 8_000_000, "{took:?}");
    assert!(took[1..].iter().all(|took| *took < 200_000), "{took:?}");
}

#[test]
fn no_read_waits_for_ever() {
    let mut drive = Drive::hard_disk();
    let mut random = Random::new(3);
    // One read at the far end among many that lie near each other.
    let kind = |index| match index {
        40 => DriveRequestKind::Read(DISK_BYTES - MIB, 4096),
        _ => DriveRequestKind::Read(random.below(GB / 4096) * 4096, 4096),
    };
    let mut kind = kind;
    let (mut now, mut open, mut asked) = (0, 0, 0);
    let mut asked_at = 0;
    loop {
        while open < 32 {
            if asked == 40 {
                asked_at = now;
            }
            drive.submit(DriveRequest { id: asked, kind: kind(asked), at_ns: now });
            (asked, open) = (asked + 1, open + 1);
        }
        now = drive.next_event_ns().expect("it is at work");
        let mut answered = Vec::new();
        drive.advance(now, &mut answered);
        open -= answered.len();
        if answered.iter().any(|completion| completion.id == 40) {
            break;
        }
    }
    let waited = now - asked_at;
    assert!((700_000_000..1_000_000_000).contains(&waited), "{waited} ns");
}

#[test]
fn a_sata_ssd_is_as_fast_as_it_should_be() {
    const BYTES: u64 = 256 * GB;
    near(random_reads(&mut Drive::sata_ssd(), 1, 4000, BYTES), 11_400.0, 3.0);
    near(random_reads(&mut Drive::sata_ssd(), 4, 20_000, BYTES), 34_600.0, 10.0);
    near(random_reads(&mut Drive::sata_ssd(), 32, 40_000, BYTES), 88_000.0, 5.0);
    near(random_writes(&mut Drive::sata_ssd(), 1, 4000, BYTES, 0), 14_700.0, 3.0);
    near(sequential(&mut Drive::sata_ssd(), 0, false), 530.0, 1.0);
    near(sequential(&mut Drive::sata_ssd(), 0, true), 500.0, 1.0);
    near(flushed_writes(&mut Drive::sata_ssd(), 1000, |index| index * 4096), 930.0, 3.0);
}

#[test]
fn an_nvme_drive_is_as_fast_as_it_should_be() {
    const BYTES: u64 = 512 * GB;
    near(random_reads(&mut Drive::nvme(), 1, 4000, BYTES), 14_000.0, 3.0);
    near(random_reads(&mut Drive::nvme(), 32, 80_000, BYTES), 283_000.0, 6.0);
    near(random_writes(&mut Drive::nvme(), 32, 80_000, BYTES, 0), 488_000.0, 5.0);
    near(sequential(&mut Drive::nvme(), 0, false), 3000.0, 1.0);
    near(sequential(&mut Drive::nvme(), 0, true), 2000.0, 1.0);
}

#[test]
fn the_same_requests_have_the_same_answers() {
    let drives = [Drive::hard_disk, Drive::shingled_disk, Drive::sata_ssd, Drive::nvme];
    let once = |make: fn() -> Drive| {
        let mut random = Random::new(9);
        let kind = move |_| {
            let offset = random.below(200 * GB / 4096) * 4096;
            match random.below(10) {
                0 => DriveRequestKind::Flush,
                1..4 => DriveRequestKind::Write(offset, 64 * KIB),
                _ => DriveRequestKind::Read(offset, 16 * KIB),
            }
        };
        run(&mut make(), 16, 5000, kind)
    };
    for make in drives {
        assert_eq!(once(make), once(make));
    }
}

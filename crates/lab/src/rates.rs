//! Rates of the presets in virtual time, beside the published ones: the drive itself, without FUSE and a loop device.

use crate::model::Model;
use brindle_sim::{DriveRequest, DriveRequestKind, Random};
use std::time::Duration;

const BLOCK: u64 = 4096;
const PIECE: u64 = 1 << 20;

/// A job of fio: requests a second, or of sequential ones bytes a second.
#[derive(Clone, Copy, Debug)]
enum Job {
    /// Reads of 4 KiB anywhere, this many at once.
    RandomReads(usize),
    /// Writes of 4 KiB anywhere, this many at once.
    RandomWrites(usize),
    /// Reads of 1 MiB from the outer edge on, four at once.
    Reads,
    /// Writes of 1 MiB from the outer edge on, four at once.
    Writes,
    /// Writes of 4 KiB in order, each with a flush.
    SyncedWrites,
}

impl Job {
    fn depth(self) -> usize {
        match self {
            Self::RandomReads(depth) | Self::RandomWrites(depth) => depth,
            Self::Reads | Self::Writes => 4,
            Self::SyncedWrites => 1,
        }
    }

    /// The request of a number, on a disk of a size.
    fn request(self, number: u64, size_bytes: u64, random: &mut Random) -> DriveRequestKind {
        let anywhere = random.below(size_bytes / BLOCK) * BLOCK;
        match self {
            Self::RandomReads(_) => DriveRequestKind::Read(anywhere, BLOCK),
            Self::RandomWrites(_) => DriveRequestKind::Write(anywhere, BLOCK),
            Self::Reads => DriveRequestKind::Read(number * PIECE, PIECE),
            Self::Writes => DriveRequestKind::Write(number * PIECE, PIECE),
            Self::SyncedWrites if number % 2 == 0 => DriveRequestKind::Write(number / 2 * BLOCK, BLOCK),
            Self::SyncedWrites => DriveRequestKind::Flush,
        }
    }

    /// Requests that are made.
    fn count(self) -> u64 {
        if matches!(self, Self::RandomReads(_) | Self::RandomWrites(_)) { 20_000 } else { 4_000 }
    }

    /// The rate that it reaches.
    fn rate(self, line: &str) -> f64 {
        let model = Model::parse(&format!("{line},transport=0")).expect("a model");
        let (size_bytes, mut drive) = (model.size_bytes(), model.drive(model.size_bytes()));
        let (mut random, mut answered) = (Random::new(1), Vec::new());
        let (mut now, mut asked, mut open) = (0, 0, 0);
        loop {
            while open < self.depth() && asked < self.count() {
                let kind = self.request(asked, size_bytes, &mut random);
                drive.submit(DriveRequest { id: asked, kind, at_ns: now });
                (asked, open) = (asked + 1, open + 1);
            }
            let Some(event) = drive.next_event_ns().filter(|_| open > 0) else { break };
            now = event;
            drive.advance(now, &mut answered);
            open -= answered.drain(..).count();
        }
        let units = match self {
            Self::Reads | Self::Writes => self.count() * PIECE,
            Self::SyncedWrites => self.count() / 2,
            Self::RandomReads(_) | Self::RandomWrites(_) => self.count(),
        };
        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
        let rate = units as f64 / Duration::from_nanos(now).as_secs_f64();
        rate
    }
}

/// Published rates of each preset: least and greatest.
const PUBLISHED: [(&str, Job, f64, f64); 25] = [
    // 7200 rpm desktop disks: 14 ms for a random read in a review of the Barracuda XT; ST2000DM008: 220 MB/s.
    ("hdd", Job::RandomReads(1), 70.0, 85.0),
    ("hdd", Job::RandomReads(32), 150.0, 190.0),
    ("hdd", Job::Reads, 217e6, 230e6),
    ("hdd", Job::Writes, 217e6, 230e6),
    // One revolution each.
    ("hdd", Job::SyncedWrites, 115.0, 120.1),
    ("old-hdd", Job::RandomReads(1), 60.0, 85.0),
    ("old-hdd", Job::Reads, 105e6, 120e6),
    ("old-hdd", Job::SyncedWrites, 115.0, 120.1),
    // Seagate ST8000AS0002: 190 MB/s at most; 12 ms average seek and 5.1 ms average latency; 5900 rpm, a revolution each.
    ("smr", Job::RandomReads(1), 52.0, 62.0),
    ("smr", Job::Reads, 180e6, 195e6),
    ("smr", Job::Writes, 180e6, 205e6),
    ("smr", Job::SyncedWrites, 95.0, 98.4),
    // Crucial M550: 90 k IOPS, 550 and 500 MB/s.
    ("ssd", Job::RandomReads(32), 80e3, 95e3),
    ("ssd", Job::Reads, 520e6, 560e6),
    ("ssd", Job::Writes, 490e6, 510e6),
    // A flush of 0.5 to 2 ms.
    ("ssd", Job::SyncedWrites, 500.0, 2000.0),
    // Intel DC S3700 400 GB: 75 k IOPS, 500 and 460 MB/s.
    ("ssd-plp", Job::RandomReads(32), 70e3, 76e3),
    ("ssd-plp", Job::Reads, 490e6, 505e6),
    ("ssd-plp", Job::Writes, 450e6, 465e6),
    // PCIe 3 drives with power-loss protection: 2.8 to 3.2 GB/s, 2.0 GB/s.
    ("nvme", Job::Reads, 2.8e9, 3.2e9),
    ("nvme", Job::Writes, 1.9e9, 2.1e9),
    // Samsung 980 500 GB: 17 k and 54 k IOPS one at a time; 511 to 574 synced writes of 4 KiB a second.
    ("nvme-consumer", Job::RandomReads(1), 16e3, 17.5e3),
    ("nvme-consumer", Job::RandomWrites(1), 50e3, 55e3),
    ("nvme-consumer", Job::Reads, 3.0e9, 3.2e9),
    ("nvme-consumer", Job::SyncedWrites, 510.0, 580.0),
];

#[test]
fn presets_are_as_fast_as_published() {
    for (preset, job, least, greatest) in PUBLISHED {
        let rate = job.rate(preset);
        println!("{preset:14} {job:16?} {rate:12.0}   {least} to {greatest}");
        assert!((least..=greatest).contains(&rate), "{preset}: {job:?}: {rate}, not {least} to {greatest}");
    }
}

//! Large files that are written anywhere: overwritten and read in order, as the image of a virtual disk is; and by threads that
//! sync each write.

use super::phase::{Allowance, Done, Phase, measure, nothing};
use super::{RunOptions, program};
use brindle_sim::Random;
use rustix::fs::{Advice, fadvise};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Bytes of a sequential read or write.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes of an overwrite.
const BLOCK_BYTES: u64 = 4096;
/// Overwrites between two syncs.
const SYNC_EACH: u64 = 64;
/// Sizes of the published job's writes, in units of 4 KiB, with their shares in percent.
const SIZES: [(u64, u64); 9] =
    [(1, 20), (2, 20), (4, 20), (8, 10), (16, 10), (32, 5), (64, 5), (128, 5), (256, 5)];

pub(super) fn overwrites(place: &Path, options: &RunOptions) -> io::Result<Vec<Phase>> {
    let path = place.join("image");
    let length = options.file_bytes - options.file_bytes % PIECE_BYTES as u64;
    let write = |_: u64| {
        let (mut file, mut random) = (File::create(&path)?, Random::new(options.seed));
        let (mut done, mut bytes) = (Done::default(), vec![0; PIECE_BYTES]);
        for _ in (0..length).step_by(PIECE_BYTES) {
            random.fill(&mut bytes);
            let begin = Instant::now();
            file.write_all(&bytes)?;
            done.add(PIECE_BYTES as u64, begin);
        }
        file.sync_all()?;
        Ok(done)
    };
    let overwrite = |_: u64| {
        let file = OpenOptions::new().write(true).open(&path)?;
        let mut random = Random::new(options.seed).fork(1);
        let mut bytes = vec![0; 4096];
        random.fill(&mut bytes);
        let mut done = Done::default();
        for number in 0..options.count {
            let begin = Instant::now();
            file.write_all_at(&bytes, random.below(length / BLOCK_BYTES) * BLOCK_BYTES)?;
            if (number + 1) % SYNC_EACH == 0 {
                file.sync_data()?;
            }
            done.add(BLOCK_BYTES, begin);
        }
        file.sync_all()?;
        Ok(done)
    };
    let read = |_: u64| {
        let (file, mut bytes, mut done) = (File::open(&path)?, vec![0; PIECE_BYTES], Done::default());
        for at in (0..length).step_by(PIECE_BYTES) {
            let begin = Instant::now();
            file.read_exact_at(&mut bytes, at)?;
            done.add(PIECE_BYTES as u64, begin);
        }
        Ok(done)
    };
    let forget = || {
        options.make_cold()?;
        Ok::<_, io::Error>(fadvise(File::open(&path)?, 0, None, Advice::DontNeed)?)
    };
    let mut phases = vec![measure("write", options, write, nothing)?];
    forget()?;
    phases.push(measure("read new", options, read, nothing)?);
    phases.push(measure("overwrite", options, overwrite, nothing)?);
    forget()?;
    phases.push(measure("read overwritten", options, read, nothing)?);
    if let Some(brindle) = &options.defragmenter {
        let defragment = |_: u64| {
            let mut command = Command::new(brindle);
            // Nothing shares the file; the kernel asks for leave to end all sharing.
            program::output(command.args(["filesystem", "defragment", "--flush", "--unshare"]).arg(&path))?;
            Ok(Done { operations: 1, bytes: length, ..Done::default() })
        };
        phases.push(measure("defragment", options, defragment, nothing)?);
        forget()?;
        phases.push(measure("read defragmented", options, read, nothing)?);
    }
    Ok(phases)
}

/// Length of a write of the published job.
fn draw_length(random: &mut Random) -> u64 {
    let mut share = random.below(100);
    for (units, percent) in SIZES {
        if share < percent {
            return units * BLOCK_BYTES;
        }
        share -= percent;
    }
    BLOCK_BYTES
}

pub(super) fn threads(place: &Path, options: &RunOptions) -> io::Result<Vec<Phase>> {
    let write = |job: u64| {
        let file = File::create(place.join(format!("file{job}")))?;
        file.set_len(options.file_bytes)?;
        let mut random = Random::new(options.seed).fork(job);
        let mut bytes = vec![0; 1 << 20];
        random.fill(&mut bytes);
        let (mut done, allowance) = (Done::default(), Allowance::of(options));
        while done.operations < options.count && allowance.lasts() {
            let length = draw_length(&mut random).min(options.file_bytes);
            let blocks = (options.file_bytes - length) / BLOCK_BYTES + 1;
            let part = &bytes[..usize::try_from(length).unwrap_or(0)];
            let begin = Instant::now();
            file.write_all_at(part, random.below(blocks) * BLOCK_BYTES)?;
            file.sync_all()?;
            done.add(length, begin);
        }
        Ok(done)
    };
    Ok(vec![measure("write+fsync", options, write, nothing)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_of_the_published_job_have_their_shares() {
        assert_eq!(SIZES.iter().map(|(_, percent)| percent).sum::<u64>(), 100);
        let mut random = Random::new(1);
        let lengths: Vec<_> = (0..100_000).map(|_| draw_length(&mut random)).collect();
        for (units, percent) in SIZES {
            let found = lengths.iter().filter(|length| **length == units * BLOCK_BYTES).count();
            let expected = usize::try_from(percent).expect("small") * 1000;
            assert!(found.abs_diff(expected) < expected / 10, "{units} units: {found}");
        }
    }
}

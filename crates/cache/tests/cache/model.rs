//! A cache against a plain disk: the same after each step, also when it is closed and loaded, and its disk when it was cleaned.

use crate::world::{BLOCK, SMALL, Shape, TINY, contents, open};
use brindle_cache::{Cache, Mode};
use brindle_device::{Device, WritableDevice};
use brindle_sim::{ImageDevice, Random};
use std::ops::Range;
use std::sync::Arc;

/// Bytes between two samples of the disks here.
const HIDDEN: Range<u64> = 144 * BLOCK..168 * BLOCK;

/// A cache, its devices, and the contents that it should have.
struct Pair {
    devices: [Arc<ImageDevice>; 2],
    cache: Cache,
    model: Vec<u8>,
}

impl Pair {
    fn new(shape: Shape) -> Self {
        let devices = shape.devices();
        let cache = shape.create(&devices);
        let model = vec![0; usize::try_from(shape.disk_bytes).expect("small")];
        Self { devices, cache, model }
    }

    /// A range, often one of a few blocks, often aligned.
    fn range(&self, random: &mut Random) -> (u64, usize) {
        let size = self.model.len() as u64;
        let unit = *random.pick(&[1, 512, BLOCK, BLOCK]);
        let offset = match random.below(6) {
            0..3 => random.below(40 * BLOCK),
            3 => HIDDEN.start + random.below(HIDDEN.end - HIDDEN.start),
            _ => random.below(size),
        };
        let offset = offset / unit * unit;
        let length = (1 + random.below(*random.clone().pick(&[2, 6, 40]))) * unit;
        (offset, usize::try_from(length.min(size - offset)).expect("small"))
    }

    fn step(&mut self, random: &mut Random) {
        let (offset, length) = self.range(random);
        let at = usize::try_from(offset).expect("small");
        match random.below(20) {
            0..10 => {
                let mut bytes = vec![0; length];
                random.fill(&mut bytes);
                self.cache.write_at(offset, &bytes).expect("it works");
                self.model[at..at + length].copy_from_slice(&bytes);
            }
            10..15 => {
                let mut bytes = vec![0; length];
                self.cache.read_at(offset, &mut bytes).expect("it works");
                assert!(bytes == self.model[at..at + length], "{length} bytes at {offset}");
            }
            15 => self.cache.flush().expect("it works"),
            16 => {
                assert!(self.cache.discard(offset, length as u64).expect("it works"));
                self.model[at..at + length].fill(0);
            }
            17 => _ = self.cache.upkeep().expect("it works"),
            18 if random.chance(1, 4) => self.close_and_load(random),
            _ => {
                let settings = [
                    ("skip_seq_thresh_kb", ["0", "4"]),
                    ("cache_all", ["1", "1"]),
                    ("reclaim_policy", ["1", "2"]),
                ];
                let (name, values) = *random.pick(&settings);
                self.cache.set(name, values[random.index(2)]).expect("a setting");
            }
        }
        self.cache.verify().expect("sums agree");
    }

    /// Writes the disk without the cache, or only where no sample tells of it.
    fn use_disk_alone(&mut self, random: &mut Random) {
        let is_hidden = random.chance(2, 3);
        for _ in 0..4 {
            let (offset, length) = if is_hidden {
                let offset = HIDDEN.start + random.below(HIDDEN.end - HIDDEN.start);
                (
                    offset,
                    usize::try_from((1 + random.below(4 * BLOCK)).min(HIDDEN.end - offset)).expect("small"),
                )
            } else {
                self.range(random)
            };
            let at = usize::try_from(offset).expect("small");
            random.fill(&mut self.model[at..at + length]);
            self.devices[1].write_at(offset, &self.model[at..at + length]).expect("it works");
        }
    }

    fn close_and_load(&mut self, random: &mut Random) {
        let is_fast = random.chance(1, 2);
        self.cache.set("fast_remove", if is_fast { "1" } else { "0" }).expect("a setting");
        self.cache.close().expect("it works");
        self.cache.write_at(0, &[0]).expect_err("it is closed");
        if !is_fast {
            assert!(contents(&*self.devices[1]) == self.model, "the disk has all");
            if random.chance(1, 2) {
                self.use_disk_alone(random);
            }
        }
        self.cache = open(&self.devices, false).expect("it was closed");
    }
}

#[test]
fn a_cache_is_a_disk() {
    for mode in Mode::ALL {
        for (shape, steps) in [(TINY, 1500), (SMALL, 1500)] {
            for seed in 0..6 {
                let mut pair = Pair::new(Shape { mode, ..shape });
                let mut random = Random::new(seed);
                (0..steps).for_each(|_| pair.step(&mut random));
                assert!(contents(&pair.cache) == pair.model, "{mode}, seed {seed}");
                assert_eq!(pair.cache.clean_all().expect("it works"), 0);
                assert!(contents(&*pair.devices[1]) == pair.model, "{mode}, seed {seed}: the disk");
                pair.cache.verify().expect("sums agree");
            }
        }
    }
}

#[test]
fn blocks_that_are_read_again_come_from_the_flash() {
    for mode in Mode::ALL {
        let pair = Pair::new(Shape { mode, ..SMALL });
        pair.cache.write_at(0, &[7; 8 * 1024]).expect("it works");
        let mut bytes = vec![0; 8 * usize::try_from(BLOCK).expect("small")];
        for _ in 0..2 {
            pair.cache.read_at(0, &mut bytes).expect("it works");
        }
        let counters = pair.cache.status().counters;
        let hits = if mode == Mode::Around { 8 } else { 16 };
        assert_eq!((counters.reads, counters.read_hits, counters.writes), (16, hits, 8), "{mode}");
        let dirty = if mode == Mode::Back { 8 } else { 0 };
        assert_eq!(pair.cache.status().dirty_blocks, dirty, "{mode}");
    }
}

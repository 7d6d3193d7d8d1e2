//! Several threads on one cache.

use crate::world::{BLOCK, SMALL, contents};
use brindle_device::{Device, WritableDevice};
use brindle_sim::Random;
use std::sync::atomic::{AtomicBool, Ordering};

const WRITERS: usize = 4;
/// A quarter of a block: all writers write each block.
const PART: usize = 1024 / WRITERS;

#[test]
fn writers_of_parts_of_one_block_do_not_undo_each_other() {
    let devices = SMALL.devices();
    let cache = SMALL.create(&devices);
    let blocks = 300;
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let cache = &cache;
                scope.spawn(move || {
                    let mut random = Random::new(writer as u64);
                    let mut written = vec![0; blocks];
                    for round in 1..=3000_u32 {
                        let block = random.index(blocks);
                        let at = block as u64 * BLOCK + (writer * PART) as u64;
                        let mut found = vec![9; PART];
                        cache.read_at(at, &mut found).expect("it works");
                        let last = u32::to_le_bytes(written[block]).repeat(PART / 4);
                        assert!(found == last, "writer {writer}, block {block}, round {round}");
                        cache.write_at(at, &round.to_le_bytes().repeat(PART / 4)).expect("it works");
                        written[block] = round;
                        if random.chance(1, 50) {
                            cache.flush().expect("it works");
                        }
                    }
                    written
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                cache.upkeep().expect("it works");
                cache.clean_all().expect("it works");
            }
        });
        let mut expected = vec![0; blocks * usize::try_from(BLOCK).expect("small")];
        let ended: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_done.store(true, Ordering::Relaxed);
        for (writer, written) in ended.into_iter().enumerate() {
            let written = written.expect("no panic");
            for (block, round) in written.into_iter().enumerate() {
                let at = block * usize::try_from(BLOCK).expect("small") + writer * PART;
                expected[at..at + PART].copy_from_slice(&round.to_le_bytes().repeat(PART / 4));
            }
        }
        assert!(contents(&cache)[..expected.len()] == expected);
    });
    cache.verify().expect("sums agree");
    cache.close().expect("it works");
}

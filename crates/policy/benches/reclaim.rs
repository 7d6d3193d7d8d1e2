//! Hit rates of the rules of the flash cache over recorded traces: `cargo bench -p brindle-policy --bench reclaim -- FILE...`, each file with a
//! block number a line, in the order of the requests.
//!
//! The cache has sets of 512 slots, to which regions of 64 adjacent blocks are scattered, as on flash; each block that is missed is taken in. The
//! last column is the best that a cache of that size can have, which knows the future and has no sets.

use brindle_policy::cache::replacement::{ReclaimPolicy, SetOrder};
use std::collections::{BTreeSet, HashMap, HashSet};

const SET_SLOTS: usize = 512;
const REGION_BLOCKS: u64 = 64;
/// Sizes of the cache, in percent of the blocks of a trace.
const SIZES: [usize; 3] = [5, 10, 25];

/// A set of the cache.
struct Set {
    order: SetOrder,
    blocks: Vec<u64>,
    slots: HashMap<u64, u16>,
}

fn mixed(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn fingerprint(block: u64) -> u32 {
    u32::try_from(mixed(block) >> 32).expect("32 bits").max(1)
}

impl Set {
    fn new(slots: usize) -> Self {
        let order = SetOrder::new(u16::try_from(slots).expect("a set"));
        Self { order, blocks: Vec::with_capacity(slots), slots: HashMap::new() }
    }

    /// Returns true for a hit.
    fn ask(&mut self, rule: ReclaimPolicy, slots: usize, block: u64) -> bool {
        if let Some(slot) = self.slots.get(&block) {
            self.order.hit(rule, *slot);
            return true;
        }
        let slot = if self.blocks.len() < slots {
            self.blocks.push(block);
            u16::try_from(self.blocks.len() - 1).expect("a set")
        } else {
            let blocks = &self.blocks;
            let of_slot = |slot: u16| fingerprint(blocks[usize::from(slot)]);
            let slot = self.order.victim(rule, |_| true, of_slot).expect("all can go");
            let before = std::mem::replace(&mut self.blocks[usize::from(slot)], block);
            self.slots.remove(&before);
            slot
        };
        self.slots.insert(block, slot);
        self.order.insert(rule, slot, fingerprint(block));
        false
    }
}

fn hits(rule: ReclaimPolicy, slots: usize, trace: &[u64]) -> usize {
    let set_slots = slots.min(SET_SLOTS);
    let mut sets: Vec<Set> = (0..slots / set_slots).map(|_| Set::new(set_slots)).collect();
    let count = sets.len() as u64;
    let ask = |block: &&u64| {
        let set = usize::try_from(mixed(**block / REGION_BLOCKS) % count).expect("a set");
        sets[set].ask(rule, set_slots, **block)
    };
    trace.iter().filter(ask).count()
}

/// Hits of a cache that drops the block that is wanted again last.
fn most_hits(slots: usize, trace: &[u64]) -> usize {
    let mut next = vec![usize::MAX; trace.len()];
    let mut last: HashMap<u64, usize> = HashMap::new();
    for (at, block) in trace.iter().enumerate().rev() {
        next[at] = last.insert(*block, at).unwrap_or(usize::MAX);
    }
    let (mut held, mut wanted) = (HashMap::new(), BTreeSet::new());
    let mut hits = 0;
    for (at, block) in trace.iter().enumerate() {
        if let Some(wanted_at) = held.remove(block) {
            wanted.remove(&(wanted_at, *block));
            hits += 1;
        }
        held.insert(*block, next[at]);
        wanted.insert((next[at], *block));
        if held.len() > slots {
            let (_, latest) = wanted.pop_last().expect("one for each");
            held.remove(&latest);
        }
    }
    hits
}

fn main() {
    println!(
        "| trace | requests | blocks | slots | fifo | lru | s3fifo | best possible |\n|---|---|---|---|---|---|---|---|"
    );
    for path in std::env::args().skip(1).filter(|word| !word.starts_with("--")) {
        let text = std::fs::read_to_string(&path).expect("a readable file");
        let trace: Vec<u64> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
        let blocks = trace.iter().collect::<HashSet<_>>().len();
        for percent in SIZES {
            // Whole sets, or one that is smaller.
            let slots = (blocks * percent / 100).max(2);
            let slots = if slots > SET_SLOTS { slots / SET_SLOTS * SET_SLOTS } else { slots };
            let part = |hits: usize| hits as f64 * 100.0 / trace.len() as f64;
            let [fifo, lru, s3fifo] = ReclaimPolicy::ALL.map(|rule| part(hits(rule, slots, &trace)));
            let best = part(most_hits(slots, &trace));
            let name = path.rsplit('/').next().unwrap_or(&path);
            println!(
                "| {name} | {} | {blocks} | {slots} ({percent} %) | {fifo:.1} | {lru:.1} | {s3fifo:.1} | {best:.1} |",
                trace.len()
            );
        }
    }
}

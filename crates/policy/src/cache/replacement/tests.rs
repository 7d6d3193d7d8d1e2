//! Hit rates of the rules over made-up traces, and the order against a plain model.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

/// Numbers that follow from a seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// One of `blocks`, the n-th with a weight of 1/n.
    fn zipf(&mut self, blocks: u64) -> u64 {
        let part = f64::from(u32::try_from(self.below(1 << 20)).expect("20 bits")) / f64::from(1 << 20);
        let bound = f64::from(u32::try_from(blocks).expect("a small trace"));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the bound"
        )]
        let rank = bound.powf(part) as u64;
        rank.min(blocks - 1)
    }
}

/// A set that is asked for blocks, and takes in each that it lacks.
struct Set {
    rule: ReclaimPolicy,
    order: SetOrder,
    holds: Vec<Option<u64>>,
    slots: HashMap<u64, u16>,
}

impl Set {
    fn new(rule: ReclaimPolicy, slots: u16) -> Self {
        let holds = vec![None; slots.into()];
        Self { rule, order: SetOrder::new(slots), holds, slots: HashMap::new() }
    }

    fn ask(&mut self, block: u64) -> bool {
        if let Some(slot) = self.slots.get(&block) {
            self.order.hit(self.rule, *slot);
            return true;
        }
        let fingerprint = |block: u64| u32::try_from(block + 1).expect("a small trace");
        let holds = &self.holds;
        let of_slot = |slot: u16| fingerprint(holds[usize::from(slot)].expect("it holds a block"));
        let slot = match holds.iter().position(Option::is_none) {
            Some(free) => u16::try_from(free).expect("a small set"),
            None => self.order.victim(self.rule, |_| true, of_slot).expect("all can go"),
        };
        if let Some(old) = self.holds[usize::from(slot)].replace(block) {
            self.slots.remove(&old);
        }
        self.slots.insert(block, slot);
        self.order.insert(self.rule, slot, fingerprint(block));
        false
    }

    fn hit_percent(rule: ReclaimPolicy, trace: &[u64]) -> usize {
        let mut set = Self::new(rule, 512);
        let hits = trace.iter().filter(|block| set.ask(**block)).count();
        hits * 100 / trace.len()
    }
}

fn percents(trace: &[u64]) -> [usize; 3] {
    ReclaimPolicy::ALL.map(|rule| Set::hit_percent(rule, trace))
}

#[test]
fn s3fifo_is_the_best_of_the_rules_where_blocks_are_not_equal() {
    let mut numbers = Numbers(1);
    let zipf: Vec<u64> = (0..60_000).map(|_| numbers.zipf(8192)).collect();
    let [fifo, lru, s3] = percents(&zipf);
    assert!(fifo < lru && lru < s3, "zipf: fifo {fifo} %, lru {lru} %, s3fifo {s3} %");
    // Hot blocks, and a scan that comes by again and again, each time over other blocks.
    let mut scanned = 100_000;
    let mut trace = Vec::new();
    for _ in 0..60 {
        trace.extend((0..1000).map(|_| numbers.zipf(2048)));
        trace.extend(scanned..scanned + 1000);
        scanned += 1000;
    }
    let [fifo, lru, s3] = percents(&trace);
    assert!(fifo <= lru && lru + 3 <= s3, "scans: fifo {fifo} %, lru {lru} %, s3fifo {s3} %");
    // A loop that is a little too long for the set.
    let turns: Vec<u64> = (0..60_000).map(|at| at % 600).collect();
    let [fifo, lru, s3] = percents(&turns);
    assert!(fifo == 0 && lru == 0, "loop: fifo {fifo} %, lru {lru} %, s3fifo {s3} %");
}

#[test]
fn slots_that_cannot_go_are_passed_over_by_each_rule() {
    for rule in ReclaimPolicy::ALL {
        let mut order = SetOrder::new(16);
        assert_eq!(order.victim(rule, |_| true, u32::from), None, "{rule}: nothing there");
        for slot in 0..16 {
            order.insert(rule, slot, u32::from(slot) + 1);
            order.hit(rule, slot);
        }
        assert_eq!(order.victim(rule, |_| false, u32::from), None, "{rule}");
        assert_eq!(order.victim(rule, |slot| slot == 11, u32::from), Some(11), "{rule}");
        assert_eq!(order.victim(rule, |slot| slot == 11, u32::from), None, "{rule}: it went");
        assert_eq!(order.oldest_first().count(), 15);
    }
}

#[test]
fn names_and_numbers_of_rules_are_read() {
    for rule in ReclaimPolicy::ALL {
        assert_eq!(rule.to_string().parse(), Ok(rule));
        assert_eq!(rule.number().to_string().parse(), Ok(rule));
    }
    assert_eq!("3".parse::<ReclaimPolicy>(), Err(UnknownReclaimPolicy));
}

#[test]
fn a_block_that_is_written_to_another_slot_keeps_its_place_or_its_uses() {
    let filled = |rule| {
        let mut order = SetOrder::new(16);
        (0..8).for_each(|slot| order.insert(rule, slot, u32::from(slot) + 1));
        order
    };
    let mut fifo = filled(ReclaimPolicy::Fifo);
    for (slot, by) in [(0, 8), (7, 9), (3, 10)] {
        fifo.replace(ReclaimPolicy::Fifo, slot, by);
    }
    assert_eq!(fifo.oldest_first().collect::<Vec<_>>(), [8, 1, 2, 10, 4, 5, 6, 9]);
    let mut lru = filled(ReclaimPolicy::Lru);
    lru.replace(ReclaimPolicy::Lru, 3, 8);
    assert_eq!(lru.oldest_first().collect::<Vec<_>>(), [0, 1, 2, 4, 5, 6, 7, 8]);
    let mut s3 = filled(ReclaimPolicy::S3Fifo);
    s3.hit(ReclaimPolicy::S3Fifo, 0);
    s3.replace(ReclaimPolicy::S3Fifo, 0, 8);
    let left: Vec<_> = (0..7).map_while(|_| s3.victim(ReclaimPolicy::S3Fifo, |_| true, u32::from)).collect();
    assert!(!left.contains(&8), "it was used: {left:?}");
}

proptest! {
    /// FIFO and LRU against lists; of each rule that no slot is lost or there twice, also when rules are changed.
    #[test]
    fn the_order_is_that_of_a_list(steps in prop::collection::vec((0u8..5, 0u16..8), 1..200), rule in 0usize..3, change in any::<bool>()) {
        let mut rule = ReclaimPolicy::ALL[rule];
        let mut order = SetOrder::new(8);
        let mut model: Vec<u16> = Vec::new();
        for (kind, slot) in steps {
            let held = model.iter().position(|other| *other == slot);
            match (kind, held) {
                (0, None) => {
                    order.insert(rule, slot, u32::from(slot) + 1);
                    model.push(slot);
                }
                (1, Some(at)) => {
                    order.hit(rule, slot);
                    if rule == ReclaimPolicy::Lru {
                        model.remove(at);
                        model.push(slot);
                    }
                }
                (2, Some(at)) => {
                    order.remove(slot);
                    model.remove(at);
                }
                (3, _) => {
                    let victim = order.victim(rule, |other| other != slot, |slot| u32::from(slot) + 1);
                    let expected = model.iter().position(|other| *other != slot);
                    prop_assert_eq!(victim.is_some(), expected.is_some());
                    if let (Some(victim), Some(expected)) = (victim, expected) {
                        if rule != ReclaimPolicy::S3Fifo && !change {
                            prop_assert_eq!(victim, model[expected]);
                        }
                        model.retain(|other| *other != victim);
                    }
                }
                (4, Some(at)) => {
                let Some(by) = (0..8).find(|by| !model.contains(by)) else { continue };
                order.replace(rule, slot, by);
                model[at] = by;
                if rule == ReclaimPolicy::Lru {
                    model.remove(at);
                    model.push(by);
                }
            }
            _ => {}
            }
            if change && kind == 1 {
                rule = ReclaimPolicy::ALL[usize::from(slot) % 3];
            }
            let mut held: Vec<u16> = order.oldest_first().collect();
            if rule != ReclaimPolicy::S3Fifo && !change {
                prop_assert_eq!(&held, &model);
            }
            held.sort_unstable();
            let mut expected = model.clone();
            expected.sort_unstable();
            prop_assert_eq!(held, expected);
        }
    }
}

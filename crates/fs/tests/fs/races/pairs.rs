//! Every pair of acts, each against the other.

use super::act::{Act, Answer};
use super::ground::Ground;
use super::world::{Shape, acts, model};
use super::{Arena, Sequence, asked_seed, more};
use crate::walk::{Limits, Walk};
use brindle_sim::Random;
use brindle_testing::manifest::Manifest;
use brindle_testing::model::{Model, RenameRule, TreePath, path};
use brindle_testing::operations::Operation;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of times a pair races by default.
const ROUNDS: u64 = 4;
/// Number of times a pair that failed once races by default.
const RETRIES: u64 = 150;
/// A thread begins less than two to this power turns of a loop after the other, most often far less.
const LEAD_BITS_MAX: u64 = 12;
/// Lengths of the file: nothing, in its item, one extent, several sectors.
const LENGTHS: [usize; 4] = [0, 300, 20_000, 60_001];

/// Result of an order of the two acts.
struct Outcome {
    answers: [Answer; 2],
    model: Model,
}

/// Act beside the two, if any.
fn beside(random: &mut Random) -> Option<Act> {
    match random.below(12) {
        0 | 1 => Some(Act::Commit),
        2 | 3 => Some(Act::Background),
        4 => Some(Act::Sync),
        5 => Some(Act::SnapshotOutside),
        6 => Some(Act::Relocate),
        7 => Some(Act::Defragment),
        _ => None,
    }
}

fn shape(random: &mut Random) -> Shape {
    Shape {
        length: *random.pick(&LENGTHS),
        is_linked: random.below(4) == 0,
        is_held: random.below(3) == 0,
        is_other_held: false,
        is_durable: random.below(3) == 0,
    }
}

/// The outcomes of both orders.
fn serial(shape: Shape, pair: [&Act; 2]) -> [Outcome; 2] {
    let before = model(shape);
    let run = |first: usize| {
        let mut modelled = before.clone();
        let one = modelled.act(pair[first]);
        let other = modelled.act(pair[1 - first]);
        let answers = if first == 0 { [one, other] } else { [other, one] };
        Outcome { answers, model: modelled.ended() }
    };
    [run(0), run(1)]
}

/// Runs the acts at the same moment, but for the lead of one of them.
fn race(
    ground: &Ground<'_>,
    pair: [&Act; 2],
    beside: Option<&Act>,
    leads: [u64; 2],
) -> ([Answer; 2], Option<Answer>) {
    let waiting = AtomicUsize::new(2 + usize::from(beside.is_some()));
    let begin = || {
        waiting.fetch_sub(1, Ordering::AcqRel);
        while waiting.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let run = |number: usize| {
            let begin = &begin;
            move || {
                begin();
                (0..leads[number]).for_each(|_| std::hint::spin_loop());
                ground.act(pair[number])
            }
        };
        let other = scope.spawn(run(1));
        let third = beside.map(|act| {
            let begin = &begin;
            scope.spawn(move || {
                begin();
                ground.act(act)
            })
        });
        let one = run(0)();
        let third = third.map(|third| third.join().expect("no panic"));
        ([one, other.join().expect("no panic")], third)
    })
}

/// Compares what has happened with both orders.
fn judge(outcomes: &[Outcome], answers: &[Answer; 2], found: &Manifest) -> Result<(), String> {
    let mut against = Vec::new();
    for outcome in outcomes {
        if outcome.answers != *answers {
            against.push(format!("answers {:?}", Short(&outcome.answers)));
        } else if let Some(difference) = outcome.model.expectation().difference(found) {
            against.push(format!("the same answers, and {difference}"));
        } else {
            return Ok(());
        }
    }
    Err(format!("answers {:?}; in order: {}", Short(answers), against.join("; ")))
}

/// Answers, cut off where they are long.
struct Short<'a>(&'a [Answer; 2]);

impl std::fmt::Debug for Short<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let short = |answer: &Answer| format!("{answer:?}").chars().take(150).collect::<String>();
        write!(f, "[{}, {}]", short(&self.0[0]), short(&self.0[1]))
    }
}

fn round(arena: &Arena, seed: u64, pair: [&Act; 2], how: Option<usize>) -> Result<(), String> {
    let mut random = Random::new(seed);
    let shape = shape(&mut random);
    let beside = beside(&mut random).filter(|_| how.is_none());
    let context = || format!("seed {seed}, {pair:?}, {shape:?}, beside {beside:?}, order {how:?}");
    let ground = Ground::new(&arena.filesystem, shape);
    let outcomes = serial(shape, pair);
    let (answers, third) = match how {
        Some(first) => {
            let one = ground.act(pair[first]);
            let other = ground.act(pair[1 - first]);
            (if first == 0 { [one, other] } else { [other, one] }, None)
        }
        None => {
            let bits = random.below(LEAD_BITS_MAX + 1);
            let lead = random.below(1 << bits);
            let leads = if random.below(2) == 0 { [lead, 0] } else { [0, lead] };
            race(&ground, pair, beside.as_ref(), leads)
        }
    };
    let closed = ground.close();
    if let Some(why) = arena.filesystem.pool().read_only_reason() {
        return Err(format!("the pool takes no more changes: {why}\n{}", context()));
    }
    if let (Some(Err(error)), _) | (_, Err(error)) = (third, closed) {
        return Err(format!("{error} beside the acts, or when files are closed\n{}", context()));
    }
    let walk = Walk::below(&arena.filesystem, ground.top, Limits::NONE);
    if let Some(trouble) = walk.troubles.first() {
        return Err(format!("{trouble}\n{}", context()));
    }
    let allowed = match how {
        Some(first) => &outcomes[first..=first],
        None => &outcomes[..],
    };
    judge(allowed, &answers, &walk.manifest).map_err(|what| format!("{what}\n{}", context()))
}

/// The seed of a round.
fn seed_of(base: u64, pair: (usize, usize), round: u64) -> u64 {
    (base << 32) + ((pair.0 as u64) << 20) + ((pair.1 as u64) << 8) + round
}

/// Tries a pair, first in both orders, then a number of times as a race.
fn try_pair(
    sequence: &mut Sequence,
    acts: [&Act; 2],
    seed: impl Fn(u64) -> u64,
    races: u64,
) -> Result<(), String> {
    for number in 0..2 + races {
        let order = usize::try_from(number).ok().filter(|number| *number < 2);
        if let Err(failure) = round(sequence.arena(), seed(number), acts, order) {
            sequence.abandon();
            return Err(failure);
        }
    }
    Ok(())
}

/// Tries pairs of which the first act has a number with this remainder.
fn pairs(part: usize, parts: usize) {
    let acts = acts();
    let base = asked_seed().unwrap_or(1);
    let only = std::env::var("BRINDLE_RACE").ok();
    let mut failures = Vec::new();
    let mut sequence = Sequence::default();
    for first in (part..acts.len()).step_by(parts) {
        for second in first..acts.len() {
            let pair = [&acts[first], &acts[second]];
            if only.as_ref().is_some_and(|only| !format!("{pair:?}").contains(only)) {
                continue;
            }
            let seed = |number| seed_of(base, (first, second), number);
            failures.extend(try_pair(&mut sequence, pair, seed, ROUNDS * more()).err());
        }
    }
    sequence.close();
    assert!(failures.is_empty(), "{} pairs, BRINDLE_SEED={base}\n{}", failures.len(), failures.join("\n\n"));
}

#[test]
fn any_two_operations_are_done_in_some_order() {
    std::thread::scope(|scope| {
        let parts = [0, 1].map(|part| scope.spawn(move || pairs(part, 2)));
        let ended = parts.map(std::thread::ScopedJoinHandle::join);
        ended.into_iter().for_each(|part| part.unwrap_or_else(|what| std::panic::resume_unwind(what)));
    });
}

#[test]
fn two_operations_that_once_were_not_are_done_in_some_order() {
    let unlink = |at: &str| Act::Do(Operation::Unlink { path: path(at) });
    let rename = |from: &str, to: &str| {
        Act::Do(Operation::Rename { from: path(from), to: path(to), rule: RenameRule::Replace })
    };
    let is_write = |act: &Act| matches!(act, Act::Do(Operation::Write { path: at, .. }) if *at == path("g"));
    let is_xattr =
        |act: &Act| matches!(act, Act::Do(Operation::SetXattr { path: at, .. }) if *at == path("f"));
    let all = acts();
    let find =
        |is_wanted: &dyn Fn(&Act) -> bool| all.iter().find(|act| is_wanted(act)).expect("listed").clone();
    let snapshot = find(&|act| matches!(act, Act::Do(Operation::Snapshot { .. })));
    let pairs = [
        [unlink("f"), Act::Do(Operation::Truncate { path: path("f"), size: 150 })],
        [unlink("f"), find(&is_xattr)],
        [unlink("v/x"), Act::Do(Operation::RemoveDirectory { path: path("v") })],
        [rename("d", "e/n"), rename("e", "d")],
        [snapshot, find(&is_write)],
        [rename("f", "n"), Act::List(TreePath::top())],
    ];
    let base = asked_seed().unwrap_or(1);
    let mut sequence = Sequence::default();
    for (number, [one, other]) in pairs.iter().enumerate() {
        let seed = |round| (base << 32) + ((number as u64) << 24) + round;
        let tried = try_pair(&mut sequence, [one, other], seed, RETRIES * more());
        tried.unwrap_or_else(|failure| panic!("BRINDLE_SEED={base}\n{failure}"));
    }
    sequence.close();
}

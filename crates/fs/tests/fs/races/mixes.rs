//! Several threads, each with several acts: short histories, which must be linearizable, and long ones, which must leave
//! a sound pool with everything that was fsynced.

use super::act::{Act, Answer};
use super::ground::Ground;
use super::modelled::Modelled;
use super::world::{FILE, Shape, acts, model};
use super::{Sequence, asked_seed, more};
use crate::simulated::{Layout, Pool};
use crate::walk::{Limits, Walk};
use brindle_device::{Device, SparseDevice, WritableDevice};
use brindle_fs::{Filesystem, NewInode};
use brindle_sim::Random;
use brindle_testing::manifest::Manifest;
use brindle_testing::model::{RenameRule, path};
use brindle_testing::operations::Operation;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Threads of a short history, and acts of each.
const THREADS: usize = 3;
const ACTS: usize = 4;
/// Short histories by default.
const HISTORIES: u64 = 400;
/// Threads of a long history, acts of each, and how often they begin with new files.
const LONG_THREADS: u64 = 4;
const LONG_ACTS: u64 = 40;
const LONG_ROUNDS: u64 = 12;
/// The length of a file that is fsynced, in bytes; its first eight say which version it is.
const SYNCED_BYTES: usize = 6000;

/// An act that was done: when it began and ended, on a clock that all threads share.
#[derive(Clone)]
struct Done {
    act: Act,
    answer: Answer,
    began: u64,
    ended: u64,
}

/// Acts of short histories: those that take effect at one moment. A snapshot takes the contents of one file after the
/// other, and a file that is opened by an act may lose its subvolume before it is used. Names and numbers of names are
/// seen without the locks of names, as a rename or an unlink goes on: on a mount, the host keeps such readers apart. Pairs
/// have them.
fn atomic_acts() -> Vec<Act> {
    let is_atomic = |act: &Act| {
        let is_below_v = format!("{act:?}").contains("path(\"v");
        let is_helper = matches!(
            act,
            Act::Commit
                | Act::Sync
                | Act::Background
                | Act::Relocate
                | Act::Defragment
                | Act::SnapshotOutside
        );
        let sees_names = matches!(act, Act::List(_) | Act::Lookup(_) | Act::Stat(_));
        !is_below_v && !is_helper && !sees_names && !matches!(act, Act::Do(Operation::Snapshot { .. }))
    };
    let mut all: Vec<Act> = acts().into_iter().filter(is_atomic).collect();
    let rename =
        |from: &str, to: &str, rule| Act::Do(Operation::Rename { from: path(from), to: path(to), rule });
    all.extend([
        Act::Do(Operation::Unlink { path: path("n") }),
        Act::Do(Operation::RemoveDirectory { path: path("n") }),
        rename("n", FILE, RenameRule::Replace),
        rename("d/n", "n", RenameRule::Exchange),
    ]);
    all
}

/// Returns true if some order of acts that respects their real order in time gives these answers, and leaves this.
fn is_linearizable(state: &Modelled, left: &[&[Done]], found: &Manifest) -> bool {
    let Some(first_end) = left.iter().filter_map(|acts| acts.first()).map(|done| done.ended).min() else {
        return state.clone().ended().expectation().difference(found).is_none();
    };
    left.iter().enumerate().any(|(thread, acts)| {
        let Some(done) = acts.first().filter(|done| done.began <= first_end) else {
            return false;
        };
        let mut next = state.clone();
        if !next.allows(&done.act, &done.answer) {
            return false;
        }
        let mut rest = left.to_vec();
        rest[thread] = &acts[1..];
        is_linearizable(&next, &rest, found)
    })
}

fn beside(random: &mut Random) -> Act {
    random
        .pick(&[
            Act::Commit,
            Act::Sync,
            Act::Background,
            Act::SnapshotOutside,
            Act::Relocate,
            Act::Defragment,
        ])
        .clone()
}

/// Runs the lists of acts at the same moment, with others beside them until they are done.
fn run(ground: &Ground<'_>, lists: &[Vec<Act>], seed: u64) -> Vec<Vec<Done>> {
    let (clock, running) = (AtomicU64::new(0), AtomicUsize::new(lists.len()));
    let barrier = std::sync::Barrier::new(lists.len() + 1);
    std::thread::scope(|scope| {
        let (clock, running, barrier) = (&clock, &running, &barrier);
        let start = |acts: &'_ Vec<Act>| {
            let acts = acts.clone();
            scope.spawn(move || {
                barrier.wait();
                let mut all = Vec::new();
                for act in acts {
                    let began = clock.fetch_add(1, Ordering::SeqCst);
                    let answer = ground.act(&act);
                    let ended = clock.fetch_add(1, Ordering::SeqCst);
                    all.push(Done { act, answer, began, ended });
                }
                running.fetch_sub(1, Ordering::AcqRel);
                all
            })
        };
        let threads: Vec<_> = lists.iter().map(start).collect();
        let mut random = Random::new(seed);
        barrier.wait();
        while running.load(Ordering::Acquire) > 0 {
            let act = beside(&mut random);
            ground.act(&act).unwrap_or_else(|error| panic!("seed {seed}: {act:?}: {error}"));
        }
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// The lists of acts of a short history. A file that is made and written may be refused the writing if its subvolume
/// becomes read-only between the two, which is no single moment: such acts are not drawn together.
fn draw(random: &mut Random, all: &[Act]) -> Vec<Vec<Act>> {
    loop {
        let mut list = || (0..ACTS).map(|_| random.pick(all).clone()).collect();
        let lists: Vec<Vec<Act>> = (0..THREADS).map(|_| list()).collect();
        let has = |is_such: fn(&Act) -> bool| lists.iter().flatten().any(is_such);
        let may_part =
            has(|act| matches!(act, Act::CreateOpen(_))) && has(|act| matches!(act, Act::SetReadOnly(..)));
        if !may_part {
            return lists;
        }
    }
}

fn short_history(sequence: &mut Sequence, all: &[Act], seed: u64) {
    let mut random = Random::new(seed);
    let length = *random.pick(&[0, 300, 20_000]);
    let (is_linked, is_durable) = (random.below(4) == 0, random.below(3) == 0);
    let shape = Shape { length, is_linked, is_held: true, is_other_held: true, is_durable };
    let lists = draw(&mut random, all);
    let arena = sequence.arena();
    let ground = Ground::new(&arena.filesystem, shape);
    let history = run(&ground, &lists, seed);
    ground.close().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let walk = Walk::below(&arena.filesystem, ground.top, Limits::NONE);
    let found = walk.expect_whole(&format!("seed {seed}"));
    let left: Vec<&[Done]> = history.iter().map(Vec::as_slice).collect();
    assert!(
        is_linearizable(&model(shape), &left, &found),
        "no order of these acts gives these answers and this end\nBRINDLE_SEED={seed}, {shape:?}\n{}\n{found:#?}",
        told(&history)
    );
}

/// The acts of all threads, a line each.
fn told(history: &[Vec<Done>]) -> String {
    let line = |(thread, done): (usize, &Done)| {
        let answer: String = format!("{:?}", done.answer).chars().take(100).collect();
        format!("thread {thread}, {} to {}: {:?}: {answer}\n", done.began, done.ended, done.act)
    };
    let numbered = history.iter().enumerate();
    numbered.flat_map(|(thread, acts)| acts.iter().map(move |done| line((thread, done)))).collect()
}

#[test]
fn short_histories_are_linearizable() {
    let all = atomic_acts();
    let mut sequence = Sequence::default();
    let (first, count) = asked_seed().map_or((0, HISTORIES * more()), |seed| (seed, 50 * more()));
    for number in 0..count {
        // A seed that is asked for is tried again and again: the threads do not meet at the same moment each time.
        let seed = if first == 0 { number } else { first };
        short_history(&mut sequence, &all, seed);
    }
    sequence.close();
}

/// A thread's own file, which it writes and fsyncs; the version that was fsynced last.
fn write_own(fs: &Filesystem, name: &str, version: u64) {
    let found = fs.lookup(fs.root(), name.as_bytes()).expect("readable");
    let file = match found {
        Some(entry) => fs.open_file(entry.inode).expect("only this thread removes it"),
        None => {
            let new = NewInode { mode: 0o100_600, ..NewInode::default() };
            fs.create_open(fs.root(), name.as_bytes(), &new).expect("room").1
        }
    };
    let bytes = version.to_le_bytes().repeat(SYNCED_BYTES / 8);
    assert_eq!(fs.write(&file, 0, &bytes).expect("room"), bytes.len());
    fs.sync_file(&file).expect("durable");
    fs.close_file(file).expect("closes");
}

fn long_history(seed: u64) {
    let layout = Layout::of(seed);
    println!("BRINDLE_SEED={seed}: {layout:?}");
    let devices = layout.empty_devices();
    let as_writable = |devices: &[Arc<SparseDevice>]| -> Vec<Arc<dyn WritableDevice>> {
        devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect()
    };
    layout.mkfs(&as_writable(&devices));
    let mut pool = Pool::on(as_writable(&devices), &layout);
    pool.write.tree_log = true;
    let fs = Arc::new(pool.open().expect("a new pool"));
    let all = acts();
    for round in 0..LONG_ROUNDS * more() {
        let mut random = Random::new(seed * 1000 + round);
        let is_held = round % 2 == 0;
        let shape =
            Shape { length: 20_000, is_linked: false, is_held, is_other_held: is_held, is_durable: false };
        let ground = Ground::new(&fs, shape);
        let lists: Vec<Vec<Act>> =
            (0..LONG_THREADS).map(|_| (0..LONG_ACTS).map(|_| random.pick(&all).clone()).collect()).collect();
        std::thread::scope(|scope| {
            for thread in 0..LONG_THREADS {
                let fs = &fs;
                scope.spawn(move || (0..4).for_each(|turn| write_own(fs, &own(thread), round * 4 + turn)));
            }
            run(&ground, &lists, seed * 1000 + round);
        });
        ground.close().unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
        assert_eq!(fs.pool().read_only_reason(), None, "seed {seed}, round {round}");
    }
    let crashed = Pool::on(devices.iter().map(copy).collect(), &layout);
    fs.shutdown().expect("closes");
    drop(fs);
    pool.check().unwrap_or_else(|findings| panic!("seed {seed}: {findings}"));
    let fs = crashed.open().expect("a crash leaves a pool");
    for thread in 0..LONG_THREADS {
        let id = fs.resolve(fs.root(), own(thread).as_bytes()).expect("it was durable");
        let file = fs.open_file(id).expect("opens");
        let mut bytes = vec![0; SYNCED_BYTES + 1];
        let length = fs.read(&file, 0, &mut bytes).expect("reads");
        let last = LONG_ROUNDS * more() * 4 - 1;
        let expected = last.to_le_bytes().repeat(SYNCED_BYTES / 8);
        assert!(bytes[..length] == expected, "seed {seed}: {} is not as it was fsynced", own(thread));
    }
    drop(fs);
    crashed.check().unwrap_or_else(|findings| panic!("seed {seed}, after a crash: {findings}"));
}

fn own(thread: u64) -> String {
    format!("own{thread}")
}

/// A device as a crash leaves it.
fn copy(device: &Arc<SparseDevice>) -> Arc<dyn WritableDevice> {
    let left = SparseDevice::new(device.name().to_owned(), device.size_bytes(), device.class());
    for (offset, bytes) in device.written() {
        left.write_at(offset, &bytes).expect("room");
    }
    Arc::new(left)
}

#[test]
fn long_histories_leave_a_sound_pool_with_all_that_was_synced() {
    let seeds = asked_seed().map_or(0..4, |seed| seed..seed + 1);
    seeds.for_each(long_history);
}

//! Many threads in one filesystem, each in a subvolume of its own, while one more commits.

use crate::model::pool::NEW_SUBVOLUME;
use crate::model::target::{System, errno};
use crate::simulated::{Habits, Layout, Library, Pool, seeds};
use brindle_fs::{Filesystem, InodeId, OpenOptions, Remaining, SubvolumeChoice};
use brindle_testing::model::Model;
use brindle_testing::operations::{Generator, Mix, Operation, compare};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const THREADS: usize = 6;
const OPERATIONS: usize = 400;

fn name(thread: usize) -> String {
    format!("thread{thread}")
}

#[test]
fn threads_do_not_disturb_each_other() {
    for seed in seeds(0, 4) {
        let mix = Mix { remount: 0, names_max: 60, ..Mix::default() };
        stress(&Layout::of(seed * 3), seed, &mix);
    }
}

#[test]
fn threads_that_write_more_than_memory_takes_do_not_disturb_each_other() {
    for seed in seeds(50, 3) {
        stress(&Layout::of(seed), seed, &Mix { remount: 0, ..Mix::contents() });
    }
}

fn stress(layout: &Layout, seed: u64, mix: &Mix) {
    println!("seed {seed}: {layout:?}");
    let mut pool = Pool::new(layout);
    pool.write.dirty_bytes_max = 2 << 20;
    let filesystem = Arc::new(pool.open().expect("a new pool"));
    let tops: Vec<InodeId> = (0..THREADS)
        .map(|thread| {
            let id = filesystem
                .create_subvolume(filesystem.root(), name(thread).as_bytes(), &NEW_SUBVOLUME)
                .expect("room");
            InodeId::root_of(id)
        })
        .collect();
    let running = AtomicUsize::new(THREADS);
    let models: Vec<Model> = std::thread::scope(|scope| {
        let upkeep = scope.spawn(|| keep_up(&filesystem, &running));
        let start = |(thread, top): (usize, &InodeId)| {
            let (filesystem, running) = (&filesystem, &running);
            let (top, seed) = (*top, seed * 100 + thread as u64);
            scope.spawn(move || {
                let _leaves = Leaves(running);
                work(&System::within(filesystem, top), seed, mix)
            })
        };
        let threads: Vec<_> = tops.iter().enumerate().map(start).collect();
        let models = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        upkeep.join().expect("no panic");
        models
    });
    while filesystem.background_step().expect("works") == Remaining::More {}
    filesystem.shutdown().expect("closes");
    drop(filesystem);
    pool.check().unwrap_or_else(|findings| panic!("seed {seed}: {findings}"));
    for (thread, model) in models.iter().enumerate() {
        let subvolume = SubvolumeChoice::Path(name(thread).into_bytes());
        let open = OpenOptions { subvolume, ..OpenOptions::default() };
        let mut library = Library::open(Pool { open, ..pool.clone() }, Habits::default()).expect("opens");
        compare(model, &mut library).unwrap_or_else(|what| panic!("seed {seed}, thread {thread}: {what}"));
    }
}

/// One thread's operations, and what must be there then.
fn work(system: &System, seed: u64, mix: &Mix) -> Model {
    let mut generator = Generator::new(seed, mix.clone());
    let mut model = Model::new();
    for number in 0..OPERATIONS {
        let operation = generator.next(&model);
        let expected = model.apply(&operation);
        let answer = match &operation {
            Operation::Sync => system.fs().sync().map_err(errno),
            Operation::SyncFile { path } => system.sync_file(path),
            _ => system.names(&operation),
        };
        assert_eq!(answer, expected, "seed {seed}, operation {number}: {operation:?}");
        if let (Operation::Write { path, .. } | Operation::CloneRange { to: path, .. }, Ok(())) =
            (&operation, expected)
        {
            assert!(
                system.contents(path) == model.contents(path).ok(),
                "seed {seed}, operation {number}: {operation:?}"
            );
        }
    }
    model
}

/// Commits and cleans up until all others are done.
fn keep_up(filesystem: &Filesystem, running: &AtomicUsize) {
    let mut round = 0_u32;
    while running.load(Ordering::Relaxed) > 0 {
        round += 1;
        filesystem.background_step().expect("works");
        if round % 3 == 0 {
            filesystem.sync().expect("works");
        } else {
            filesystem.commit().expect("works");
        }
        std::thread::yield_now();
    }
}

/// Counts a thread out, also one that panics.
struct Leaves<'r>(&'r AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

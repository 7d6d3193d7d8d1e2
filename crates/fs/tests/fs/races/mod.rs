//! Operations that meet: every pair of them on the same names and inodes, and random mixes. Whatever the threads
//! answered, and what is left, must be the outcome of some order in which the model does the same one after the other.

mod act;
mod ground;
mod leaves;
mod meanwhile;
mod mixes;
mod modelled;
mod names;
mod pairs;
mod world;

use crate::simulated::{Layout, Pool};
use brindle_fs::Filesystem;
use std::sync::Arc;

/// A pool in which races take place.
struct Arena {
    pool: Pool,
    filesystem: Arc<Filesystem>,
}

impl Arena {
    fn new(number: u64) -> Self {
        let layouts = [0, 1, 5, 8];
        let mut pool = Pool::new(&Layout::of(layouts[usize::try_from(number).expect("few") % layouts.len()]));
        pool.write.tree_log = true;
        let filesystem = Arc::new(pool.open().expect("a new pool"));
        Self { pool, filesystem }
    }

    /// Closes the pool, and examines it.
    fn close(self, context: &dyn Fn() -> String) {
        let Self { pool, filesystem } = self;
        while filesystem.background_step().expect("works") == brindle_fs::Remaining::More {}
        filesystem.shutdown().expect("closes");
        drop(filesystem);
        pool.check().unwrap_or_else(|findings| panic!("{findings}\n{}", context()));
    }
}

/// Pools, each for a number of rounds: a small one is quickly examined.
#[derive(Default)]
struct Sequence {
    arena: Option<Arena>,
    rounds: u64,
}

/// Number of rounds in a pool.
const ROUNDS_PER_POOL: u64 = 100;

impl Sequence {
    /// The pool for the next round.
    fn arena(&mut self) -> &Arena {
        if self.rounds % ROUNDS_PER_POOL == 0 {
            self.close();
        }
        let number = self.rounds / ROUNDS_PER_POOL;
        self.rounds += 1;
        self.arena.get_or_insert_with(|| Arena::new(number))
    }

    /// Gives a pool up in which something went wrong.
    fn abandon(&mut self) {
        self.arena = None;
    }

    /// Closes the last pool, and examines it.
    fn close(&mut self) {
        if let Some(arena) = self.arena.take() {
            let rounds = self.rounds;
            arena.close(&|| format!("after {rounds} rounds"));
        }
    }
}

/// Factor of the rounds asked for, over the usual number (`BRINDLE_RACES`).
fn more() -> u64 {
    std::env::var("BRINDLE_RACES").ok().and_then(|count| count.parse().ok()).unwrap_or(1)
}

/// The seed that is asked for (`BRINDLE_SEED`).
fn asked_seed() -> Option<u64> {
    std::env::var("BRINDLE_SEED").ok().and_then(|seed| seed.parse().ok())
}

//! The reserve of the log: it orders places, and takes no room.

use super::World;
use crate::options::WriterOptions;
use crate::space::group::{Content, Role};
use brindle_interval::{Interval, runs};
use brindle_ondisk::{BlockGroupType, Logical, to_usize};

/// Blocks of a sync.
const BLOCKS: usize = 5;

fn world() -> World {
    let world = World::new("single", WriterOptions::default());
    world.space().look_up_until(&world.pool, Content::Metadata, u64::MAX).expect("readable");
    world
}

impl World {
    fn available(&self) -> u64 {
        self.space().lock().totals(Content::Metadata).available
    }

    fn take_for_log(&self, blocks: usize) -> Vec<Interval> {
        self.runs(&self.space().allocate_log_blocks(&self.pool, blocks).expect("room"))
    }

    fn take_for_commit(&self, blocks: usize) -> Vec<Interval> {
        let found = self.space().allocate_blocks(&self.pool, BlockGroupType::METADATA, blocks, None);
        self.runs(&found.expect("room"))
    }

    fn runs(&self, places: &[Logical]) -> Vec<Interval> {
        self.space().lock().verify();
        let mut places: Vec<u64> = places.iter().map(|at| at.get()).collect();
        places.sort_unstable();
        runs(places.into_iter().map(|at| Interval::new(at, self.pool.nodesize().into())))
    }

    /// Range of the reserve.
    fn reserve(&self) -> Option<Interval> {
        self.space().lock().groups().find_map(|group| Some(group.log_reserve.as_ref()?.span))
    }

    /// A log ends, and its commit is durable.
    fn release(&self, taken: &[Interval]) {
        for span in taken {
            self.space().extent_freed(Logical::new(span.start), span.length(), false);
        }
        let pinned = self.space().freeze();
        self.space().unpin(&self.pool, pinned);
        self.space().lock().verify();
    }
}

#[test]
fn places_kept_for_logs_are_for_all_before_a_chunk_is_made() {
    let world = world();
    let (nodesize, before) = (u64::from(world.pool.nodesize()), world.available());
    let logged = world.take_for_log(BLOCKS);
    assert_eq!(logged.len(), 1);
    assert_eq!(world.available(), before - BLOCKS as u64 * nodesize, "what is kept is as free as ever");
    let reserve = world.reserve().expect("chosen");
    assert!(reserve.length() >= 2 * BLOCKS as u64 * nodesize && reserve.contains(logged[0].start));
    let others = world.take_for_commit(20);
    assert!(others.iter().all(|run| run.intersection(&reserve).is_empty()), "{others:?} in {reserve:?}");
    let groups = world.space().lock().group_count();
    world.take_for_commit(to_usize(world.available() / nodesize));
    assert_eq!((world.available(), world.reserve()), (0, None));
    assert_eq!(world.space().lock().group_count(), groups, "no chunk was made");
}

#[test]
fn logs_go_round_in_their_reserve_while_commits_come_and_go() {
    let world = world();
    world.take_for_log(BLOCKS);
    let reserve = world.reserve().expect("chosen");
    for round in 0..100 {
        let mut logged: Vec<Interval> = (0..6).flat_map(|_| world.take_for_log(BLOCKS)).collect();
        assert!(logged.iter().all(|run| run.intersection(&reserve) == *run), "{round}: {logged:?}");
        assert_eq!(logged.len(), 6, "{round}: a run each");
        logged.extend(world.take_for_commit(3));
        world.release(&logged);
    }
    assert_eq!(world.reserve(), Some(reserve));
}

#[test]
fn places_that_a_sync_does_not_need_are_for_the_next_one() {
    let world = world();
    let places = world.space().allocate_log_blocks(&world.pool, BLOCKS).expect("room");
    world.space().give_back_log_blocks(&places[BLOCKS - 2..]);
    let next = world.space().allocate_log_blocks(&world.pool, BLOCKS).expect("room");
    assert_eq!(next[0], places[BLOCKS - 2]);
    world.space().lock().verify();
}

#[test]
fn a_log_that_is_larger_than_its_reserve_gets_another_one() {
    let world = world();
    world.take_for_log(BLOCKS);
    let first = world.reserve().expect("chosen");
    // Twice as much as before is an eighth of what is available, so that there is a chunk for it.
    world.space().make_chunk(&world.pool, &mut world.space().lock(), Content::Metadata).expect("room");
    let count = to_usize(first.length() / u64::from(world.pool.nodesize())) / BLOCKS + 1;
    let logged: Vec<Interval> = (0..count).flat_map(|_| world.take_for_log(BLOCKS)).collect();
    assert_eq!(logged.len(), count, "a run each");
    let second = world.reserve().expect("chosen");
    assert!(second.length() > first.length(), "{second:?} after {first:?}");
    world.release(&logged);
}

#[test]
fn a_block_group_that_is_emptied_takes_no_logs() {
    let world = world();
    world.take_for_log(BLOCKS);
    let reserve = world.reserve().expect("chosen");
    let start = world.space().lock().group_of(reserve.start).expect("there").start;
    world.space().lock().change(start, |group| group.role = Role::Closed);
    let logged = world.take_for_log(BLOCKS);
    assert!(world.space().lock().group_of(logged[0].start).expect("there").start != start);
}

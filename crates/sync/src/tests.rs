//! The order of ranks, and what a panic leaves.

use super::{Condvar, Mutex, Rank, RwLock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The message of the panic that `act` must end with.
fn panic_of(act: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(act)).expect_err("a panic");
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned())).expect("a message")
}

#[test]
#[cfg(debug_assertions)]
fn a_lock_before_a_held_one_is_refused_and_both_places_are_named() {
    let (outer, inner) = (Mutex::new(Rank::Commit, ()), RwLock::new(Rank::FileTree, ()));
    drop((outer.lock(), inner.read()));
    let message = panic_of(|| {
        let _inner = inner.read();
        drop(outer.lock());
    });
    assert!(message.starts_with("lock order: Commit (taken at "), "{message}");
    assert!(message.contains("is wanted while FileTree (taken at "), "{message}");
    assert_eq!(message.matches("tests.rs").count(), 2, "{message}");
    drop((outer.lock(), inner.write()));
}

#[test]
#[cfg(debug_assertions)]
fn equal_ranks_need_ascending_keys() {
    let locks = [Mutex::new(Rank::Names, ()), Mutex::new(Rank::Names, ())];
    drop((locks[0].lock_by_key(1), locks[1].lock_by_key(2)));
    panic_of(|| drop((locks[0].lock_by_key(2), locks[1].lock_by_key(1))));
    panic_of(|| drop((locks[0].lock(), locks[1].lock())));
    panic_of(|| drop((locks[0].lock_by_key(1), locks[0].lock_by_key(1))));
    let tree = RwLock::new(Rank::FileTree, ());
    let message = panic_of(|| drop((tree.read(), tree.read())));
    assert!(message.contains("FileTree"), "a reader twice: {message}");
}

#[test]
#[cfg(debug_assertions)]
fn a_try_waits_for_nothing_and_counts_for_what_follows() {
    let (outer, inner) = (Mutex::new(Rank::Commit, ()), Mutex::new(Rank::Space, ()));
    let held = inner.lock();
    drop(outer.try_lock().expect("free"));
    drop(held);
    let message = panic_of(|| {
        let _inner = inner.try_lock().expect("free");
        drop(outer.lock());
    });
    assert!(message.contains("Space"), "{message}");
}

#[test]
#[cfg(debug_assertions)]
fn a_rank_that_is_no_lock_is_held_and_given_back() {
    let commit = Mutex::new(Rank::Commit, ());
    let part = Rank::Transaction.hold();
    panic_of(|| drop(commit.lock()));
    panic_of(|| drop(Rank::Transaction.hold()));
    drop(part);
    drop(commit.lock());
}

#[test]
fn a_wait_gives_lock_and_rank_back() {
    let (state, changed) = (Mutex::new(Rank::Space, 0), Condvar::new());
    let outer = Mutex::new(Rank::Commit, ());
    let (guard, is_over) = changed.wait_timeout(state.lock(), Duration::from_millis(1));
    assert!(is_over);
    drop(guard);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            *state.lock() += 1;
            changed.notify_all();
        });
        let guard = changed.wait_while(state.lock(), |state| *state == 0);
        assert_eq!(*guard, 1);
    });
    drop((outer.lock(), state.lock()));
}

#[test]
fn a_lock_is_not_entered_after_a_panic() {
    let (mutex, rwlock) = (Mutex::new(Rank::Space, 7), RwLock::new(Rank::FileTree, 7));
    panic_of(|| {
        let (_tree, _space) = (rwlock.write(), mutex.lock());
        panic!("half way");
    });
    assert!(mutex.is_poisoned() && rwlock.is_poisoned());
    for message in [
        panic_of(|| drop(mutex.lock())),
        panic_of(|| drop(mutex.try_lock())),
        panic_of(|| drop(rwlock.read())),
        panic_of(|| drop(rwlock.write())),
        panic_of(|| drop(rwlock.try_write())),
    ] {
        assert!(message.starts_with("a thread panicked while it held "), "{message}");
    }
    assert_eq!(*mutex.lock_after_panic(), 7);
}

#[test]
fn destructors_of_a_thread_that_unwinds_enter() {
    struct OnDrop<'l>(&'l Mutex<u32>);
    impl Drop for OnDrop<'_> {
        fn drop(&mut self) {
            *self.0.lock() += 1;
        }
    }
    let mutex = Mutex::new(Rank::Space, 0);
    panic_of(|| {
        let _second = OnDrop(&mutex);
        let _first = mutex.lock();
        panic!("half way");
    });
    assert_eq!(*mutex.lock_after_panic(), 1);
}

#[test]
fn a_reader_that_panics_leaves_nothing_half_changed() {
    let lock = RwLock::new(Rank::FileTree, ());
    panic_of(|| {
        let _reader = lock.read();
        panic!("while reading");
    });
    assert!(!lock.is_poisoned());
    drop(lock.write());
}

#[test]
fn parallel_work_keeps_its_order() {
    let items: Vec<u32> = (0..100).collect();
    assert_eq!(super::parallel::map(&items, |item| item * 2), (0..200).step_by(2).collect::<Vec<_>>());
    let failed = super::parallel::try_map(&items, |item| if *item == 50 { Err(*item) } else { Ok(()) });
    assert_eq!(failed, Err(50));
}

#[test]
#[cfg(debug_assertions)]
fn a_probe_counts_and_panics_at_a_chosen_moment() {
    use super::{Moment, Probe};
    let (mutex, rwlock) = (Mutex::new(Rank::Space, 0), RwLock::new(Rank::FileTree, 0));
    let lock_both = || {
        drop(mutex.lock());
        super::parallel::map(&[(); 3], |()| drop(rwlock.read()));
    };
    let probe = Probe::default();
    probe.watch(lock_both);
    lock_both();
    let counted = [Rank::Space, Rank::FileTree].map(|rank| probe.count(rank, Moment::Released));
    assert_eq!(counted, [1, 3]);
    let probe = Probe::panicking_at(Rank::FileTree, Moment::Taken, 2);
    let message = panic_of(|| probe.watch(lock_both));
    assert!(message.contains("FileTree, Taken") && probe.has_panicked(), "{message}");
    let probe = Probe::panicking_at(Rank::Space, Moment::Released, 0);
    panic_of(|| probe.watch(lock_both));
    assert!(!mutex.is_poisoned(), "it was given back");
    let probe = Probe::panicking_at(Rank::Space, Moment::Taken, 0);
    panic_of(|| probe.watch(lock_both));
    assert!(mutex.is_poisoned());
    lock_both_refuses(lock_both);
}

/// The panic is the poisoned lock's: no probe watches any more.
#[cfg(debug_assertions)]
fn lock_both_refuses(lock_both: impl Fn()) {
    let message = panic_of(lock_both);
    assert!(message.starts_with("a thread panicked while it held "), "{message}");
}

#[test]
#[cfg(debug_assertions)]
fn a_rank_that_is_about_to_be_waited_for_is_free() {
    let space = Mutex::new(Rank::Space, ());
    Rank::Commit.assert_free();
    let held = space.lock();
    panic_of(|| Rank::Commit.assert_free());
    Rank::Space.assert_held();
    Rank::Features.assert_free();
    drop(held);
    let message = panic_of(|| Rank::Space.assert_held());
    assert!(message.contains("Space is to be held"), "{message}");
}

//! Independent work, on all cores. A loop in an explored build: rayon's threads are not the explorer's.
//! A [`Probe`](crate::Probe) of the caller's watches the threads that do the work.
//!
//! Rayon's threads are shared by the whole process, so work that waits, for devices or locks, is not for them: what computes
//! would wait for the slowest disk. It has threads of its own ([`try_map_waiting`]).

#[cfg(not(feature = "explore"))]
use crate::probe;
#[cfg(not(feature = "explore"))]
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
#[cfg(not(feature = "explore"))]
use std::thread::{Builder, ScopedJoinHandle};

/// The results of `act` on each item, in order.
#[cfg(not(feature = "explore"))]
pub fn map<T: Sync, R: Send>(items: &[T], act: impl Fn(&T) -> R + Sync + Send) -> Vec<R> {
    use rayon::prelude::*;
    let probe = probe::of_thread();
    items.par_iter().map(|item| probe.watching(|| act(item))).collect()
}

/// The results of `act` on each item, in order.
#[cfg(feature = "explore")]
pub fn map<T: Sync, R: Send>(items: &[T], act: impl Fn(&T) -> R + Sync + Send) -> Vec<R> {
    items.iter().map(act).collect()
}

/// The results of `act` on each item, in order, or one of the errors.
#[cfg(not(feature = "explore"))]
pub fn try_map<T: Sync, R: Send, E: Send>(
    items: &[T],
    act: impl Fn(&T) -> Result<R, E> + Sync + Send,
) -> Result<Vec<R>, E> {
    use rayon::prelude::*;
    let probe = probe::of_thread();
    items.par_iter().map(|item| probe.watching(|| act(item))).collect()
}

/// The results of `act` on each item, in order, or one of the errors.
#[cfg(feature = "explore")]
pub fn try_map<T: Sync, R: Send, E: Send>(
    items: &[T],
    act: impl Fn(&T) -> Result<R, E> + Sync + Send,
) -> Result<Vec<R>, E> {
    items.iter().map(act).collect()
}

/// Threads of the process beside callers of [`try_map_waiting`]. What more callers want is done by the callers.
#[cfg(not(feature = "explore"))]
static PLACES: Places = Places { taken: AtomicUsize::new(0), most: 64 };

/// The results of `act` on each item, in order, or one of the errors, for acts that wait for devices. They begin in the order
/// of the items, a few at a time: what is adjacent is asked of a disk one after the other. Where no further thread is to be
/// had, the caller does all of it.
#[cfg(not(feature = "explore"))]
pub fn try_map_waiting<T: Sync, R: Send, E: Send>(
    items: &[T],
    act: impl Fn(&T) -> Result<R, E> + Sync + Send,
) -> Result<Vec<R>, E> {
    try_map_within(&PLACES, items, act)
}

#[cfg(not(feature = "explore"))]
fn try_map_within<T: Sync, R: Send, E: Send>(
    places: &Places,
    items: &[T],
    act: impl Fn(&T) -> Result<R, E> + Sync + Send,
) -> Result<Vec<R>, E> {
    let (probe, next) = (probe::of_thread(), AtomicUsize::new(0));
    let take_turns = &|| {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Relaxed);
            let Some(item) = items.get(index) else { return done };
            let result = probe.watching(|| act(item));
            if result.is_err() {
                next.store(items.len(), Relaxed);
            }
            done.push((index, result));
        }
    };
    // Two at least: one waits while the other computes.
    let threads = rayon::current_num_threads().max(2).min(items.len());
    let mut done = std::thread::scope(|scope| {
        let start = |_| {
            let place = places.take()?;
            let run = move || (take_turns(), drop(place)).0;
            Builder::new().name("devices".to_owned()).spawn_scoped(scope, run).ok()
        };
        let others: Vec<_> = (1..threads).map_while(start).collect();
        let mut done = take_turns();
        for other in others {
            match other.join() {
                Ok(of_other) => done.extend(of_other),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The results of `act` on shares of the items, in order, for acts that wait for devices: a thread makes each, the caller the
/// first, and those for which no further thread is to be had.
#[cfg(not(feature = "explore"))]
pub fn map_shares<T: Sync, R: Send>(
    items: &[T],
    share: usize,
    act: impl Fn(&[T]) -> R + Sync + Send,
) -> Vec<R> {
    let Some((first, others)) = items.split_at_checked(share.min(items.len())) else { return Vec::new() };
    let (probe, act) = (&probe::of_thread(), &act);
    std::thread::scope(|scope| {
        let start = |items| Builder::new().spawn_scoped(scope, move || probe.watching(|| act(items))).ok();
        let others: Vec<_> = others.chunks(share).map(|items| (items, start(items))).collect();
        let mut results = vec![act(first)];
        for (items, other) in others {
            results.push(match other.map(ScopedJoinHandle::join) {
                None => act(items),
                Some(Ok(result)) => result,
                Some(Err(panic)) => std::panic::resume_unwind(panic),
            });
        }
        results
    })
}

/// The results of `act` on shares of the items, in order, by a thread for each.
#[cfg(feature = "explore")]
pub fn map_shares<T: Sync, R: Send>(
    items: &[T],
    share: usize,
    act: impl Fn(&[T]) -> R + Sync + Send,
) -> Vec<R> {
    let act = &act;
    crate::thread::scope(|scope| {
        let threads: Vec<_> = items.chunks(share).map(|items| scope.spawn(move || act(items))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    })
}

/// Bounded number of threads.
#[cfg(not(feature = "explore"))]
struct Places {
    taken: AtomicUsize,
    most: usize,
}

/// One of them, from before its start to its end.
#[cfg(not(feature = "explore"))]
struct Place<'p>(&'p Places);

#[cfg(not(feature = "explore"))]
impl Places {
    fn take(&self) -> Option<Place<'_>> {
        let take = |taken: usize| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Relaxed, Relaxed, take).is_ok().then(|| Place(self))
    }
}

#[cfg(not(feature = "explore"))]
impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Relaxed);
    }
}

/// The results of `act` on each item, in order, or one of the errors, for acts that wait for devices.
#[cfg(feature = "explore")]
pub fn try_map_waiting<T: Sync, R: Send, E: Send>(
    items: &[T],
    act: impl Fn(&T) -> Result<R, E> + Sync + Send,
) -> Result<Vec<R>, E> {
    items.iter().map(act).collect()
}

#[cfg(all(test, not(feature = "explore")))]
mod tests {
    use super::*;
    use std::sync::{Barrier, Mutex, mpsc};
    use std::time::Duration;

    #[test]
    fn results_are_in_order_and_acts_begin_in_order() {
        let threads = rayon::current_num_threads().max(2);
        // Each thread has one item at a time until all have, so that they go on together.
        let (begun, all_have_begun) = (Mutex::new(Vec::new()), Barrier::new(threads));
        let items: Vec<usize> = (0..20 * threads).collect();
        let doubled = try_map_waiting(&items, |item| {
            begun.lock().expect("no panic").push(*item);
            all_have_begun.wait();
            Ok::<_, ()>(item * 2)
        });
        assert_eq!(doubled, Ok(items.iter().map(|item| item * 2).collect()));
        let mut begun = begun.into_inner().expect("no panic");
        begun.chunks_mut(threads).for_each(<[usize]>::sort_unstable);
        assert_eq!(begun, items);
    }

    #[test]
    fn an_error_ends_it_and_nothing_is_asked_of_no_items() {
        let items: Vec<u32> = (0..1000).collect();
        let failed = try_map_waiting(&items, |item| if *item >= 10 { Err(*item) } else { Ok(*item) });
        assert!(failed.is_err_and(|item| item < 100));
        assert_eq!(try_map_waiting(&[], |_: &u32| Err::<(), _>(())), Ok(Vec::new()));
    }

    #[test]
    fn callers_do_everything_where_no_thread_is_to_be_had() {
        for most in 0..3 {
            let places = Places { taken: AtomicUsize::new(0), most };
            let doubled = try_map_within(&places, &[1, 2, 3], |item| {
                assert!(places.taken.load(Relaxed) <= most);
                Ok::<_, ()>(item * 2)
            });
            assert_eq!(doubled, Ok(vec![2, 4, 6]));
            assert_eq!(places.taken.load(Relaxed), 0);
        }
    }

    #[test]
    fn shares_are_made_in_order() {
        let numbers: Vec<u32> = (0..10).collect();
        assert_eq!(map_shares(&numbers, 4, |share| share.iter().sum::<u32>()), [6, 22, 17]);
        assert_eq!(map_shares(&numbers, 20, <[u32]>::len), [10]);
        assert_eq!(map_shares(&numbers[..0], 4, <[u32]>::len), [0]);
    }

    #[test]
    fn computing_goes_on_beside_acts_that_wait() {
        let threads = rayon::current_num_threads().max(2);
        let all_wait = Barrier::new(threads + 1);
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                try_map_waiting(&vec![(); threads], |()| {
                    all_wait.wait();
                    released.lock().expect("no panic").recv().map_err(|_| ())
                })
                .expect("each is released")
            });
            all_wait.wait();
            let (computed, answer) = mpsc::channel();
            rayon::spawn(move || computed.send(map(&[1, 2, 3], |item| item + 1)).expect("it is waited for"));
            let answer = answer.recv_timeout(Duration::from_secs(60));
            (0..threads).for_each(|_| release.send(()).expect("it is waited for"));
            assert_eq!(answer, Ok(vec![2, 3, 4]));
        });
    }
}

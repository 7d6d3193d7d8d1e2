//! Independent work, on all cores. A loop in an explored build: rayon's threads are not the explorer's.
//! A [`Probe`](crate::Probe) of the caller's watches the threads that do the work.

#[cfg(not(feature = "explore"))]
use crate::probe;

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

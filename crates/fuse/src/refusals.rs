//! Refusals of contents that the kernel had taken from programs already, file by file.
//!
//! A program that writes through the page cache and neither syncs nor closes has no way to hear that its data was not
//! taken. But the kernel asks for the attributes of a file before each write(2) if it does not know them, and hands the
//! error on to the writer. So it is not let keep the attributes of such a file, and is answered with the error when it
//! asks on behalf of a writer, until writing can be expected to do better; or once, if some of the file can be
//! written in place, for what is to be written where the kernel does not say.

use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Last refusal of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) errno: Errno,
    /// Bytes that were not taken.
    pub(crate) bytes: u64,
}

/// Files of which something was refused, by node number.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    files: Mutex<HashMap<u64, Refusal>>,
    /// Their number: for the usual question on a mount where nothing is refused.
    count: AtomicUsize,
}

impl Refusals {
    pub(crate) fn note(&self, node: u64, refusal: Refusal) {
        self.change(|files| {
            files.insert(node, refusal);
        });
    }

    /// Refusal of a file.
    pub(crate) fn get(&self, node: u64) -> Option<Refusal> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.files().get(&node).copied()
    }

    /// Forgets a file: nothing stands in the way of writing it any more, or the kernel has forgotten it.
    pub(crate) fn forget(&self, node: u64) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.change(|files| {
                files.remove(&node);
            });
        }
    }

    fn change(&self, act: impl FnOnce(&mut HashMap<u64, Refusal>)) {
        let mut files = self.files();
        act(&mut files);
        self.count.store(files.len(), Ordering::Relaxed);
    }

    fn files(&self) -> MutexGuard<'_, HashMap<u64, Refusal>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_refusal_of_a_file_stays_until_it_is_forgotten() {
        let refusals = Refusals::default();
        assert_eq!(refusals.get(300), None);
        let (first, last) =
            (Refusal { errno: Errno::NOSPC, bytes: 1 }, Refusal { errno: Errno::ROFS, bytes: 9 });
        refusals.note(300, first);
        refusals.note(300, last);
        refusals.note(301, first);
        refusals.forget(301);
        assert_eq!((refusals.get(300), refusals.get(301)), (Some(last), None));
        refusals.forget(300);
        assert_eq!(refusals.get(300), None);
    }
}

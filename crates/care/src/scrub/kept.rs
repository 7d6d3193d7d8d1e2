//! The faults that a record has room for: each file that is damaged is named by it, however much of another one is.

use super::{FAULTS_MAX, Fault};
use std::collections::BTreeMap;

/// Number of faults of a file that are kept.
const FAULTS_OF_FILE_MAX: u32 = 16;
/// Number of faults that are kept although they name no other file than the ones before.
const FAULTS_MORE_MAX: usize = FAULTS_MAX / 2;

/// Faults that are kept, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Kept {
    of_files: BTreeMap<Vec<u8>, u32>,
    /// Number of faults that have named a file first.
    first: usize,
    /// Number of the others.
    more: usize,
}

impl Kept {
    /// Those of a report.
    pub(super) fn of(faults: &[Fault]) -> Self {
        let mut kept = Self::default();
        faults.iter().for_each(|fault| kept.count(fault));
        kept
    }

    /// Returns true if there is room for another fault, which counts as kept then.
    pub(super) fn takes(&mut self, fault: &Fault) -> bool {
        let has_room = self.first + self.more < FAULTS_MAX;
        let is_one_of_few =
            |path: &Vec<u8>| self.of_files.get(path).is_none_or(|it| *it < FAULTS_OF_FILE_MAX);
        let is_more = self.lists(fault);
        let is_wanted = fault.files.is_empty() || fault.files.iter().any(|(path, _)| is_one_of_few(path));
        let takes = has_room && is_wanted && (!is_more || self.more < FAULTS_MORE_MAX);
        if takes {
            self.count(fault);
        }
        takes
    }

    /// Returns true if all files of a fault are named.
    pub(super) fn lists(&self, fault: &Fault) -> bool {
        fault.files.iter().all(|(path, _)| self.of_files.contains_key(path))
    }

    fn count(&mut self, fault: &Fault) {
        if self.lists(fault) {
            self.more += 1;
        } else {
            self.first += 1;
        }
        for (path, _) in &fault.files {
            *self.of_files.entry(path.clone()).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> Fault {
        let files = if path.is_empty() { Vec::new() } else { vec![(path.as_bytes().to_vec(), 0)] };
        Fault { text: String::new(), files, errors: 1 }
    }

    /// Number of faults that are kept of some.
    fn kept(kept: &mut Kept, faults: impl Iterator<Item = String>) -> usize {
        faults.filter(|path| kept.takes(&of(path))).count()
    }

    #[test]
    fn a_damaged_file_is_named_whatever_came_before() {
        let mut all = Kept::default();
        let of_one = (0..5000).map(|_| "/large".to_owned());
        assert_eq!(kept(&mut all, of_one), 16);
        let of_none = (0..5000).map(|_| String::new());
        assert_eq!(kept(&mut all, of_none), 500 - 15);
        let of_many = (0..5000).map(|number| format!("/{number}"));
        assert_eq!(kept(&mut all, of_many), 500 - 1);
        assert!(all.lists(&of("/large")) && all.lists(&of("/498")) && all.lists(&of("")));
        assert!(!all.lists(&of("/499")), "there is no room");
        // A fault that several files have is of those that are not named yet.
        let mut shared = Kept::of(&vec![of("/large"); 16]);
        let mut fault = of("/large");
        assert!(!shared.takes(&fault));
        fault.files.push((b"/copy".to_vec(), 0));
        assert!(shared.takes(&fault) && shared.lists(&of("/copy")));
    }
}

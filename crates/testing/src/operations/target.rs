//! The filesystem under test.

use super::Operation;
use crate::manifest::{Manifest, escape};
use crate::model::{Errno, Model, TreePath};

/// A filesystem that does operations.
pub trait Target {
    /// Does it. [`Operation::Sync`], [`Operation::SyncFile`] and [`Operation::Remount`] return when it is durable.
    fn apply(&mut self, operation: &Operation) -> Result<(), Errno>;

    /// Everything that it shows. Times of change and creation, flags and inode numbers are not compared, nor are
    /// the times of what a snapshot shows in place of a subvolume.
    fn manifest(&mut self) -> Result<Manifest, String>;

    /// Counts of what it has done beside the operations, by kind.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// The bytes of a file, to say where they differ.
    fn contents(&mut self, _path: &TreePath) -> Option<Vec<u8>> {
        None
    }

    /// Returns true if it may be out of space where the model never is. An operation refused for that must have
    /// changed nothing but the contents of the file that it writes.
    fn may_be_full(&self) -> bool {
        false
    }
}

/// The first difference between the model and what the target shows, with its path.
pub fn compare(model: &Model, target: &mut impl Target) -> Result<(), String> {
    let found = target.manifest()?;
    match model.expectation().difference(&found) {
        None => Ok(()),
        Some(difference) => {
            let detail = first_wrong_file(model, &found, target).unwrap_or_default();
            Err(format!("{difference}{detail}"))
        }
    }
}

/// First file with other contents than the model's, if that is a difference at all.
fn first_wrong_file(model: &Model, found: &Manifest, target: &mut impl Target) -> Option<String> {
    let expectation = model.expectation();
    let differs = |path: &[u8]| {
        let (expected, found) = (expectation.manifest().entry(path), found.entry(path));
        expected.zip(found).is_some_and(|(expected, found)| expected.kind != found.kind)
    };
    let path = expectation.manifest().entries().map(|entry| &entry.path[..]).find(|path| differs(path))?;
    let path = TreePath::new(path);
    let expected = model.contents(&path).ok()?;
    let theirs = target.contents(&path)?;
    let at = expected.iter().zip(&theirs).position(|(a, b)| a != b)?;
    let excerpt = |bytes: &[u8]| escape(&bytes[at..bytes.len().min(at + 16)]);
    Some(format!(" (from byte {at} on: \"{}\" instead of \"{}\")", excerpt(&theirs), excerpt(&expected)))
}

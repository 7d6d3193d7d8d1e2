//! Fewer names for the same failure.

use super::Operation;
use crate::model::TreePath;

impl Operation {
    /// Every path in it.
    fn paths_mut(&mut self) -> Vec<&mut TreePath> {
        match self {
            Self::Link { existing: a, path: b }
            | Self::Rename { from: a, to: b, .. }
            | Self::CloneRange { from: a, to: b, .. }
            | Self::Snapshot { source: a, path: b, .. } => vec![a, b],
            Self::Create { path, .. }
            | Self::MakeDirectory { path, .. }
            | Self::Symlink { path, .. }
            | Self::MakeNode { path, .. }
            | Self::Unlink { path }
            | Self::RemoveDirectory { path }
            | Self::Write { path, .. }
            | Self::Truncate { path, .. }
            | Self::Allocate { path, .. }
            | Self::PunchHole { path, .. }
            | Self::ZeroRange { path, .. }
            | Self::SetMode { path, .. }
            | Self::SetOwner { path, .. }
            | Self::SetTimes { path, .. }
            | Self::SetXattr { path, .. }
            | Self::RemoveXattr { path, .. }
            | Self::CreateSubvolume { path }
            | Self::DeleteSubvolume { path }
            | Self::SyncFile { path } => vec![path],
            Self::Sync | Self::Remount => Vec::new(),
        }
    }

    /// Replacement for this operation's new name once the operation is left out: the old one, or the directory in
    /// which the new one would have been.
    fn substitute(&self) -> Option<(&TreePath, TreePath)> {
        match self {
            Self::Rename { from, to, .. } => Some((to, from.clone())),
            Self::Link { existing, path } => Some((path, existing.clone())),
            Self::MakeDirectory { path, .. }
            | Self::CreateSubvolume { path }
            | Self::Snapshot { path, .. } => Some((path, path.split()?.0)),
            _ => None,
        }
    }
}

/// The operations without one of them, with what came after it aimed at what is there without it; `None` if that one
/// made no name.
fn without(operations: &[Operation], number: usize) -> Option<Vec<Operation>> {
    let (old, new) = operations[number].substitute()?;
    let mut fewer = [&operations[..number], &operations[number + 1..]].concat();
    for path in fewer[number..].iter_mut().flat_map(Operation::paths_mut) {
        if path.is_within(old) {
            let names: Vec<&[u8]> = path.names().skip(old.names().count()).collect();
            *path = names.into_iter().fold(new.clone(), |path, name| path.join(name));
        }
    }
    Some(fewer)
}

/// Leaves out directories and moves that the failure is not about. `fails` is called `budget` times at most.
pub(super) fn hoist(
    operations: Vec<Operation>,
    mut budget: usize,
    mut fails: impl FnMut(&[Operation]) -> bool,
) -> Vec<Operation> {
    let mut kept = operations;
    let mut number = kept.len();
    while number > 0 && budget > 0 {
        number -= 1;
        if let Some(fewer) = without(&kept, number) {
            budget -= 1;
            if fails(&fewer) {
                kept = fewer;
                // What hindered others may be gone.
                number = kept.len();
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{RenameRule, path};

    #[test]
    fn directories_and_moves_that_do_not_matter_go() {
        let operations = vec![
            Operation::MakeDirectory { path: path("a"), mode: 0 },
            Operation::MakeDirectory { path: path("a/b"), mode: 0 },
            Operation::Create { path: path("a/b/f"), mode: 0 },
            Operation::Rename { from: path("a"), to: path("c"), rule: RenameRule::Replace },
            Operation::Unlink { path: path("c/b/f") },
        ];
        let left = hoist(operations, 100, |some| matches!(some.last(), Some(Operation::Unlink { .. })));
        assert_eq!(
            left,
            [Operation::Create { path: path("f"), mode: 0 }, Operation::Unlink { path: path("f") }]
        );
    }
}

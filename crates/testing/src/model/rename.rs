//! Names move.

use super::{Body, Child, Errno, Inode, InodePlace, Model, Node, TreePath};
use crate::manifest::Device;

/// Treatment of the inode that has the new name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameRule {
    /// The inode loses the name.
    Replace,
    /// The inode keeps the name, and the rename is refused (`RENAME_NOREPLACE`).
    NoReplace,
    /// The inode gets the old name (`RENAME_EXCHANGE`).
    Exchange,
    /// The inode loses the name, and the old name becomes that of a whiteout (`RENAME_WHITEOUT`).
    Whiteout,
}

/// A name that is moved, or moved to, with what it stands for.
struct End<'a> {
    path: &'a TreePath,
    directory: InodePlace,
    child: Child,
}

impl Model {
    /// Moves a name.
    pub fn rename(&mut self, from: &TreePath, to: &TreePath, rule: RenameRule) -> Result<(), Errno> {
        if from.is_top() || to.is_top() {
            return Err(Errno::Invalid);
        }
        // Both directories are looked up before either name.
        let directory = |path: &TreePath| {
            path.split().map_or(Ok(InodePlace::TOP), |(directory, _)| self.resolve(&directory))
        };
        for directory in [directory(from)?, directory(to)?] {
            if !self.at(directory).is_directory() {
                return Err(Errno::NotDirectory);
            }
        }
        let source = self.entry(from)?;
        let child = source.child.ok_or(Errno::NotFound)?;
        let target = self.entry(to)?;
        let old = End { path: from, directory: source.directory, child };
        let directory = target.directory;
        match (target.child, rule) {
            (Some(_), RenameRule::NoReplace) => return Err(Errno::Exists),
            (None, RenameRule::Exchange) => return Err(Errno::NotFound),
            _ => {}
        }
        if source.directory != directory {
            if to.is_within(from) {
                return Err(Errno::Invalid);
            }
            if from.is_within(to) {
                return Err(if rule == RenameRule::Exchange { Errno::Invalid } else { Errno::NotEmpty });
            }
        }
        let is_same = |new: Child| new == child && directory.subvolume == source.directory.subvolume;
        match target.child {
            Some(new) if is_same(new) => Ok(()),
            Some(new) if rule == RenameRule::Exchange => {
                self.exchange(&old, &End { path: to, directory, child: new })
            }
            other => self.move_to(&old, directory, to, other, rule == RenameRule::Whiteout),
        }
    }

    fn exchange(&mut self, a: &End<'_>, b: &End<'_>) -> Result<(), Errno> {
        self.check_writable(a.directory)?;
        self.check_writable(b.directory)?;
        let are_subvolumes = matches!((a.child, b.child), (Child::Subvolume(_), Child::Subvolume(_)));
        if a.directory.subvolume != b.directory.subvolume && !are_subvolumes {
            return Err(Errno::CrossDevice);
        }
        if a.child == Child::Placeholder || b.child == Child::Placeholder {
            return Err(Errno::NotPermitted);
        }
        self.put(a.directory, a.path, b.child);
        self.put(b.directory, b.path, a.child);
        Ok(())
    }

    fn move_to(
        &mut self,
        old: &End<'_>,
        directory: InodePlace,
        to: &TreePath,
        other: Option<Child>,
        leaves_whiteout: bool,
    ) -> Result<(), Errno> {
        self.check_writable(old.directory)?;
        self.check_writable(directory)?;
        let is_directory = self.is_directory(old.directory, old.child);
        if let Some(other) = other {
            match (is_directory, self.is_directory(directory, other)) {
                (true, false) => return Err(Errno::NotDirectory),
                (false, true) => return Err(Errno::IsDirectory),
                _ => {}
            }
        }
        if other == Some(Child::Placeholder) {
            return Err(Errno::NotPermitted);
        }
        let is_subvolume = matches!(old.child, Child::Subvolume(_));
        if old.directory.subvolume != directory.subvolume && !is_subvolume {
            return Err(Errno::CrossDevice);
        }
        if old.child == Child::Placeholder {
            return Err(Errno::NotEmpty);
        }
        // The root of a subvolume is never replaced, be it empty.
        if let Some(other) = other {
            if (matches!(other, Child::Subvolume(_)) || !self.is_empty(directory, other)) {
                return Err(Errno::NotEmpty);
            }
        }
        self.put(directory, to, old.child);
        if let Some(other) = other {
            self.forget(directory, other);
        }
        let (_, name) = old.path.split().expect("the top does not move");
        if leaves_whiteout {
            let whiteout = Node::Char(Device { major: 0, minor: 0 });
            let ino = self.add_inode(old.directory.subvolume, Inode::new(Body::Node(whiteout), 0));
            self.put(old.directory, old.path, Child::Inode(ino));
        } else {
            self.children_mut(old.directory).remove(name);
        }
        Ok(())
    }
}

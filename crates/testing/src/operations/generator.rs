//! Operations that follow from a seed, mostly such as can be done.

use super::choose::Chooser;
use super::inventory::{Inventory, Name, Sort};
use super::{Mix, Operation};
use crate::manifest::{Device, Time};
use crate::model::{Model, Node, RenameRule, SECTOR_BYTES, TreePath, XattrRule};
use brindle_sim::Random;

/// Makes up one operation after the other.
#[derive(Clone, Debug)]
pub struct Generator {
    random: Random,
    mix: Mix,
}

/// Number of subvolumes from which on more are deleted than made.
const SUBVOLUMES_MAX: usize = 7;

const FILE_MODES: [u16; 6] = [0o644, 0o600, 0o755, 0o777, 0o400, 0];
const DIRECTORY_MODES: [u16; 4] = [0o755, 0o700, 0o1777, 0o711];
const OWNERS: [u32; 4] = [0, 1000, 65_534, u32::MAX - 1];
const SECONDS: [i64; 6] = [-1, 0, 1, 1 << 31, 1 << 34, 1_700_000_000];
const NANOSECONDS: [u32; 3] = [0, 1, 999_999_999];
const XATTRS: [&str; 6] =
    ["user.a", "user.b", "user.c", "trusted.a", "user.%", "user.long-name-of-an-attribute"];

impl Generator {
    /// The operations that follow from a seed.
    #[must_use]
    pub fn new(seed: u64, mix: Mix) -> Self {
        Self { random: Random::new(seed), mix }
    }

    /// The next one, for a filesystem that is as `model` says.
    pub fn next(&mut self, model: &Model) -> Operation {
        let inventory = Inventory::of(model);
        loop {
            let is_perverse = self.random.chance(self.mix.invalid_percent, 100);
            let Self { random, mix } = self;
            let mut chooser = Chooser { random, mix, model, inventory: &inventory, is_perverse };
            if let Some(operation) = chooser.operation() {
                return operation;
            }
        }
    }
}

impl Chooser<'_> {
    /// `None` if what was chosen has nothing to be done to.
    fn operation(&mut self) -> Option<Operation> {
        let mix = self.mix;
        let weights =
            [mix.names, mix.contents, mix.attributes, mix.subvolumes, mix.sync, mix.sync_file, mix.remount];
        let mut number = self.below(weights.iter().sum());
        let kind = weights.iter().position(|weight| {
            let is_here = number < *weight;
            number = number.wrapping_sub(*weight);
            is_here
        });
        match kind? {
            0 => self.names(),
            1 => self.contents(),
            2 => self.attributes(),
            3 => self.subvolumes(),
            4 => Some(Operation::Sync),
            5 => Some(Operation::SyncFile { path: self.file_or_directory()?.path }),
            _ => Some(Operation::Remount),
        }
    }

    fn names(&mut self) -> Option<Operation> {
        let is_full = self.inventory.len() >= self.mix.names_max;
        let number = self.below(100);
        Some(match if is_full { number.max(56) } else { number } {
            0..26 => Operation::Create { path: self.new_path(None)?, mode: *self.random.pick(&FILE_MODES) },
            26..37 => Operation::MakeDirectory {
                path: self.new_path(None)?,
                mode: *self.random.pick(&DIRECTORY_MODES),
            },
            37..42 => Operation::Symlink { path: self.new_path(None)?, target: self.symlink_target() },
            42..46 => {
                let (path, node) = (self.new_path(None)?, self.node());
                Operation::MakeNode { path, node, mode: *self.random.pick(&FILE_MODES) }
            }
            46..56 => self.link()?,
            56..74 => self.rename()?,
            74..90 => {
                let inventory = self.inventory;
                let path = match self.below(6) {
                    _ if self.is_perverse => self.any_path()?,
                    0 => self.one_of(&inventory.others)?.path,
                    _ => self.one_of(&inventory.files)?.path,
                };
                Operation::Unlink { path }
            }
            _ => self.remove_directory()?,
        })
    }

    fn link(&mut self) -> Option<Operation> {
        if self.is_perverse {
            let existing = self.misfit_or_file()?;
            return Some(Operation::Link { existing, path: self.any_path()? });
        }
        let inventory = self.inventory;
        let existing =
            if self.once_in(8) { self.one_of(&inventory.others)? } else { self.one_of(&inventory.files)? };
        let path = self.new_path(Some(existing.subvolume))?;
        Some(Operation::Link { existing: existing.path, path })
    }

    fn misfit_or_file(&mut self) -> Option<TreePath> {
        let inventory = self.inventory;
        if self.once_in(2) { self.any_path() } else { Some(self.one_of(&inventory.files)?.path) }
    }

    fn remove_directory(&mut self) -> Option<Operation> {
        let placeholder = self.one_of(&self.inventory.placeholders);
        if let (Some(path), true) = (placeholder, self.once_in(4)) {
            return Some(Operation::RemoveDirectory { path });
        }
        // A subvolume goes by its own operation.
        let is_plain = |name: &&Name| !name.is_root && (name.is_empty || self.is_perverse);
        let directories: Vec<TreePath> =
            self.inventory.directories.iter().filter(is_plain).map(|name| name.path.clone()).collect();
        if self.is_perverse && self.once_in(2) {
            let path = self.any_path()?;
            return (!self.model.is_subvolume(&path)).then_some(Operation::RemoveDirectory { path });
        }
        Some(Operation::RemoveDirectory { path: self.one_of(&directories)? })
    }

    fn rename(&mut self) -> Option<Operation> {
        let rules = [RenameRule::Replace, RenameRule::NoReplace, RenameRule::Exchange, RenameRule::Whiteout];
        let number = self.below(10);
        let rule = match number {
            0..6 => RenameRule::Replace,
            6 | 7 => RenameRule::NoReplace,
            8 if self.mix.has_rename_rules => RenameRule::Exchange,
            9 if self.mix.has_rename_rules && self.once_in(3) => RenameRule::Whiteout,
            _ => rules[0],
        };
        if self.is_perverse {
            let from = if self.once_in(2) { self.any_path()? } else { self.movable()?.path };
            return Some(Operation::Rename { from, to: self.any_path()?, rule });
        }
        let from = self.movable()?;
        let wants_other = rule == RenameRule::Exchange || (rule != RenameRule::NoReplace && self.once_in(3));
        let to = if wants_other {
            self.replaceable(&from, rule)?
        } else {
            self.new_path(Some(self.holder(&from)))?
        };
        (!to.is_within(&from.path) || to == from.path).then_some(Operation::Rename {
            from: from.path,
            to,
            rule,
        })
    }

    /// The subvolume of the directory in which a name is.
    fn holder(&self, name: &Name) -> u64 {
        let directory = name.path.split().map(|(directory, _)| directory);
        let holder = self.inventory.directories.iter().find(|other| Some(&other.path) == directory.as_ref());
        holder.map_or(name.subvolume, |directory| directory.subvolume)
    }

    /// A path of the same subvolume, whose inode can give its place to this one, or change places with it.
    fn replaceable(&mut self, from: &Name, rule: RenameRule) -> Option<TreePath> {
        let inventory = self.inventory;
        let holder = self.holder(from);
        let is_fit = |name: &&Name| {
            let is_sort = rule == RenameRule::Exchange || from.sort != Sort::Directory || name.is_empty;
            name.subvolume == holder && !name.is_root && is_sort && !from.path.is_within(&name.path)
        };
        let names = if from.sort == Sort::Directory { &inventory.directories } else { &inventory.files };
        let names: Vec<TreePath> = names.iter().filter(is_fit).map(|name| name.path.clone()).collect();
        self.one_of(&names)
    }

    fn symlink_target(&mut self) -> String {
        let length = *self.random.pick(&[1, 10, 60, 255, 2000, 3900]);
        let letter = char::from(b'a' + u8::try_from(self.below(26)).expect("small"));
        letter.to_string().repeat(length)
    }

    fn node(&mut self) -> Node {
        let major = u32::try_from(self.below(4096)).expect("small");
        let rdev = Device { major, minor: u32::try_from(self.below(1 << 20)).expect("small") };
        *self.random.pick(&[Node::Fifo, Node::Socket, Node::Char(rdev), Node::Block(rdev)])
    }

    fn contents(&mut self) -> Option<Operation> {
        let number = self.below(100);
        if number >= 85 {
            return if self.mix.has_reflinks { self.clone_range() } else { None };
        }
        let Name { path, size, .. } = self.file()?;
        let length = self.length();
        let offset = self.offset(size, length);
        let is_special = number >= 65;
        if is_special && !self.mix.has_allocation {
            return None;
        }
        let (length, keeps_size) = if is_special && self.is_perverse && self.once_in(3) {
            (0, true)
        } else {
            (length.min(self.mix.file_bytes_max.saturating_sub(offset)).max(1), self.once_in(2))
        };
        Some(match number {
            0..55 => Operation::Write { path, offset, data: self.data(length) },
            55..65 if self.once_in(2) => Operation::Truncate { path, size: self.below(size + 1) },
            55..65 => Operation::Truncate { path, size: self.length() },
            65..72 => Operation::Allocate { path, offset, length, keeps_size },
            72..79 => Operation::PunchHole { path, offset, length },
            _ => Operation::ZeroRange { path, offset, length, keeps_size },
        })
    }

    fn clone_range(&mut self) -> Option<Operation> {
        let inventory = self.inventory;
        let from = self.one_of(&inventory.files)?;
        let to = self.file()?;
        let aligned = |value: u64| value / SECTOR_BYTES * SECTOR_BYTES;
        let from_offset = aligned(self.below(from.size + 1));
        let to_offset = aligned(self.offset(to.size, SECTOR_BYTES));
        let length = if self.once_in(3) { 0 } else { aligned(self.below(from.size - from_offset + 1)) };
        let skew = u64::from(self.is_perverse && self.once_in(2));
        let (from, to) = (from.path, to.path);
        Some(Operation::CloneRange { from, from_offset, to, to_offset: to_offset + skew, length })
    }

    fn attributes(&mut self) -> Option<Operation> {
        let number = self.below(100);
        if number >= 50 {
            return self.xattr();
        }
        let Name { path, sort, .. } = self.anything()?;
        Some(match number {
            0..20 if sort == Sort::Directory => {
                Operation::SetMode { path, mode: *self.random.pick(&DIRECTORY_MODES) }
            }
            0..20 if sort != Sort::Symlink => {
                Operation::SetMode { path, mode: *self.random.pick(&FILE_MODES) }
            }
            0..35 => {
                let (uid, gid) = (*self.random.pick(&OWNERS), *self.random.pick(&OWNERS));
                Operation::SetOwner { path, uid, gid }
            }
            _ => {
                let mtime = Time { sec: *self.random.pick(&SECONDS), nsec: *self.random.pick(&NANOSECONDS) };
                Operation::SetTimes { path, mtime }
            }
        })
    }

    fn xattr(&mut self) -> Option<Operation> {
        let inode = self.file_or_directory()?;
        let known = self.one_of(&inode.xattrs);
        let path = inode.path;
        let fresh = (*self.random.pick(&XATTRS)).to_owned();
        if self.once_in(3) {
            let name = if self.is_perverse { fresh } else { known? };
            return Some(Operation::RemoveXattr { path, name });
        }
        let (name, rule) = match (self.below(6), known) {
            (0, _) if self.is_perverse => (fresh, XattrRule::Replace),
            (1, Some(known)) if self.is_perverse => (known, XattrRule::Create),
            (2, Some(known)) => (known, XattrRule::Replace),
            (3, _) if !inode.xattrs.contains(&fresh) => (fresh, XattrRule::Create),
            _ => (fresh, XattrRule::Any),
        };
        let longest = self.mix.xattr_bytes_max;
        let length = *self.random.pick(&[0, 1, 30, 200, longest / 2, longest]);
        let value = self.data(length.min(longest) as u64);
        Some(Operation::SetXattr { path, name, value, rule })
    }

    fn subvolumes(&mut self) -> Option<Operation> {
        let inventory = self.inventory;
        let is_full = inventory.subvolumes.len() >= SUBVOLUMES_MAX;
        match self.below(10) {
            0..3 if !is_full => Some(Operation::CreateSubvolume { path: self.new_path(None)? }),
            0..7 if !is_full => {
                let source = if self.is_perverse {
                    self.any_path()?
                } else {
                    self.one_of(&inventory.subvolumes)?.path
                };
                Some(Operation::Snapshot {
                    source,
                    path: self.new_path(None)?,
                    is_read_only: self.once_in(3),
                })
            }
            _ if self.is_perverse => Some(Operation::DeleteSubvolume { path: self.any_path()? }),
            _ => {
                let path = self.one_of(&inventory.subvolumes)?.path;
                (!path.is_top()).then_some(Operation::DeleteSubvolume { path })
            }
        }
    }
}

//! Names, places and sizes, at the edges of what the format does.

use super::inventory::{Inventory, Name, Sort};
use super::{Data, Mix, Texture};
use crate::model::{Model, NAME_BYTES_MAX, TreePath};
use brindle_sim::Random;

/// Three pairs of names with the same hash, so that they share an item.
pub(super) const COLLIDING: [&str; 6] = ["aiyifwg", "dlpjrry", "idqaxgv", "tlcjyzi", "uidffrr", "vjcgjqx"];

/// Names that programs trip over.
const ODD: [&[u8]; 8] =
    [b"with space", b".hidden", b"...", b"-", "\u{fc}\u{2603}".as_bytes(), b"\xff\xfe", b"%41", b"a\nb"];

/// Sizes where something changes: a sector of the medium, what is stored inline, a sector of the filesystem, a
/// compressed extent, more than one of them.
const EDGES: [u64; 12] =
    [1, 512, 2048, 4096, 8192, 16384, 64 << 10, 128 << 10, 132 << 10, 256 << 10, 512 << 10, 1 << 20];

/// Depth of directories at most.
const DEPTH_MAX: usize = 5;

/// One choice after the other.
pub(super) struct Chooser<'a> {
    pub(super) random: &'a mut Random,
    pub(super) mix: &'a Mix,
    pub(super) model: &'a Model,
    pub(super) inventory: &'a Inventory,
    /// True if it chooses operations that will mostly be refused.
    pub(super) is_perverse: bool,
}

impl Chooser<'_> {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    /// Returns true once in `times` times.
    pub(super) fn once_in(&mut self, times: u64) -> bool {
        self.random.chance(1, times)
    }

    /// One of these, if there are any.
    pub(super) fn one_of<T: Clone>(&mut self, choices: &[T]) -> Option<T> {
        if choices.is_empty() { None } else { Some(self.random.pick(choices).clone()) }
    }

    /// A directory where something can be made; one of this subvolume, if that is said.
    pub(super) fn directory(&mut self, subvolume: Option<u64>) -> Option<TreePath> {
        let fits = |name: &&Name| {
            subvolume.is_none_or(|wanted| name.subvolume == wanted) && name.path.names().count() < DEPTH_MAX
        };
        let fitting: Vec<TreePath> =
            self.inventory.directories.iter().filter(fits).map(|name| name.path.clone()).collect();
        self.one_of(&fitting)
    }

    /// A path where something can be made.
    pub(super) fn new_path(&mut self, subvolume: Option<u64>) -> Option<TreePath> {
        if self.is_perverse {
            return self.any_path();
        }
        for _ in 0..6 {
            let path = self.directory(subvolume)?.join(&self.name());
            if !self.model.is_there(&path) {
                return Some(path);
            }
        }
        None
    }

    pub(super) fn file(&mut self) -> Option<Name> {
        if self.is_perverse {
            return self.misfit();
        }
        self.one_of(&self.inventory.files)
    }

    /// A file or a directory.
    pub(super) fn file_or_directory(&mut self) -> Option<Name> {
        if self.is_perverse {
            return self.misfit();
        }
        let inventory = self.inventory;
        if self.once_in(3) { self.one_of(&inventory.directories) } else { self.one_of(&inventory.files) }
    }

    /// Anything that can be written.
    pub(super) fn anything(&mut self) -> Option<Name> {
        let inventory = self.inventory;
        if !self.is_perverse && self.once_in(6) && !inventory.others.is_empty() {
            return self.one_of(&inventory.others);
        }
        self.file_or_directory()
    }

    /// Anything that can be moved to another name.
    pub(super) fn movable(&mut self) -> Option<Name> {
        let inventory = self.inventory;
        let choices = match self.below(7) {
            0..3 => &inventory.files,
            3..6 => &inventory.directories,
            _ => &inventory.others,
        };
        self.one_of(choices).filter(|name| !name.path.is_top())
    }

    /// Any path but the top: there or not, of whatever sort.
    pub(super) fn any_path(&mut self) -> Option<TreePath> {
        let inventory = self.inventory;
        let path = match self.below(8) {
            0 | 1 => self.one_of(&inventory.directories)?.path,
            2 => self.one_of(&inventory.files)?.path,
            3 => self.one_of(&inventory.others)?.path,
            // The root of a read-only subvolume is refused for too many reasons.
            4 => Some(self.one_of(&inventory.frozen)?).filter(|name| !name.is_root)?.path,
            5 => self.one_of(&inventory.files)?.path.join(&self.name()),
            6 => self.directory(None)?.join(&[b'x'; NAME_BYTES_MAX + 1]),
            _ => self.directory(None)?.join(&self.name()),
        };
        // An operation on the empty directory of a vanished subvolume is refused in a way of its own.
        let is_placeholder = self.model.is_there(&path) && self.model.inode(&path).is_err();
        Some(path).filter(|path| !path.is_top() && !is_placeholder)
    }

    /// Path that is no writable file: a directory, nothing, or below a file; never a file that blocks its opener.
    fn misfit(&mut self) -> Option<Name> {
        let path = self.any_path()?;
        let of = |names: &[Name]| names.iter().find(|name| name.path == path).cloned();
        let inventory = self.inventory;
        let all = [&inventory.directories, &inventory.files, &inventory.others, &inventory.frozen];
        match all.into_iter().find_map(|names| of(names)) {
            Some(name) => Some(name).filter(|name| matches!(name.sort, Sort::File | Sort::Directory)),
            None => Some(Name::missing(path)),
        }
    }

    /// A name, of few, so that they meet.
    pub(super) fn name(&mut self) -> Vec<u8> {
        match self.below(20) {
            0 => self.random.pick(&COLLIDING).as_bytes().to_vec(),
            1 => self.random.pick(&ODD).to_vec(),
            2 => {
                let letter = b'a' + u8::try_from(self.below(4)).expect("small");
                vec![letter; NAME_BYTES_MAX - self.random.index(60)]
            }
            3..8 => format!("n{}", self.below(2 * self.mix.names_max as u64)).into_bytes(),
            _ => vec![b'a' + u8::try_from(self.below(12)).expect("small")],
        }
    }

    /// A length in bytes, at an edge or beside it.
    pub(super) fn length(&mut self) -> u64 {
        // Small ones are more frequent: large ones cost time, and hit fewer edges a byte.
        let reach = 1 + self.random.index(EDGES.len());
        let edge = EDGES[self.random.index(reach)];
        let length = match self.below(5) {
            0 => edge - 1,
            1 => edge + 1,
            2 => 1 + self.below(edge),
            _ => edge,
        };
        length.clamp(1, self.mix.file_bytes_max)
    }

    /// Offset for a write of `length` bytes to a file of `size`.
    pub(super) fn offset(&mut self, size: u64, length: u64) -> u64 {
        let offset = match self.below(10) {
            0..3 => size,
            3 => size + self.length(),
            4 => size.saturating_sub(length),
            5 => 0,
            6 | 7 => self.below(size + 1),
            _ => self.below(size / 4096 + 1) * 4096,
        };
        offset.min(self.mix.file_bytes_max.saturating_sub(length))
    }

    pub(super) fn data(&mut self, length: u64) -> Data {
        let texture = *self.random.pick(&[
            Texture::Noise,
            Texture::Noise,
            Texture::Text,
            Texture::Text,
            Texture::Zeros,
        ]);
        let length = usize::try_from(length).expect("a file that fits memory");
        Data { length, texture, seed: self.below(1000) }
    }
}

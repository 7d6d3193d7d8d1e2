//! Assignment of numbers: subvolumes, and the inodes of each in the order of the walk.

use super::scan::{Source, SourceEntry};
use super::{PopulateError, PopulateOptions, SubvolumeKind};
use brindle_fs::{FileType, InodeFlags};
use brindle_ondisk::{ObjectId, to_u64};
use std::collections::HashMap;

/// The index of a directory's first entry (`BTRFS_DIR_START_INDEX`).
const FIRST_INDEX: usize = 2;

/// Assignment of numbers.
#[derive(Debug)]
pub(super) struct Layout {
    /// The top level first, each behind the one that holds it.
    pub(super) subvolumes: Vec<PlannedSubvolume>,
    /// Seats, by entry of the source.
    pub(super) seats: Vec<Seat>,
    /// Further names of entries, by the entry that stands for the inode.
    pub(super) links: HashMap<usize, Vec<usize>>,
}

/// A subvolume that is to be.
#[derive(Debug)]
pub(super) struct PlannedSubvolume {
    /// Its root among the entries of the source.
    pub(super) root: usize,
    pub(super) kind: SubvolumeKind,
    /// The entries that are its inodes, in the order of their numbers.
    pub(super) inodes: Vec<usize>,
}

/// Place of an entry in the pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    /// Index of the planned subvolume that has its inode.
    pub(super) subvolume: usize,
    pub(super) number: ObjectId,
    pub(super) flags: InodeFlags,
}

impl Layout {
    pub(super) fn new(source: &Source, options: &PopulateOptions) -> Result<Self, PopulateError> {
        let roots = subvolume_roots(source, options)?;
        let (flags, none) = (flag_rules(source, options)?, InodeFlags::empty());
        let first =
            PlannedSubvolume { root: 0, kind: roots.get(&0).copied().unwrap_or_default(), inodes: vec![0] };
        let top = Seat {
            subvolume: 0,
            number: ObjectId::FIRST_FREE,
            flags: flags.get(&0).copied().unwrap_or(none),
        };
        let mut layout = Self { subvolumes: vec![first], seats: vec![top], links: HashMap::new() };
        let mut known: HashMap<(usize, u64, u64), usize> = HashMap::new();
        for (at, entry) in source.entries.iter().enumerate().skip(1) {
            let above = layout.seats[entry.parent];
            let flags = above.flags | flags.get(&at).copied().unwrap_or(none);
            if let Some(kind) = roots.get(&at) {
                let subvolume = layout.subvolumes.len();
                layout.subvolumes.push(PlannedSubvolume { root: at, kind: *kind, inodes: vec![at] });
                layout.seats.push(Seat { subvolume, number: ObjectId::FIRST_FREE, flags });
                continue;
            }
            if entry.links > 1 && entry.kind != FileType::Directory {
                let identity = (above.subvolume, entry.identity.0, entry.identity.1);
                let first = *known.entry(identity).or_insert(at);
                if first != at {
                    layout.links.entry(first).or_default().push(at);
                    layout.seats.push(layout.seats[first]);
                    continue;
                }
            }
            let inodes = &mut layout.subvolumes[above.subvolume].inodes;
            let number = ObjectId::new(ObjectId::FIRST_FREE.get() + to_u64(inodes.len()));
            inodes.push(at);
            layout.seats.push(Seat { subvolume: above.subvolume, number, flags });
        }
        Ok(layout)
    }

    /// The number of an entry within its directory.
    pub(super) fn index(source: &Source, at: usize) -> u64 {
        let parent: &SourceEntry = &source.entries[source.entries[at].parent];
        to_u64(at - parent.children.start + FIRST_INDEX)
    }
}

/// The directories that become subvolumes, by entry.
fn subvolume_roots(
    source: &Source,
    options: &PopulateOptions,
) -> Result<HashMap<usize, SubvolumeKind>, PopulateError> {
    let mut roots = HashMap::new();
    for rule in &options.subvolumes {
        let refuse = |why| PopulateError::Rule { path: rule.path.clone(), why };
        let at = source.find(&rule.path).ok_or_else(|| refuse("there is no such directory in the source"))?;
        if source.entries[at].kind != FileType::Directory {
            return Err(refuse("only a directory can become a subvolume"));
        }
        if at == 0 {
            return Err(refuse("the source itself is the top level already"));
        }
        if roots.insert(at, rule.kind).is_some() {
            return Err(refuse("it is to become a subvolume twice"));
        }
    }
    let defaults = roots.values().filter(|kind: &&SubvolumeKind| kind.is_default).count();
    if defaults > 1 {
        let path = options.subvolumes.last().map(|rule| rule.path.clone()).unwrap_or_default();
        return Err(PopulateError::Rule { path, why: "only one subvolume can be the default" });
    }
    Ok(roots)
}

fn flag_rules(
    source: &Source,
    options: &PopulateOptions,
) -> Result<HashMap<usize, InodeFlags>, PopulateError> {
    let mut flags: HashMap<usize, InodeFlags> = HashMap::new();
    for rule in &options.inode_flags {
        let refuse = |why| PopulateError::Rule { path: rule.path.clone(), why };
        let at = source.find(&rule.path).ok_or_else(|| refuse("there is no such path in the source"))?;
        let of = flags.entry(at).or_insert(InodeFlags::empty());
        of.set(InodeFlags::NODATACOW, rule.nodatacow || of.contains(InodeFlags::NODATACOW));
        let is_unsummed = rule.nodatasum || rule.nodatacow || of.contains(InodeFlags::NODATASUM);
        of.set(InodeFlags::NODATASUM, is_unsummed);
    }
    Ok(flags)
}

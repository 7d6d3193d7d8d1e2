//! Subvolumes of a pool as its root tree has them, in all guises of the pool.

use crate::control::{ControlError, Mounted};
use crate::pool::AdminError;
use crate::trees::{Trees, joined};
use brindle_ondisk::item::{RootFlags, RootItem, Timespec};
use brindle_ondisk::{Generation, Item, Key, KeyType, ObjectId, RootId, Uuid};
use brindle_uapi::message::text;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

/// A subvolume or snapshot.
#[derive(Clone, Debug)]
pub struct SubvolumeFacts {
    /// Its id.
    pub id: u64,
    /// The subvolume whose directory names it; `None` of the top level, and of one that is deleted.
    pub parent: Option<u64>,
    /// Path from the top level; empty of the top level itself.
    pub path: Vec<u8>,
    /// Its last name.
    pub name: Vec<u8>,
    /// True if it is deleted, and what it held not yet gone.
    pub is_deleted: bool,
    /// True if it can't be written.
    pub is_read_only: bool,
    /// UUIDs: its own, of what it is a snapshot of, of what it was received from.
    pub uuids: [Uuid; 3],
    /// The last transaction that changed it.
    pub generation: u64,
    /// The last transaction that changed what is in it.
    pub contents_generation: u64,
    /// Transactions of creation, of sending, of receiving.
    pub transactions: [u64; 3],
    /// Seconds since 1970 of creation, of sending, of receiving.
    pub times: [i64; 3],
}

/// All subvolumes by their ids, and the id of the default one.
///
/// # Errors
/// Trees that can't be read.
pub fn subvolumes(trees: &dyn Trees) -> Result<(Vec<SubvolumeFacts>, u64), AdminError> {
    let (mut found, mut places) = (BTreeMap::new(), HashMap::new());
    let range = Key::first_of(RootId::FS_TREE.object_id(), KeyType::ROOT_ITEM)
        ..=Key::last_of(ObjectId::LAST_FREE, KeyType(u8::MAX));
    trees.each(RootId::ROOT_TREE, range, 0, &mut |key, data| {
        let id = RootId::new(key.objectid.get());
        if id != RootId::FS_TREE && !id.is_subvolume() {
            return ControlFlow::Continue(());
        }
        match Item::parse(&key, data) {
            Ok(Item::Root(item)) => drop(found.insert(id.get(), SubvolumeFacts::new(id, &item))),
            Ok(Item::RootRef(link)) if key.item_type == KeyType::ROOT_BACKREF => {
                places.insert(id.get(), (key.offset(), link.dirid, link.name.to_vec()));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    let mut paths = Paths { trees, places, known: HashMap::from([(RootId::FS_TREE.get(), Vec::new())]) };
    for subvolume in found.values_mut().filter(|subvolume| !subvolume.is_deleted) {
        match paths.of(subvolume.id, 0)? {
            Some(path) => subvolume.path = path,
            None => subvolume.is_deleted = true,
        }
        if let Some((parent, _, name)) = paths.places.get(&subvolume.id) {
            (subvolume.parent, subvolume.name) = (Some(*parent), name.clone());
        }
    }
    Ok((found.into_values().collect(), default_subvolume(trees)?))
}

/// Id of the subvolume that is mounted unless another is asked for.
fn default_subvolume(trees: &dyn Trees) -> Result<u64, AdminError> {
    let entries = trees.items(RootId::ROOT_TREE, ObjectId::ROOT_TREE_DIR, KeyType::DIR_ITEM)?;
    for (key, data) in entries {
        let Ok(Item::DirItem(entries)) = Item::parse(&key, &data) else { continue };
        if let Some(entry) = entries.flatten().find(|entry| entry.name == b"default") {
            return Ok(entry.header.location.objectid.get());
        }
    }
    Ok(RootId::FS_TREE.get())
}

/// Subvolumes inside of each other, at most; damage may go round in a circle.
const DEPTH_MAX: usize = 4096;

struct Paths<'t> {
    trees: &'t dyn Trees,
    /// Parent, directory and name by id.
    places: HashMap<u64, (u64, ObjectId, Vec<u8>)>,
    known: HashMap<u64, Vec<u8>>,
}

impl Paths<'_> {
    /// Path from the top level; `None` without a way there.
    fn of(&mut self, id: u64, depth: usize) -> Result<Option<Vec<u8>>, AdminError> {
        if let Some(path) = self.known.get(&id) {
            return Ok(Some(path.clone()));
        }
        let Some((parent, directory, name)) = self.places.get(&id).cloned().filter(|_| depth < DEPTH_MAX)
        else {
            return Ok(None);
        };
        let Some(above) = self.of(parent, depth + 1)? else { return Ok(None) };
        let Some(within) = self.trees.path_of_directory(RootId::new(parent), directory)? else {
            return Ok(None);
        };
        let path = joined(&joined(&above, &within), &name);
        self.known.insert(id, path.clone());
        Ok(Some(path))
    }
}

impl SubvolumeFacts {
    /// Facts of the subvolume that a path of a mount lies in, as any user may ask for them: its path is its name alone.
    ///
    /// # Errors
    /// A mount that does not answer.
    pub fn of_mount(mounted: &Mounted) -> Result<Self, ControlError> {
        let info = mounted.subvolume()?;
        let name = text(&info.name).to_vec();
        let [_, created, sent, received] = info.times.map(|time| time.seconds as i64);
        let [ctransid, otransid, stransid, rtransid] = info.transactions;
        Ok(Self {
            id: info.id,
            parent: Some(info.parent).filter(|parent| *parent != 0),
            path: name.clone(),
            name,
            is_deleted: false,
            is_read_only: RootFlags::from_bits_retain(info.flags).contains(RootFlags::RDONLY),
            uuids: [Uuid(info.uuid), Uuid(info.parent_uuid), Uuid(info.received_uuid)],
            generation: info.generation,
            contents_generation: ctransid,
            transactions: [otransid, stransid, rtransid],
            times: [created, sent, received],
        })
    }

    fn new(id: RootId, item: &RootItem) -> Self {
        let flags = item.root_flags();
        let seconds = |time: &Timespec| time.sec.get();
        Self {
            id: id.get(),
            parent: None,
            path: Vec::new(),
            name: Vec::new(),
            is_deleted: item.refs.get() == 0 || flags.contains(RootFlags::DEAD),
            is_read_only: flags.contains(RootFlags::RDONLY),
            uuids: [item.uuid, item.parent_uuid, item.received_uuid],
            generation: item.generation.get(),
            contents_generation: item.ctransid.get(),
            transactions: [item.otransid, item.stransid, item.rtransid].map(Generation::get),
            times: [&item.otime, &item.stime, &item.rtime].map(seconds),
        }
    }
}

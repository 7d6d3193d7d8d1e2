//! Files that content belongs to, by the references of its extent.

use super::ScrubError;
use brindle_fs::{Filesystem, InodeId};
use brindle_ondisk::item::{BackRef, Compression, FileExtent};
use brindle_ondisk::{Item, Key, KeyType, Logical, Node};
use brindle_tree::{Committed, CommittedExtent, Readahead};
use brindle_volume::{Content, ScrubFault};

/// Number of files that are named at most; an extent may be shared by thousands.
const FILES_MAX: usize = 16;
/// Depth of directories at which a search for the path ends.
const DEPTH_MAX: usize = 4096;

/// Paths of the files that a fault belongs to, with the offset in each; nothing for metadata and parity, and where another copy is
/// right.
pub(crate) fn of(
    filesystem: &Filesystem,
    view: &Committed<'_>,
    fault: &ScrubFault,
) -> Result<Vec<(Vec<u8>, u64)>, ScrubError> {
    let is_of_files = fault.content == Content::Data && fault.is_lost;
    if is_of_files { of_address(filesystem, view, fault.logical) } else { Ok(Vec::new()) }
}

/// Paths of the files that data at an address belongs to, with the offset in each; a few, where many share it.
pub(super) fn files_of_data(filesystem: &Filesystem, at: Logical) -> Result<Vec<(Vec<u8>, u64)>, ScrubError> {
    of_address(filesystem, &filesystem.pool().committed()?, at)
}

/// Returns true if a file has contents at an address of data: it is neither preallocated nor a part of an extent that was overwritten.
pub(crate) fn is_read(
    filesystem: &Filesystem,
    view: &Committed<'_>,
    at: Logical,
) -> Result<bool, ScrubError> {
    let Some(extent) = view.extent_at(at)?.filter(|extent| !extent.references.is_empty()) else {
        return Ok(true);
    };
    let places = places_of(filesystem, view, &extent, at, usize::MAX)?;
    Ok(places.iter().any(|place| !place.is_prealloc))
}

fn of_address(
    filesystem: &Filesystem,
    view: &Committed<'_>,
    at: Logical,
) -> Result<Vec<(Vec<u8>, u64)>, ScrubError> {
    let Some(extent) = view.extent_at(at)?.filter(|extent| !extent.is_block) else {
        return Ok(Vec::new());
    };
    let mut places = places_of(filesystem, view, &extent, at, FILES_MAX)?;
    places.sort_unstable();
    places.dedup();
    places.truncate(FILES_MAX);
    Ok(places.into_iter().map(|place| (path_of(filesystem, place.file), place.offset)).collect())
}

/// Place of a file that has an address of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    file: InodeId,
    offset: u64,
    /// True if it reads as zeros there.
    is_prealloc: bool,
}

/// Places of an address of an extent, by its references; these are asked until there are `most` places.
fn places_of(
    filesystem: &Filesystem,
    view: &Committed<'_>,
    extent: &CommittedExtent,
    at: Logical,
    most: usize,
) -> Result<Vec<Place>, ScrubError> {
    let mut places: Vec<Place> = Vec::new();
    for reference in &extent.references {
        if places.len() >= most {
            break;
        }
        match reference {
            BackRef::Data(data) => {
                let id = InodeId { tree: data.root, number: data.objectid };
                places.extend(place_in(filesystem, view, id, data.offset.get(), extent, at)?);
            }
            BackRef::SharedData { parent, .. } => {
                let leaf = view.leaf(*parent)?;
                places.extend(in_leaf(&leaf, extent, at));
            }
            BackRef::Tree(_) | BackRef::SharedTree(_) | BackRef::Owner(_) => {}
        }
    }
    Ok(places)
}

/// Place of a file that has an address of an extent, by the file's items.
fn place_in(
    filesystem: &Filesystem,
    view: &Committed<'_>,
    id: InodeId,
    from: u64,
    extent: &CommittedExtent,
    at: Logical,
) -> Result<Option<Place>, ScrubError> {
    let Some(tree) = view.tree(id.tree)? else { return Ok(None) };
    let mut cursor = filesystem.pool().cursor(&tree, Readahead::None);
    // A reference names the offset at which the extent would begin, which may lie before the file.
    let first = if from > i64::MAX as u64 { 0 } else { from };
    cursor.seek(&Key::new(id.number, KeyType::EXTENT_DATA, first))?;
    while let Some((key, data)) = cursor.item() {
        if (key.objectid, key.item_type) != (id.number, KeyType::EXTENT_DATA) {
            break;
        }
        if let Some(place) = place_of(id, &key, data, extent, at) {
            return Ok(Some(place));
        }
        if key.offset() > first.saturating_add(extent_reach(extent)) {
            break;
        }
        cursor.next()?;
    }
    Ok(None)
}

/// Bytes of a file that an extent may be part of: compressed ones hold more than they take.
fn extent_reach(extent: &CommittedExtent) -> u64 {
    const COMPRESSED_MAX: u64 = 128 << 10;
    extent.length.max(COMPRESSED_MAX)
}

/// Places of files of a leaf that have an address of an extent.
fn in_leaf(leaf: &Node, extent: &CommittedExtent, at: Logical) -> Vec<Place> {
    let tree = leaf.header().owner;
    let items = (0..leaf.len()).filter_map(|slot| leaf.item(slot));
    let of_extent = items.filter(|(key, _)| key.item_type == KeyType::EXTENT_DATA);
    let found = of_extent
        .filter_map(|(key, data)| place_of(InodeId { tree, number: key.objectid }, &key, data, extent, at));
    found.collect()
}

/// Place of a file that has an address, if this item of the file has it; of a compressed extent, that where it begins.
fn place_of(file: InodeId, key: &Key, data: &[u8], extent: &CommittedExtent, at: Logical) -> Option<Place> {
    let Ok(Item::FileExtent(FileExtent::OnDisk { compression, is_prealloc, extent: on_disk, .. })) =
        Item::parse(key, data)
    else {
        return None;
    };
    if on_disk.disk_bytenr != extent.start {
        return None;
    }
    let place = |offset| Place { file, offset, is_prealloc };
    if compression != Compression::None {
        return Some(place(key.offset()));
    }
    let within = at.distance_from(extent.start)?.checked_sub(on_disk.offset.get())?;
    (within < on_disk.num_bytes.get()).then(|| place(key.offset() + within))
}

/// Path from the top level, as far as it is known.
fn path_of(filesystem: &Filesystem, id: InodeId) -> Vec<u8> {
    let root = InodeId::root_of(id.tree);
    let (mut at, mut path, mut depth) = (id, Vec::new(), 0);
    while at.number != root.number && depth < DEPTH_MAX {
        let Ok(Some((parent, name))) = filesystem.first_name(at) else {
            return format!("inode {} of subvolume {}", id.number, id.tree).into_bytes();
        };
        path.splice(0..0, [b"/".as_slice(), &name].concat());
        (at, depth) = (InodeId { number: parent, ..at }, depth + 1);
    }
    match filesystem.path_of_subvolume(id.tree) {
        Ok(Some(subvolume)) if !subvolume.is_empty() => [b"/".as_slice(), &subvolume, &path].concat(),
        Ok(Some(_)) => path,
        _ => [format!("subvolume {}", id.tree).as_bytes(), &path].concat(),
    }
}

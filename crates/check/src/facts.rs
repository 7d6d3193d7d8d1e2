//! TreeFacts from the pool's own trees that several passes want in one place.

use brindle_ondisk::item::{DevItem, QuotaTable};
use brindle_ondisk::{BlockGroupType, DevId, Item, Key, KeyType, Logical, Node, ObjectId, RootId, Uuid};

/// A stripe of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StripeFact {
    pub(crate) chunk: u64,
    pub(crate) devid: DevId,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) uuid: Uuid,
}

/// A device extent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DevExtentFact {
    pub(crate) devid: DevId,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) chunk: u64,
}

/// A chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkFact {
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) kind: BlockGroupType,
}

/// A block group item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockGroupFact {
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) used: u64,
    pub(crate) kind: BlockGroupType,
    pub(crate) tree: RootId,
}

/// One half of a link between subvolumes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RootLink {
    pub(crate) child: RootId,
    pub(crate) parent: RootId,
    pub(crate) directory: ObjectId,
    pub(crate) index: u64,
    pub(crate) name: Vec<u8>,
}

/// Entry of the UUID tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UuidFact {
    pub(crate) uuid: Uuid,
    pub(crate) subvolume: RootId,
    pub(crate) is_received: bool,
}

/// TreeFacts from the pool's own trees.
#[derive(Debug, Default)]
pub(crate) struct TreeFacts {
    pub(crate) chunks: Vec<ChunkFact>,
    pub(crate) stripes: Vec<StripeFact>,
    pub(crate) devices: Vec<DevItem>,
    pub(crate) dev_extents: Vec<DevExtentFact>,
    pub(crate) block_groups: Vec<BlockGroupFact>,
    pub(crate) root_refs: Vec<RootLink>,
    pub(crate) root_backrefs: Vec<RootLink>,
    pub(crate) uuids: Vec<UuidFact>,
    pub(crate) quotas: QuotaTable,
    pub(crate) notes: Vec<String>,
}

impl TreeFacts {
    pub(crate) fn merge(&mut self, other: Self) {
        self.chunks.extend(other.chunks);
        self.stripes.extend(other.stripes);
        self.devices.extend(other.devices);
        self.dev_extents.extend(other.dev_extents);
        self.block_groups.extend(other.block_groups);
        self.root_refs.extend(other.root_refs);
        self.root_backrefs.extend(other.root_backrefs);
        self.uuids.extend(other.uuids);
        self.quotas.merge(other.quotas);
        self.notes.extend(other.notes);
    }

    /// Notes what an item says, of a leaf of the tree `tree`.
    pub(crate) fn note(&mut self, tree: RootId, leaf: &Node, key: &Key, item: &Item<'_>) {
        match item {
            Item::Chunk(chunk) => self.note_chunk(key, chunk),
            Item::Device(device) => self.devices.push(**device),
            Item::DevExtent(extent) => self.dev_extents.push(DevExtentFact {
                devid: DevId::new(key.objectid.get()),
                offset: key.offset(),
                length: extent.length.get(),
                chunk: extent.chunk_offset.get(),
            }),
            Item::BlockGroup(group) => self.block_groups.push(BlockGroupFact {
                start: key.objectid.get(),
                length: key.offset(),
                used: group.used.get(),
                kind: group.block_group_type(),
                tree,
            }),
            Item::RootRef(link) => {
                let (objectid, offset) = (RootId::new(key.objectid.get()), RootId::new(key.offset()));
                let of = |parent, child| RootLink {
                    child,
                    parent,
                    directory: link.dirid,
                    index: link.sequence,
                    name: link.name.to_vec(),
                };
                if key.item_type == KeyType::ROOT_REF {
                    self.root_refs.push(of(objectid, offset));
                } else {
                    self.root_backrefs.push(of(offset, objectid));
                }
            }
            _ => self.note_other(leaf, key, item),
        }
    }

    fn note_chunk(&mut self, key: &Key, chunk: &brindle_ondisk::item::Chunk<'_>) {
        let (start, length, kind) = (key.offset(), chunk.header.length.get(), chunk.block_group_type());
        self.chunks.push(ChunkFact { start, length, kind });
        let attributes = kind.profile().unwrap_or(brindle_ondisk::Profile::Single).attributes();
        let stripes = u64::from(chunk.header.num_stripes.get());
        let columns = (stripes / u64::from(attributes.ncopies)).saturating_sub(attributes.nparity.into());
        for stripe in chunk.stripes {
            self.stripes.push(StripeFact {
                chunk: start,
                devid: stripe.devid,
                offset: stripe.offset.get(),
                length: length / columns.max(1),
                uuid: stripe.dev_uuid,
            });
        }
    }

    fn note_other(&mut self, leaf: &Node, key: &Key, item: &Item<'_>) {
        match item {
            Item::UuidSubvolumes(subvolumes) => {
                // The key of the UUID tree is the UUID itself, its halves little-endian.
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&key.objectid.get().to_le_bytes());
                bytes[8..].copy_from_slice(&key.offset().to_le_bytes());
                let is_received = key.item_type == KeyType::UUID_KEY_RECEIVED_SUBVOL;
                let of = |id: u64| UuidFact { uuid: Uuid(bytes), subvolume: RootId::new(id), is_received };
                self.uuids.extend(subvolumes.iter().map(|id| of(id.get())));
            }
            Item::QgroupStatus(_) | Item::QgroupInfo(_) | Item::QgroupLimit(_) | Item::QgroupRelation => {
                self.quotas.note(key, item);
            }
            Item::DevStats(stats) if *stats != brindle_ondisk::item::DevStats::default() => {
                self.notes.push(format!("device {}: {stats:?}", key.offset()));
            }
            Item::DevReplace(state) if matches!(state.replace_state.get(), 1 | 4) => {
                self.notes.push(format!("a replacement of device {} is under way", state.src_devid));
            }
            Item::Balance(_) => self.notes.push("a balance is under way".into()),
            Item::Unknown(_) => self.notes.push(format!(
                "tree {}: item {key} at logical {} is of a type that is not known",
                leaf.header().owner,
                Logical::new(leaf.header().bytenr.get())
            )),
            _ => {}
        }
        // What a hostile pool repeats must not fill memory.
        self.notes.truncate(100);
    }
}

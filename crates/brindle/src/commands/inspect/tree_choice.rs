//! Trees by name.

use brindle_fs::RootId;

/// Names of the trees for users, besides those of the format.
const NAMES: [(&str, RootId); 19] = [
    ("ROOT", RootId::ROOT_TREE),
    ("EXTENT", RootId::EXTENT_TREE),
    ("CHUNK", RootId::CHUNK_TREE),
    ("DEVICE", RootId::DEV_TREE),
    ("DEV", RootId::DEV_TREE),
    ("FS", RootId::FS_TREE),
    ("CSUM", RootId::CSUM_TREE),
    ("CHECKSUM", RootId::CSUM_TREE),
    ("QUOTA", RootId::QUOTA_TREE),
    ("UUID", RootId::UUID_TREE),
    ("FREE_SPACE", RootId::FREE_SPACE_TREE),
    ("FREE-SPACE", RootId::FREE_SPACE_TREE),
    ("BLOCK_GROUP", RootId::BLOCK_GROUP_TREE),
    ("BLOCK-GROUP", RootId::BLOCK_GROUP_TREE),
    ("RAID_STRIPE", RootId::RAID_STRIPE_TREE),
    ("LOG", RootId::TREE_LOG),
    ("TREE_LOG", RootId::TREE_LOG),
    ("DATA_RELOC", RootId::DATA_RELOC_TREE),
    ("DATA-RELOC", RootId::DATA_RELOC_TREE),
];

/// A tree by number, or by name, with or without `_TREE`, in any case: `5`, `fs`, `FS_TREE`.
pub(super) fn parse_tree(text: &str) -> Result<RootId, String> {
    if let Ok(number) = text.parse() {
        return Ok(RootId::new(number));
    }
    let upper = text.to_uppercase();
    let name = upper.strip_suffix("_TREE").unwrap_or(&upper);
    match NAMES.iter().find(|(known, _)| *known == name) {
        Some((_, tree)) => Ok(*tree),
        None => {
            Err(format!("no tree is called {text:?}; give its number, or a name such as fs or EXTENT_TREE"))
        }
    }
}

/// Name in headings of the tree of a root item.
pub(super) fn tree_title(tree: RootId) -> &'static str {
    match tree {
        RootId::ROOT_TREE => "root tree",
        RootId::CHUNK_TREE => "chunk tree",
        RootId::EXTENT_TREE => "extent tree",
        RootId::DEV_TREE => "device tree",
        RootId::FS_TREE => "fs tree",
        RootId::CSUM_TREE => "checksum tree",
        RootId::QUOTA_TREE => "quota tree",
        RootId::UUID_TREE => "uuid tree",
        RootId::FREE_SPACE_TREE => "free space tree",
        RootId::BLOCK_GROUP_TREE => "block group tree",
        RootId::RAID_STRIPE_TREE => "raid stripe tree",
        RootId::TREE_LOG => "log tree",
        RootId::TREE_RELOC => "reloc tree",
        RootId::DATA_RELOC_TREE => "data reloc tree",
        _ => "file tree",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_have_numbers_and_names() {
        assert_eq!(parse_tree("257"), Ok(RootId::new(257)));
        assert_eq!(parse_tree("fs"), Ok(RootId::FS_TREE));
        assert_eq!(parse_tree("FS_TREE"), Ok(RootId::FS_TREE));
        assert_eq!(parse_tree("tree_log"), Ok(RootId::TREE_LOG));
        assert_eq!(parse_tree("block_group_tree"), Ok(RootId::BLOCK_GROUP_TREE));
        assert!(parse_tree("bogus").is_err());
    }
}

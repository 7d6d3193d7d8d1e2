//! Hashes of names, by which directory items and extended references are filed.

/// The key offset of a directory item or xattr item: CRC-32C of the name, begun at `!1` and without the
/// final inversion (`btrfs_name_hash`).
pub fn name_hash(name: &[u8]) -> u64 {
    u64::from(raw_crc32c(!1, name))
}

/// The key offset of an extended inode reference: CRC-32C of the name, begun at the parent's inode number
/// (`btrfs_extref_hash`).
#[expect(clippy::cast_possible_truncation, reason = "the format seeds with the low 32 bits")]
pub fn extref_hash(parent: crate::ObjectId, name: &[u8]) -> u64 {
    u64::from(raw_crc32c(parent.get() as u32, name))
}

/// CRC-32C without the inversions at either end.
pub(crate) fn raw_crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_of_default_is_the_one_in_every_root_tree() {
        // The item `(ROOT_TREE_DIR DIR_ITEM 2378154706)` of every kernel-made root tree names "default".
        assert_eq!(name_hash(b"default"), 2_378_154_706);
    }
}

//! The choices of how a pool is written.

use brindle_fs::{
    AtimeMode, CompressionChoice, LogProfile, PlacementClass, PlacementMode, WriteBackMode, WriteBackWish,
    WriteOptions,
};
use std::collections::BTreeMap;

/// The choices that mount options make of how a pool is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteChoices {
    pub(super) compression: Option<CompressionChoice>,
    pub(super) nodatacow: bool,
    pub(super) nodatasum: bool,
    pub(super) max_inline_bytes: Option<u32>,
    pub(super) flush_on_commit: bool,
    pub(super) no_tree_log: bool,
    pub(super) log_prepare_locked: bool,
    pub(super) discard: bool,
    /// Mode of updating access times.
    pub(crate) atime: AtimeMode,
    /// The weight of a device's class when chunks are made (`ssd_metadata`).
    pub(crate) placement: PlacementMode,
    /// Files up to this length have their data on fast devices (`small_files`).
    pub(crate) small_file_bytes: Option<u64>,
    /// Data that goes to the write-back tier (`writeback`), whatever the pool has stored.
    pub(crate) write_back: Option<WriteBackMode>,
    /// Profile of the log (`log_profile`), whatever the pool has stored.
    pub(crate) log_profile: Option<LogProfile>,
    /// The class that a device is to have, by its name.
    pub(crate) classes: BTreeMap<String, PlacementClass>,
}

impl WriteChoices {
    /// The options of a filesystem.
    pub(crate) fn for_filesystem(&self) -> WriteOptions {
        let defaults = WriteOptions::default();
        WriteOptions {
            compression: self.compression,
            nodatacow: self.nodatacow,
            nodatasum: self.nodatasum,
            max_inline_bytes: self.max_inline_bytes.unwrap_or(defaults.max_inline_bytes),
            flush_on_commit: self.flush_on_commit,
            tree_log: !self.no_tree_log,
            log_prepare_locked: self.log_prepare_locked,
            discard: self.discard,
            atime: self.atime,
            placement: self.placement,
            small_file_bytes: self.small_file_bytes,
            classes: self.classes.clone(),
            log_profile: self.log_profile,
            write_back: match self.write_back {
                Some(mode) => WriteBackWish::Told(mode),
                None => WriteBackWish::Stored(WriteBackMode::OF_MOUNTS),
            },
            ..defaults
        }
    }
}

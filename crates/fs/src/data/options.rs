//! What all files have in common: how contents are written.

use crate::WriteOptions;
use brindle_ondisk::item::Compression;

/// What all files have in common.
#[derive(Debug, Default)]
pub(crate) struct DataContext {
    /// How contents are written.
    pub(crate) settings: Settings,
}

impl DataContext {
    pub(crate) fn new(options: &WriteOptions) -> Self {
        Self {
            settings: Settings {
                compression: options.compression,
                max_inline_bytes: options.max_inline_bytes,
                dirty_bytes_max: options.dirty_bytes_max,
            },
        }
    }
}

/// How contents are written, unless the inode says otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// How files are compressed (`compress=`, `compress-force=`); `None` for those that are not told to.
    pub(crate) compression: Option<CompressionChoice>,
    /// The longest contents that are kept in the item (`max_inline=`), in bytes; 0 for none.
    pub(crate) max_inline_bytes: u32,
    /// Dirty data in memory, of all files, from which on a writer has to write some of it back, in bytes.
    pub(crate) dirty_bytes_max: u64,
}

/// A way to compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionChoice {
    /// The algorithm.
    pub algorithm: Compression,
    /// How hard it tries; `None` for its default.
    pub level: Option<u8>,
    /// Also files that did not compress well before.
    pub force: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { compression: None, max_inline_bytes: 2048, dirty_bytes_max: 128 << 20 }
    }
}

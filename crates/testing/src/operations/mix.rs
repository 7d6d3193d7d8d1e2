//! Mix of operations: their frequency and size.

/// Mix of a generator. Weights are relative to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Weight of operations that make, move and remove names.
    pub names: u64,
    /// Weight of what changes the bytes of files.
    pub contents: u64,
    /// Weight of permissions, owners, times and extended attributes.
    pub attributes: u64,
    /// Weight of subvolumes and snapshots.
    pub subvolumes: u64,
    /// Weight of [`Operation::Sync`](super::Operation::Sync).
    pub sync: u64,
    /// Weight of [`Operation::SyncFile`](super::Operation::SyncFile).
    pub sync_file: u64,
    /// Weight of [`Operation::Remount`](super::Operation::Remount).
    pub remount: u64,
    /// Percentage of operations that are aimed where they will mostly be refused.
    pub invalid_percent: u64,
    /// No file is made larger on purpose.
    pub file_bytes_max: u64,
    /// Number of names from which on more are removed than made.
    pub names_max: usize,
    /// No value of an extended attribute is larger.
    pub xattr_bytes_max: usize,
    /// True to include reflinks.
    pub has_reflinks: bool,
    /// True to include `fallocate`, holes and zeroed ranges.
    pub has_allocation: bool,
    /// True to include `RENAME_EXCHANGE` and `RENAME_WHITEOUT`.
    pub has_rename_rules: bool,
}

impl Default for Mix {
    /// Everything, up to a MiB a file.
    fn default() -> Self {
        Self {
            names: 40,
            contents: 40,
            attributes: 15,
            subvolumes: 4,
            sync: 3,
            sync_file: 3,
            remount: 1,
            invalid_percent: 5,
            file_bytes_max: 1 << 20,
            names_max: 150,
            xattr_bytes_max: 3000,
            has_reflinks: true,
            has_allocation: true,
            has_rename_rules: true,
        }
    }
}

impl Mix {
    /// Small trees that are quick to compare, often made durable: for tens of thousands of crash states.
    #[must_use]
    pub fn crash() -> Self {
        let sizes = Self { file_bytes_max: 300 << 10, names_max: 40, ..Self::default() };
        Self { sync: 8, sync_file: 8, remount: 2, ..sizes }
    }

    /// Names and what hangs on them, many of them; no bytes.
    #[must_use]
    pub fn names() -> Self {
        Self { contents: 0, names_max: 3000, ..Self::default() }
    }

    /// Mostly bytes, in few files.
    #[must_use]
    pub fn contents() -> Self {
        Self { names: 8, contents: 80, attributes: 2, names_max: 20, ..Self::default() }
    }

    /// One subvolume only.
    #[must_use]
    pub fn without_subvolumes(self) -> Self {
        Self { subvolumes: 0, ..self }
    }
}

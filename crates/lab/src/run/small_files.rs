//! Places of many files: a directory holds a thousand of them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Files of a directory.
const PER_FOLDER: u64 = 1000;

/// Path of a file.
pub(super) fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join((number / PER_FOLDER).to_string()).join(number.to_string())
}

/// Makes the directory of a file, if the file is the first one of it.
pub(super) fn make_folder(directory: &Path, number: u64) -> io::Result<()> {
    if number % PER_FOLDER == 0 {
        fs::create_dir(directory.join((number / PER_FOLDER).to_string()))?;
    }
    Ok(())
}

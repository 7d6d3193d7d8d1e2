//! A list of damaged files, for the program that restores them: paths from where the pool was entered on, each followed by a zero
//! byte, which no path has (`rsync -0 --files-from=LIST`, `xargs -0`).

use crate::output::replace;
use anyhow::{Context, Result};
use clap::Args;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The file that the list goes to.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct DamagedFilesOption {
    /// Write the paths of damaged files to a file, each followed by a zero byte, as `rsync -0 --files-from=LIST` reads them
    #[arg(long = "damaged-files", value_name = "LIST")]
    list: Option<PathBuf>,
}

impl DamagedFilesOption {
    /// Returns true if a list is wanted.
    pub(crate) fn is_wanted(&self) -> bool {
        self.list.is_some()
    }

    /// Writes the list as a whole, if one is wanted; an empty one if nothing is damaged.
    pub(crate) fn write<'p>(&self, paths: impl IntoIterator<Item = &'p [u8]>) -> Result<()> {
        let Some(list) = &self.list else { return Ok(()) };
        replace(list, &text(paths)).with_context(|| format!("cannot write {}", list.display()))
    }
}

/// The list: each path once, in order, without the slash in front.
fn text<'p>(paths: impl IntoIterator<Item = &'p [u8]>) -> Vec<u8> {
    let relative = |path: &'p [u8]| path.strip_prefix(b"/").unwrap_or(path);
    let paths: BTreeSet<&[u8]> = paths.into_iter().map(relative).filter(|path| !path.is_empty()).collect();
    paths.into_iter().flat_map(|path| path.iter().copied().chain([0])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_is_there_once_and_ends_with_a_zero_byte() {
        let paths = [&b"/b"[..], b"a\nc", b"", b"b", b"/"];
        assert_eq!(text(paths), b"a\nc\0b\0");
    }
}

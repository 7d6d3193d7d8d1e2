//! Contents of files, and of all files below directories.

use crate::commands::stop::Stop;
use crate::format::UnitMode;
use crate::output;
use anyhow::{Context, Result, bail};
use brindle_admin::Mounted;
use brindle_fs::{Compression, ContentsWish, DefragmentedContents};
use serde_json::{Value, json};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Counts of all files.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    files: u64,
    /// Files that could not be defragmented.
    failed: u64,
    contents: DefragmentedContents,
    /// Files that were to be compressed, and can't be.
    nodatacow: u64,
    /// True if files of a mount of the kernel are among them, which tells nothing.
    is_of_kernel: bool,
}

impl Done {
    /// Returns true if no file failed.
    pub(super) fn is_whole(&self) -> bool {
        self.failed == 0
    }

    fn add(&mut self, part: &DefragmentedContents) {
        self.contents.extents += part.extents;
        self.contents.moved += part.moved;
        self.contents.moved_bytes += part.moved_bytes;
        self.contents.shared += part.shared;
    }

    pub(super) fn to_json(self) -> Value {
        let Self { files, failed, contents, .. } = self;
        json!({
            "files": files,
            "failed": failed,
            "extents": contents.extents,
            "moved": contents.moved,
            "moved_bytes": contents.moved_bytes,
            "shared": contents.shared,
            "nodatacow": self.nodatacow,
        })
    }

    pub(super) fn text(self) -> String {
        let Self { files, contents, .. } = self;
        let DefragmentedContents { extents, moved, moved_bytes, shared, .. } = contents;
        if self.is_of_kernel {
            return format!("{files} files were given to the kernel.{}", self.uncompressed());
        }
        let size = UnitMode::DEFAULT.format(moved_bytes);
        let mut text = format!("{moved} of {extents} extents of {files} files written anew, {size}.");
        if shared > 0 {
            text.push_str(&format!(
                " {shared} extents stay, for snapshots or other files share them (--unshare)."
            ));
        }
        text + &self.uncompressed()
    }

    /// The sentence on files that can't be compressed; empty if there are none.
    fn uncompressed(&self) -> String {
        match self.nodatacow {
            0 => String::new(),
            1 => " 1 file is nodatacow, which can't be compressed.".to_owned(),
            count => format!(" {count} files are nodatacow, which can't be compressed."),
        }
    }
}

/// Defragments files, and with `is_recursive` all below directories.
pub(super) fn run(paths: &[PathBuf], is_recursive: bool, wish: &ContentsWish, stop: &Stop) -> Result<Done> {
    let mut done = Done::default();
    for path in paths {
        let metadata = fs::symlink_metadata(path).with_context(|| path.display().to_string())?;
        if !metadata.is_file() && !metadata.is_dir() {
            bail!("{}: neither a file nor a directory", path.display());
        }
        // The first one that is refused says why, and no more are tried.
        let probe = Mounted::open(path)?;
        refuse_on_kernel(&probe, wish)?;
        let tree = Walk { root: metadata.dev(), wish, stop };
        if metadata.is_dir() && is_recursive {
            tree.directory(path, &mut done)?;
        } else {
            tree.file(path, &mut done)?;
        }
    }
    Ok(done)
}

/// Refuses wishes that a mount of the kernel can't fulfil.
fn refuse_on_kernel(mount: &Mounted, wish: &ContentsWish) -> Result<()> {
    if !mount.is_of_kernel() {
        return Ok(());
    }
    let path = mount.path().display();
    if !wish.unshares {
        bail!("{path}: the kernel takes files out of all sharing, which needs space: give --unshare");
    }
    if wish.compression.is_some_and(|choice| choice.level.is_some()) {
        bail!("{path}: on mounts of the kernel a compression has no level");
    }
    Ok(())
}

/// Files of one filesystem.
struct Walk<'w> {
    root: u64,
    wish: &'w ContentsWish,
    stop: &'w Stop,
}

impl Walk<'_> {
    fn directory(&self, path: &Path, done: &mut Done) -> Result<()> {
        let mut directories = vec![path.to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
                if self.stop.is_set() {
                    return Ok(());
                }
                let path = entry.with_context(|| directory.display().to_string())?.path();
                let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
                if self.is_elsewhere(&metadata) {
                    continue;
                }
                if metadata.is_dir() {
                    directories.push(path);
                } else if metadata.is_file() {
                    if let Err(error) = self.file(&path, done) {
                        tracing::warn!("{}", output::explain(&error));
                        done.failed += 1;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns true for another mount, and on a mount of the kernel for another subvolume.
    fn is_elsewhere(&self, metadata: &Metadata) -> bool {
        metadata.dev() != self.root
    }

    fn file(&self, path: &Path, done: &mut Done) -> Result<()> {
        let file = Mounted::open(path)?;
        done.files += 1;
        let compresses = self.wish.compression.is_some_and(|choice| choice.algorithm != Compression::None);
        if compresses && file.is_nodatacow() {
            done.nodatacow += 1;
        }
        done.is_of_kernel |= file.is_of_kernel();
        let mut from = Some(0);
        while let Some(at) = from.filter(|_| !self.stop.is_set()) {
            let part = file.defragment_contents(at, self.wish)?;
            done.add(&part);
            from = part.next;
        }
        Ok(())
    }
}

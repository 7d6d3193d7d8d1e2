//! The path within a filesystem that a command works on, and names as people see them.

use anyhow::{Context, Result, bail};
use brindle_fs::{FileType, Filesystem, FsError, InodeId};
use clap::Args;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{IsTerminal, stdout};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A path within the filesystem.
#[derive(Args, Debug, Clone)]
pub(crate) struct PathOption {
    /// Path from the root of the subvolume that is entered; symbolic links are not followed
    #[arg(short = 'p', long = "path", value_name = "PATH", default_value = "/")]
    path: OsString,
}

impl PathOption {
    /// The bytes of the path.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.path.as_bytes()
    }

    /// The last name of the path; none for the root.
    pub(crate) fn file_name(&self) -> Option<&[u8]> {
        self.as_bytes().rsplit(|byte| *byte == b'/').find(|name| !name.is_empty() && *name != b".")
    }

    /// Refuses a path within the pool that is given as if it were one more device.
    pub(crate) fn refuse_as_device(&self, devices: &[PathBuf]) -> Result<()> {
        let [_, .., last] = devices else { return Ok(()) };
        let is_known = self.path != "/" || brindle_cache::is_no_path(last) || last.symlink_metadata().is_ok();
        if !is_known {
            let shown = last.display();
            bail!("{shown}: there is no such device; a path within the pool is given as --path {shown}");
        }
        Ok(())
    }

    /// The inode that it leads to.
    pub(crate) fn resolve(&self, filesystem: &Filesystem) -> Result<InodeId> {
        let path = self.as_bytes();
        let (mut at, mut kind, mut walked) = (filesystem.root(), FileType::Directory, Vec::new());
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".") {
            let above = String::from_utf8_lossy(&walked);
            match kind {
                FileType::Directory => {}
                FileType::Symlink => {
                    bail!("{}: {above} is a symbolic link, and those are not followed", self.display())
                }
                _ => bail!("{}: {above} is not a directory", self.display()),
            }
            let entry = filesystem.lookup(at, name).with_context(|| self.display())?;
            let entry = entry.ok_or_else(|| FsError::NotFound(path.to_vec()))?;
            (at, kind) = (entry.inode, entry.kind);
            if !walked.is_empty() {
                walked.push(b'/');
            }
            walked.extend(name);
        }
        Ok(at)
    }

    /// The path for messages.
    pub(crate) fn display(&self) -> String {
        String::from_utf8_lossy(self.as_bytes()).into_owned()
    }
}

/// A name as it is put on standard output: untouched, except that a terminal is spared control characters.
pub(crate) fn shown_name(name: &[u8]) -> Cow<'_, [u8]> {
    if !stdout().is_terminal() || !name.iter().any(u8::is_ascii_control) {
        return Cow::Borrowed(name);
    }
    name.iter().map(|byte| if byte.is_ascii_control() { b'?' } else { *byte }).collect::<Vec<_>>().into()
}

/// A name in JSON: a string, or, where it is no UTF-8, the list of its bytes.
pub(crate) fn name_json(name: &[u8]) -> Value {
    std::str::from_utf8(name).map_or_else(|_| json!(name), |name| json!(name))
}

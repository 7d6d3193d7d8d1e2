//! Subvolumes of a mount of the kernel, which sends them.

use super::{Failure, SendCommand, copy, mounted, progress_bar, tell_begin};
use crate::commands::stop::Stop;
use anyhow::{Error, Result, bail};
use brindle_admin::Mounted;
use brindle_admin::streams::{SendOrder, pipe, widen};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::slice;

/// Id of the top level.
const TOP_LEVEL: u64 = 5;

/// A stream that the kernel is to make.
pub(super) struct Sending<'c> {
    command: &'c SendCommand,
    version: u32,
    subvolumes: Vec<Mounted>,
    parent: Option<Mounted>,
    sources: Vec<Mounted>,
}

impl<'c> Sending<'c> {
    /// Looks at the subvolumes, before anything is written.
    pub(super) fn begin(command: &'c SendCommand, version: u32, subvolumes: Vec<Mounted>) -> Result<Self> {
        let parent = command.parent.as_ref().map(|path| mounted(slice::from_ref(path))).transpose()?;
        let parent = parent.and_then(|mut found| found.pop());
        let sources = mounted(&command.clone_source)?;
        for one in subvolumes.iter().chain(&parent).chain(&sources) {
            let path = one.path().display();
            if !one.is_subvolume_root() {
                bail!("{path}: not a subvolume");
            }
            if !one.is_read_only()? {
                bail!(
                    "subvolume {path} is writable, and may change while it is sent: make a snapshot of it that is read-only \
                     (subvolume snapshot -r)"
                );
            }
        }
        for one in &subvolumes {
            if one.subvolume()?.id == TOP_LEVEL {
                bail!("{}: the top level has no name: send a snapshot of it", one.path().display());
            }
        }
        Ok(Self { command, version, subvolumes, parent, sources })
    }

    pub(super) fn write(self, target: &File, stop: &Stop, quiet: bool) -> Result<(), Failure> {
        let (stream, to_stream) = pipe().map_err(|error| Failure::Other(error.into()))?;
        widen(&stream);
        let progress = progress_bar(quiet);
        std::thread::scope(|threads| {
            let sent = threads.spawn(|| {
                self.send(to_stream, &mut |path, parent| {
                    if !quiet {
                        tell_begin(&progress, bytes(path), parent.map(bytes));
                    }
                })
            });
            let copied = copy(&stream, target, stop, &progress);
            // The kernel can't go on where nothing is read.
            drop(stream);
            let sent =
                sent.join().map_err(|_| Error::msg("the thread that has the kernel send has failed"))?;
            progress.finish_and_clear();
            copied.and(sent.map_err(Failure::Other))
        })
    }

    /// Has the kernel send all, and closes the pipe.
    fn send(&self, to_stream: File, begun: &mut dyn FnMut(&Path, Option<&Path>)) -> Result<()> {
        let order = SendOrder {
            subvolumes: &self.subvolumes,
            parent: self.parent.as_ref(),
            sources: &self.sources,
            version: self.version,
            compressed: self.command.compressed_data,
            no_data: self.command.no_data,
            one_stream: self.command.one_stream,
        };
        let sent = order.send_by_kernel(&to_stream, begun);
        drop(to_stream);
        Ok(sent?)
    }
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

//! Durability: a file gets its times when its contents are on the disk.
//!
//! A later extraction takes a file for whole if its size and its time of modification are those of the pool, for nothing else is
//! known about it: there is no record of what was done. So neither may be true too early. A file has its size before its contents
//! are on the disk; a loss of power then leaves one of the right size with zeros in it. Therefore the time comes last: files are
//! gathered, made durable together by one syncfs(2), and only then get their times. Until then they have the time at which they
//! were written. That holds for whatever takes the contents away: loss of power, a disk that is pulled out, a connection that
//! breaks; and needs no clock that is right after a start. What is lost by an interruption is the work since the last syncfs, at
//! most [`BATCH_BYTES`].
//!
//! The kernel's syncfs(2) does not wait for a server of FUSE: there each file is synced by itself, before it has its name
//! ([`needs_each`]).
//!
//! A file of which something could not be read never looks whole: its times are [`DAMAGED_SECONDS`] early.

use super::metadata;
use super::target::{Directory, Finished, Message};
use super::{Context, Failure};
use brindle_fs::{Attributes, Timestamp};
use rustix::fs::{fstat, fstatfs, syncfs};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// Upper bounds on files that are made durable together: bytes, files, and directories, each of which is open meanwhile.
const BATCH_BYTES: u64 = 1 << 30;
const BATCH_FILES: usize = 1 << 14;
const BATCH_DIRECTORIES: usize = 512;
/// Seconds by which the times of a file with damage are early: more than any filesystem rounds off.
const DAMAGED_SECONDS: i64 = 2;
const FUSE_MAGIC: u64 = 0x6573_5546;

/// Returns true if files of a directory are made durable one by one only.
pub(super) fn needs_each(directory: impl AsFd) -> bool {
    fstatfs(directory).is_ok_and(|found| u64::try_from(found.f_type) == Ok(FUSE_MAGIC))
}

/// Attributes of a file of which something could not be read.
pub(super) fn damaged(attributes: &Attributes) -> Attributes {
    let early = |time: Timestamp| Timestamp { seconds: time.seconds.saturating_sub(DAMAGED_SECONDS), ..time };
    Attributes { modified: early(attributes.modified), ..*attributes }
}

/// Gives files their times once they are durable, until the last message.
pub(super) fn complete<'c>(context: &'c Context<'c>, messages: &Receiver<Message<'c>>) {
    let mut batch = Batch::default();
    while let Ok(Message::Finished(file)) = messages.recv() {
        batch.add(file);
        if batch.is_full() {
            std::mem::take(&mut batch).complete(context);
        }
    }
    batch.complete(context);
}

/// Files that are made durable together.
#[derive(Default)]
struct Batch<'c> {
    files: Vec<Finished<'c>>,
    directories: HashSet<*const Directory<'c>>,
    bytes: u64,
}

impl<'c> Batch<'c> {
    fn add(&mut self, file: Finished<'c>) {
        self.directories.insert(Arc::as_ptr(&file.directory));
        self.bytes = self.bytes.saturating_add(file.attributes.size);
        self.files.push(file);
    }

    fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES
            || self.files.len() >= BATCH_FILES
            || self.directories.len() >= BATCH_DIRECTORIES
    }

    fn complete(self, context: &Context<'_>) {
        // Another filesystem may be mounted below the destination.
        let mut synced: HashMap<u64, Result<(), Errno>> = HashMap::new();
        for Finished { directory, name, attributes } in &self.files {
            let device = fstat(&**directory).map_or(0, |found| found.st_dev);
            let path = directory.path_of(name);
            match synced.entry(device).or_insert_with(|| syncfs(&**directory)) {
                Ok(()) => metadata::set_times(context, &**directory, name, attributes, &path),
                Err(error) => context.fail(&path, Failure::NotDurable(*error)),
            }
        }
    }
}

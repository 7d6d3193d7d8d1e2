//! Streams of random trees, full and incremental, received into another pool; names in each other's way, one by one; streams that
//! end early.

mod model;
mod names;
mod refusals;

use crate::support::operations::contents_of;
use crate::support::{MadePool, assert_clean, options};
use brindle_care::job::Control;
use brindle_care::receive::{ReceiveOptions, receive};
use brindle_care::send::{SendError, SendOptions, Sent, send};
use brindle_device::WritableDevice;
use brindle_fs::{Filesystem, InodeId, NewInode, OpenOptions, RootId, WriteOptions};
use brindle_stream::StreamReader;
use std::sync::Arc;

/// A pool in memory, with a subvolume `source` that changes and is sent.
struct Pool {
    made: MadePool,
    filesystem: Filesystem,
}

impl Pool {
    fn new() -> Self {
        let made = MadePool::make(2, &options()).expect("large enough");
        let filesystem = Self::open(&made);
        Self { made, filesystem }
    }

    fn open(made: &MadePool) -> Filesystem {
        let writable = |device: &Arc<_>| Arc::clone(device) as Arc<dyn WritableDevice>;
        let devices = made.devices.iter().map(writable).collect();
        Filesystem::open_writable(devices, &OpenOptions::default(), &WriteOptions::default()).expect("sound")
    }

    /// A pool with an empty subvolume to be sent.
    fn with_source() -> Self {
        let pool = Self::new();
        let new = NewInode { mode: 0o755, ..Default::default() };
        pool.filesystem.create_subvolume(pool.filesystem.root(), b"source", &new).expect("room");
        pool
    }

    fn find(&self, path: &str) -> InodeId {
        let found = self.filesystem.resolve(self.filesystem.root(), path.as_bytes());
        found.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn make(&self, path: &str, mode: u32) -> InodeId {
        let (directory, name) = path.rsplit_once('/').expect("in a directory");
        let new = NewInode { mode, ..Default::default() };
        self.filesystem.create(self.find(directory), name.as_bytes(), &new).expect("room").id
    }

    fn write(&self, path: &str, offset: u64, bytes: &[u8]) {
        let file = self.filesystem.open_file(self.find(path)).expect("a file");
        assert_eq!(self.filesystem.write(&file, offset, bytes).expect("room"), bytes.len());
        self.filesystem.close_file(file).expect("closes");
    }

    fn rename(&self, from: &str, to: &str) {
        let split = |path: &str| {
            let (directory, name) = path.rsplit_once('/').expect("in a directory");
            (self.find(directory), name.as_bytes().to_vec())
        };
        let ((from, from_name), (to, to_name)) = (split(from), split(to));
        let mode = brindle_fs::RenameMode::Replace;
        self.filesystem.rename(from, &from_name, to, &to_name, mode).expect("works");
    }

    /// Takes a read-only snapshot of `source`.
    fn snapshot(&self, name: &str) -> RootId {
        let (source, root) = (self.find("source").tree, self.filesystem.root());
        self.filesystem.snapshot(source, root, name.as_bytes(), true).expect("room")
    }

    fn send(&self, options: &SendOptions) -> (Vec<u8>, Result<Vec<Sent>, SendError>) {
        let mut stream = Vec::new();
        let sent = send(&self.filesystem, options, &mut stream, &mut |_| Control::Continue);
        (stream, sent)
    }

    fn send_whole(&self, options: &SendOptions) -> (Vec<u8>, Sent) {
        let (stream, sent) = self.send(options);
        (stream, sent.expect("sent").pop().expect("one"))
    }

    fn receive(&self, stream: &[u8]) {
        let root = self.filesystem.root();
        let options = ReceiveOptions::default();
        let received = receive(&self.filesystem, root, stream, &options, &mut |_| Control::Continue);
        received.unwrap_or_else(|error| panic!("{error}\n{}", dump(stream)));
    }

    /// Closes the pool, has it examined, and opens it again.
    fn reopen(&mut self) {
        self.filesystem.shutdown().expect("works");
        assert_clean("after a shutdown", &self.made.examine());
        self.filesystem = Self::open(&self.made);
    }

    fn contents(&self, path: &str) -> Vec<u8> {
        contents_of(&self.filesystem, self.find(path))
    }
}

/// The commands of a stream, a line each.
fn dump(stream: &[u8]) -> String {
    let mut reader = StreamReader::new(stream).expect("a stream");
    let mut lines = Vec::new();
    while let Some(placed) = reader.next().expect("a command") {
        lines.push(placed.command.to_string());
    }
    lines.join("\n")
}

/// An incremental send of one subvolume.
fn difference(subvolume: RootId, parent: RootId) -> SendOptions {
    SendOptions { parent: Some(parent), ..SendOptions::whole(subvolume) }
}

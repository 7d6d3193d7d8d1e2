//! Answers. The kind of a reply says what it may be answered with.

use crate::channel::Channel;
use crate::flags::OpenAnswers;
use crate::interrupt::Waiter;
use crate::way::Way;
use crate::wire::{
    Attr, AttrOut, CopyOut, Dirent, EntryOut, IoctlOut, LseekOut, OpenOut, SizeOut, StatfsOut, StatxOut,
    StatxTime, WriteOut,
};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

/// Kinds of replies, by what they carry.
pub mod kind {
    /// Nothing but success.
    #[derive(Debug)]
    pub struct Done;
    /// A name in a directory.
    #[derive(Debug)]
    pub struct Entry;
    /// Attributes.
    #[derive(Debug)]
    pub struct Attributes;
    /// Attributes and the time of birth.
    #[derive(Debug)]
    pub struct Extended;
    /// An opened file or directory.
    #[derive(Debug)]
    pub struct Opened;
    /// A new file that is open.
    #[derive(Debug)]
    pub struct Created;
    /// Bytes of a file, or the target of a link.
    #[derive(Debug)]
    pub struct Data {
        pub(crate) bytes_max: usize,
        /// The caller is not told EINTR, so that the answer may be made where the kernel fetches it.
        pub(crate) is_in_place: bool,
    }
    /// A number of bytes written.
    #[derive(Debug)]
    pub struct Written;
    /// Space of a filesystem.
    #[derive(Debug)]
    pub struct Space;
    /// An extended attribute, or the names of all.
    #[derive(Debug)]
    pub struct Value {
        /// Room of the caller; 0 asks for the size.
        pub(crate) bytes_max: usize,
    }
    /// A listing.
    #[derive(Debug)]
    pub struct Names {
        pub(crate) listing: super::Listing,
    }
    /// A listing with attributes.
    #[derive(Debug)]
    pub struct NamesPlus {
        pub(crate) listing: super::Listing,
    }
    /// The result of an ioctl.
    #[derive(Debug)]
    pub struct Ioctl {
        pub(crate) bytes_max: usize,
    }
    /// A place in a file.
    #[derive(Debug)]
    pub struct Offset;
    /// A number of bytes copied.
    #[derive(Debug)]
    pub struct Copied {
        /// The answer has 64 bits.
        pub(crate) is_wide: bool,
    }
}

/// The reply that a request waits for. Can be sent by any thread. Dropped without an answer, it answers with EIO.
#[derive(Debug)]
#[must_use = "a process waits for it"]
pub struct Reply<K> {
    channel: Arc<Channel>,
    way: Way,
    unique: u64,
    kind: K,
    is_answered: bool,
}

/// A time since 1970; the nanoseconds count forward, before it too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds.
    pub nanoseconds: u32,
}

/// Attributes of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of stat(2)")]
pub struct Attributes {
    pub ino: u64,
    pub size: u64,
    /// In units of 512 bytes.
    pub blocks: u64,
    pub accessed: Time,
    pub modified: Time,
    pub changed: Time,
    /// Type and permission bits.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Number of a device, as `new_encode_dev` makes it.
    pub rdev: u32,
    pub block_bytes: u32,
}

/// Attributes that only statx(2) tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extended {
    /// The plain attributes.
    pub attributes: Attributes,
    /// The time of birth, if it is known.
    pub born: Option<Time>,
}

/// A name in a directory, and how long the kernel may keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The node; 0 says that there is nothing of this name, which may be remembered, too.
    pub node: u64,
    /// Tells inodes apart that had the same number one after the other, in file handles.
    pub generation: u64,
    /// Time for which the name is right.
    pub name_ttl: Duration,
    /// Time for which the attributes are right.
    pub attributes_ttl: Duration,
    /// The attributes of the node.
    pub attributes: Attributes,
}

/// An opened file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The number by which the kernel names it from now on.
    pub handle: u64,
    /// Treatment of it.
    pub answers: OpenAnswers,
}

/// Space of a filesystem, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of statfs(2)")]
pub struct FilesystemSpace {
    pub blocks: u64,
    pub free: u64,
    pub available: u64,
    pub files: u64,
    pub free_files: u64,
    pub block_bytes: u32,
    pub name_max: u32,
}

/// An entry of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The number of its inode.
    pub ino: u64,
    /// Place where the listing goes on after it.
    pub offset: u64,
    /// Type bits of a mode.
    pub mode: u32,
}

/// Bytes that entries of a listing are padded to.
const ALIGNMENT: usize = 8;

/// Entries of a listing, up to the size that the kernel asked for.
#[derive(Debug)]
pub(crate) struct Listing {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Listing {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), bytes_max }
    }

    /// Appends an entry, after `head`. Returns true if there was no room for it.
    fn push(&mut self, head: &[u8], entry: &Listed<'_>) -> bool {
        const TYPE_SHIFT: u32 = 12;
        let Ok(name_length) = u32::try_from(entry.name.len()) else { return true };
        let length = head.len() + (size_of::<Dirent>() + entry.name.len()).next_multiple_of(ALIGNMENT);
        let end = self.bytes.len() + length;
        if end > self.bytes_max {
            return true;
        }
        if self.bytes.is_empty() {
            self.bytes.reserve_exact(self.bytes_max);
        }
        let kind = (entry.mode >> TYPE_SHIFT) & 0xf;
        let dirent = Dirent { ino: entry.ino, offset: entry.offset, name_length, kind };
        for part in [head, dirent.as_bytes(), entry.name] {
            self.bytes.extend_from_slice(part);
        }
        self.bytes.resize(end, 0);
        false
    }
}

impl<K> Reply<K> {
    pub(crate) fn new(channel: &Arc<Channel>, way: &Way, unique: u64, kind: K) -> Self {
        Self { channel: Arc::clone(channel), way: way.clone(), unique, kind, is_answered: false }
    }

    /// Answers with an error.
    pub fn error(self, error: Errno) {
        self.answer(Err(error));
    }

    /// Answers with a result, by a method of its kind.
    pub fn settle<T, R>(self, result: Result<T, Errno>, answer: impl FnOnce(Self, T) -> R) {
        match result {
            Ok(value) => drop(answer(self, value)),
            Err(error) => self.error(error),
        }
    }

    /// The same, with a result that is to be undone if the caller has been killed meanwhile: returns false then.
    #[must_use]
    pub fn deliver<T>(self, result: Result<T, Errno>, answer: impl FnOnce(Self, T) -> bool) -> bool {
        match result {
            Ok(value) => answer(self, value),
            Err(error) => {
                self.error(error);
                true
            }
        }
    }

    /// Something is about to be changed for the request. Returns false if its caller has been killed, so that the request must be
    /// given up; its answer is dropped.
    #[must_use]
    pub fn begin(&self) -> bool {
        self.channel.interrupts.begin(self.unique)
    }

    /// The caller, for long work.
    pub fn waiter(&self) -> Waiter {
        Waiter::new(Arc::clone(&self.channel.interrupts), self.unique)
    }

    /// Sends an answer. Returns false if the caller has been killed meanwhile, and was told so.
    fn answer(mut self, answer: Result<&[&[u8]], Errno>) -> bool {
        self.is_answered = true;
        let is_awaited = self.channel.interrupts.leave(self.unique);
        if is_awaited {
            self.way.answer(&self.channel.descriptor, self.unique, answer);
        }
        is_awaited
    }

    fn ok(self, parts: &[&[u8]]) {
        self.answer(Ok(parts));
    }
}

impl<K> Drop for Reply<K> {
    fn drop(&mut self) {
        if !self.is_answered && self.channel.interrupts.leave(self.unique) {
            self.way.answer(&self.channel.descriptor, self.unique, Err(Errno::IO));
        }
    }
}

impl Reply<kind::Done> {
    /// Answers that it is done.
    pub fn done(self) {
        self.ok(&[]);
    }
}

impl Reply<kind::Entry> {
    /// Answers with an entry. Returns false if the caller has been killed meanwhile: the kernel knows nothing of the node.
    pub fn entry(self, entry: &Entry) -> bool {
        self.answer(Ok(&[entry.head().as_bytes(), entry.attributes.wire().as_bytes()]))
    }
}

impl Reply<kind::Attributes> {
    /// Answers with attributes, and how long they are right.
    pub fn attributes(self, ttl: Duration, attributes: &Attributes) {
        let head = AttrOut { seconds: ttl.as_secs(), nanoseconds: ttl.subsec_nanos(), padding: 0 };
        self.ok(&[head.as_bytes(), attributes.wire().as_bytes()]);
    }
}

impl Reply<kind::Extended> {
    /// Answers with attributes, and how long they are right.
    pub fn extended(self, ttl: Duration, extended: &Extended) {
        self.ok(&[extended.wire(ttl).as_bytes()]);
    }
}

impl Reply<kind::Opened> {
    /// Answers with a handle. Returns false if the caller has been killed meanwhile: the kernel will not close it.
    pub fn opened(self, opened: &Opened) -> bool {
        self.answer(Ok(&[opened.wire().as_bytes()]))
    }
}

impl Reply<kind::Created> {
    /// Answers with the new file.
    pub fn created(self, entry: &Entry, opened: &Opened) {
        let (head, attributes) = (entry.head(), entry.attributes.wire());
        self.ok(&[head.as_bytes(), attributes.as_bytes(), opened.wire().as_bytes()]);
    }
}

impl Reply<kind::Data> {
    /// Answers with bytes; those that are more than was asked for are left out.
    pub fn data(self, data: &[u8]) {
        let length = data.len().min(self.kind.bytes_max);
        self.ok(&[&data[..length]]);
    }

    /// Answers with bytes in parts that follow each other; those that are more than was asked for are left out.
    pub fn parts<'b>(self, parts: impl IntoIterator<Item = &'b [u8]>) {
        let mut room = self.kind.bytes_max;
        let cut = |part: &'b [u8]| {
            let part = &part[..part.len().min(room)];
            room -= part.len();
            part
        };
        let parts: Vec<&[u8]> = parts.into_iter().map(cut).filter(|part| !part.is_empty()).collect();
        self.ok(&parts);
    }

    /// Upper bound on the bytes of the answer.
    pub fn bytes_max(&self) -> usize {
        self.kind.bytes_max
    }

    /// Answers with as many bytes as `fill` returns, where the kernel fetches the answer from memory that it shares with us: that is
    /// the buffer. Elsewhere the reply is given back.
    pub fn fill_in_place(mut self, fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> Option<Self> {
        let size = self.kind.bytes_max;
        let Some(mut lent) = self.kind.is_in_place.then(|| self.way.lend()).flatten() else {
            return Some(self);
        };
        let filled = fill(lent.payload(size));
        self.is_answered = true;
        lent.answer(self.unique, filled.map(|length| length.min(size)));
        None
    }
}

impl Reply<kind::Written> {
    /// Answers with the number of bytes written.
    pub fn written(self, bytes: usize) {
        match u32::try_from(bytes) {
            Ok(size) => self.ok(&[WriteOut { size, padding: 0 }.as_bytes()]),
            Err(_) => self.error(Errno::OVERFLOW),
        }
    }
}

impl Reply<kind::Copied> {
    /// Answers with the number of bytes copied.
    pub fn copied(self, bytes: u64) {
        match u32::try_from(bytes) {
            _ if self.kind.is_wide => self.ok(&[CopyOut { bytes }.as_bytes()]),
            Ok(size) => self.ok(&[WriteOut { size, padding: 0 }.as_bytes()]),
            Err(_) => self.error(Errno::OVERFLOW),
        }
    }
}

impl Reply<kind::Space> {
    /// Answers with the space.
    pub fn space(self, space: &FilesystemSpace) {
        let FilesystemSpace { blocks, free, available, files, free_files, block_bytes, name_max } = *space;
        let answer = StatfsOut {
            blocks,
            free,
            available,
            files,
            free_files,
            block_bytes,
            name_max,
            fragment_bytes: block_bytes,
            ..StatfsOut::default()
        };
        self.ok(&[answer.as_bytes()]);
    }
}

impl Reply<kind::Value> {
    /// Answers with a value, or with its size if that was asked for; with ERANGE if the caller has too little room.
    pub fn value(self, value: &[u8]) {
        match u32::try_from(value.len()) {
            Ok(size) if self.kind.bytes_max == 0 => self.ok(&[SizeOut { size, padding: 0 }.as_bytes()]),
            Ok(_) if value.len() <= self.kind.bytes_max => self.ok(&[value]),
            _ => self.error(Errno::RANGE),
        }
    }
}

impl Reply<kind::Ioctl> {
    /// Answers with the result, cut to the size that the ioctl's number tells.
    pub fn result(self, result: &[u8]) {
        let length = result.len().min(self.kind.bytes_max);
        self.ok(&[IoctlOut::default().as_bytes(), &result[..length]]);
    }
}

impl Reply<kind::Offset> {
    /// Answers with a place.
    pub fn offset(self, offset: u64) {
        self.ok(&[LseekOut { offset }.as_bytes()]);
    }
}

impl Reply<kind::Names> {
    /// Adds an entry. Returns true if there is no room for it.
    pub fn add(&mut self, entry: &Listed<'_>) -> bool {
        self.kind.listing.push(&[], entry)
    }

    /// Answers with the entries; none says that the listing is at its end.
    pub fn listed(mut self) {
        let bytes = std::mem::take(&mut self.kind.listing.bytes);
        self.ok(&[&bytes]);
    }
}

impl Reply<kind::NamesPlus> {
    /// Adds an entry with its node. Returns true if there is no room for it.
    pub fn add(&mut self, entry: &Listed<'_>, node: &Entry) -> bool {
        const HEAD_BYTES: usize = size_of::<EntryOut>() + size_of::<Attr>();
        let mut head = [0; HEAD_BYTES];
        let (first, second) = head.split_at_mut(size_of::<EntryOut>());
        first.copy_from_slice(node.head().as_bytes());
        second.copy_from_slice(node.attributes.wire().as_bytes());
        self.kind.listing.push(&head, entry)
    }

    /// Answers with the entries; none says that the listing is at its end. If the caller has been killed meanwhile, the kernel
    /// knows nothing of the nodes, which are returned.
    pub fn listed(mut self) -> Vec<u64> {
        let bytes = std::mem::take(&mut self.kind.listing.bytes);
        if self.answer(Ok(&[&bytes])) { Vec::new() } else { nodes_of(&bytes) }
    }
}

/// The nodes of a listing.
fn nodes_of(mut entries: &[u8]) -> Vec<u64> {
    let mut nodes = Vec::new();
    while let Ok((head, rest)) = EntryOut::read_from_prefix(entries) {
        nodes.extend((head.node != 0).then_some(head.node));
        let dirent = rest.get(size_of::<Attr>()..).unwrap_or_default();
        let Ok((Dirent { name_length, .. }, names)) = Dirent::read_from_prefix(dirent) else { break };
        let name_bytes = usize::try_from(name_length).expect("a name that was added");
        entries = names.get(name_bytes.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
    }
    nodes
}

impl Attributes {
    fn wire(&self) -> Attr {
        Attr {
            ino: self.ino,
            size: self.size,
            blocks: self.blocks,
            accessed: self.accessed.seconds,
            modified: self.modified.seconds,
            changed: self.changed.seconds,
            accessed_nanoseconds: self.accessed.nanoseconds,
            modified_nanoseconds: self.modified.nanoseconds,
            changed_nanoseconds: self.changed.nanoseconds,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            block_bytes: self.block_bytes,
            flags: 0,
        }
    }
}

impl Extended {
    fn wire(&self, ttl: Duration) -> StatxOut {
        /// `STATX_BASIC_STATS` and `STATX_BTIME`.
        const BASIC: u32 = 0x7ff;
        const BORN: u32 = 0x800;
        let plain = &self.attributes;
        let time =
            |time: Time| StatxTime { seconds: time.seconds, nanoseconds: time.nanoseconds, padding: 0 };
        StatxOut {
            seconds: ttl.as_secs(),
            nanoseconds: ttl.subsec_nanos(),
            mask: BASIC | if self.born.is_some() { BORN } else { 0 },
            block_bytes: plain.block_bytes,
            nlink: plain.nlink,
            uid: plain.uid,
            gid: plain.gid,
            mode: u16::try_from(plain.mode & 0xffff).expect("16 bits fit"),
            ino: plain.ino,
            size: plain.size,
            blocks: plain.blocks,
            accessed: time(plain.accessed),
            born: time(self.born.unwrap_or_default()),
            changed: time(plain.changed),
            modified: time(plain.modified),
            rdev_major: (plain.rdev >> 8) & 0xfff,
            rdev_minor: (plain.rdev & 0xff) | ((plain.rdev >> 12) & 0xfff00),
            ..StatxOut::default()
        }
    }
}

impl Entry {
    fn head(&self) -> EntryOut {
        EntryOut {
            node: self.node,
            generation: self.generation,
            name_seconds: self.name_ttl.as_secs(),
            attributes_seconds: self.attributes_ttl.as_secs(),
            name_nanoseconds: self.name_ttl.subsec_nanos(),
            attributes_nanoseconds: self.attributes_ttl.subsec_nanos(),
        }
    }
}

impl Opened {
    fn wire(&self) -> OpenOut {
        OpenOut { handle: self.handle, flags: self.answers.bits(), padding: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_a_listing_are_found() {
        let mut listing = Listing::new(1 << 12);
        for node in [7, 0, 8] {
            let mut head = Entry { node, ..Entry::default() }.head().as_bytes().to_vec();
            head.extend_from_slice(Attributes::default().wire().as_bytes());
            let name = &b"a name of some length"[..usize::try_from(node).expect("small") + 1];
            assert!(!listing.push(&head, &Listed { name, ino: node, offset: 0, mode: 0 }));
        }
        assert_eq!(nodes_of(&listing.bytes), [7, 8]);
        assert!(nodes_of(&listing.bytes[..100]).len() < 2 && nodes_of(b"short").is_empty());
    }

    #[test]
    fn listing_takes_what_fits() {
        let entry = |name| Listed { name, ino: 257, offset: 3, mode: 0o100_644 };
        let mut listing = Listing::new(72);
        assert!(!listing.push(&[], &entry(b"12345678")), "32 bytes");
        assert!(!listing.push(&[], &entry(b"123456789")), "40 bytes");
        assert!(listing.push(&[], &entry(b"1")), "it is full");
        assert_eq!(listing.bytes.len(), 72);
        assert_eq!(listing.bytes[24..32], *b"12345678");
        assert_eq!(listing.bytes[20..24], 8u32.to_ne_bytes(), "DT_REG");
        assert_eq!(listing.bytes[65..], [0; 7]);
    }
}

//! Streams of send, made and taken by a mount of brindle.
//!
//! A descriptor passes through no ioctl of FUSE. So the stream goes through a pipe that the server opens by `/proc`, and another
//! tells what happens ([`StreamNews`]). When this process goes, its pipes end, and with them the work.

use crate::call;
use crate::control::{ControlError, Mounted};
use brindle_uapi::message::{
    RECEIVE_ONE_STREAM, ReceiveStart, SEND_COMPRESSED, SEND_IDS_MAX, SEND_NO_DATA, SEND_ONE_STREAM,
    STREAM_COMPLAINT, STREAM_DONE, STREAM_FAILED, STREAM_RECEIVED, STREAM_SENDS, STREAM_TEXT_MAX, SendStart,
    StreamEvent,
};
use brindle_uapi::verb;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with};
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result as IoResult, Write};
use std::os::fd::{AsFd, AsRawFd};
use zerocopy::{FromZeros, IntoBytes};

/// Capacity of a pipe that a stream goes through, in bytes: the most that a host allows by default. A pipe of the usual 64 KiB has
/// its reader and its writer wait for each other most of the time.
const PIPE_BYTES: usize = 1 << 20;

/// Subvolumes that a mount is to send, of brindle ([`Mounted::send`]) or of the kernel ([`SendOrder::send_by_kernel`]).
#[derive(Debug)]
pub struct SendOrder<'m> {
    /// Roots of the subvolumes, in this order.
    pub subvolumes: &'m [Mounted],
    /// Parent of the first: only the difference from it is sent.
    pub parent: Option<&'m Mounted>,
    /// Subvolumes that the receiver has, to clone from.
    pub sources: &'m [Mounted],
    /// Version of the format.
    pub version: u32,
    /// Compressed extents are sent as they lie.
    pub compressed: bool,
    /// Changed ranges are named, and not sent.
    pub no_data: bool,
    /// All subvolumes are in one stream.
    pub one_stream: bool,
}

/// Something that a mount tells of a stream.
#[derive(Debug, PartialEq, Eq)]
pub enum StreamNews {
    /// A subvolume is begun to be sent.
    Sends {
        /// Its path from the top level.
        path: Vec<u8>,
        /// Path of the subvolume from which only the difference is sent.
        parent: Option<Vec<u8>>,
    },
    /// A subvolume was received: it is whole, durable and read-only.
    Received {
        /// Its id.
        id: u64,
        /// Its name.
        name: Vec<u8>,
    },
    /// A command failed, and the work goes on.
    Complaint(String),
    /// All was done.
    Done,
    /// A failure.
    Failed(String),
}

/// Reader of the news of a stream.
#[derive(Debug)]
pub struct NewsReader(File);

impl NewsReader {
    /// The next; waits for it.
    ///
    /// # Errors
    /// The server has ended before the work, or tells what can't be understood.
    pub fn take(&mut self) -> IoResult<StreamNews> {
        let mut head = StreamEvent::new_zeroed();
        self.0.read_exact(head.as_mut_bytes()).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => Error::other("the server of the mount has ended"),
            _ => error,
        })?;
        let length = usize::try_from(head.length).unwrap_or(usize::MAX);
        if length > STREAM_TEXT_MAX {
            return Err(Error::other("the server of the mount tells of a stream what can't be understood"));
        }
        let mut text = vec![0; length];
        self.0.read_exact(&mut text)?;
        let message = |text: Vec<u8>| String::from_utf8_lossy(&text).into_owned();
        Ok(match head.kind {
            STREAM_SENDS => {
                let mut paths = text.splitn(2, |byte| *byte == 0).map(<[u8]>::to_vec);
                StreamNews::Sends { path: paths.next().unwrap_or_default(), parent: paths.next() }
            }
            STREAM_RECEIVED => StreamNews::Received { id: head.id, name: text },
            STREAM_COMPLAINT => StreamNews::Complaint(message(text)),
            STREAM_DONE => StreamNews::Done,
            STREAM_FAILED => StreamNews::Failed(message(text)),
            kind => return Err(Error::other(format!("the server of the mount tells {kind} of a stream"))),
        })
    }
}

impl Mounted {
    /// Has a mount of brindle send subvolumes. Returns the stream, which ends without its end command if that fails, and the
    /// news of it.
    ///
    /// # Errors
    /// Directories that are no subvolumes of this mount; too many of them; refusals of the server.
    pub fn send(&self, order: &SendOrder<'_>) -> Result<(File, NewsReader), ControlError> {
        let what = "send";
        let fsid = self.filesystem()?.fsid;
        let id = |one: &Mounted| {
            if !one.is_brindle() || one.filesystem()?.fsid != fsid {
                return Err(one.refused(what, Errno::XDEV));
            }
            one.root_of_subvolume()
        };
        let mut start = SendStart::new_zeroed();
        let ids: Vec<u64> = order.subvolumes.iter().chain(order.sources).map(id).collect::<Result<_, _>>()?;
        if ids.len() > SEND_IDS_MAX {
            return Err(self.refused(what, Errno::TOOBIG));
        }
        start.ids[..ids.len()].copy_from_slice(&ids);
        start.count = short(order.subvolumes.len());
        start.source_count = short(order.sources.len());
        start.parent = order.parent.map(id).transpose()?.unwrap_or(0);
        start.version = order.version;
        let flags = [
            (order.compressed, SEND_COMPRESSED),
            (order.no_data, SEND_NO_DATA),
            (order.one_stream, SEND_ONE_STREAM),
        ];
        start.flags = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum();
        let failed = |error: Error| self.refused(what, Errno::from_io_error(&error).unwrap_or(Errno::IO));
        let (stream, to_stream) = pipe().map_err(failed)?;
        widen(&stream);
        let (news, to_news) = pipe().map_err(failed)?;
        (start.stream, start.events) = (number(&to_stream), number(&to_news));
        // The server has ends of its own when it answers.
        self.explain(what, call::set::<verb::StartSend>(&self.file, start))?;
        Ok((stream, NewsReader(news)))
    }

    /// Has a mount of brindle receive subvolumes into this directory. Returns the pipe that takes the stream, and the news of it.
    ///
    /// # Errors
    /// Refusals of the server: a mount that is not written, something that is no directory.
    pub fn receive(&self, errors_max: u64, one_stream: bool) -> Result<(File, NewsReader), ControlError> {
        let what = "receive";
        let failed = |error: Error| self.refused(what, Errno::from_io_error(&error).unwrap_or(Errno::IO));
        let (from_stream, stream) = pipe().map_err(failed)?;
        widen(&stream);
        let (news, to_news) = pipe().map_err(failed)?;
        let start = ReceiveStart {
            stream: number(&from_stream),
            events: number(&to_news),
            flags: if one_stream { RECEIVE_ONE_STREAM } else { 0 },
            errors_max,
        };
        self.explain(what, call::set::<verb::StartReceive>(&self.file, start))?;
        Ok((stream, NewsReader(news)))
    }

    /// Id of the subvolume of which this is the root.
    fn root_of_subvolume(&self) -> Result<u64, ControlError> {
        if self.is_subvolume_root() {
            Ok(self.subvolume()?.id)
        } else {
            Err(ControlError::NotASubvolume(self.path.clone()))
        }
    }
}

/// The ends of a new pipe: to read from, and to write to.
///
/// # Errors
/// No descriptors are left.
pub fn pipe() -> IoResult<(File, File)> {
    let (from, to) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((from.into(), to.into()))
}

/// Gives a pipe more room for a stream. What is no pipe, or can't have more, stays as it is.
pub fn widen(pipe: &impl AsFd) {
    if rustix::pipe::fcntl_getpipe_size(pipe).is_ok_and(|bytes| bytes < PIPE_BYTES) {
        let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES);
    }
}

/// Moves bytes of a stream from one descriptor to another, of which one is a pipe, without a copy where the host can. Returns their
/// number, 0 at the end.
///
/// # Errors
/// Those of reading and writing; [`ErrorKind::Interrupted`] by a signal.
pub fn pass_on(from: &File, to: &File, length: usize) -> IoResult<usize> {
    match rustix::pipe::splice(from, None, to, None, length, SpliceFlags::MOVE) {
        // Files that are appended to, and devices, take no pages of a pipe.
        Err(Errno::INVAL) => {
            let (mut from, mut to) = (from, to);
            let mut bytes = vec![0; length];
            let length = from.read(&mut bytes)?;
            to.write_all(bytes.get(..length).unwrap_or_default())?;
            Ok(length)
        }
        moved => moved.map_err(Error::from),
    }
}

fn number(descriptor: &impl AsRawFd) -> u32 {
    descriptor.as_raw_fd().try_into().expect("an open descriptor has a number from 0 on")
}

fn short(count: usize) -> u32 {
    count.try_into().expect("it was compared with what a request can name")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom};

    #[test]
    fn a_stream_is_passed_on_to_pipes_and_to_files_that_are_appended_to() {
        let bytes: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
        let (source, mut writer) = pipe().expect("a pipe");
        widen(&source);
        assert!(rustix::pipe::fcntl_getpipe_size(&source).expect("a pipe") >= 1 << 20);
        let directory = tempfile::tempdir().expect("room");
        let path = directory.path().join("appended");
        let appended = File::options().create(true).append(true).open(&path).expect("room");
        std::thread::scope(|threads| {
            threads.spawn(|| {
                writer.write_all(&bytes).expect("it is read");
                drop(writer);
            });
            while pass_on(&source, &appended, 100_000).expect("room") > 0 {}
        });
        assert!(std::fs::read(&path).expect("readable") == bytes);
        let mut source = File::open(&path).expect("readable");
        source.seek(SeekFrom::Start(4)).expect("within");
        let (mut reader, target) = pipe().expect("a pipe");
        let passed = std::thread::scope(|threads| {
            threads.spawn(move || while pass_on(&source, &target, 1 << 20).expect("room") > 0 {});
            let mut passed = Vec::new();
            reader.read_to_end(&mut passed).map(|_| passed)
        });
        assert!(passed.expect("a pipe") == bytes[4..]);
    }

    #[test]
    fn news_are_read_one_by_one_and_an_end_before_the_last_is_told() {
        let (reader, mut writer) = pipe().expect("a pipe");
        let mut tell = |kind: u32, id: u64, text: &[u8]| {
            let head = StreamEvent { kind, length: short(text.len()), id };
            writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(text)).expect("room");
        };
        tell(STREAM_SENDS, 256, b"home\0home.monday");
        tell(STREAM_SENDS, 256, b"home");
        tell(STREAM_RECEIVED, 257, b"home");
        tell(STREAM_FAILED, 0, b"no space");
        drop(writer);
        let mut news = NewsReader(reader);
        let (path, parent) = (b"home".to_vec(), Some(b"home.monday".to_vec()));
        assert_eq!(news.take().expect("news"), StreamNews::Sends { path: path.clone(), parent });
        assert_eq!(news.take().expect("news"), StreamNews::Sends { path: path.clone(), parent: None });
        assert_eq!(news.take().expect("news"), StreamNews::Received { id: 257, name: path });
        assert_eq!(news.take().expect("news"), StreamNews::Failed("no space".to_owned()));
        assert!(news.take().unwrap_err().to_string().contains("has ended"));
    }
}

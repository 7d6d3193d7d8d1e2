//! Commands written one after the other.

use crate::number::AttributeNumber as A;
use crate::reader::checksum_of;
use crate::{COMMAND_HEADER_BYTES, HEADER_BYTES, MAGIC};
use crate::{Command, EncodedWrite, Origin, StreamError, StreamProblem, StreamTime, Uuid};
use std::io::Write;

/// A stream that is written.
#[derive(Debug)]
pub struct StreamWriter<W> {
    target: W,
    version: u32,
    offset: u64,
    payload: Vec<u8>,
}

impl<W: Write> StreamWriter<W> {
    /// Begins a stream.
    ///
    /// # Errors
    /// A target that fails.
    pub fn new(mut target: W, version: u32) -> Result<Self, StreamError> {
        let written = target.write_all(&MAGIC).and_then(|()| target.write_all(&version.to_le_bytes()));
        written.map_err(|error| StreamError { offset: 0, command: None, problem: error.into() })?;
        Ok(Self { target, version, offset: HEADER_BYTES, payload: Vec::new() })
    }

    /// Version of the format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Number of bytes written so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Writes a command, one of the stream's version.
    ///
    /// # Errors
    /// A value that is too long for the format, or a target that fails: the stream is of no use then.
    pub fn write(&mut self, command: &Command<'_>) -> Result<(), StreamError> {
        let (number, offset) = (command.number(), self.offset);
        assert!(number.is_of(self.version), "{number} in a stream of version {}", self.version);
        let fail = |problem| StreamError { offset, command: Some(number), problem };
        self.payload.clear();
        encode(command, &mut Fields { payload: &mut self.payload, version: self.version }).map_err(fail)?;
        let length = u32::try_from(self.payload.len()).expect("a command is far shorter than 4 GiB");
        let mut header = [0; COMMAND_HEADER_BYTES];
        header[..4].copy_from_slice(&length.to_le_bytes());
        header[4..6].copy_from_slice(&number.0.to_le_bytes());
        let checksum = checksum_of(&header, &self.payload);
        header[6..].copy_from_slice(&checksum.to_le_bytes());
        let written = self.target.write_all(&header).and_then(|()| self.target.write_all(&self.payload));
        written.map_err(|error| fail(error.into()))?;
        self.offset += u64::from(length) + u64::try_from(header.len()).expect("small");
        Ok(())
    }

    /// Has the target write what it holds back.
    ///
    /// # Errors
    /// A target that fails.
    pub fn flush(&mut self) -> Result<(), StreamError> {
        let offset = self.offset;
        self.target.flush().map_err(|error| StreamError { offset, command: None, problem: error.into() })
    }

    /// Gives the target back.
    pub fn into_inner(self) -> W {
        self.target
    }
}

/// The attributes of a command that is written.
struct Fields<'p> {
    payload: &'p mut Vec<u8>,
    version: u32,
}

impl Fields<'_> {
    fn bytes(&mut self, number: A, value: &[u8]) -> Result<(), StreamProblem> {
        self.payload.extend_from_slice(&number.0.to_le_bytes());
        if self.version < 2 || number != A::DATA {
            let no_room = |_| StreamProblem::NoRoom { attribute: number.name(), length: value.len() };
            let length = u16::try_from(value.len()).map_err(no_room)?;
            self.payload.extend_from_slice(&length.to_le_bytes());
        }
        self.payload.extend_from_slice(value);
        Ok(())
    }

    fn number(&mut self, number: A, value: u64) -> Result<(), StreamProblem> {
        self.bytes(number, &value.to_le_bytes())
    }

    fn small_number(&mut self, number: A, value: u32) -> Result<(), StreamProblem> {
        self.bytes(number, &value.to_le_bytes())
    }

    fn origin(&mut self, uuid: A, transid: A, origin: &Origin) -> Result<(), StreamProblem> {
        let Uuid(bytes) = origin.uuid;
        self.bytes(uuid, &bytes)?;
        self.number(transid, origin.transid)
    }

    fn time(&mut self, number: A, time: StreamTime) -> Result<(), StreamProblem> {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&time.seconds.to_le_bytes());
        bytes[8..].copy_from_slice(&time.nanoseconds.to_le_bytes());
        self.bytes(number, &bytes)
    }

    fn range(&mut self, offset: u64, length: u64) -> Result<(), StreamProblem> {
        self.number(A::FILE_OFFSET, offset)?;
        self.number(A::SIZE, length)
    }
}

fn encode(command: &Command<'_>, to: &mut Fields<'_>) -> Result<(), StreamProblem> {
    match *command {
        Command::End => Ok(()),
        Command::Subvolume { path, ref origin } => {
            to.bytes(A::PATH, path)?;
            to.origin(A::UUID, A::TRANSID, origin)
        }
        Command::Snapshot { path, ref origin, ref parent } => {
            to.bytes(A::PATH, path)?;
            to.origin(A::UUID, A::TRANSID, origin)?;
            to.origin(A::CLONE_UUID, A::CLONE_TRANSID, parent)
        }
        Command::SetXattr { path, name, value } => {
            to.bytes(A::PATH, path)?;
            to.bytes(A::XATTR_NAME, name)?;
            to.bytes(A::XATTR_VALUE, value)
        }
        Command::RemoveXattr { path, name } => {
            to.bytes(A::PATH, path)?;
            to.bytes(A::XATTR_NAME, name)
        }
        Command::Chmod { path, mode } => {
            to.bytes(A::PATH, path)?;
            to.number(A::MODE, mode)
        }
        Command::Chown { path, uid, gid } => {
            to.bytes(A::PATH, path)?;
            to.number(A::UID, uid)?;
            to.number(A::GID, gid)
        }
        Command::Flags { path, flags } => {
            to.bytes(A::PATH, path)?;
            to.number(A::FLAGS, flags)
        }
        Command::Times { path, accessed, modified, changed, created } => {
            to.bytes(A::PATH, path)?;
            to.time(A::ACCESSED, accessed)?;
            to.time(A::MODIFIED, modified)?;
            to.time(A::CHANGED, changed)?;
            created.map_or(Ok(()), |created| to.time(A::CREATED, created))
        }
        _ => encode_name(command, to),
    }
}

fn encode_name(command: &Command<'_>, to: &mut Fields<'_>) -> Result<(), StreamProblem> {
    match *command {
        Command::MakeFile { path, inode } | Command::MakeDirectory { path, inode } => {
            to.bytes(A::PATH, path)?;
            to.number(A::INODE, inode)
        }
        Command::MakeNode { path, inode, mode, device }
        | Command::MakeFifo { path, inode, mode, device }
        | Command::MakeSocket { path, inode, mode, device } => {
            to.bytes(A::PATH, path)?;
            to.number(A::INODE, inode)?;
            to.number(A::DEVICE, device)?;
            to.number(A::MODE, mode)
        }
        Command::Symlink { path, inode, target } => {
            to.bytes(A::PATH, path)?;
            to.number(A::INODE, inode)?;
            to.bytes(A::PATH_LINK, target)
        }
        Command::Rename { path, to: target } => {
            to.bytes(A::PATH, path)?;
            to.bytes(A::PATH_TO, target)
        }
        Command::Link { path, target } => {
            to.bytes(A::PATH, path)?;
            to.bytes(A::PATH_LINK, target)
        }
        Command::Unlink { path } | Command::RemoveDirectory { path } => to.bytes(A::PATH, path),
        _ => encode_contents(command, to),
    }
}

fn encode_contents(command: &Command<'_>, to: &mut Fields<'_>) -> Result<(), StreamProblem> {
    match *command {
        Command::Truncate { path, size } => {
            to.bytes(A::PATH, path)?;
            to.number(A::SIZE, size)
        }
        Command::UpdateExtent { path, offset, length } => {
            to.bytes(A::PATH, path)?;
            to.range(offset, length)
        }
        Command::Allocate { path, mode, offset, length } => {
            to.bytes(A::PATH, path)?;
            to.small_number(A::ALLOCATE_MODE, mode)?;
            to.range(offset, length)
        }
        Command::Clone { path, offset, length, ref source, source_path, source_offset } => {
            to.number(A::FILE_OFFSET, offset)?;
            to.number(A::CLONE_LENGTH, length)?;
            to.bytes(A::PATH, path)?;
            to.origin(A::CLONE_UUID, A::CLONE_TRANSID, source)?;
            to.bytes(A::CLONE_PATH, source_path)?;
            to.number(A::CLONE_OFFSET, source_offset)
        }
        Command::EncodedWrite(ref write) => encode_encoded(write, to),
        // The data comes last: in version 2 it has no length of its own.
        Command::Write { path, offset, data } => {
            to.bytes(A::PATH, path)?;
            to.number(A::FILE_OFFSET, offset)?;
            to.bytes(A::DATA, data)
        }
        _ => unreachable!("all other commands are dealt with before"),
    }
}

fn encode_encoded(write: &EncodedWrite<'_>, to: &mut Fields<'_>) -> Result<(), StreamProblem> {
    to.bytes(A::PATH, write.path)?;
    to.number(A::FILE_OFFSET, write.offset)?;
    to.number(A::DECODED_FILE_LENGTH, write.length)?;
    to.number(A::DECODED_LENGTH, write.decoded_length)?;
    to.number(A::DECODED_OFFSET, write.decoded_offset)?;
    to.small_number(A::COMPRESSION, write.compression)?;
    to.small_number(A::ENCRYPTION, write.encryption)?;
    to.bytes(A::DATA, write.data)
}

//! Requests, performed on a device.

use crate::Export;
use crate::export::ToldFailures;
use crate::handshake::{CONTEXT_ID, Mode};
use brindle_device::{Buffer, DeviceError, WriteRequest, write_now};
use brindle_nbd::{
    BlockStatus, CHUNK_HEADER_BYTES, ChunkKind, Command, CommandFlags, PAYLOAD_BYTES_MAX, ReplyError,
    Request, SIMPLE_REPLY_BYTES, StatusFlags, chunk, error_chunk, simple_reply, status_chunk,
};
use std::io::ErrorKind;

/// Most extents of one answer.
const EXTENTS_MAX: usize = 1024;
/// Length of the offset before the data of a chunk.
const OFFSET_BYTES: usize = 8;
/// Requests shorter than this are a copy of memory that is not worth another thread, in bytes.
const SHORT_BYTES: u32 = 64 << 10;

/// Expected duration of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// A copy of some memory, or a read that announces its wait.
    Quick,
    /// A copy of much memory.
    Long,
    /// A wait for a device.
    Waits,
}

/// The pace of a request.
pub(crate) fn pace(export: &Export, request: &Request) -> Pace {
    let is_copy = matches!(request.command, Command::Read | Command::Write);
    match (export.is_host_cached() && is_copy, request.flags.contains(CommandFlags::FUA)) {
        (true, false) if request.length < SHORT_BYTES => Pace::Quick,
        (true, false) => Pace::Long,
        _ => Pace::Waits,
    }
}

/// An answer, as it is sent.
#[derive(Debug)]
pub(crate) enum Answer {
    Short(Vec<u8>),
    Data(Buffer),
}

impl Answer {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(bytes) => bytes,
            Self::Data(buffer) => buffer,
        }
    }
}

/// Performs a request that has an answer.
pub(crate) fn perform(
    export: &Export,
    told: &ToldFailures,
    mode: Mode,
    request: &Request,
    payload: &[u8],
) -> Answer {
    let result = check(export, mode, request).and_then(|()| match request.command {
        Command::Read => read(export, mode, request),
        Command::BlockStatus => status(export, request),
        command => {
            let changed = change(export, request, payload);
            let is_flush = command == Command::Flush;
            let is_durable = is_flush || request.flags.contains(CommandFlags::FUA);
            let judged = if is_durable { export.judge(told, is_flush, changed) } else { changed };
            judged.map(|()| success(mode, request.cookie))
        }
    });
    result.unwrap_or_else(|error| failure(mode, request.cookie, error))
}

fn success(mode: Mode, cookie: u64) -> Answer {
    Answer::Short(match mode.is_structured {
        true => chunk(ChunkKind::None, cookie, 0).to_vec(),
        false => simple_reply(cookie, None).to_vec(),
    })
}

fn failure(mode: Mode, cookie: u64, error: ReplyError) -> Answer {
    Answer::Short(match mode.is_structured {
        true => error_chunk(cookie, error),
        false => simple_reply(cookie, Some(error)).to_vec(),
    })
}

/// Flags that a command may have.
fn flags_of(command: Command, mode: Mode) -> CommandFlags {
    match command {
        Command::Read if mode.is_structured => CommandFlags::FUA | CommandFlags::DF,
        Command::WriteZeroes => CommandFlags::FUA | CommandFlags::NO_HOLE | CommandFlags::FAST_ZERO,
        Command::BlockStatus => CommandFlags::FUA | CommandFlags::REQ_ONE,
        // A client may set FUA everywhere; it says something of writes alone.
        _ => CommandFlags::FUA,
    }
}

/// Refuses what makes no sense, or may not be.
fn check(export: &Export, mode: Mode, request: &Request) -> Result<(), ReplyError> {
    let Request { command, flags, offset, length, .. } = *request;
    if !flags_of(command, mode).contains(flags) {
        return Err(ReplyError::Invalid);
    }
    let is_write = matches!(command, Command::Write | Command::Trim | Command::WriteZeroes);
    if is_write && export.writable_device().is_none() {
        return Err(ReplyError::Permission);
    }
    match command {
        Command::Flush => return Ok(()),
        Command::Disconnect | Command::Other(_) => return Err(ReplyError::Invalid),
        Command::BlockStatus if !mode.has_status || length == 0 => return Err(ReplyError::Invalid),
        Command::Read if length > PAYLOAD_BYTES_MAX => return Err(ReplyError::Overflow),
        _ => {}
    }
    let is_inside = offset.checked_add(length.into()).is_some_and(|end| end <= export.size_bytes());
    match is_inside {
        true => Ok(()),
        false if matches!(command, Command::Write | Command::WriteZeroes) => Err(ReplyError::NoSpace),
        false => Err(ReplyError::Invalid),
    }
}

/// Reads behind the header of the answer, so that all of it is sent at once.
fn read(export: &Export, mode: Mode, request: &Request) -> Result<Answer, ReplyError> {
    let length = usize::try_from(request.length).expect("a limited length");
    if length == 0 {
        return Ok(success(mode, request.cookie));
    }
    let simple = simple_reply(request.cookie, None);
    let header = if mode.is_structured { CHUNK_HEADER_BYTES + OFFSET_BYTES } else { SIMPLE_REPLY_BYTES };
    let mut answer = Buffer::new(header + length);
    if mode.is_structured {
        let payload = u32::try_from(OFFSET_BYTES + length).expect("a limited length");
        answer[..CHUNK_HEADER_BYTES].copy_from_slice(&chunk(ChunkKind::OffsetData, request.cookie, payload));
        answer[CHUNK_HEADER_BYTES..header].copy_from_slice(&request.offset.to_be_bytes());
    } else {
        answer[..header].copy_from_slice(&simple);
    }
    export.device().read_at(request.offset, &mut answer[header..]).map_err(|error| error_of(&error))?;
    Ok(Answer::Data(answer))
}

/// Extents of a range, each with its status.
fn status(export: &Export, request: &Request) -> Result<Answer, ReplyError> {
    let most = if request.flags.contains(CommandFlags::REQ_ONE) { 1 } else { EXTENTS_MAX };
    let mut extents: Vec<BlockStatus> = Vec::new();
    let (mut at, mut left) = (request.offset, request.length);
    while left > 0 {
        let found = export.device().extent_at(at, left.into()).map_err(|error| error_of(&error))?;
        let length = u32::try_from(found.length).unwrap_or(u32::MAX).clamp(1, left);
        let flags = if found.is_hole { StatusFlags::all() } else { StatusFlags::empty() };
        let count = extents.len();
        match extents.last_mut() {
            Some(last) if last.flags == flags => last.length += length,
            _ if count == most => break,
            _ => extents.push(BlockStatus { length, flags }),
        }
        (at, left) = (at + u64::from(length), left - length);
    }
    Ok(Answer::Short(status_chunk(request.cookie, CONTEXT_ID, &extents)))
}

/// Performs a request that is answered without data.
fn change(export: &Export, request: &Request, payload: &[u8]) -> Result<(), ReplyError> {
    let Request { offset, command, flags, .. } = *request;
    let length = u64::from(request.length);
    let is_durable = flags.contains(CommandFlags::FUA);
    let Some(device) = export.writable_device() else {
        // What is only read is durable as it is.
        if command == Command::Cache {
            export.device().prefetch(offset, length);
        }
        return Ok(());
    };
    let done = match command {
        Command::Write => write_now(device, &WriteRequest { offset, pieces: vec![payload], is_durable }),
        Command::Flush => device.flush(),
        Command::Cache => {
            device.prefetch(offset, length);
            Ok(())
        }
        Command::Trim => device.discard(offset, length).map(drop),
        _ => return write_zeroes(export, request),
    };
    let and_flush = |()| if command == Command::Trim && is_durable { device.flush() } else { Ok(()) };
    done.and_then(and_flush).map_err(|error| error_of(&error))
}

/// Writes zeros: by a hole, if the client allows one, or as bytes, unless it wants that quickly.
fn write_zeroes(export: &Export, request: &Request) -> Result<(), ReplyError> {
    let device = export.writable_device().ok_or(ReplyError::Permission)?;
    let (offset, length) = (request.offset, u64::from(request.length));
    let failed = |error: DeviceError| error_of(&error);
    let may_be_hole = !request.flags.contains(CommandFlags::NO_HOLE);
    let is_zero = may_be_hole && device.discard(offset, length).map_err(failed)?;
    if !is_zero {
        if request.flags.contains(CommandFlags::FAST_ZERO) {
            return Err(ReplyError::Unsupported);
        }
        device.zero(offset, length).map_err(failed)?;
    }
    if request.flags.contains(CommandFlags::FUA) { device.flush().map_err(failed) } else { Ok(()) }
}

/// The error that a client is told; the log has the whole.
fn error_of(error: &DeviceError) -> ReplyError {
    tracing::warn!("{error}");
    match error {
        DeviceError::Read { source, .. }
        | DeviceError::Write { source, .. }
        | DeviceError::Flush { source, .. } => match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ReplyError::NoSpace,
            ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => ReplyError::Permission,
            ErrorKind::OutOfMemory => ReplyError::Memory,
            _ => ReplyError::Io,
        },
        _ => ReplyError::Io,
    }
}

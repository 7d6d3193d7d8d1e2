//! Answers that several requests have in common.

use crate::convert::errno;
use fuser::{Errno, ReplyEmpty, ReplyIoctl, ReplyLseek, ReplyWrite, ReplyXattr};

pub(super) fn reply_empty(done: Result<(), rustix::io::Errno>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

pub(super) fn reply_written(written: Result<u64, rustix::io::Errno>, reply: ReplyWrite) {
    match written {
        Ok(length) => reply.written(u32::try_from(length).expect("a request is smaller than 4 GiB")),
        Err(error) => reply.error(errno(error)),
    }
}

pub(super) fn reply_offset(found: Result<u64, rustix::io::Errno>, reply: ReplyLseek) {
    match found {
        Ok(found) => reply.offset(i64::try_from(found).unwrap_or(i64::MAX)),
        Err(error) => reply.error(errno(error)),
    }
}

pub(super) fn reply_ioctl(answer: Result<Vec<u8>, rustix::io::Errno>, size: u32, reply: ReplyIoctl) {
    match answer {
        Ok(mut answer) => {
            answer.truncate(usize::try_from(size).unwrap_or(usize::MAX));
            reply.ioctl(0, &answer);
        }
        Err(error) => reply.error(errno(error)),
    }
}

/// A size of 0 asks how large the value is.
pub(super) fn reply_xattr(value: Result<Vec<u8>, rustix::io::Errno>, size: u32, reply: ReplyXattr) {
    match value {
        Err(error) => reply.error(errno(error)),
        Ok(value) => match u32::try_from(value.len()) {
            Ok(length) if size == 0 => reply.size(length),
            Ok(length) if length <= size => reply.data(&value),
            _ => reply.error(Errno::ERANGE),
        },
    }
}

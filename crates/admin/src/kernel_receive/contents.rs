//! Commands that change the contents of files.

use super::place::Place;
use crate::call;
use brindle_care::receive::{ReceiveProblem, decode};
use brindle_stream::{Command, EncodedWrite};
use brindle_uapi::message::{CloneRange, KernelEncodedWrite};
use brindle_uapi::verb;
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use zerocopy::FromZeros;

type Done = Result<(), ReceiveProblem>;

impl Place {
    /// Carries out a command about contents; a clone is one within the subvolume.
    pub(super) fn change_contents(&mut self, command: &Command<'_>, decompresses: bool) -> Done {
        match *command {
            Command::Write { path, offset, data } => Ok(self.file(path)?.write_all_at(data, offset)?),
            Command::EncodedWrite(ref write) => self.write_encoded(write, decompresses),
            Command::Clone { path, source_path, .. } => {
                let source = self.open(source_path, OFlags::RDONLY)?;
                share(self.file(path)?, &source, command)
            }
            Command::Truncate { path, size } => Ok(self.file(path)?.set_len(size)?),
            Command::Allocate { path, mode, offset, length } => {
                let flags = FallocateFlags::from_bits(mode).ok_or(ReceiveProblem::AllocateMode(mode))?;
                Ok(fallocate(self.file(path)?, flags, offset, length).map_err(io::Error::from)?)
            }
            Command::UpdateExtent { .. } => Err(ReceiveProblem::NoData),
            _ => Err(ReceiveProblem::NoSubvolume),
        }
    }

    /// Shares contents of a file of another subvolume.
    pub(super) fn clone_range(&mut self, from: &mut Self, command: &Command<'_>) -> Done {
        let Command::Clone { path, source_path, .. } = *command else {
            return Err(ReceiveProblem::NoSubvolume);
        };
        let source = from.open(source_path, OFlags::RDONLY)?;
        share(self.file(path)?, &source, command)
    }

    /// Writes contents as they come, where the kernel takes them, and else decoded.
    fn write_encoded(&mut self, write: &EncodedWrite<'_>, decompresses: bool) -> Done {
        let told = KernelEncodedWrite {
            offset: write.offset,
            length: write.length,
            decoded_length: write.decoded_length,
            decoded_offset: write.decoded_offset,
            compression: write.compression,
            encryption: write.encryption,
            ..KernelEncodedWrite::new_zeroed()
        };
        let file = self.file(write.path)?;
        if !decompresses {
            let target: OwnedFd = file.try_clone()?.into();
            match call::write_encoded::<verb::WriteEncoded>(&target, told, write.data) {
                // It knows no such call, or not for this file or this caller, or not these contents.
                Err(Errno::NOTTY | Errno::INVAL | Errno::OPNOTSUPP | Errno::PERM | Errno::NOSPC) => {}
                done => return Ok(done.map_err(io::Error::from)?),
            }
        }
        Ok(file.write_all_at(&decode(write)?, write.offset)?)
    }
}

fn share(target: &File, source: &File, command: &Command<'_>) -> Done {
    let Command::Clone { offset, length, source_offset, .. } = *command else {
        return Err(ReceiveProblem::NoSubvolume);
    };
    let found = source.metadata()?.len().saturating_sub(source_offset).min(length);
    // Of no length, it would be all that there is.
    if found < length || length == 0 {
        return Err(ReceiveProblem::ShortSource { found, expected: length });
    }
    let range = CloneRange { source: source.as_raw_fd().into(), source_offset, length, offset };
    let target: OwnedFd = target.try_clone()?.into();
    Ok(call::set::<verb::ShareRange>(&target, range).map_err(io::Error::from)?)
}

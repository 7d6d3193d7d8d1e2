//! A command from its attributes.

use crate::attributes::Attributes;
use crate::number::AttributeNumber as A;
use crate::{Command, CommandNumber, EncodedWrite, Origin, StreamProblem};

/// Makes the command with this number, which the version has.
pub(crate) fn decode<'a>(
    number: CommandNumber,
    attributes: &Attributes<'a>,
) -> Result<Command<'a>, StreamProblem> {
    if number == CommandNumber::END {
        return Ok(Command::End);
    }
    let path = attributes.bytes(A::PATH)?;
    match number {
        CommandNumber::SUBVOLUME | CommandNumber::SNAPSHOT => beginning(number, path, attributes),
        number if number.0 <= CommandNumber::REMOVE_DIRECTORY.0 => name(number, path, attributes),
        CommandNumber::SET_XATTR => Ok(Command::SetXattr {
            path,
            name: attributes.bytes(A::XATTR_NAME)?,
            value: attributes.bytes(A::XATTR_VALUE)?,
        }),
        CommandNumber::REMOVE_XATTR => {
            Ok(Command::RemoveXattr { path, name: attributes.bytes(A::XATTR_NAME)? })
        }
        CommandNumber::CHMOD => Ok(Command::Chmod { path, mode: attributes.number(A::MODE)? }),
        CommandNumber::CHOWN => {
            Ok(Command::Chown { path, uid: attributes.number(A::UID)?, gid: attributes.number(A::GID)? })
        }
        CommandNumber::TIMES => Ok(Command::Times {
            path,
            accessed: attributes.time(A::ACCESSED)?,
            modified: attributes.time(A::MODIFIED)?,
            changed: attributes.time(A::CHANGED)?,
            created: attributes.optional_time(A::CREATED)?,
        }),
        CommandNumber::FLAGS => Ok(Command::Flags { path, flags: attributes.number(A::FLAGS)? }),
        _ => contents(number, path, attributes),
    }
}

fn beginning<'a>(
    number: CommandNumber,
    path: &'a [u8],
    attributes: &Attributes<'a>,
) -> Result<Command<'a>, StreamProblem> {
    let origin = Origin { uuid: attributes.uuid(A::UUID)?, transid: attributes.number(A::TRANSID)? };
    if number == CommandNumber::SUBVOLUME {
        return Ok(Command::Subvolume { path, origin });
    }
    Ok(Command::Snapshot { path, origin, parent: source(attributes)? })
}

fn source(attributes: &Attributes<'_>) -> Result<Origin, StreamProblem> {
    let uuid = attributes.uuid(A::CLONE_UUID)?;
    Ok(Origin { uuid, transid: attributes.number(A::CLONE_TRANSID)? })
}

/// Commands that make, move and remove names.
fn name<'a>(
    number: CommandNumber,
    path: &'a [u8],
    attributes: &Attributes<'a>,
) -> Result<Command<'a>, StreamProblem> {
    let inode = attributes.number_or_zero(A::INODE)?;
    let (mode, device) = (attributes.number_or_zero(A::MODE)?, attributes.number_or_zero(A::DEVICE)?);
    Ok(match number {
        CommandNumber::MAKE_FILE => Command::MakeFile { path, inode },
        CommandNumber::MAKE_DIRECTORY => Command::MakeDirectory { path, inode },
        CommandNumber::MAKE_NODE => Command::MakeNode {
            path,
            inode,
            mode: attributes.number(A::MODE)?,
            device: attributes.number(A::DEVICE)?,
        },
        CommandNumber::MAKE_FIFO => Command::MakeFifo { path, inode, mode, device },
        CommandNumber::MAKE_SOCKET => Command::MakeSocket { path, inode, mode, device },
        CommandNumber::SYMLINK => Command::Symlink { path, inode, target: attributes.bytes(A::PATH_LINK)? },
        CommandNumber::RENAME => Command::Rename { path, to: attributes.bytes(A::PATH_TO)? },
        CommandNumber::LINK => Command::Link { path, target: attributes.bytes(A::PATH_LINK)? },
        CommandNumber::UNLINK => Command::Unlink { path },
        _ => Command::RemoveDirectory { path },
    })
}

/// Commands that change contents.
fn contents<'a>(
    number: CommandNumber,
    path: &'a [u8],
    attributes: &Attributes<'a>,
) -> Result<Command<'a>, StreamProblem> {
    if number == CommandNumber::TRUNCATE {
        return Ok(Command::Truncate { path, size: attributes.number(A::SIZE)? });
    }
    let offset = attributes.number(A::FILE_OFFSET)?;
    Ok(match number {
        CommandNumber::WRITE => Command::Write { path, offset, data: attributes.bytes(A::DATA)? },
        CommandNumber::CLONE => Command::Clone {
            path,
            offset,
            length: attributes.number(A::CLONE_LENGTH)?,
            source: source(attributes)?,
            source_path: attributes.bytes(A::CLONE_PATH)?,
            source_offset: attributes.number(A::CLONE_OFFSET)?,
        },
        CommandNumber::UPDATE_EXTENT => {
            Command::UpdateExtent { path, offset, length: attributes.number(A::SIZE)? }
        }
        CommandNumber::ALLOCATE => Command::Allocate {
            path,
            mode: attributes.small_number(A::ALLOCATE_MODE)?,
            offset,
            length: attributes.number(A::SIZE)?,
        },
        _ => Command::EncodedWrite(EncodedWrite {
            path,
            offset,
            length: attributes.number(A::DECODED_FILE_LENGTH)?,
            decoded_length: attributes.number(A::DECODED_LENGTH)?,
            decoded_offset: attributes.number(A::DECODED_OFFSET)?,
            compression: attributes.small_number_or_zero(A::COMPRESSION)?,
            encryption: attributes.small_number_or_zero(A::ENCRYPTION)?,
            data: attributes.bytes(A::DATA)?,
        }),
    })
}

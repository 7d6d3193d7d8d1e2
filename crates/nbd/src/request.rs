//! Requests.

use crate::fields::Fields;
use crate::{CommandFlags, WireError};

const MAGIC: u32 = 0x2560_9513;

/// Length of a request without its payload.
pub const REQUEST_BYTES: usize = 28;

/// Command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Reads a range.
    Read,
    /// Writes a range: the bytes follow the request.
    Write,
    /// Ends the connection, without an answer.
    Disconnect,
    /// Makes durable all writes that were answered.
    Flush,
    /// Gives back the space of a range; its contents are unspecified then.
    Trim,
    /// Prepares to read a range.
    Cache,
    /// Writes zeros.
    WriteZeroes,
    /// Asks for holes in a range.
    BlockStatus,
    /// Any other number.
    Other(u16),
}

/// Commands, each at its number.
const COMMANDS: [Command; 8] = [
    Command::Read,
    Command::Write,
    Command::Disconnect,
    Command::Flush,
    Command::Trim,
    Command::Cache,
    Command::WriteZeroes,
    Command::BlockStatus,
];

impl Command {
    fn from_number(number: u16) -> Self {
        COMMANDS.get(usize::from(number)).copied().unwrap_or(Self::Other(number))
    }

    fn number(self) -> u16 {
        let known = COMMANDS.iter().position(|command| *command == self);
        match (self, known.and_then(|number| u16::try_from(number).ok())) {
            (Self::Other(number), _) => number,
            (_, known) => known.unwrap_or(u16::MAX),
        }
    }
}

/// A request, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Flags, unknown ones too.
    pub flags: CommandFlags,
    /// The command.
    pub command: Command,
    /// Number of the request, which its answers repeat.
    pub cookie: u64,
    /// First byte of the range.
    pub offset: u64,
    /// Length of the range in bytes.
    pub length: u32,
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// Another magic number, another length: the peer is out of step.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut fields = Fields::new("request", bytes);
        fields.magic32(MAGIC)?;
        let request = Self {
            flags: CommandFlags::from_bits_retain(fields.u16()?),
            command: Command::from_number(fields.u16()?),
            cookie: fields.u64()?,
            offset: fields.u64()?,
            length: fields.u32()?,
        };
        fields.end()?;
        Ok(request)
    }

    /// The request as bytes.
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.bits().to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.number().to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }
}

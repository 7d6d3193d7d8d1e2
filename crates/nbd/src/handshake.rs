//! The handshake: greeting, options and their replies.

use crate::fields::{Fields, text};
use crate::{ClientFlags, ExportFlags, HandshakeFlags, WireError};

const SERVER_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Zeros at the end of the reply to `ExportName`.
const RESERVED_BYTES: usize = 124;

/// Length of the greeting.
pub const GREETING_BYTES: usize = 18;
/// Length of an option without its contents.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Length of a reply to an option without its contents.
pub const OPTION_REPLY_HEADER_BYTES: usize = 20;
/// Longest name or message, in bytes.
pub const NAME_BYTES_MAX: usize = 4096;
/// The context that tells holes.
pub const ALLOCATION_CONTEXT: &str = "base:allocation";

/// First bytes of a server.
pub fn greeting(flags: HandshakeFlags) -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[..8].copy_from_slice(&SERVER_MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes[16..].copy_from_slice(&flags.bits().to_be_bytes());
    bytes
}

/// Reads the greeting of a server; returns the flags of a client that takes all it offers.
///
/// # Errors
/// Another protocol, or an older dialect of it.
pub fn parse_greeting(bytes: &[u8]) -> Result<ClientFlags, WireError> {
    let mut fields = Fields::new("greeting", bytes);
    fields.magic64(SERVER_MAGIC)?;
    fields.magic64(OPTION_MAGIC)?;
    let flags = HandshakeFlags::from_bits_retain(fields.u16()?);
    fields.end()?;
    if !flags.contains(HandshakeFlags::FIXED_NEWSTYLE) {
        return Err(WireError::Dialect { found: flags.bits() });
    }
    let zeroes =
        if flags.contains(HandshakeFlags::NO_ZEROES) { ClientFlags::NO_ZEROES } else { ClientFlags::empty() };
    Ok(ClientFlags::FIXED_NEWSTYLE | zeroes)
}

/// Kind of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// Chooses an export, without a reply that could say no.
    ExportName,
    /// Ends the connection.
    Abort,
    /// Asks for the names of exports.
    List,
    /// Asks for TLS.
    StartTls,
    /// Asks for facts of an export.
    Info,
    /// Chooses an export.
    Go,
    /// Asks for answers in chunks.
    StructuredReply,
    /// Asks for the names of contexts.
    ListMetaContext,
    /// Chooses contexts.
    SetMetaContext,
    /// Any other number.
    Other(u32),
}

/// Options and their numbers.
const OPTIONS: [(OptionKind, u32); 9] = [
    (OptionKind::ExportName, 1),
    (OptionKind::Abort, 2),
    (OptionKind::List, 3),
    (OptionKind::StartTls, 5),
    (OptionKind::Info, 6),
    (OptionKind::Go, 7),
    (OptionKind::StructuredReply, 8),
    (OptionKind::ListMetaContext, 9),
    (OptionKind::SetMetaContext, 10),
];

impl OptionKind {
    fn from_number(number: u32) -> Self {
        let known = OPTIONS.iter().find(|(_, known)| *known == number);
        known.map_or(Self::Other(number), |(kind, _)| *kind)
    }

    fn number(self) -> u32 {
        match self {
            Self::Other(number) => number,
            known => OPTIONS.iter().find(|(kind, _)| *kind == known).map_or(0, |(_, number)| *number),
        }
    }
}

/// An option, without its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// The option.
    pub kind: OptionKind,
    /// Length of the contents in bytes.
    pub length: u32,
}

impl OptionHeader {
    /// Reads the header of an option.
    ///
    /// # Errors
    /// Another magic number, another length: the peer is out of step.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut fields = Fields::new("option", bytes);
        fields.magic64(OPTION_MAGIC)?;
        let header = Self { kind: OptionKind::from_number(fields.u32()?), length: fields.u32()? };
        fields.end()?;
        Ok(header)
    }
}

/// Header of an option as bytes.
pub fn option_header(kind: OptionKind, length: u32) -> [u8; OPTION_HEADER_BYTES] {
    let mut bytes = [0; OPTION_HEADER_BYTES];
    bytes[..8].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes[8..12].copy_from_slice(&kind.number().to_be_bytes());
    bytes[12..].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// Contents of `Info` and `Go`: an export, and the facts of it that the client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportRequest {
    /// Name of the export; empty for the default one.
    pub name: String,
    /// True if the client will keep to the block sizes that it is told.
    pub wants_block_sizes: bool,
}

impl ExportRequest {
    /// Reads the contents.
    ///
    /// # Errors
    /// Lengths that do not fit, a name that is no text.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut fields = Fields::new("option for an export", bytes);
        let name = fields.text()?;
        let count = fields.u16()?;
        let mut wants_block_sizes = false;
        for _ in 0..count {
            wants_block_sizes |= fields.u16()? == INFORMATION_BLOCK_SIZES;
        }
        fields.end()?;
        Ok(Self { name, wants_block_sizes })
    }
}

/// Contents of `Info` and `Go`, as bytes: the client wants the block sizes.
pub fn export_request(name: &str) -> Vec<u8> {
    let mut bytes = counted(name);
    bytes.extend(1u16.to_be_bytes());
    bytes.extend(INFORMATION_BLOCK_SIZES.to_be_bytes());
    bytes
}

/// Contents of `ListMetaContext` and `SetMetaContext`: an export, and the contexts that are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextRequest {
    /// Name of the export.
    pub name: String,
    /// Contexts; none for all of them, if it is a list that is asked for.
    pub queries: Vec<String>,
}

impl ContextRequest {
    /// Reads the contents.
    ///
    /// # Errors
    /// Lengths that do not fit, names that are no text.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut fields = Fields::new("option for contexts", bytes);
        let name = fields.text()?;
        let count = fields.u32()?;
        // Each takes four bytes at least, so the message limits the memory.
        let queries = (0..count).map(|_| fields.text()).collect::<Result<Vec<String>, WireError>>()?;
        fields.end()?;
        Ok(Self { name, queries })
    }
}

/// Kind of a reply to an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionReplyKind {
    /// The last reply: success.
    Ack,
    /// Name of an export.
    Server,
    /// A fact of an export.
    Info,
    /// A context that was chosen or listed.
    MetaContext,
    /// The option is unknown.
    Unsupported,
    /// The option is forbidden.
    Policy,
    /// The contents of the option are wrong.
    Invalid,
    /// TLS must come first.
    TlsRequired,
    /// No such export.
    Unknown,
    /// The contents are too long.
    TooBig,
    /// Any other number.
    Other(u32),
}

const ERROR: u32 = 1 << 31;

/// Replies and their numbers.
const OPTION_REPLIES: [(OptionReplyKind, u32); 10] = [
    (OptionReplyKind::Ack, 1),
    (OptionReplyKind::Server, 2),
    (OptionReplyKind::Info, 3),
    (OptionReplyKind::MetaContext, 4),
    (OptionReplyKind::Unsupported, ERROR + 1),
    (OptionReplyKind::Policy, ERROR + 2),
    (OptionReplyKind::Invalid, ERROR + 3),
    (OptionReplyKind::TlsRequired, ERROR + 5),
    (OptionReplyKind::Unknown, ERROR + 6),
    (OptionReplyKind::TooBig, ERROR + 9),
];

impl OptionReplyKind {
    fn from_number(number: u32) -> Self {
        let known = OPTION_REPLIES.iter().find(|(_, known)| *known == number);
        known.map_or(Self::Other(number), |(kind, _)| *kind)
    }

    fn number(self) -> u32 {
        match self {
            Self::Other(number) => number,
            known => OPTION_REPLIES.iter().find(|(kind, _)| *kind == known).map_or(0, |(_, number)| *number),
        }
    }

    /// Returns true if it says no, and ends the answer to the option.
    pub fn is_error(self) -> bool {
        self.number() & ERROR != 0
    }
}

/// A reply to an option, without its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReply {
    /// The option.
    pub option: OptionKind,
    /// The answer.
    pub kind: OptionReplyKind,
    /// Length of the contents in bytes.
    pub length: u32,
}

impl OptionReply {
    /// Reads the header of a reply.
    ///
    /// # Errors
    /// Another magic number, another length: the peer is out of step.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut fields = Fields::new("reply to an option", bytes);
        fields.magic64(OPTION_REPLY_MAGIC)?;
        let reply = Self {
            option: OptionKind::from_number(fields.u32()?),
            kind: OptionReplyKind::from_number(fields.u32()?),
            length: fields.u32()?,
        };
        fields.end()?;
        Ok(reply)
    }
}

/// A reply to an option, with its contents.
pub fn option_reply(option: OptionKind, kind: OptionReplyKind, contents: &[u8]) -> Vec<u8> {
    let length = u32::try_from(contents.len()).expect("replies are short");
    let mut bytes = Vec::with_capacity(OPTION_REPLY_HEADER_BYTES + contents.len());
    bytes.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    bytes.extend(option.number().to_be_bytes());
    bytes.extend(kind.number().to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes.extend(contents);
    bytes
}

/// Contents of a reply that names an export.
pub fn server_reply(name: &str) -> Vec<u8> {
    counted(name)
}

/// Contents of a reply that names a context.
pub fn context_reply(id: u32, name: &str) -> Vec<u8> {
    let mut bytes = id.to_be_bytes().to_vec();
    bytes.extend(name.as_bytes());
    bytes
}

/// Sizes of requests that an export takes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of it.
    pub minimum: u32,
    /// Multiples of it are fastest.
    pub preferred: u32,
    /// Longest payload.
    pub maximum: u32,
}

const INFORMATION_EXPORT: u16 = 0;
const INFORMATION_BLOCK_SIZES: u16 = 3;

/// A fact of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Information {
    /// Size and abilities.
    Export {
        /// Size in bytes.
        size_bytes: u64,
        /// Abilities.
        flags: ExportFlags,
    },
    /// Sizes of requests.
    BlockSizes(BlockSizes),
    /// Any other fact.
    Other(u16),
}

impl Information {
    /// Reads the contents of a reply of the kind `Info`.
    ///
    /// # Errors
    /// Contents of another length.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut fields = Fields::new("fact of an export", bytes);
        let information = match fields.u16()? {
            INFORMATION_EXPORT => Self::Export {
                size_bytes: fields.u64()?,
                flags: ExportFlags::from_bits_retain(fields.u16()?),
            },
            INFORMATION_BLOCK_SIZES => Self::BlockSizes(BlockSizes {
                minimum: fields.u32()?,
                preferred: fields.u32()?,
                maximum: fields.u32()?,
            }),
            other => {
                fields.rest();
                Self::Other(other)
            }
        };
        fields.end()?;
        Ok(information)
    }
}

/// Contents of a reply with a fact; of an unknown one, its number alone.
pub fn information(information: &Information) -> Vec<u8> {
    let mut bytes = Vec::new();
    match information {
        Information::Export { size_bytes, flags } => {
            bytes.extend(INFORMATION_EXPORT.to_be_bytes());
            bytes.extend(size_bytes.to_be_bytes());
            bytes.extend(flags.bits().to_be_bytes());
        }
        Information::BlockSizes(BlockSizes { minimum, preferred, maximum }) => {
            bytes.extend(INFORMATION_BLOCK_SIZES.to_be_bytes());
            bytes.extend([minimum, preferred, maximum].into_iter().flat_map(|size| size.to_be_bytes()));
        }
        Information::Other(number) => bytes.extend(number.to_be_bytes()),
    }
    bytes
}

/// Reply to `ExportName`.
pub fn export_name_reply(size_bytes: u64, flags: ExportFlags, client: ClientFlags) -> Vec<u8> {
    let mut bytes = size_bytes.to_be_bytes().to_vec();
    bytes.extend(flags.bits().to_be_bytes());
    if !client.contains(ClientFlags::NO_ZEROES) {
        bytes.extend([0; RESERVED_BYTES]);
    }
    bytes
}

/// Name in the contents of `ExportName`, which is all of them.
///
/// # Errors
/// A name that is no text, or too long.
pub fn parse_export_name(bytes: &[u8]) -> Result<String, WireError> {
    text("name of an export", bytes)
}

fn counted(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).expect("names are short");
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

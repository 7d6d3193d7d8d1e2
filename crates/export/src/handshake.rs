//! The handshake: a client and the server agree on the export and on the form of answers.

use crate::stream::Stream;
use crate::{Encryption, Export};
use brindle_nbd::{
    ALLOCATION_CONTEXT, ClientFlags, ContextRequest, ExportRequest, HandshakeFlags, Information,
    OPTION_HEADER_BYTES, OptionHeader, OptionKind, OptionReplyKind, WireError, context_reply,
    export_name_reply, greeting, information, option_reply, parse_export_name, server_reply,
};
use std::io::{self, Read, Write};
use std::time::Instant;

/// Longest contents of an option, in bytes: a name and many contexts.
const OPTION_BYTES_MAX: u32 = 64 << 10;
/// Number of the only context.
pub(crate) const CONTEXT_ID: u32 = 1;

/// Choice of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mode {
    /// Answers are chunks.
    pub(crate) is_structured: bool,
    /// The status of blocks may be asked for.
    pub(crate) has_status: bool,
}

/// A handshake under way.
struct Handshake<'h> {
    stream: &'h Stream,
    export: &'h Export,
    encryption: &'h Encryption,
    client: ClientFlags,
    mode: Mode,
    deadline: Instant,
}

/// State after an option.
enum Next {
    Options,
    Requests,
    End,
}

/// Greets a client, and answers its options; `None` if it leaves, or asks for what is not here.
///
/// # Errors
/// Those of the socket, a client that takes too long, and one that is out of step.
pub(crate) fn negotiate(
    stream: &Stream,
    export: &Export,
    encryption: &Encryption,
    deadline: Instant,
) -> io::Result<Option<Mode>> {
    stream.write_all(&greeting(HandshakeFlags::FIXED_NEWSTYLE | HandshakeFlags::NO_ZEROES))?;
    let (client, mode) = (ClientFlags::empty(), Mode::default());
    let mut handshake = Handshake { stream, export, encryption, client, mode, deadline };
    let mut flags = [0; 4];
    handshake.read_exact(&mut flags)?;
    // Unknown flags of a client end the connection.
    let Some(client) = ClientFlags::from_bits(u32::from_be_bytes(flags)) else { return Ok(None) };
    handshake.client = client;
    loop {
        match handshake.option()? {
            Next::Options => {}
            Next::Requests => return Ok(Some(handshake.mode)),
            Next::End => return Ok(None),
        }
    }
}

impl Read for Handshake<'_> {
    /// Reads until the deadline.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(left)?;
        let is_late = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        self.stream
            .read(buffer)
            .map_err(|error| if is_late(&error) { io::ErrorKind::TimedOut.into() } else { error })
    }
}

impl Write for Handshake<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write_all(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Handshake<'_> {
    fn reply(&self, option: OptionKind, kind: OptionReplyKind, contents: &[u8]) -> io::Result<()> {
        self.stream.write_all(&option_reply(option, kind, contents))
    }

    /// Takes and answers one option.
    fn option(&mut self) -> io::Result<Next> {
        let mut header = [0; OPTION_HEADER_BYTES];
        self.read_exact(&mut header)?;
        let OptionHeader { kind, length } = OptionHeader::decode(&header).map_err(out_of_step)?;
        if length > OPTION_BYTES_MAX {
            self.reply(kind, OptionReplyKind::TooBig, b"")?;
            return Ok(Next::End);
        }
        let mut contents = vec![0; usize::try_from(length).expect("an option is short")];
        self.read_exact(&mut contents)?;
        let is_withheld = self.encryption.is_required() && !self.stream.is_secure();
        match kind {
            OptionKind::Abort => {
                self.reply(kind, OptionReplyKind::Ack, b"")?;
                return Ok(Next::End);
            }
            OptionKind::StartTls => self.start_tls(&contents)?,
            // It has no reply that could say no.
            OptionKind::ExportName if is_withheld => return Ok(Next::End),
            _ if is_withheld => self.reply(kind, OptionReplyKind::TlsRequired, b"TLS comes first")?,
            OptionKind::ExportName => return self.export_name(&contents),
            OptionKind::List | OptionKind::StructuredReply if !contents.is_empty() => {
                self.reply(kind, OptionReplyKind::Invalid, b"it has no contents")?;
            }
            OptionKind::List => {
                self.reply(kind, OptionReplyKind::Server, &server_reply(self.export.name()))?;
                self.reply(kind, OptionReplyKind::Ack, b"")?;
            }
            OptionKind::StructuredReply => {
                self.mode.is_structured = true;
                self.reply(kind, OptionReplyKind::Ack, b"")?;
            }
            OptionKind::Info | OptionKind::Go => {
                let is_told = self.tell_export(kind, &contents)?;
                if is_told && kind == OptionKind::Go {
                    return Ok(Next::Requests);
                }
            }
            OptionKind::ListMetaContext | OptionKind::SetMetaContext => self.contexts(kind, &contents)?,
            OptionKind::Other(_) => self.reply(kind, OptionReplyKind::Unsupported, b"")?,
        }
        Ok(Next::Options)
    }

    /// Turns to TLS, from which there is no way back. Options are read from the socket one by one, so that nothing that came in the
    /// clear is left; and what was agreed in the clear is forgotten, as it may have been another's word.
    fn start_tls(&mut self, contents: &[u8]) -> io::Result<()> {
        let kind = OptionKind::StartTls;
        let Some(credentials) = self.encryption.credentials() else {
            return self.reply(kind, OptionReplyKind::Policy, b"this server has no TLS");
        };
        if self.stream.is_secure() || !contents.is_empty() {
            return self.reply(
                kind,
                OptionReplyKind::Invalid,
                b"TLS begins once, and the option has no contents",
            );
        }
        self.reply(kind, OptionReplyKind::Ack, b"")?;
        let session = credentials.accept(self)?;
        self.stream.secure(session);
        self.mode = Mode::default();
        Ok(())
    }

    /// Answers the option that has no way to say no.
    fn export_name(&self, contents: &[u8]) -> io::Result<Next> {
        if !parse_export_name(contents).is_ok_and(|name| self.export.is_meant_by(&name)) {
            return Ok(Next::End);
        }
        let flags = self.export.flags(self.mode.is_structured);
        self.stream.write_all(&export_name_reply(self.export.size_bytes(), flags, self.client))?;
        Ok(Next::Requests)
    }

    /// Tells the facts of the export; false if another one was asked for.
    fn tell_export(&self, kind: OptionKind, contents: &[u8]) -> io::Result<bool> {
        let Ok(request) = ExportRequest::decode(contents) else {
            self.reply(kind, OptionReplyKind::Invalid, b"")?;
            return Ok(false);
        };
        if !self.export.is_meant_by(&request.name) {
            self.reply(kind, OptionReplyKind::Unknown, b"there is no export of this name")?;
            return Ok(false);
        }
        let (size_bytes, flags) = (self.export.size_bytes(), self.export.flags(self.mode.is_structured));
        let facts =
            [Information::Export { size_bytes, flags }, Information::BlockSizes(Export::block_sizes())];
        for fact in facts {
            self.reply(kind, OptionReplyKind::Info, &information(&fact))?;
        }
        self.reply(kind, OptionReplyKind::Ack, b"")?;
        Ok(true)
    }

    /// Lists or chooses contexts.
    fn contexts(&mut self, kind: OptionKind, contents: &[u8]) -> io::Result<()> {
        let is_choice = kind == OptionKind::SetMetaContext;
        if is_choice {
            self.mode.has_status = false;
        }
        let request = match ContextRequest::decode(contents) {
            Ok(request) if self.mode.is_structured => request,
            _ => return self.reply(kind, OptionReplyKind::Invalid, b"structured replies come first"),
        };
        if !self.export.is_meant_by(&request.name) {
            return self.reply(kind, OptionReplyKind::Unknown, b"there is no export of this name");
        }
        let is_all = !is_choice && request.queries.is_empty();
        let is_meant = |query: &String| query == ALLOCATION_CONTEXT || (!is_choice && query == "base:");
        if is_all || request.queries.iter().any(is_meant) {
            let id = if is_choice { CONTEXT_ID } else { 0 };
            self.mode.has_status |= is_choice;
            self.reply(kind, OptionReplyKind::MetaContext, &context_reply(id, ALLOCATION_CONTEXT))?;
        }
        self.reply(kind, OptionReplyKind::Ack, b"")
    }
}

/// Error of a peer whose bytes are no message.
pub(crate) fn out_of_step(error: WireError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

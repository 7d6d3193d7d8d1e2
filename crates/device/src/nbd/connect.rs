//! A new connection, and the handshake of a client.

use brindle_nbd::{
    ExportFlags, GREETING_BYTES, Information, NbdAddress, NbdUri, OPTION_REPLY_HEADER_BYTES, OptionKind,
    OptionReply, OptionReplyKind, PAYLOAD_BYTES_MAX, WireError, export_request, option_header,
    parse_greeting,
};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Timeout of a URI that names none.
const TIMEOUT: Duration = Duration::from_secs(90);
/// Longest contents of a reply to an option: facts, and a message of 4096 bytes.
const OPTION_REPLY_BYTES_MAX: u32 = 8 << 10;
/// Most replies to one option.
const OPTION_REPLIES_MAX: usize = 64;

/// Times that a server may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Until the device fails.
    pub(super) timeout: Duration,
    /// Until a connection is given up.
    pub(super) hang: Duration,
}

impl Limits {
    pub(super) fn of(uri: &NbdUri) -> Self {
        let timeout = uri.timeout.unwrap_or(TIMEOUT);
        Self { timeout, hang: timeout / 3 }
    }

    /// Time between two looks at what is under way.
    pub(super) fn tick(&self) -> Duration {
        (self.hang / 4).min(Duration::from_secs(1))
    }
}

/// Facts of an export.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) size_bytes: u64,
    pub(super) flags: ExportFlags,
    /// Offsets and lengths are multiples of it, in bytes.
    pub(super) unit: u32,
    /// Longest payload, a multiple of the unit.
    pub(super) payload_max: usize,
}

/// Connects to a server and chooses the export.
///
/// # Errors
/// Those of the sockets, a server that is no NBD server or does not have the export, one that takes too long.
pub(super) fn connect(uri: &NbdUri, limit: Duration) -> io::Result<(UnixStream, Facts)> {
    let stream = match &uri.address {
        NbdAddress::Unix(path) => UnixStream::connect(path)?,
        NbdAddress::Tcp(host, port) => connect_tcp(host, *port, limit)?,
    };
    stream.set_write_timeout(Some(limit))?;
    let mut handshake = Handshake { stream: &stream, deadline: Instant::now() + limit };
    let facts = handshake.choose(&uri.export)?;
    Ok((stream, facts))
}

/// Tries the addresses of a host, one after the other.
fn connect_tcp(host: &str, port: u16, limit: Duration) -> io::Result<UnixStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, limit) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(UnixStream::from(OwnedFd::from(stream)));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

struct Handshake<'h> {
    stream: &'h UnixStream,
    deadline: Instant,
}

impl Handshake<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the handshake takes too long"));
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(&mut buffer[filled..]) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server has left")),
                Ok(length) => filled += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn choose(&mut self, export: &str) -> io::Result<Facts> {
        let mut greeting = [0; GREETING_BYTES];
        self.read(&mut greeting)?;
        let flags = parse_greeting(&greeting).map_err(wrong)?;
        self.stream.write_all(&flags.bits().to_be_bytes())?;
        let contents = export_request(export);
        let length = u32::try_from(contents.len()).expect("a name is short");
        self.stream.write_all(&option_header(OptionKind::Go, length))?;
        self.stream.write_all(&contents)?;
        let mut found = None;
        let (mut unit, mut payload_max) = (1, PAYLOAD_BYTES_MAX);
        for _ in 0..OPTION_REPLIES_MAX {
            let (kind, contents) = self.option_reply()?;
            match kind {
                OptionReplyKind::Ack => {
                    let missing = || io::Error::new(io::ErrorKind::InvalidData, "the server tells no size");
                    let (size_bytes, flags) = found.ok_or_else(missing)?;
                    let payload_max = (payload_max / unit * unit) as usize;
                    return Ok(Facts { size_bytes, flags, unit, payload_max });
                }
                OptionReplyKind::Info => match Information::decode(&contents).map_err(wrong)? {
                    Information::Export { size_bytes, flags } => found = Some((size_bytes, flags)),
                    Information::BlockSizes(sizes) => {
                        unit = sizes.minimum.max(1);
                        payload_max = sizes.maximum.clamp(unit, PAYLOAD_BYTES_MAX.max(unit));
                    }
                    Information::Other(_) => {}
                },
                kind => return Err(refusal(export, kind, &contents)),
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "the server tells facts without end"))
    }

    fn option_reply(&mut self) -> io::Result<(OptionReplyKind, Vec<u8>)> {
        let mut header = [0; OPTION_REPLY_HEADER_BYTES];
        self.read(&mut header)?;
        let reply = OptionReply::decode(&header).map_err(wrong)?;
        if reply.length > OPTION_REPLY_BYTES_MAX || reply.option != OptionKind::Go {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a reply to another option, or one that is too long",
            ));
        }
        let mut contents = vec![0; reply.length as usize];
        self.read(&mut contents)?;
        Ok((reply.kind, contents))
    }
}

fn wrong(error: WireError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Error of a server that does not give the export.
fn refusal(export: &str, kind: OptionReplyKind, message: &[u8]) -> io::Error {
    let message: String = String::from_utf8_lossy(message).chars().filter(|c| !c.is_control()).collect();
    let told = if message.is_empty() { String::new() } else { format!(" ({message})") };
    match kind {
        OptionReplyKind::Unknown => {
            io::Error::new(io::ErrorKind::NotFound, format!("the server has no export {export:?}{told}"))
        }
        OptionReplyKind::TlsRequired => io::Error::new(
            io::ErrorKind::Unsupported,
            format!("the server wants TLS, which is not supported{told}"),
        ),
        OptionReplyKind::Unsupported => io::Error::new(
            io::ErrorKind::Unsupported,
            format!("the server is too old: it knows no NBD_OPT_GO{told}"),
        ),
        kind => {
            io::Error::new(io::ErrorKind::PermissionDenied, format!("the server refuses: {kind:?}{told}"))
        }
    }
}

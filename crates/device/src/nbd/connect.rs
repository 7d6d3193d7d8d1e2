//! A new connection, and the handshake of a client.

use super::wire::Wire;
use brindle_nbd::{
    ExportFlags, GREETING_BYTES, Information, NbdAddress, NbdTls, NbdUri, OPTION_REPLY_HEADER_BYTES,
    OptionKind, OptionReply, OptionReplyKind, PAYLOAD_BYTES_MAX, WireError, export_request, option_header,
    parse_greeting,
};
use brindle_tls::ClientCredentials;
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

/// Connects to a server and chooses the export. Certificates are read each time, so that they can be renewed.
///
/// # Errors
/// Those of the sockets and of certificates, a server that is no NBD server or does not have the export, one that takes too long.
/// A URI that asks for TLS is an error at a server without it, of which nothing is asked in the clear.
pub(super) fn connect(uri: &NbdUri, limit: Duration) -> io::Result<(Wire, Facts)> {
    let credentials = |tls: &NbdTls| ClientCredentials::load(tls.certificates.as_deref());
    let credentials = uri.tls.as_ref().map(credentials).transpose().map_err(unusable)?;
    let stream = match &uri.address {
        NbdAddress::Unix(path) => UnixStream::connect(path)?,
        NbdAddress::Tcp(host, port) => connect_tcp(host, *port, limit)?,
    };
    stream.set_write_timeout(Some(limit))?;
    let mut wire = Wire::plain(stream);
    let deadline = Instant::now() + limit;
    Handshake { wire: &wire, deadline }.greet()?;
    if let Some(credentials) = credentials {
        let mut handshake = Handshake { wire: &wire, deadline };
        handshake.ask_for_tls()?;
        let session = credentials.connect(verified_name(uri), &mut handshake).map_err(distrusted)?;
        wire.secure(session);
    }
    let facts = Handshake { wire: &wire, deadline }.choose(&uri.export)?;
    Ok((wire, facts))
}

/// Name that the certificate of the server must have. A unix socket is one of this host.
fn verified_name(uri: &NbdUri) -> &str {
    match (uri.tls.as_ref().and_then(|tls| tls.hostname.as_deref()), &uri.address) {
        (Some(name), _) => name,
        // Without the zone of an IPv6 address.
        (None, NbdAddress::Tcp(host, _)) => host.split('%').next().unwrap_or(host),
        (None, NbdAddress::Unix(_)) => "localhost",
    }
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

/// A handshake under way. It reads from the server until its deadline.
struct Handshake<'h> {
    wire: &'h Wire,
    deadline: Instant,
}

impl Read for Handshake<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let late = || io::Error::new(io::ErrorKind::TimedOut, "the handshake takes too long");
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        self.wire.set_read_timeout(left)?;
        let mut wire = self.wire;
        wire.read(buffer)
            .map_err(|error| if error.kind() == io::ErrorKind::WouldBlock { late() } else { error })
    }
}

impl Write for Handshake<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut wire = self.wire;
        wire.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Handshake<'_> {
    fn take(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let left = |_| io::Error::new(io::ErrorKind::UnexpectedEof, "the server has left");
        self.read_exact(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => left(error),
            _ => error,
        })
    }

    /// Reads the greeting, and answers it.
    fn greet(&mut self) -> io::Result<()> {
        let mut greeting = [0; GREETING_BYTES];
        self.take(&mut greeting)?;
        let flags = parse_greeting(&greeting).map_err(wrong)?;
        self.write_all(&flags.bits().to_be_bytes())
    }

    /// Has the server wait for a handshake of TLS. It is the first option: nothing else is told in the clear.
    fn ask_for_tls(&mut self) -> io::Result<()> {
        self.write_all(&option_header(OptionKind::StartTls, 0))?;
        match self.option_reply(OptionKind::StartTls)? {
            (OptionReplyKind::Ack, _) => Ok(()),
            (_, message) => {
                let why = "the server has no TLS, and nbds:// does without it never";
                Err(io::Error::new(io::ErrorKind::Unsupported, format!("{why}{}", told(&message))))
            }
        }
    }

    fn choose(&mut self, export: &str) -> io::Result<Facts> {
        self.choose_export(export).map_err(|error| match error.kind() {
            // The server may have sent its reason before it left, and this end has not read it.
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => self
                .read(&mut [0])
                .err()
                .filter(|reason| reason.kind() == io::ErrorKind::InvalidData)
                .unwrap_or(error),
            _ => error,
        })
    }

    fn choose_export(&mut self, export: &str) -> io::Result<Facts> {
        let contents = export_request(export);
        let length = u32::try_from(contents.len()).expect("a name is short");
        self.write_all(&option_header(OptionKind::Go, length))?;
        self.write_all(&contents)?;
        let mut found = None;
        let (mut unit, mut payload_max) = (1, PAYLOAD_BYTES_MAX);
        for _ in 0..OPTION_REPLIES_MAX {
            let (kind, contents) = self.option_reply(OptionKind::Go)?;
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

    fn option_reply(&mut self, option: OptionKind) -> io::Result<(OptionReplyKind, Vec<u8>)> {
        let mut header = [0; OPTION_REPLY_HEADER_BYTES];
        self.take(&mut header)?;
        let reply = OptionReply::decode(&header).map_err(wrong)?;
        if reply.length > OPTION_REPLY_BYTES_MAX || reply.option != option {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a reply to another option, or one that is too long",
            ));
        }
        let mut contents = vec![0; reply.length as usize];
        self.take(&mut contents)?;
        Ok((reply.kind, contents))
    }
}

fn wrong(error: WireError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn unusable(error: brindle_tls::TlsError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

/// Error of a handshake of TLS.
fn distrusted(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::InvalidData => {
            io::Error::new(io::ErrorKind::PermissionDenied, format!("TLS: {error}"))
        }
        _ => error,
    }
}

/// Message of a server, to be shown behind the error.
fn told(message: &[u8]) -> String {
    let message: String = String::from_utf8_lossy(message).chars().filter(|c| !c.is_control()).collect();
    if message.is_empty() { String::new() } else { format!(" ({message})") }
}

/// Error of a server that does not give the export.
fn refusal(export: &str, kind: OptionReplyKind, message: &[u8]) -> io::Error {
    let told = told(message);
    match kind {
        OptionReplyKind::Unknown => {
            io::Error::new(io::ErrorKind::NotFound, format!("the server has no export {export:?}{told}"))
        }
        OptionReplyKind::TlsRequired => io::Error::new(
            io::ErrorKind::Unsupported,
            format!("the server wants TLS: its URI begins with nbds:// or nbds+unix://{told}"),
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

//! URIs of exports: `nbd://HOST[:PORT]/NAME`, `nbd+unix:///NAME?socket=PATH`.

use crate::{NAME_BYTES_MAX, PORT};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// Place of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddress {
    /// A host, by name or number, and a port.
    Tcp(String, u16),
    /// A unix socket.
    Unix(PathBuf),
}

/// An export of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdUri {
    /// The server.
    pub address: NbdAddress,
    /// Name of the export; empty for the default one.
    pub export: String,
    /// Longest wait for an answer; `None` if the URI does not say.
    pub timeout: Option<Duration>,
}

/// Reason for which a URI of NBD is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{uri}: {reason}")]
pub struct UriError {
    uri: String,
    reason: &'static str,
}

impl UriError {
    /// The reason, without the URI.
    pub fn reason(&self) -> &'static str {
        self.reason
    }
}

/// Schemes, and true for those of unix sockets; TLS is refused by name.
const SCHEMES: [(&str, bool); 2] = [("nbd://", false), ("nbd+unix://", true)];
const TLS_SCHEMES: [&str; 2] = ["nbds://", "nbds+unix://"];
/// Seconds that a timeout may have.
const TIMEOUT_SECONDS: std::ops::RangeInclusive<u64> = 1..=86_400;

impl NbdUri {
    /// Reads a URI; `None` if the text is none of NBD, such as a path.
    ///
    /// # Errors
    /// A URI of NBD with a part that is missing, wrong or unknown.
    pub fn parse(text: &str) -> Option<Result<Self, UriError>> {
        let refused = |reason| UriError { uri: text.to_owned(), reason };
        if TLS_SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
            return Some(Err(refused("TLS is not supported: use nbd:// through a tunnel, or nbd+unix://")));
        }
        let found = SCHEMES.iter().find_map(|(scheme, is_unix)| Some((text.strip_prefix(scheme)?, *is_unix)));
        let (rest, is_unix) = found?;
        Some(parse_rest(rest, is_unix).map_err(refused))
    }
}

fn parse_rest(rest: &str, is_unix: bool) -> Result<NbdUri, &'static str> {
    if rest.contains('#') {
        return Err("a URI of NBD has no fragment");
    }
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, export) = place.split_once('/').unwrap_or((place, ""));
    let export = decoded(export)?;
    if export.len() > NAME_BYTES_MAX || export.contains('\0') {
        return Err("the name of the export is too long, or has a NUL");
    }
    let (mut socket, mut timeout) = (None, None);
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=') {
            Some(("socket", path)) if is_unix => socket = Some(decoded(path)?),
            Some(("x-timeout", seconds)) => timeout = Some(parse_timeout(seconds)?),
            _ => return Err("its query may have socket=PATH (nbd+unix) and x-timeout=SECONDS"),
        }
    }
    let address = match (is_unix, socket) {
        (true, Some(path)) if !path.is_empty() && !path.contains('\0') && authority.is_empty() => {
            NbdAddress::Unix(path.into())
        }
        (true, _) => return Err("a unix socket is named by nbd+unix:///NAME?socket=PATH"),
        (false, _) => {
            let (host, port) = parse_authority(authority)?;
            NbdAddress::Tcp(host, port)
        }
    };
    Ok(NbdUri { address, export, timeout })
}

fn parse_timeout(seconds: &str) -> Result<Duration, &'static str> {
    let seconds = seconds.parse().ok().filter(|seconds| TIMEOUT_SECONDS.contains(seconds));
    seconds.map(Duration::from_secs).ok_or("x-timeout is a number of seconds from 1 to 86400")
}

/// Host and port; an IPv6 address is in brackets.
fn parse_authority(authority: &str) -> Result<(String, u16), &'static str> {
    if authority.contains('@') {
        return Err("a user name is for TLS, which is not supported");
    }
    let (host, port) = match authority.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((host, ""))) => (host, None),
        Some(Some((host, port))) => (host, Some(port.strip_prefix(':').ok_or("a port follows a colon")?)),
        Some(None) => return Err("the bracket around the address is not closed"),
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = match port {
        None | Some("") => PORT,
        Some(port) => {
            port.parse().ok().filter(|port| *port != 0).ok_or("the port is not a number up to 65535")?
        }
    };
    Ok((parse_host(&decoded(host)?, authority.starts_with('['))?, port))
}

/// Name or address of a host. Colons, and a percent sign before a zone, are those of an IPv6 address in brackets.
fn parse_host(host: &str, is_bracketed: bool) -> Result<String, &'static str> {
    let is_address = is_bracketed && host.contains(':');
    let may_have =
        |char: char| char.is_alphanumeric() || "-._~".contains(char) || is_address && ":%".contains(char);
    match host {
        "" => Err("the host is missing"),
        host if host.chars().all(may_have) => Ok(host.to_owned()),
        _ => Err("the host is neither a name nor an address"),
    }
}

/// Text with `%XX` resolved.
fn decoded(text: &str) -> Result<String, &'static str> {
    let wrong = "a % is not followed by two hexadecimal digits of UTF-8";
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit =
            |byte: Option<u8>| char::from(byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        match byte {
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => bytes.push(high * 16 + low),
                _ => return Err(wrong),
            },
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong)
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = encoded(&self.export, b'/');
        let mut separator = '?';
        match &self.address {
            NbdAddress::Tcp(host, port) if host.contains(':') => {
                write!(f, "nbd://[{}]:{port}/{export}", encoded(host, b':'))?;
            }
            NbdAddress::Tcp(host, port) => write!(f, "nbd://{}:{port}/{export}", encoded(host, b'.'))?,
            NbdAddress::Unix(path) => {
                write!(f, "nbd+unix:///{export}?socket={}", encoded(&path.to_string_lossy(), b'/'))?;
                separator = '&';
            }
        }
        match self.timeout {
            Some(timeout) => write!(f, "{separator}x-timeout={}", timeout.as_secs()),
            None => Ok(()),
        }
    }
}

/// Text with all that is special in a URI as `%XX`, but for one character that is not special here.
fn encoded(text: &str, allowed: u8) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || byte == allowed;
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

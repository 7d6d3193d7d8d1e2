//! URIs of exports: `nbd://HOST[:PORT]/NAME`, `nbd+unix:///NAME?socket=PATH`, and with TLS `nbds://` and `nbds+unix://`.

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
    /// Use of TLS; `None` for a connection in the clear.
    pub tls: Option<NbdTls>,
}

/// Parts of a URI that are about TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NbdTls {
    /// Directory of certificates; `None` for a usual place.
    pub certificates: Option<PathBuf>,
    /// Name that the certificate of the server must have; `None` for the host, or `localhost` at a unix socket.
    pub hostname: Option<String>,
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

/// A scheme.
#[derive(Clone, Copy)]
struct Scheme {
    name: &'static str,
    is_unix: bool,
    is_tls: bool,
}

const SCHEMES: [Scheme; 4] = [
    Scheme { name: "nbd://", is_unix: false, is_tls: false },
    Scheme { name: "nbd+unix://", is_unix: true, is_tls: false },
    Scheme { name: "nbds://", is_unix: false, is_tls: true },
    Scheme { name: "nbds+unix://", is_unix: true, is_tls: true },
];
/// Seconds that a timeout may have.
const TIMEOUT_SECONDS: std::ops::RangeInclusive<u64> = 1..=86_400;

impl NbdUri {
    /// Reads a URI; `None` if the text is none of NBD, such as a path.
    ///
    /// # Errors
    /// A URI of NBD with a part that is missing, wrong or unknown.
    pub fn parse(text: &str) -> Option<Result<Self, UriError>> {
        let refused = |reason| UriError { uri: text.to_owned(), reason };
        let (rest, scheme) =
            SCHEMES.iter().find_map(|scheme| Some((text.strip_prefix(scheme.name)?, *scheme)))?;
        Some(parse_rest(rest, scheme).map_err(refused))
    }
}

fn parse_rest(rest: &str, scheme: Scheme) -> Result<NbdUri, &'static str> {
    if rest.contains('#') {
        return Err("a URI of NBD has no fragment");
    }
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, export) = place.split_once('/').unwrap_or((place, ""));
    let export = decoded(export)?;
    if export.len() > NAME_BYTES_MAX || export.contains('\0') {
        return Err("the name of the export is too long, or has a NUL");
    }
    let Query { socket, timeout, tls } = parse_query(query, scheme)?;
    let address = match (scheme.is_unix, socket) {
        (true, Some(path)) if !path.is_empty() && !path.contains('\0') && authority.is_empty() => {
            NbdAddress::Unix(path.into())
        }
        (true, _) if authority.contains('@') => return Err(USER_NAME),
        (true, _) => return Err("a unix socket is named by nbd+unix:///NAME?socket=PATH"),
        (false, _) => {
            let (host, port) = parse_authority(authority)?;
            NbdAddress::Tcp(host, port)
        }
    };
    Ok(NbdUri { address, export, timeout, tls })
}

const USER_NAME: &str = "a user name is for keys that are shared, which are not supported: use certificates";

/// Parameters of a URI.
struct Query {
    socket: Option<String>,
    timeout: Option<Duration>,
    tls: Option<NbdTls>,
}

fn parse_query(query: &str, scheme: Scheme) -> Result<Query, &'static str> {
    let (mut socket, mut timeout) = (None, None);
    let mut tls = scheme.is_tls.then(NbdTls::default);
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match (name, &mut tls) {
            ("socket", _) if scheme.is_unix => socket = Some(decoded(value)?),
            ("x-timeout", _) => timeout = Some(parse_timeout(value)?),
            ("tls-certificates", Some(tls)) => match decoded(value)? {
                path if path.is_empty() || path.contains('\0') => {
                    return Err("tls-certificates is the path of a directory");
                }
                path => tls.certificates = Some(path.into()),
            },
            ("tls-hostname", Some(tls)) => {
                let host = decoded(value)?;
                tls.hostname = Some(parse_host(&host, true)?);
            }
            ("tls-psk-file", Some(_)) => {
                return Err("keys that are shared (tls-psk-file) are not supported: use certificates");
            }
            ("tls-verify-peer", Some(_)) => {
                return Err("the server is verified always: name no tls-verify-peer");
            }
            (name, None) if name.starts_with("tls-") => {
                return Err("nbd:// and nbd+unix:// have no TLS: write nbds:// or nbds+unix://");
            }
            _ => {
                return Err("its query may have socket=PATH (of unix sockets), x-timeout=SECONDS, \
                            and with TLS tls-certificates=DIRECTORY and tls-hostname=NAME");
            }
        }
    }
    Ok(Query { socket, timeout, tls })
}

fn parse_timeout(seconds: &str) -> Result<Duration, &'static str> {
    let seconds = seconds.parse().ok().filter(|seconds| TIMEOUT_SECONDS.contains(seconds));
    seconds.map(Duration::from_secs).ok_or("x-timeout is a number of seconds from 1 to 86400")
}

/// Host and port; an IPv6 address is in brackets.
fn parse_authority(authority: &str) -> Result<(String, u16), &'static str> {
    if authority.contains('@') {
        return Err(USER_NAME);
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
        let scheme = if self.tls.is_some() { "nbds" } else { "nbd" };
        let mut query = Vec::new();
        match &self.address {
            NbdAddress::Tcp(host, port) if host.contains(':') => {
                write!(f, "{scheme}://[{}]:{port}/{export}", encoded(host, b':'))?;
            }
            NbdAddress::Tcp(host, port) => write!(f, "{scheme}://{}:{port}/{export}", encoded(host, b'.'))?,
            NbdAddress::Unix(path) => {
                write!(f, "{scheme}+unix:///{export}")?;
                query.push(format!("socket={}", encoded(&path.to_string_lossy(), b'/')));
            }
        }
        if let Some(NbdTls { certificates, hostname }) = &self.tls {
            let path = certificates.iter().map(|path| encoded(&path.to_string_lossy(), b'/'));
            query.extend(path.map(|path| format!("tls-certificates={path}")));
            query.extend(hostname.iter().map(|host| format!("tls-hostname={}", encoded(host, b':'))));
        }
        query.extend(self.timeout.iter().map(|timeout| format!("x-timeout={}", timeout.as_secs())));
        match &query[..] {
            [] => Ok(()),
            parameters => write!(f, "?{}", parameters.join("&")),
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

//! The text form of a manifest: `KIND PATH FIELD=VALUE...`, one line an entry. Bytes that are not
//! printable ASCII, and those that mean something here, are written `%XX`.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use thiserror::Error;

use super::{Device, Entry, Kind, Manifest, Time};

/// A line that is not an entry.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("manifest line {line}: {why}: {found:?}")]
pub struct ParseError {
    /// Counted from 1.
    pub line: usize,
    /// Expected syntax.
    pub why: &'static str,
    /// The word at fault.
    pub found: String,
}

/// A parse error before its line number is known.
struct Bad<'a>(&'static str, &'a str);

/// From this length on, a run of one byte is written as its length and the byte.
const RUN: usize = 16;

/// Bounds what a hostile text makes us allocate.
const RUN_MAX: usize = 1 << 20;

/// Bytes as one word without spaces: `%XX` for the odd ones, `%{N}` before a byte that comes N times.
#[must_use]
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for run in bytes.chunk_by(|a, b| a == b) {
        let byte = run[0];
        let one = if byte.is_ascii_graphic() && byte != b'%' && byte != b'=' {
            char::from(byte).to_string()
        } else {
            format!("%{}", hex(&[byte]))
        };
        if run.len() < RUN {
            out.push_str(&one.repeat(run.len()));
        } else {
            for part in run.chunks(RUN_MAX) {
                out.push_str(&format!("%{{{}}}{one}", part.len()));
            }
        }
    }
    out
}

/// The inverse of [`escape`]; `None` if what follows a `%` is neither two hexadecimal digits nor a count.
#[must_use]
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let mut count = 1;
        if let Some(after) = rest.strip_prefix(b"%{") {
            let end = after.iter().position(|&byte| byte == b'}')?;
            count =
                std::str::from_utf8(&after[..end]).ok()?.parse().ok().filter(|&count| count <= RUN_MAX)?;
            rest = &after[end + 1..];
        }
        let (&first, after) = rest.split_first()?;
        let (byte, after) = match (first, after) {
            (b'%', [high, low, after @ ..]) => (unhex(std::str::from_utf8(&[*high, *low]).ok()?)?[0], after),
            (b'%', _) => return None,
            _ => (first, after),
        };
        out.resize(out.len() + count, byte);
        rest = after;
    }
    Some(out)
}

pub(super) fn path(path: &[u8]) -> String {
    if path.is_empty() { ".".into() } else { escape(path) }
}

/// A long value, cut short for a message.
pub(super) fn abridged(value: &[u8]) -> String {
    let shown = &value[..value.len().min(32)];
    let dots = if shown.len() < value.len() { "..." } else { "" };
    format!("\"{}\"{dots} ({} bytes)", escape(shown), value.len())
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if text.len() % 2 != 0 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entries().try_for_each(|entry| writeln!(f, "{entry}"))
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn optional<T: fmt::Display>(
            f: &mut fmt::Formatter<'_>,
            name: &str,
            value: Option<T>,
        ) -> fmt::Result {
            value.map_or(Ok(()), |value| write!(f, " {name}={value}"))
        }
        let usual = Entry::new(&[], Kind::Fifo);
        write!(f, "{} {} mode={:04o}", self.kind.name(), path(&self.path), self.mode)?;
        optional(f, "uid", (self.uid != usual.uid).then_some(self.uid))?;
        optional(f, "gid", (self.gid != usual.gid).then_some(self.gid))?;
        optional(f, "nlink", (self.nlink != usual.nlink).then_some(self.nlink))?;
        optional(f, "size", (self.size != usual.size).then_some(self.size))?;
        optional(f, "mtime", Some(self.mtime))?;
        optional(f, "ctime", self.ctime)?;
        optional(f, "btime", self.btime)?;
        optional(f, "ino", self.ino)?;
        optional(f, "flags", self.flags.map(|flags| format!("{flags:#x}")))?;
        if self.kind != Kind::file_of(&[]) && !self.kind.payload_name().is_empty() {
            write!(f, " {}={}", self.kind.payload_name(), self.kind.payload())?;
        }
        optional(f, "same", self.same_as.as_ref().map(|first| path(first)))?;
        for (name, value) in &self.xattrs {
            write!(f, " x:{}={}", escape(name), escape(value))?;
        }
        Ok(())
    }
}

impl FromStr for Manifest {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parse = |(index, line)| {
            entry(line).map_err(|Bad(why, found)| ParseError { line: index + 1, why, found: found.into() })
        };
        text.lines().enumerate().filter(|(_, line)| !line.is_empty()).map(parse).collect()
    }
}

fn entry(line: &str) -> Result<Entry, Bad<'_>> {
    let mut words = line.split(' ');
    let kind_word = words.next().unwrap_or_default();
    let kind = kind(kind_word).ok_or(Bad("not a file type", kind_word))?;
    let path_word = words.next().unwrap_or_default();
    let path = parse_path(path_word).ok_or(Bad("not a path", path_word))?;
    let mut entry = Entry::new(&path, kind);
    for word in words {
        let (name, value) = word.split_once('=').ok_or(Bad("not NAME=VALUE", word))?;
        field(&mut entry, name, value).ok_or(Bad("not a field of this entry", word))?;
    }
    Ok(entry)
}

fn parse_path(word: &str) -> Option<Vec<u8>> {
    match word {
        "" => None,
        "." => Some(Vec::new()),
        _ => unescape(word),
    }
}

fn kind(word: &str) -> Option<Kind> {
    let rdev = Device { major: 0, minor: 0 };
    Some(match word {
        "file" => Kind::File { sha256: Sha256::digest([]).into() },
        "dir" => Kind::Directory,
        "symlink" => Kind::Symlink { target: Vec::new() },
        "fifo" => Kind::Fifo,
        "socket" => Kind::Socket,
        "char" => Kind::Char { rdev },
        "block" => Kind::Block { rdev },
        _ => return None,
    })
}

fn field(entry: &mut Entry, name: &str, value: &str) -> Option<()> {
    match (name, &mut entry.kind) {
        ("mode", _) => entry.mode = u16::from_str_radix(value, 8).ok()?,
        ("uid", _) => entry.uid = value.parse().ok()?,
        ("gid", _) => entry.gid = value.parse().ok()?,
        ("nlink", _) => entry.nlink = value.parse().ok()?,
        ("size", _) => entry.size = value.parse().ok()?,
        ("mtime", _) => entry.mtime = value.parse().ok()?,
        ("ctime", _) => entry.ctime = Some(value.parse().ok()?),
        ("btime", _) => entry.btime = Some(value.parse().ok()?),
        ("ino", _) => entry.ino = Some(value.parse().ok()?),
        ("flags", _) => entry.flags = Some(u32::from_str_radix(value.strip_prefix("0x")?, 16).ok()?),
        ("sha256", Kind::File { sha256 }) => *sha256 = unhex(value)?.try_into().ok()?,
        ("target", Kind::Symlink { target }) => *target = unescape(value)?,
        ("rdev", Kind::Char { rdev } | Kind::Block { rdev }) => *rdev = value.parse().ok()?,
        ("same", _) => entry.same_as = Some(parse_path(value)?),
        _ => {
            let name = unescape(name.strip_prefix("x:")?)?;
            entry.xattrs.insert(name, unescape(value)?);
        }
    }
    Some(())
}

/// The value is not of the form that `Display` writes.
#[derive(Debug)]
pub struct NotOfThisForm;

impl FromStr for Time {
    type Err = NotOfThisForm;

    fn from_str(text: &str) -> Result<Self, NotOfThisForm> {
        let (sec, nsec) = text.split_once('.').ok_or(NotOfThisForm)?;
        if nsec.len() != 9 || !nsec.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(NotOfThisForm);
        }
        let sec = sec.parse().map_err(|_| NotOfThisForm)?;
        let nsec = nsec.parse().map_err(|_| NotOfThisForm)?;
        Ok(Self { sec, nsec })
    }
}

impl FromStr for Device {
    type Err = NotOfThisForm;

    fn from_str(text: &str) -> Result<Self, NotOfThisForm> {
        let (major, minor) = text.split_once(':').ok_or(NotOfThisForm)?;
        let major = major.parse().map_err(|_| NotOfThisForm)?;
        let minor = minor.parse().map_err(|_| NotOfThisForm)?;
        Ok(Self { major, minor })
    }
}

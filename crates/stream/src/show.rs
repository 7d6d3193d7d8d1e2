//! Commands as text: one line each, in the columns of `btrfs receive --dump`.

use crate::{Command, EncodedWrite, Origin, StreamTime};
use std::fmt;

/// Width of the column of command names.
const NAME_WIDTH: usize = 15;
/// Width of the column of paths.
const PATH_WIDTH: usize = 31;

/// Bytes as text: what is not printable is escaped, so that a line stays a line.
struct Text<'a>(&'a [u8]);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for char in chunk.valid().chars() {
                match char {
                    '\\' | ' ' => write!(f, "\\{char}")?,
                    char if char.is_control() => write!(f, "{}", char.escape_default())?,
                    char => write!(f, "{char}")?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for StreamTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.seconds, self.nanoseconds)
    }
}

impl fmt::Display for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.number().to_string();
        let Some(path) = self.path() else {
            return f.write_str(&name);
        };
        let path = format!("./{}", Text(path));
        match self.details() {
            details if details.is_empty() => write!(f, "{name:NAME_WIDTH$} {path}"),
            details => write!(f, "{name:NAME_WIDTH$} {path:PATH_WIDTH$} {details}"),
        }
    }
}

impl<'a> Command<'a> {
    /// The path of the subvolume or the file that it is for; `None` for the end.
    pub fn path(&self) -> Option<&'a [u8]> {
        match *self {
            Self::End => None,
            Self::EncodedWrite(write) => Some(write.path),
            Self::Subvolume { path, .. }
            | Self::Snapshot { path, .. }
            | Self::MakeFile { path, .. }
            | Self::MakeDirectory { path, .. }
            | Self::MakeNode { path, .. }
            | Self::MakeFifo { path, .. }
            | Self::MakeSocket { path, .. }
            | Self::Symlink { path, .. }
            | Self::Rename { path, .. }
            | Self::Link { path, .. }
            | Self::Unlink { path }
            | Self::RemoveDirectory { path }
            | Self::SetXattr { path, .. }
            | Self::RemoveXattr { path, .. }
            | Self::Write { path, .. }
            | Self::Clone { path, .. }
            | Self::Truncate { path, .. }
            | Self::Chmod { path, .. }
            | Self::Chown { path, .. }
            | Self::Times { path, .. }
            | Self::UpdateExtent { path, .. }
            | Self::Allocate { path, .. }
            | Self::Flags { path, .. } => Some(path),
        }
    }

    /// Attributes but for the path.
    fn details(&self) -> String {
        let of = |origin: &Origin| format!("uuid={} transid={}", origin.uuid, origin.transid);
        match *self {
            Self::Subvolume { ref origin, .. } => of(origin),
            Self::Snapshot { ref origin, parent, .. } => {
                format!("{} parent_uuid={} parent_transid={}", of(origin), parent.uuid, parent.transid)
            }
            Self::MakeNode { mode, device, .. } => format!("mode={mode:o} dev={device:#x}"),
            Self::Symlink { target, .. } | Self::Link { target, .. } => format!("dest={}", Text(target)),
            Self::Rename { to, .. } => format!("dest=./{}", Text(to)),
            Self::SetXattr { name, value, .. } => {
                format!("name={} data={} len={}", Text(name), Text(value), value.len())
            }
            Self::RemoveXattr { name, .. } => format!("name={}", Text(name)),
            Self::Write { offset, data, .. } => format!("offset={offset} len={}", data.len()),
            Self::Clone { offset, length, source_path, source_offset, .. } => format!(
                "offset={offset} len={length} from={} clone_offset={source_offset}",
                Text(source_path)
            ),
            Self::Truncate { size, .. } => format!("size={size}"),
            Self::Chmod { mode, .. } => format!("mode={mode:o}"),
            Self::Chown { uid, gid, .. } => format!("gid={gid} uid={uid}"),
            Self::Times { accessed, modified, changed, created, .. } => {
                let created = created.map(|created| format!(" otime={created}")).unwrap_or_default();
                format!("atime={accessed} mtime={modified} ctime={changed}{created}")
            }
            Self::UpdateExtent { offset, length, .. } => format!("offset={offset} len={length}"),
            Self::Allocate { mode, offset, length, .. } => {
                format!("mode={mode} offset={offset} len={length}")
            }
            Self::Flags { flags, .. } => format!("fileattr={flags:#x}"),
            Self::EncodedWrite(ref write) => encoded_details(write),
            _ => String::new(),
        }
    }
}

fn encoded_details(write: &EncodedWrite<'_>) -> String {
    let EncodedWrite {
        offset, length, decoded_length, decoded_offset, compression, encryption, data, ..
    } = *write;
    let decoded = format!("unencoded_len={decoded_length} unencoded_offset={decoded_offset}");
    let kind = format!("compression={compression} encryption={encryption}");
    format!("offset={offset} len={} unencoded_file_len={length} {decoded} {kind}", data.len())
}

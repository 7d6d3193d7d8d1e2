//! Standard output and standard error.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, BufWriter, StdoutLock, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, chown};
use std::path::Path;

/// Standard output, buffered; to be flushed at the end.
pub(crate) type Stdout = BufWriter<Named>;

/// Standard output; its errors say so.
pub(crate) struct Named(StdoutLock<'static>);

/// Standard output, buffered; to be flushed at the end.
pub(crate) fn stdout() -> Stdout {
    BufWriter::with_capacity(1 << 16, Named(io::stdout().lock()))
}

fn named(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
}

impl Write for Named {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|error| named(&error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(|error| named(&error))
    }
}

/// A writer that writes a line before the first byte, and only then: not before an error.
pub(crate) struct Headed<W> {
    out: W,
    header: Option<String>,
}

impl<W: Write> Headed<W> {
    /// Writes `header` first.
    pub(crate) fn new(out: W, header: Option<String>) -> Self {
        Self { out, header }
    }
}

impl<W: Write> Write for Headed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(header) = self.header.take() {
            writeln!(self.out, "{header}")?;
        }
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Version of JSON documents, in the `__header` of each: it grows when a name changes its meaning or goes.
const JSON_VERSION: &str = "1";

/// Text of a JSON document: an object, which gets the header.
pub(crate) fn json_text(value: Value) -> Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(&with_header(value))?))
}

/// Prints a JSON document: an object, which gets the header.
pub(crate) fn print_json(value: &Value) -> Result<()> {
    let mut out = stdout();
    serde_json::to_writer_pretty(&mut out, &with_header(value.clone()))?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// A document, an object, with the header.
pub(crate) fn with_header(mut value: Value) -> Value {
    assert!(value.is_object(), "a document is an object");
    value["__header"] = json!({ "version": JSON_VERSION });
    value
}

/// Says on standard error, as a JSON document of one line, why a command failed.
pub(crate) fn complain_json(error: &anyhow::Error, exit_status: u8) {
    let document = with_header(json!({ "error": { "message": explain(error), "exit_status": exit_status } }));
    // With standard error closed there is no reader.
    let _ = writeln!(io::stderr(), "{document}");
}

/// Prints a text, or replaces a file by one with this text.
pub(crate) fn print_or_replace(path: Option<&Path>, text: &str) -> Result<()> {
    let Some(path) = path else {
        let mut out = stdout();
        out.write_all(text.as_bytes())?;
        return Ok(out.flush()?);
    };
    replace(path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

/// Replaces a file as a whole, with its mode and owner: readers see the old one or the new one. Of a symbolic link it is the file that it
/// leads to; a pipe, socket or character device is written to.
pub(crate) fn replace(path: &Path, contents: &[u8]) -> Result<()> {
    let Ok(_) = path.symlink_metadata() else { return put(path, None, contents) };
    let path = fs::canonicalize(path)?;
    let before = path.metadata()?;
    let kind = before.file_type();
    if kind.is_file() {
        return put(&path, Some(&before), contents);
    }
    if kind.is_block_device() || kind.is_dir() {
        bail!("it is no file to be written anew");
    }
    Ok(File::options().write(true).open(&path)?.write_all(contents)?)
}

/// Puts a new file where none is, or the one with these attributes.
fn put(path: &Path, before: Option<&fs::Metadata>, contents: &[u8]) -> Result<()> {
    let Some(name) = path.file_name() else { bail!("it names no file") };
    // Collectors of metrics read names that end in .prom.
    let new = path.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let write = || {
        let mut file = File::create(&new)?;
        if let Some(before) = before {
            // Others than root can't give it away, and have it then.
            let _ = chown(&new, Some(before.uid()), Some(before.gid()));
            file.set_permissions(before.permissions())?;
        }
        file.write_all(contents)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    let written = write();
    if written.is_err() {
        // The first error counts.
        let _ = fs::remove_file(&new);
    }
    Ok(written?)
}

/// Says on standard error, in one line, what is wrong.
pub(crate) fn complain(error: &anyhow::Error) {
    complain_line(&explain(error));
}

/// Message of an error with its causes, each said once.
pub(crate) fn explain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // Many errors of the layers below say their cause themselves.
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// One line on standard error, or in the log of a mount in the background; line breaks within (a file's name can have them) are escaped.
pub(crate) fn complain_line(text: &str) {
    let text = text.trim_end().replace('\n', "\\n");
    if crate::logging::tell_error(&text) {
        return;
    }
    // With standard error closed there is no reader.
    let _ = writeln!(io::stderr(), "brindle: {text}");
}

/// Returns true if the reader of our output has gone, which is no failure (`brindle ls | head`).
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_pipe = |cause: &(dyn std::error::Error + 'static)| {
        let kind = match (cause.downcast_ref::<io::Error>(), cause.downcast_ref::<serde_json::Error>()) {
            (Some(error), _) => Some(error.kind()),
            (_, Some(error)) => error.io_error_kind(),
            _ => None,
        };
        kind == Some(io::ErrorKind::BrokenPipe)
    };
    error.chain().any(is_pipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Regression: a file of another kind was replaced by a regular one, a link too, and its mode was lost.
    #[test]
    fn a_file_is_replaced_with_its_mode_and_others_are_written_to() {
        let directory = tempfile::tempdir().expect("room");
        let place = |name: &str| directory.path().join(name);
        replace(&place("file"), b"new").expect("no file is there");
        fs::set_permissions(place("file"), fs::Permissions::from_mode(0o600)).expect("ours");
        symlink("file", place("link")).expect("room");
        replace(&place("link"), b"newer").expect("it leads to a file");
        assert!(place("link").symlink_metadata().expect("there").is_symlink());
        assert_eq!(fs::read(place("file")).expect("readable"), b"newer");
        assert_eq!(place("file").metadata().expect("there").mode() & 0o7777, 0o600);
        let fifo = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, place("pipe"), fifo.0, fifo.1, 0).expect("room");
        let pipe = place("pipe");
        let reader = std::thread::spawn(move || fs::read(pipe).expect("a writer comes"));
        replace(&place("pipe"), b"through").expect("it is read");
        assert_eq!(reader.join().expect("no panic"), b"through");
        assert!(place("pipe").metadata().expect("there").file_type().is_fifo());
        fs::create_dir(place("directory")).expect("room");
        assert!(replace(&place("directory"), b"").is_err());
        assert_eq!(fs::read_dir(directory.path()).expect("readable").count(), 4);
    }
}

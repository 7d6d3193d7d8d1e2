//! Subvolumes, received by the server of a mount.

use super::{READ_BYTES, ReceiveCommand, sum_up, tell};
use crate::commands::stop::Stop;
use crate::commands::usage::wrong_usage;
use crate::output;
use anyhow::{Context, Error, Result};
use brindle_admin::Mounted;
use brindle_admin::streams::{NewsReader, StreamNews};
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::process::ExitCode;

/// Outcome of copying the stream to the server.
enum Copied {
    /// All of it, or as much as the server takes.
    Whole,
    /// A signal has come.
    Stopped,
}

/// Has the server receive the stream.
pub(super) fn run(command: &ReceiveCommand, mounted: &Mounted, mut source: impl Read) -> Result<ExitCode> {
    if !command.options.is_empty() || command.path.as_bytes() != b"/" {
        return wrong_usage("-o and -p are for devices: name the directory of the mount".to_owned());
    }
    let stop = Stop::on_signals()?;
    let (mut stream, mut news) = mounted.receive(command.max_errors, command.one_stream)?;
    std::thread::scope(|threads| {
        let told = threads.spawn(|| follow(command, &mut news));
        let copied = copy(&mut source, &mut stream, &stop);
        // The server takes this for the end of the stream.
        drop(stream);
        let told = told.join().map_err(|_| Error::msg("reading the news of the stream has failed"))?;
        let (received, failure) = told?;
        sum_up(command, &received, failure.as_deref())?;
        match (copied?, failure, stop.name_and_code()) {
            (_, None, _) => Ok(ExitCode::SUCCESS),
            (Copied::Stopped, Some(why), Some((signal, code))) => {
                output::complain_line(&format!("interrupted: {signal}: {why}"));
                Ok(ExitCode::from(code))
            }
            (_, Some(why), _) => {
                output::complain_line(&why);
                Ok(ExitCode::FAILURE)
            }
        }
    })
}

/// Copies the stream until it ends, or the server takes no more.
fn copy(source: &mut impl Read, stream: &mut impl Write, stop: &Stop) -> Result<Copied> {
    let mut buffer = vec![0; READ_BYTES];
    while !stop.is_set() {
        let length = match source.read(&mut buffer) {
            Ok(0) => return Ok(Copied::Whole),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context("read the stream"),
        };
        match stream.write_all(buffer.get(..length).unwrap_or(&[])) {
            // The news say why.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(Copied::Whole),
            written => written.context("the pipe of the mount")?,
        }
    }
    Ok(Copied::Stopped)
}

/// Takes the news to the last. Returns what was received, and the reason for which that is not all.
fn follow(command: &ReceiveCommand, news: &mut NewsReader) -> Result<(Vec<Value>, Option<String>)> {
    let mut received = Vec::new();
    loop {
        match news.take()? {
            StreamNews::Received { id, name } => received.push(tell(command, &name, id)),
            StreamNews::Complaint(why) => output::complain_line(&why),
            StreamNews::Done => return Ok((received, None)),
            StreamNews::Failed(why) => return Ok((received, Some(why))),
            StreamNews::Sends { .. } => {}
        }
    }
}

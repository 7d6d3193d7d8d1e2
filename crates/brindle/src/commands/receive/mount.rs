//! Subvolumes, received by the server of a mount.

use super::{READ_BYTES, ReceiveCommand, refuse_options_of_devices, sum_up, tell};
use crate::commands::stop::Stop;
use crate::output;
use anyhow::{Context, Error, Result};
use brindle_admin::Mounted;
use brindle_admin::streams::{NewsReader, StreamNews, pass_on};
use serde_json::Value;
use std::fs::File;
use std::io::ErrorKind;
use std::process::ExitCode;

/// Outcome of copying the stream to the server.
enum Copied {
    /// All of it, or as much as the server takes.
    Whole,
    /// A signal has come.
    Stopped,
}

/// Has the server receive the stream.
pub(super) fn run(command: &ReceiveCommand, mounted: &Mounted, source: &File) -> Result<ExitCode> {
    refuse_options_of_devices(command)?;
    let stop = Stop::on_signals()?;
    let (stream, mut news) = mounted.receive(command.max_errors, command.one_stream)?;
    std::thread::scope(|threads| {
        let told = threads.spawn(|| follow(command, &mut news));
        let copied = copy(source, &stream, &stop);
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
fn copy(source: &File, stream: &File, stop: &Stop) -> Result<Copied> {
    while !stop.is_set() {
        match pass_on(source, stream, READ_BYTES) {
            Ok(0) => return Ok(Copied::Whole),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The news say why.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(Copied::Whole),
            passed => drop(passed.context("read the stream")?),
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

//! Subvolumes of a mount, sent by its server.

use super::{Failure, SendCommand, copy, mounted, progress_bar, tell_begin};
use crate::commands::stop::Stop;
use anyhow::{Error, Result, bail};
use brindle_admin::Mounted;
use brindle_admin::streams::{NewsReader, SendOrder, StreamNews};
use indicatif::ProgressBar;
use std::fs::File;
use std::slice;

/// A stream that the server of a mount sends.
pub(super) struct Sending {
    stream: File,
    news: NewsReader,
}

impl Sending {
    /// Has the server begin.
    pub(super) fn begin(command: &SendCommand, version: u32, subvolumes: &[Mounted]) -> Result<Self> {
        let [first, ..] = subvolumes else { bail!("no subvolume") };
        let parent = command.parent.as_ref().map(|path| mounted(slice::from_ref(path))).transpose()?;
        let order = SendOrder {
            subvolumes,
            parent: parent.as_deref().and_then(<[Mounted]>::first),
            sources: &mounted(&command.clone_source)?,
            version,
            compressed: command.compressed_data,
            no_data: command.no_data,
            one_stream: command.one_stream,
        };
        let (stream, news) = first.send(&order)?;
        Ok(Self { stream, news })
    }

    pub(super) fn write(self, target: &File, stop: &Stop, quiet: bool) -> Result<(), Failure> {
        let Self { stream, mut news } = self;
        let progress = progress_bar(quiet);
        std::thread::scope(|threads| {
            let told = threads.spawn(|| follow(&mut news, &progress, quiet));
            let copied = copy(&stream, target, stop, &progress);
            // The server can't go on where nothing is read.
            drop(stream);
            let told = told.join().map_err(|_| Error::msg("reading the news of the stream has failed"))?;
            progress.finish_and_clear();
            copied.and(told.map_err(Failure::Other))
        })
    }
}

/// Takes the news to the last.
fn follow(news: &mut NewsReader, progress: &ProgressBar, quiet: bool) -> Result<()> {
    loop {
        match news.take()? {
            StreamNews::Sends { path, parent } if !quiet => tell_begin(progress, &path, parent.as_deref()),
            StreamNews::Done => return Ok(()),
            StreamNews::Failed(why) => bail!(why),
            _ => {}
        }
    }
}

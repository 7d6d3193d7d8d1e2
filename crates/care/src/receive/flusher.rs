//! A thread that writes contents back while the stream is read on: checksums, placement and the devices then take none of the time of
//! the thread that carries out commands.

use brindle_fs::Filesystem;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, Scope};

/// Contents that may be dirty in memory before the thread begins, in bytes: enough for long extents.
const DIRTY_BYTES: u64 = 16 << 20;

/// Writes contents back when called, until it is dropped.
#[derive(Debug)]
pub(super) struct Flusher {
    /// None if there is no thread to be had: writers make room as well.
    calls: Option<SyncSender<()>>,
}

impl Flusher {
    pub(super) fn start<'scope>(threads: &'scope Scope<'scope, '_>, filesystem: &'scope Filesystem) -> Self {
        let (calls, called) = sync_channel(1);
        let run = move || called.into_iter().for_each(|()| filesystem.write_back_some(DIRTY_BYTES));
        let started = Builder::new().name("write back".to_owned()).spawn_scoped(threads, run);
        Self { calls: started.is_ok().then_some(calls) }
    }

    /// Contents may have been written.
    pub(super) fn call(&self) {
        if let Some(calls) = &self.calls {
            // A call waits already, or the thread has panicked, which the end of the scope tells.
            let _ = calls.try_send(());
        }
    }
}

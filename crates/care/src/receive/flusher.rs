//! A thread that writes contents back while the stream is read on: checksums, placement and the devices then take none of the time of
//! the thread that carries out commands.

use brindle_fs::Filesystem;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, Scope};

/// Contents that may be dirty in memory before the thread begins, in bytes: enough for long extents.
const DIRTY_BYTES: u64 = 16 << 20;

/// Contents that may be written between two calls, in bytes: each call wakes the thread.
const CALL_BYTES: usize = 1 << 20;

/// Writes contents back as they come, until it is dropped.
#[derive(Debug)]
pub(super) struct Flusher {
    /// None if there is no thread to be had: writers make room as well.
    calls: Option<SyncSender<()>>,
    /// Bytes written since the last call.
    written: usize,
}

impl Flusher {
    pub(super) fn start<'scope>(threads: &'scope Scope<'scope, '_>, filesystem: &'scope Filesystem) -> Self {
        let (calls, called) = sync_channel(1);
        let run = move || called.into_iter().for_each(|()| filesystem.write_back_some(DIRTY_BYTES));
        let started = Builder::new().name("write back".to_owned()).spawn_scoped(threads, run);
        Self { calls: started.is_ok().then_some(calls), written: 0 }
    }

    /// Contents have been written, as many bytes; calls the thread if it is worth it.
    pub(super) fn note_written(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written < CALL_BYTES {
            return;
        }
        self.written = 0;
        if let Some(calls) = &self.calls {
            // A call waits already, or the thread has panicked, which the end of the scope tells.
            let _ = calls.try_send(());
        }
    }
}

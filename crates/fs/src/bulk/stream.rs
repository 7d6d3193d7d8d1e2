//! Data on its way to the devices: what lies side by side is gathered, and written by a thread of its own.

use crate::FsError;
use brindle_ondisk::{Logical, to_u64};
use brindle_tree::{Pool, TreeError};
use brindle_volume::WriteError;
use std::mem;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

/// How much is written at a time, in bytes, about.
const RUN_BYTES: usize = 4 << 20;
/// How many runs wait for the devices at the most.
const QUEUE_RUNS: usize = 6;

/// Data that lies side by side.
#[derive(Debug)]
struct Run {
    start: Logical,
    bytes: Vec<u8>,
}

/// Writes data behind the back of who makes it.
#[derive(Debug)]
pub(super) struct Stream<'s> {
    run: Run,
    sender: Option<SyncSender<Run>>,
    /// Buffers that have been written and can be filled again.
    empty: Receiver<Vec<u8>>,
    thread: Option<ScopedJoinHandle<'s, Result<(), WriteError>>>,
}

impl<'s> Stream<'s> {
    /// Begins to write to a pool.
    pub(super) fn new<'e>(pool: &'s Pool, scope: &'s Scope<'s, 'e>) -> Self {
        let (sender, runs) = sync_channel::<Run>(QUEUE_RUNS);
        let (give_back, empty) = sync_channel(QUEUE_RUNS + 2);
        let thread = scope.spawn(move || {
            while let Ok(Run { start, mut bytes }) = runs.recv() {
                pool.volume().write_data(start, &bytes)?;
                bytes.clear();
                // Nobody wants it any more when all is sent.
                let _ = give_back.try_send(bytes);
            }
            Ok(())
        });
        let run = Run { start: Logical::new(0), bytes: Vec::new() };
        Self { run, sender: Some(sender), empty, thread: Some(thread) }
    }

    /// Writes data, which does not lie across the end of a chunk.
    pub(super) fn write(&mut self, at: Logical, bytes: &[u8]) -> Result<(), FsError> {
        let is_next = self.run.start.checked_add(to_u64(self.run.bytes.len())) == Some(at);
        if !is_next || self.run.bytes.len() >= RUN_BYTES {
            self.send()?;
            self.run.start = at;
        }
        self.run.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Lets what was gathered go: what comes next may lie in another chunk, though it follows.
    pub(super) fn send(&mut self) -> Result<(), FsError> {
        if self.run.bytes.is_empty() {
            return Ok(());
        }
        let fresh = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(2 * RUN_BYTES));
        let bytes = mem::replace(&mut self.run.bytes, fresh);
        let run = Run { start: self.run.start, bytes };
        let sender = self.sender.as_ref().expect("the stream is not finished");
        if sender.send(run).is_err() {
            // The thread has ended, which it does only with an error.
            return self.join();
        }
        Ok(())
    }

    /// Waits until all is written.
    pub(super) fn finish(mut self) -> Result<(), FsError> {
        self.send()?;
        self.join()
    }

    fn join(&mut self) -> Result<(), FsError> {
        self.sender = None;
        match self.thread.take().map(ScopedJoinHandle::join) {
            Some(Ok(done)) => done.map_err(|error| FsError::Tree(TreeError::Write(error))),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }
}

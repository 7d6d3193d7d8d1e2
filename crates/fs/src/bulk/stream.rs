//! Data on its way to the devices: what lies side by side is gathered, and written by threads of its own.

use crate::error::FsError;
use brindle_device::DIRECT_ALIGNMENT;
use brindle_ondisk::{Logical, to_u64};
use brindle_sync::{Mutex, Rank};
use brindle_tree::{Pool, TreeError};
use brindle_volume::WriteError;
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

/// Approximate number of bytes written at a time.
const RUN_BYTES: usize = 4 << 20;
/// Capacity of a run without moving in memory: it is sent when it has reached `RUN_BYTES`, and one addition is seldom
/// longer than that.
const RUN_CAPACITY: usize = 2 * RUN_BYTES;
/// Number of runs written at a time: a medium has more to give to several.
const WRITERS: usize = 3;
/// Upper bound on the runs that wait for the devices.
const QUEUE_RUNS: usize = 4;

/// Data that lies side by side, aligned in memory so that it may pass by the host's cache.
#[derive(Debug)]
struct Run {
    start: Logical,
    /// `front` bytes that mean nothing, then the data.
    bytes: Vec<u8>,
    front: usize,
}

impl Run {
    fn new(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        bytes.reserve(RUN_CAPACITY + DIRECT_ALIGNMENT);
        let front = bytes.as_ptr().align_offset(DIRECT_ALIGNMENT).min(DIRECT_ALIGNMENT);
        bytes.resize(front, 0);
        Self { start: Logical::new(0), bytes, front }
    }

    fn data(&self) -> &[u8] {
        &self.bytes[self.front..]
    }
}

/// Writer of data in a thread of its own.
#[derive(Debug)]
pub(super) struct Stream<'s> {
    run: Run,
    sender: Option<SyncSender<Run>>,
    /// Buffers that have been written and can be filled again.
    empty: Receiver<Vec<u8>>,
    failed: Arc<Mutex<Option<WriteError>>>,
    threads: Vec<ScopedJoinHandle<'s, ()>>,
}

impl<'s> Stream<'s> {
    /// Begins to write to a pool.
    pub(super) fn new<'e>(pool: &'s Pool, scope: &'s Scope<'s, 'e>) -> Self {
        let (sender, runs) = sync_channel::<Run>(QUEUE_RUNS);
        let (give_back, empty) = sync_channel(QUEUE_RUNS + WRITERS + 1);
        let (runs, failed) =
            (Arc::new(Mutex::new(Rank::BulkRuns, runs)), Arc::new(Mutex::new(Rank::BulkFailure, None)));
        let work = |_| {
            let (runs, failed, give_back) = (Arc::clone(&runs), Arc::clone(&failed), give_back.clone());
            scope.spawn(move || {
                while let Some(run) = next(&runs) {
                    if let Err(error) = pool.volume().write_data(run.start, run.data()) {
                        failed.lock().get_or_insert(error);
                        return;
                    }
                    // The receiver is gone when all is sent.
                    let _ = give_back.try_send(run.bytes);
                }
            })
        };
        let threads = (0..WRITERS).map(work).collect();
        Self { run: Run::new(Vec::new()), sender: Some(sender), empty, failed, threads }
    }

    /// Writes data, which does not lie across the end of a chunk.
    pub(super) fn write(&mut self, at: Logical, bytes: &[u8]) -> Result<(), FsError> {
        let length = self.run.data().len();
        let is_next = self.run.start.checked_add(to_u64(length)) == Some(at);
        if !is_next || length >= RUN_BYTES {
            self.send()?;
            self.run.start = at;
        }
        self.run.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Lets what was gathered go: what comes next may lie in another chunk, though it follows.
    pub(super) fn send(&mut self) -> Result<(), FsError> {
        if self.run.data().is_empty() {
            return Ok(());
        }
        if self.failed.lock().is_some() {
            return self.join();
        }
        let fresh = Run::new(self.empty.try_recv().unwrap_or_default());
        let run = mem::replace(&mut self.run, fresh);
        let sender = self.sender.as_ref().expect("the stream is not finished");
        if sender.send(run).is_err() {
            // The threads have ended, which they do only with an error.
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
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        match self.failed.lock().take() {
            Some(error) => Err(FsError::Tree(TreeError::Write(error))),
            None => Ok(()),
        }
    }
}

fn next(runs: &Mutex<Receiver<Run>>) -> Option<Run> {
    runs.lock().recv().ok()
}

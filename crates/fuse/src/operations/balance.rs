//! A balance of the mounted pool: a thread does it, requests begin it, stop it, and ask how far it is.

use super::number;
use brindle_care::balance::{self, BalanceError, Ended, Pace, Progress, Wish};
use brindle_fs::Filesystem;
use brindle_kernel::message::{
    BALANCE_ENDED_CANCELLED, BALANCE_ENDED_DONE, BALANCE_ENDED_FAILED, BALANCE_ENDED_PAUSED, BALANCE_FORCE,
    BALANCE_REPORT_NONE, BALANCE_REPORT_PAUSED, BALANCE_REPORT_RUNNING, BALANCE_RESUME, BALANCE_STOP_CANCEL,
    BALANCE_STOP_PAUSE, BalanceReport, BalanceStart, field,
};
use brindle_ondisk::item::BalanceItem;
use brindle_policy::balance::Balance;
use rustix::io::Errno;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The balance of a mount. Dropped, one that runs is paused.
#[derive(Debug, Default)]
pub(super) struct BalanceService {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Somebody wants something else.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_running: bool,
    wish: Wish,
    progress: Progress,
    ended: u64,
    error: String,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how far it is, waits as long as the pace wants it, and says what is wanted.
    fn step(&self, progress: &Progress, pace: Option<Pace>, begun: Instant) -> Wish {
        let mut state = self.lock();
        state.progress = *progress;
        let owed = pace.map(|pace| pace.owed(progress.moved_bytes, begun.elapsed())).unwrap_or_default();
        let goes_on = |state: &mut State| state.wish == Wish::GoOn;
        let waited = self.changed.wait_timeout_while(state, owed, goes_on);
        waited.unwrap_or_else(PoisonError::into_inner).0.wish
    }
}

impl BalanceService {
    /// Begins one, or goes on with one.
    pub(super) fn start(&self, filesystem: &Arc<Filesystem>, start: &BalanceStart) -> Result<(), Errno> {
        if !filesystem.is_writable() {
            return Err(Errno::ROFS);
        }
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut state = self.shared.lock();
            if state.is_running {
                return Err(Errno::INPROGRESS);
            }
            *state = State { is_running: true, ..State::default() };
        }
        let item = BalanceItem::read_from_bytes(&start.item).map_err(|_| Errno::INVAL)?;
        let wanted = (start.flags & BALANCE_RESUME == 0).then(|| Balance::from_item(&item));
        let force = start.flags & BALANCE_FORCE != 0;
        let pace = (start.rate > 0).then_some(Pace { rate: start.rate });
        let (shared, filesystem) = (Arc::clone(&self.shared), Arc::clone(filesystem));
        let run = move || {
            let begun = Instant::now();
            let mut watcher = |progress: &Progress| shared.step(progress, pace, begun);
            let ended = match &wanted {
                Some(balance) => balance::start(&filesystem, balance, force, &mut watcher),
                None => balance::resume(&filesystem, &mut watcher),
            };
            shared.lock().end(ended);
        };
        let spawned = std::thread::Builder::new().name("balance".to_owned()).spawn(run);
        match spawned {
            Ok(spawned) => {
                // The one before has ended: it would be running else.
                *thread = Some(spawned);
                Ok(())
            }
            Err(_) => {
                self.shared.lock().is_running = false;
                Err(Errno::AGAIN)
            }
        }
    }

    /// Pauses or cancels one.
    pub(super) fn stop(&self, filesystem: &Filesystem, how: u32) -> Result<(), Errno> {
        let wish = match how {
            BALANCE_STOP_PAUSE => Wish::Pause,
            BALANCE_STOP_CANCEL => Wish::Cancel,
            _ => return Err(Errno::INVAL),
        };
        {
            let mut state = self.shared.lock();
            if state.is_running {
                state.wish = wish;
                self.shared.changed.notify_all();
                return Ok(());
            }
        }
        let was_there =
            wish == Wish::Cancel && number(balance::forget(filesystem.pool()).map_err(Into::into))?;
        if was_there { Ok(()) } else { Err(Errno::NOTCONN) }
    }

    /// How far it is.
    pub(super) fn report(&self, filesystem: &Filesystem) -> Result<BalanceReport, Errno> {
        let kept = number(balance::interrupted(filesystem.pool()).map_err(Into::into))?;
        let state = self.shared.lock();
        let mut report = BalanceReport {
            state: match (state.is_running, &kept) {
                (true, _) => BALANCE_REPORT_RUNNING,
                (false, Some(_)) => BALANCE_REPORT_PAUSED,
                (false, None) => BALANCE_REPORT_NONE,
            },
            ended: state.ended,
            expected: state.progress.expected,
            done: state.progress.done,
            left: state.progress.left,
            expected_bytes: state.progress.expected_bytes,
            moved_bytes: state.progress.moved_bytes,
            ..BalanceReport::new_zeroed()
        };
        if let Some(balance) = &kept {
            report.item.copy_from_slice(balance.to_item().as_bytes());
        }
        let room = report.error.len() - 1;
        let text = state.error.as_bytes();
        report.error = field(&text[..text.len().min(room)]).unwrap_or([0; 512]);
        Ok(report)
    }
}

impl State {
    fn end(&mut self, ended: Result<Ended, BalanceError>) {
        self.is_running = false;
        self.ended = match ended {
            Ok(Ended { progress, wish }) => {
                self.progress = progress;
                match wish {
                    Wish::GoOn => BALANCE_ENDED_DONE,
                    Wish::Pause => BALANCE_ENDED_PAUSED,
                    Wish::Cancel => BALANCE_ENDED_CANCELLED,
                }
            }
            Err(error) => {
                tracing::error!("balance: {error}");
                self.error = error.to_string();
                BALANCE_ENDED_FAILED
            }
        };
    }
}

impl Drop for BalanceService {
    fn drop(&mut self) {
        self.shared.lock().wish = Wish::Pause;
        self.shared.changed.notify_all();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.join().ok();
        }
    }
}

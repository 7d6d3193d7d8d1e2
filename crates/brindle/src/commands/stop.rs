//! Signals that ask us to stop. Threads look at [`Stop`] between pieces of work; a second signal ends the process at
//! once.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::{register_conditional_shutdown, register_usize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Request to stop.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    /// The signal; 0 for none.
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// Catches signals: from now on they stop the work, and not the process.
    pub(crate) fn on_signals() -> Result<Self> {
        let failed = "cannot wait for signals";
        let stop = Self::default();
        let ignored = ignored_signals();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // As nohup wants it.
            if ignored & (1 << (signal - 1)) != 0 {
                continue;
            }
            // In this order: what the first signal sets is what the second finds.
            let again = Arc::new(AtomicBool::new(false));
            register_conditional_shutdown(signal, 128 + signal, Arc::clone(&again)).context(failed)?;
            signal_hook::flag::register(signal, again).context(failed)?;
            let number = usize::try_from(signal).context(failed)?;
            register_usize(signal, Arc::clone(&stop.signal), number).context(failed)?;
        }
        Ok(stop)
    }

    /// Returns true if a signal has come.
    pub(crate) fn is_set(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    /// Its name, and the exit code that a shell would give a process that it killed.
    pub(crate) fn name_and_code(&self) -> Option<(&'static str, u8)> {
        let number = self.signal.load(Ordering::Relaxed);
        let code = u8::try_from(128 + number).unwrap_or(u8::MAX);
        match i32::try_from(number) {
            Ok(SIGINT) => Some(("SIGINT", code)),
            Ok(SIGTERM) => Some(("SIGTERM", code)),
            Ok(SIGHUP) => Some(("SIGHUP", code)),
            _ => None,
        }
    }
}

/// Signals that the parent process wants ignored, a bit each.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A signal that is raised here would be for all tests of this process: those of commands send some to processes of their own.
    #[test]
    fn a_signal_that_was_noted_has_its_exit_code() {
        let stop = Stop::on_signals().expect("signals can be had");
        assert!(!stop.is_set() && stop.name_and_code().is_none());
        for (signal, name, code) in
            [(SIGHUP, "SIGHUP", 129), (SIGINT, "SIGINT", 130), (SIGTERM, "SIGTERM", 143)]
        {
            stop.signal.store(usize::try_from(signal).expect("small"), Ordering::Relaxed);
            assert!(stop.is_set());
            assert_eq!(stop.name_and_code(), Some((name, code)));
        }
    }
}

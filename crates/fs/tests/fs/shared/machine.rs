//! Machines that share a clock's pace, and nothing else.

use brindle_ondisk::LeaseProcess;
use brindle_volume::{LeaseHost, LeaseMode, LeaseOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Time that passes for all machines at once: when one of them waits, and when the test says so.
#[derive(Debug, Default)]
pub(crate) struct World {
    ms: AtomicU64,
}

impl World {
    pub(crate) fn pass(&self, time: Duration) {
        self.ms.fetch_add(u64::try_from(time.as_millis()).expect("short"), Relaxed);
    }

    /// Options of a pool on a machine, by its number.
    pub(crate) fn machine(self: &Arc<Self>, number: u8) -> LeaseOptions {
        let host = Arc::new(Machine { world: Arc::clone(self), number });
        LeaseOptions { mode: LeaseMode::Always, host, ..LeaseOptions::default() }
    }
}

#[derive(Debug)]
struct Machine {
    world: Arc<World>,
    number: u8,
}

impl LeaseHost for Machine {
    fn name(&self) -> String {
        format!("machine{}", self.number)
    }

    fn process(&self) -> LeaseProcess {
        // All are clones of one machine.
        LeaseProcess::new([1; 16], [self.number; 16], 1, self.number.into(), 1)
    }

    fn is_running(&self, _process: &LeaseProcess) -> Option<bool> {
        None
    }

    fn now(&self) -> Duration {
        Duration::from_millis(u64::from(self.number) * 1_000_003 + self.world.ms.load(Relaxed))
    }

    fn wait(&self, time: Duration) {
        self.world.pass(time);
    }

    fn random(&self) -> [u8; 16] {
        let mut bytes = [self.number; 16];
        bytes[..8].copy_from_slice(&self.world.ms.fetch_add(1, Relaxed).to_le_bytes());
        bytes
    }

    fn seconds(&self) -> u64 {
        1_800_000_000
    }

    fn has_threads(&self) -> bool {
        false
    }
}

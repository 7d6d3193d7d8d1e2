//! Identity and clock of the holder of a lease.

use brindle_device::host::{HostProcess, boot_id, boot_time, host_name, machine_id};
use brindle_ondisk::LeaseProcess;
use std::fmt::Debug;
use std::fs::File;
use std::io::Read;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Identity and clock of the holder of a lease, and what it can see of others.
pub trait LeaseHost: Debug + Send + Sync {
    /// Name of the machine, for messages.
    fn name(&self) -> String;

    /// This process.
    fn process(&self) -> LeaseProcess;

    /// Returns true if a process runs, `None` if that can't be seen from here.
    fn is_running(&self, process: &LeaseProcess) -> Option<bool>;

    /// The time by a clock that never goes back, and goes on while the machine sleeps.
    fn now(&self) -> Duration;

    /// Waits.
    fn wait(&self, time: Duration);

    /// Random bytes.
    fn random(&self) -> [u8; 16];

    /// The time of day in seconds since 1970, to be shown.
    fn seconds(&self) -> u64;

    /// Returns true if a thread is to renew the lease; otherwise the caller does, by [`Volume::renew_lease`](crate::Volume::renew_lease).
    fn has_threads(&self) -> bool {
        true
    }
}

/// This machine and process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisHost;

impl LeaseHost for ThisHost {
    fn name(&self) -> String {
        host_name()
    }

    fn process(&self) -> LeaseProcess {
        let this = HostProcess::this();
        LeaseProcess::new(machine_id(), boot_id(), this.pid_namespace, this.pid, this.started)
    }

    fn is_running(&self, process: &LeaseProcess) -> Option<bool> {
        // That a machine has the same id tells nothing: clones of virtual machines often have. Nor is its last run known to be over.
        let boot_id = boot_id();
        if boot_id == [0; 16] || process.boot_id != boot_id {
            return None;
        }
        let (pid_namespace, pid, started) =
            (process.pid_namespace.get(), process.pid.get(), process.started.get());
        HostProcess { pid_namespace, pid, started }.is_running()
    }

    fn now(&self) -> Duration {
        boot_time()
    }

    fn wait(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn random(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let read = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes));
        if read.is_err() {
            // Without a source of randomness, process and time are the next best.
            let this = HostProcess::this();
            bytes = boot_time().as_nanos().to_le_bytes();
            bytes[8..].copy_from_slice(&(u64::from(this.pid) ^ this.started.rotate_left(32)).to_le_bytes());
        }
        bytes
    }

    fn seconds(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}

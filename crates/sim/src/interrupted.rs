//! A device whose writes are interrupted: by something that is done before the next one, or until they are let go.

use brindle_device::{Batch, Device, DeviceClass, DeviceError, WritableDevice};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// A device before another one, that has something done before it takes its next write: on a thread of its own, for the one that
/// writes may hold locks. The write waits for that, others go on. Or all writes wait, as those of a slow disk.
pub struct InterruptedDevice {
    inner: Arc<dyn WritableDevice>,
    before: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    held: Mutex<Held>,
    changed: Condvar,
}

/// Writes that are held, and their number.
#[derive(Default)]
struct Held {
    are_held: bool,
    waiting: usize,
}

impl InterruptedDevice {
    /// A device that does nothing but pass on, until it is given something to do.
    #[must_use]
    pub fn new(inner: Arc<dyn WritableDevice>) -> Self {
        Self { inner, before: Mutex::default(), held: Mutex::default(), changed: Condvar::new() }
    }

    /// Has all writes wait from now on, and what writes out earlier ones.
    pub fn hold_writes(&self) {
        self.held().are_held = true;
    }

    /// Lets all writes go on.
    pub fn let_go(&self) {
        self.held().are_held = false;
        self.changed.notify_all();
    }

    /// Number of writes that wait.
    pub fn waiting_writes(&self) -> usize {
        self.held().waiting
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while_held(&self) {
        let mut held = self.held();
        held.waiting += 1;
        while held.are_held {
            held = self.changed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        held.waiting -= 1;
    }

    /// Has something done before the next write.
    pub fn before_next_write(&self, act: impl FnOnce() + Send + 'static) {
        *self.before() = Some(Box::new(act));
    }

    /// Returns true until the next write has begun.
    pub fn is_waiting(&self) -> bool {
        self.before().is_some()
    }

    fn before(&self) -> MutexGuard<'_, Option<Box<dyn FnOnce() + Send>>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for InterruptedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Device for InterruptedDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read_at(offset, buffer)
    }

    fn class(&self) -> DeviceClass {
        self.inner.class()
    }
}

impl WritableDevice for InterruptedDevice {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.wait_while_held();
        // Nothing is locked meanwhile: the act may write, too.
        let act = self.before().take();
        if let Some(act) = act {
            thread::scope(|threads| threads.spawn(act).join()).expect("the act does not panic");
        }
        self.inner.write_at(offset, bytes)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn submit_write_out<'a>(&'a self, batch: &mut Batch<'a>) {
        self.wait_while_held();
        self.inner.submit_write_out(batch);
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        self.inner.discard(offset, length)
    }

    fn set_size(&self, size_bytes: u64) -> Result<(), DeviceError> {
        self.inner.set_size(size_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_device::SparseDevice;

    #[test]
    fn an_act_comes_before_the_next_write_and_may_write_itself() {
        let inner = SparseDevice::new("memory".to_owned(), 1 << 20, DeviceClass::Rotating);
        let device = Arc::new(InterruptedDevice::new(Arc::new(inner)));
        let other = Arc::clone(&device);
        device.before_next_write(move || other.write_at(0, &[1; 8192]).expect("room"));
        assert!(device.is_waiting());
        device.write_at(0, &[2; 4096]).expect("room");
        assert!(!device.is_waiting());
        let mut bytes = [0; 8192];
        device.read_at(0, &mut bytes).expect("it was written");
        assert_eq!(bytes, [[2; 4096], [1; 4096]].concat()[..]);
    }
}

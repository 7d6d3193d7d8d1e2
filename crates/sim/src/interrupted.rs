//! A device that has something done before it takes its next write.

use brindle_device::{Device, DeviceClass, DeviceError, WritableDevice};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// A device before another one, that has something done before it takes its next write: on a thread of its own, for the one that
/// writes may hold locks. The write waits for that, others go on.
pub struct InterruptedDevice {
    inner: Arc<dyn WritableDevice>,
    before: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl InterruptedDevice {
    /// A device that does nothing but pass on, until it is given something to do.
    #[must_use]
    pub fn new(inner: Arc<dyn WritableDevice>) -> Self {
        Self { inner, before: Mutex::default() }
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
        // Nothing is held meanwhile: the act may write, too.
        let act = self.before().take();
        if let Some(act) = act {
            thread::scope(|threads| threads.spawn(act).join()).expect("the act does not panic");
        }
        self.inner.write_at(offset, bytes)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
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

//! An image, as a device.

use crate::Image;
use brindle_device::{Device, DeviceClass, DeviceError, WritableDevice};
use std::fmt;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A device in memory, whose contents can be taken as an [`Image`] at any time, and were one when it began.
pub struct ImageDevice {
    name: String,
    class: DeviceClass,
    image: RwLock<Image>,
}

impl ImageDevice {
    /// A device with these contents.
    #[must_use]
    pub fn new(name: impl Into<String>, image: Image, class: DeviceClass) -> Self {
        Self { name: name.into(), class, image: RwLock::new(image) }
    }

    /// Its present contents.
    #[must_use]
    pub fn image(&self) -> Image {
        self.read().clone()
    }

    fn read(&self) -> RwLockReadGuard<'_, Image> {
        self.image.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its contents, to be changed.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Image> {
        self.image.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error, unless a range lies within the device.
    pub(crate) fn check_range(&self, offset: u64, length: usize) -> Result<(), DeviceError> {
        let size_bytes = self.size_bytes();
        if offset.checked_add(length as u64).is_some_and(|end| end <= size_bytes) {
            return Ok(());
        }
        Err(DeviceError::BeyondEnd { device: self.name.clone(), offset, length, size_bytes })
    }
}

impl fmt::Debug for ImageDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageDevice").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Device for ImageDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.read().size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.check_range(offset, buffer.len())?;
        self.read().read(offset, buffer);
        Ok(())
    }

    fn class(&self) -> DeviceClass {
        self.class
    }
}

impl WritableDevice for ImageDevice {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.check_range(offset, bytes.len())?;
        self.write().write(offset, bytes);
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        let mut image = self.write();
        let end = offset.saturating_add(length).min(image.size_bytes());
        if offset < end {
            image.zero(offset, end - offset);
        }
        Ok(true)
    }

    fn set_size(&self, size_bytes: u64) -> Result<(), DeviceError> {
        self.write().set_size(size_bytes);
        Ok(())
    }
}

//! Devices by the word of a user: a cache, or any word that the crate `device` takes.

use crate::attached::{CachedDevice, User};
use crate::veil::{DiskMark, disk_mark};
use crate::word::CacheWord;
use brindle_device::{Claim, Device, DeviceError, WritableDevice};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Opens a device for reading. A disk that is incomplete without its cache is taken, with a warning: when the SSD is lost, that
/// is what is left.
///
/// # Errors
/// Those of [`brindle_device::open_device`] and of [`load_to_read`](crate::load_to_read); [`DeviceError::Busy`] for a cache that another
/// process has in use.
pub fn open_device(word: &Path) -> Result<Arc<dyn Device>, DeviceError> {
    to_read(word, User::Any)
}

/// Opens a device of a pool for reading.
///
/// # Errors
/// Errors are those of [`open_device`].
pub fn open_pool_device(word: &Path) -> Result<Arc<dyn Device>, DeviceError> {
    to_read(word, User::Pool)
}

/// Opens a device for a short look: a cache that another process has in use shows what was last flushed, and soon nothing.
///
/// # Errors
/// Those of [`brindle_device::open_device`] and of [`load_to_read`](crate::load_to_read).
pub fn look_at_device(word: &Path) -> Result<Arc<dyn Device>, DeviceError> {
    to_read(word, User::Look)
}

fn to_read(word: &Path, user: User) -> Result<Arc<dyn Device>, DeviceError> {
    if let Some(cached) = CacheWord::parse(word)? {
        return Ok(CachedDevice::open(&cached, user)?);
    }
    let device = brindle_device::open_device(word)?;
    if let Ok(Some(mark)) = disk_mark(&*device) {
        tracing::warn!("{}; what is read may be damaged and old", not_alone(word, &mark));
    }
    Ok(device)
}

/// Opens a device for reading and writing.
///
/// # Errors
/// Those of [`brindle_device::open_device_to_write`] and of [`load`](crate::load); a disk that is incomplete without its cache.
pub fn open_device_to_write(word: &Path) -> Result<Arc<dyn WritableDevice>, DeviceError> {
    to_write(word, User::Any)
}

/// Opens a device of a pool for reading and writing. What a cache has of it counts at once, as far as samples of its disk tell
/// that it was not used alone.
///
/// # Errors
/// Errors are those of [`open_device_to_write`].
pub fn open_pool_device_to_write(word: &Path) -> Result<Arc<dyn WritableDevice>, DeviceError> {
    to_write(word, User::Pool)
}

fn to_write(word: &Path, user: User) -> Result<Arc<dyn WritableDevice>, DeviceError> {
    match CacheWord::parse(word)? {
        Some(cached) => Ok(CachedDevice::open_writable(&cached, user)?),
        None => refuse_half(word, brindle_device::open_device_to_write(word)?),
    }
}

/// Opens a device of a pool for reading and writing, with the claim on a block device apart. A cache keeps its claims.
///
/// # Errors
/// Errors are those of [`open_device_to_write`].
pub fn open_pool_device_with_claim(
    word: &Path,
) -> Result<(Arc<dyn WritableDevice>, Option<Claim>), DeviceError> {
    if let Some(cached) = CacheWord::parse(word)? {
        return Ok((CachedDevice::open_writable(&cached, User::Pool)?, None));
    }
    let (device, claim) = brindle_device::open_device_with_claim(word)?;
    Ok((refuse_half(word, device)?, claim))
}

/// Refuses a disk that is not complete without its cache.
fn refuse_half(word: &Path, device: Arc<dyn WritableDevice>) -> Result<Arc<dyn WritableDevice>, DeviceError> {
    match disk_mark(&*device) {
        Ok(Some(mark)) => {
            let source = io::Error::other(not_alone(word, &mark));
            Err(DeviceError::Open { device: word.display().to_string(), source })
        }
        // A device that can't be read says so when it is used.
        Ok(None) | Err(_) => Ok(device),
    }
}

fn not_alone(word: &Path, mark: &DiskMark) -> String {
    let (disk, DiskMark { name, flash, .. }) = (word.display(), mark);
    format!("{disk} is the disk of the flash cache {name}, and incomplete without: give cache:{flash}:{disk}")
}

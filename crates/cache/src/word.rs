//! Devices by the word of a user: `cache:SSD:DISK`, or any word that the crate `device` takes.

use crate::attached::CachedDevice;
use crate::veil::{DiskMark, disk_mark};
use brindle_device::{Claim, Device, DeviceError, WritableDevice};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PREFIX: &[u8] = b"cache:";

/// The two devices of a cache, as a user names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheWord {
    /// The SSD: a path.
    pub flash: PathBuf,
    /// The disk: a path, or the URI of an export.
    pub disk: PathBuf,
}

impl CacheWord {
    /// Reads `cache:SSD:DISK`; `None` for another word, or an existing path. If there are several colons, the SSD ends at the first one
    /// before which there is something.
    ///
    /// # Errors
    /// [`DeviceError::Open`], if a part is missing.
    pub fn parse(word: &Path) -> Result<Option<Self>, DeviceError> {
        let Some(parts) = word.as_os_str().as_bytes().strip_prefix(PREFIX).filter(|_| !word.exists()) else {
            return Ok(None);
        };
        let colons: Vec<usize> = (1..parts.len().saturating_sub(1)).filter(|at| parts[*at] == b':').collect();
        let path = |bytes| PathBuf::from(OsStr::from_bytes(bytes));
        let split = colons.iter().copied().find(|at| path(&parts[..*at]).exists());
        let Some(at) = split.or(colons.first().copied()) else {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "must be cache:SSD:DISK");
            return Err(DeviceError::Open { device: word.display().to_string(), source });
        };
        Ok(Some(Self { flash: path(&parts[..at]), disk: path(&parts[at + 1..]) }))
    }

    /// The word itself.
    pub fn name(&self) -> String {
        format!("cache:{}:{}", self.flash.display(), self.disk.display())
    }
}

/// Opens a device for reading. A disk that is incomplete without its cache is taken, with a warning: when the SSD is lost, that
/// is what is left.
///
/// # Errors
/// Those of [`brindle_device::open_device`] and of [`load_to_read`](crate::load_to_read).
pub fn open_device(word: &Path) -> Result<Arc<dyn Device>, DeviceError> {
    Ok(match opened(word, false)? {
        Some(cached) => cached,
        None => {
            let device = brindle_device::open_device(word)?;
            if let Ok(Some(mark)) = disk_mark(&*device) {
                tracing::warn!("{}; what is read may be damaged and old", not_alone(word, &mark));
            }
            device
        }
    })
}

/// Opens a device for reading and writing.
///
/// # Errors
/// Those of [`brindle_device::open_device_to_write`] and of [`load`](crate::load); a disk that is incomplete without its cache.
pub fn open_device_to_write(word: &Path) -> Result<Arc<dyn WritableDevice>, DeviceError> {
    Ok(match opened(word, true)? {
        Some(cached) => cached,
        None => refuse_half(word, brindle_device::open_device_to_write(word)?)?,
    })
}

/// Opens a device for reading and writing, with the claim on a block device apart. A cache keeps its claims.
///
/// # Errors
/// Errors are those of [`open_device_to_write`].
pub fn open_device_with_claim(word: &Path) -> Result<(Arc<dyn WritableDevice>, Option<Claim>), DeviceError> {
    Ok(match opened(word, true)? {
        Some(cached) => (cached, None),
        None => {
            let (device, claim) = brindle_device::open_device_with_claim(word)?;
            (refuse_half(word, device)?, claim)
        }
    })
}

/// The cached device of a word, if it is one for it.
fn opened(word: &Path, is_written: bool) -> Result<Option<Arc<CachedDevice>>, DeviceError> {
    let Some(word) = CacheWord::parse(word)? else { return Ok(None) };
    let open = if is_written { CachedDevice::open_writable } else { CachedDevice::open };
    open(&word.flash, &word.disk, &word.name()).map(Some)
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

/// Returns true if a word is no path: a URI of a device of another program, or a cache.
pub fn is_no_path(word: &Path) -> bool {
    brindle_device::is_remote(word) || !matches!(CacheWord::parse(word), Ok(None))
}

/// A path that is open as long as the device is: that of the SSD of a cache, or the word itself.
pub fn path_of(word: &Path) -> PathBuf {
    match CacheWord::parse(word) {
        Ok(Some(cache)) => cache.flash,
        Ok(None) | Err(_) => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_two_devices() {
        let of = |word: &str| CacheWord::parse(Path::new(word)).expect("two parts");
        let parts = |flash: &str, disk: &str| Some(CacheWord { flash: flash.into(), disk: disk.into() });
        assert_eq!(of("cache:/dev/sda2:/dev/sdc"), parts("/dev/sda2", "/dev/sdc"));
        let remote = "nbd+unix:///?socket=/run/one.sock";
        assert_eq!(of(&format!("cache:a:{remote}")), parts("a", remote));
        assert_eq!((of("/dev/sdc"), of("nbd://host/x")), (None, None));
        for wrong in ["cache:", "cache:a", "cache:a:", "cache::b"] {
            let error = CacheWord::parse(Path::new(wrong)).expect_err("a part is missing").to_string();
            assert_eq!(error, format!("cannot open {wrong}: must be cache:SSD:DISK"));
        }
        assert_eq!(path_of(Path::new("cache:a:b")), Path::new("a"));
        let directory = tempfile::tempdir().expect("temporary directory");
        let odd = directory.path().join("a:b");
        std::fs::write(&odd, "").expect("room");
        let odd = odd.to_str().expect("UTF-8");
        assert_eq!(of(&format!("cache:{odd}:c")), parts(odd, "c"));
    }
}

//! Devices by the word of a user: a path, or a URI of NBD.

use crate::nbd::NbdDevice;
use crate::{Claim, Device, DeviceError, FileDevice, WritableDevice};
use brindle_nbd::NbdUri;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Opens a device for reading.
///
/// # Errors
/// Those of [`FileDevice::open`] and [`NbdDevice::open`].
pub fn open_device(word: &Path) -> Result<Arc<dyn Device>, DeviceError> {
    Ok(match remote(word)? {
        Some(uri) => Arc::new(NbdDevice::open(&uri)?),
        None => Arc::new(FileDevice::open(word)?),
    })
}

/// Opens a device for reading and writing.
///
/// # Errors
/// Those of [`FileDevice::open_writable`] and [`NbdDevice::open_writable`].
pub fn open_device_to_write(word: &Path) -> Result<Arc<dyn WritableDevice>, DeviceError> {
    Ok(match remote(word)? {
        Some(uri) => Arc::new(NbdDevice::open_writable(&uri)?),
        None => Arc::new(FileDevice::open_writable(word)?),
    })
}

/// Opens a device for reading and writing, with the claim on a block device apart.
///
/// # Errors
/// Those of [`FileDevice::open_with_claim`] and [`NbdDevice::open_writable`].
pub fn open_device_with_claim(word: &Path) -> Result<(Arc<dyn WritableDevice>, Option<Claim>), DeviceError> {
    if remote(word)?.is_some() {
        return Ok((open_device_to_write(word)?, None));
    }
    let (device, claim) = FileDevice::open_with_claim(word)?;
    Ok((Arc::new(device), claim))
}

/// Returns true if a word is a URI of a device of another program, and no path.
pub fn is_remote(word: &Path) -> bool {
    !matches!(remote(word), Ok(None))
}

/// The URI that a word is; `None` if it is a path.
fn remote(word: &Path) -> Result<Option<NbdUri>, DeviceError> {
    let refused = |error: brindle_nbd::UriError| DeviceError::Open {
        device: word.display().to_string(),
        source: io::Error::new(io::ErrorKind::InvalidInput, error.reason()),
    };
    word.to_str().and_then(NbdUri::parse).transpose().map_err(refused)
}

//! A cache of files and block devices of this machine, by the word of a user.

use crate::load::{load, load_mirrored};
use crate::word::CacheWord;
use crate::{Cache, CacheError, HostClock};
use brindle_device::{DeviceError, FileDevice, WritableDevice, is_remote, open_device_to_write};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An SSD that is there, and its mirror, if there is one.
type PresentSsds = (Arc<dyn WritableDevice>, Option<Arc<dyn WritableDevice>>);

/// Loads the cache of a word to read and write it. An SSD of two that is not there is done without.
///
/// # Errors
/// Those of [`load`] and [`load_mirrored`], and of the devices.
pub fn load_files(word: &CacheWord, is_forced: bool) -> Result<Cache, CacheError> {
    // A server of another machine would let two of them have the cache.
    let ssds = ssds(word, FileDevice::open_writable)?;
    let disk = if is_remote(&word.disk) { word.disk.clone() } else { absolute_path(&word.disk)? };
    let (disk, clock) = (open_device_to_write(&disk)?, Arc::new(HostClock::new()));
    match ssds {
        (one, None) => load(&one, &disk, is_forced, clock),
        (one, Some(other)) => load_mirrored([&one, &other], &disk, is_forced, clock),
    }
}

/// The SSDs of a word that are there.
pub(crate) fn ssds(
    word: &CacheWord,
    open: impl Fn(&Path) -> Result<FileDevice, DeviceError>,
) -> Result<PresentSsds, DeviceError> {
    // The mark on the disk names them, for commands in other directories.
    let opened = |path: &Path| Ok(Arc::new(open(&absolute_path(path)?)?) as Arc<dyn WritableDevice>);
    let Some(mirror) = &word.mirror else { return Ok((opened(&word.flash)?, None)) };
    match (opened(&word.flash), opened(mirror)) {
        (Ok(one), Ok(other)) => Ok((one, Some(other))),
        (Ok(there), Err(error)) | (Err(error), Ok(there)) if is_missing(&error) => {
            tracing::error!("{error}");
            Ok((there, None))
        }
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

fn absolute_path(path: &Path) -> Result<PathBuf, DeviceError> {
    let failed = |source| DeviceError::Open { device: path.display().to_string(), source };
    std::path::absolute(path).map_err(failed)
}

/// Returns true if there is no device, or one that does not answer; one that is in use is another matter.
fn is_missing(error: &DeviceError) -> bool {
    let DeviceError::Open { source, .. } = error else { return false };
    let gone = [Errno::NXIO, Errno::NODEV, Errno::IO].map(Errno::raw_os_error);
    source.kind() == io::ErrorKind::NotFound || source.raw_os_error().is_some_and(|code| gone.contains(&code))
}

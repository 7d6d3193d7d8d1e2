//! Opening a pool for a mount: to read and write it, or only to read it where that is all it allows.

use crate::commands::options::MountOptions;
use crate::commands::pool::{open_filesystem, open_writable};
use anyhow::Result;
use brindle_device::{DeviceError, FileDevice, WritableDevice};
use brindle_fs::{Filesystem, FsError, TreeError};
use brindle_volume::VolumeError;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

/// Opens the filesystem. A pool that can't be written is opened to be read, with a warning, unless the user insists.
pub(super) fn filesystem(paths: &[&Path], options: &MountOptions, insists: bool) -> Result<Filesystem> {
    if options.has("ro", "rw") {
        return open_filesystem(paths, options);
    }
    let error = match writable(paths, options) {
        Ok(filesystem) => return Ok(filesystem),
        Err(error) => error,
    };
    if insists || !can_only_be_read(&error) {
        return Err(error);
    }
    let filesystem = open_filesystem(paths, options)?;
    tracing::warn!("mounting read-only: {error}");
    Ok(filesystem)
}

fn writable(paths: &[&Path], options: &MountOptions) -> Result<Filesystem> {
    let open =
        |path: &&Path| -> Result<Arc<dyn WritableDevice>> { Ok(Arc::new(FileDevice::open_writable(path)?)) };
    let devices = paths.iter().map(open).collect::<Result<Vec<_>>>()?;
    open_writable(devices, options)
}

/// Whether it may be read all the same. What is in use may not: what is read would change meanwhile.
fn can_only_be_read(error: &anyhow::Error) -> bool {
    let of_pool = error.downcast_ref::<FsError>();
    if let Some(FsError::Tree(TreeError::Volume(VolumeError::NotWritable(_)) | TreeError::UnderWay(_))) =
        of_pool
    {
        return true;
    }
    let Some(DeviceError::Open { source, .. }) = error.downcast_ref::<DeviceError>() else {
        return false;
    };
    matches!(source.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_write_protected_may_be_read_and_what_is_in_use_may_not() {
        let open = |kind: ErrorKind| DeviceError::Open { device: "a".to_owned(), source: kind.into() };
        assert!(can_only_be_read(&open(ErrorKind::ReadOnlyFilesystem).into()));
        assert!(can_only_be_read(&open(ErrorKind::PermissionDenied).into()));
        assert!(!can_only_be_read(&open(ErrorKind::NotFound).into()));
        let busy = DeviceError::Busy { device: "a".to_owned(), by: "b".to_owned() };
        assert!(!can_only_be_read(&busy.into()));
    }
}

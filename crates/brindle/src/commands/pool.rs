//! What commands that read a pool share: the devices, the options that choose within it, and opening it.

use crate::commands::options::MountOptions;
use anyhow::{Result, bail};
use brindle_device::{Device, FileDevice};
use brindle_fs::{Filesystem, SubvolumeChoice};
use brindle_ondisk::RootId;
use brindle_tree::Pool;
use clap::Args;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which part of a pool, and what to put up with.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct PoolOptions {
    /// Enter by the subvolume at this path from the top level
    #[arg(long, value_name = "PATH", conflicts_with = "subvolid", help_heading = "Pool")]
    subvol: Option<PathBuf>,
    /// Enter by the subvolume of this id; 5 is the top level
    #[arg(long, value_name = "ID", help_heading = "Pool")]
    subvolid: Option<u64>,
    /// Comma-separated: degraded (go on without missing devices), subvol=PATH, subvolid=ID, device=PATH
    #[arg(short, long = "options", value_name = "OPTIONS", help_heading = "Pool")]
    options: Vec<String>,
}

impl PoolOptions {
    /// Opens the filesystem on `devices`, and logs what the user should know of it.
    pub(crate) fn open(&self, devices: &[PathBuf]) -> Result<Filesystem> {
        let options = MountOptions::parse(&self.options)?;
        if let Some(option) = options.first_host_option() {
            bail!(
                "unknown option '{option}': here -o takes degraded, subvol=PATH, subvolid=ID and device=PATH"
            );
        }
        let paths: Vec<&Path> = devices.iter().chain(&options.devices).map(PathBuf::as_path).collect();
        let subvolume = match (&self.subvol, self.subvolid) {
            (Some(path), _) => SubvolumeChoice::Path(path.as_os_str().as_bytes().to_vec()),
            (None, Some(id)) => SubvolumeChoice::Id(RootId::new(id)),
            (None, None) => options.subvolume,
        };
        open_filesystem(&paths, options.degraded, subvolume)
    }
}

/// Opens a filesystem, and logs what the user should know of it.
pub(crate) fn open_filesystem(
    paths: &[&Path],
    degraded: bool,
    subvolume: SubvolumeChoice,
) -> Result<Filesystem> {
    let mut options = brindle_fs::OpenOptions { subvolume, ..Default::default() };
    options.pool.volume.degraded = degraded;
    let filesystem = Filesystem::open(open_devices(paths)?, &options)?;
    for warning in filesystem.warnings() {
        tracing::warn!("{warning}");
    }
    log_unused(filesystem.pool());
    Ok(filesystem)
}

/// Opens a pool to look into it: missing devices are no obstacle as long as everything can be read.
pub(crate) fn open_pool(paths: &[PathBuf]) -> Result<Pool> {
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let mut options = brindle_tree::OpenOptions::default();
    options.volume.degraded = true;
    let pool = Pool::open(open_devices(&paths)?, &options)?;
    for warning in pool.volume().warnings() {
        tracing::warn!("{warning}");
    }
    for device in pool.volume().devices().iter().filter(|device| device.missing) {
        tracing::warn!("device {} is missing", device.devid);
    }
    log_unused(&pool);
    Ok(pool)
}

fn log_unused(pool: &Pool) {
    for unused in pool.volume().unused_devices() {
        tracing::warn!("{unused}");
    }
}

/// Opens devices, in the order given.
pub(crate) fn open_devices(paths: &[&Path]) -> Result<Vec<Arc<dyn Device>>> {
    let open = |path: &&Path| -> Result<Arc<dyn Device>> { Ok(Arc::new(FileDevice::open(path)?)) };
    paths.iter().map(open).collect()
}

//! Mounts a pool and serves it until it is unmounted: `serve DEVICE... MOUNTPOINT`. Threads may be set by the
//! environment variable `THREADS`.

use brindle_device::{Device, FileDevice};
use brindle_fs::{Filesystem, OpenOptions};
use brindle_fuse::MountOptions;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let mut paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let mountpoint = paths.pop().ok_or("usage: serve DEVICE... MOUNTPOINT")?;
    let open =
        |path: &PathBuf| FileDevice::open(Path::new(path)).map(|device| Arc::new(device) as Arc<dyn Device>);
    let devices = paths.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let filesystem = Arc::new(Filesystem::open(devices, &OpenOptions::default())?);
    let mut options = MountOptions::for_devices(&paths);
    if let Some(threads) = std::env::var("THREADS").ok().and_then(|threads| threads.parse().ok()) {
        options.threads = threads;
    }
    brindle_fuse::mount(filesystem, &mountpoint, &options)?.wait()?;
    Ok(())
}

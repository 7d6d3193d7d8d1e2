//! The life of a served disk: made, mounted, attached, waited for, ended.

use crate::server::{DISK_NAME, DiskServer};
use crate::{Disk, LabError, Model, ShownDisk, Store};
use brindle_device::LoopDevice;
use brindle_transport::{
    Channel, Connection, Features, MountError, MountOptions, RingUse, Session, Wishes, connect, unmount,
};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A disk to be served.
#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// The model.
    pub model: Model,
    /// Size in bytes, if not that of the model.
    pub size_bytes: Option<u64>,
    /// File of the contents, if not in memory.
    pub file: Option<PathBuf>,
    /// Directory to mount it on.
    pub mountpoint: PathBuf,
    /// True if a loop device is attached.
    pub is_attached: bool,
}

/// The way in which a disk is shown.
#[derive(Clone, Debug)]
pub struct ShowOptions {
    /// Directory to mount it on.
    pub mountpoint: PathBuf,
    /// Source in the table of mounts.
    pub source: String,
    /// Subtype of the mount.
    pub subtype: &'static str,
    /// True if a loop device is attached.
    pub is_attached: bool,
    /// Threads that take requests. More than one, so that a processor that copies one does not keep the others.
    pub threads: usize,
}

/// A disk that is served.
#[derive(Debug)]
#[must_use = "it is served until it is unmounted"]
pub struct ServedDisk {
    session: Session,
    ending: Ending,
}

/// Ends a disk, from any thread or process.
#[derive(Clone, Debug)]
pub struct Ending {
    mountpoint: PathBuf,
    loop_device: Option<LoopDevice>,
}

/// Subtype of the mount.
const SUBTYPE: &str = "brindle-lab";
/// The largest request, in bytes.
const REQUEST_BYTES: u32 = 1 << 20;
/// Requests that the kernel has under way at once: more than the tags of a loop device.
const BACKGROUND: u16 = 512;
/// Threads that take requests of a modelled disk, whose drive has a thread of its own.
const THREADS: usize = 4;
/// Attempts to unmount after the loop device was detached: the kernel, or a program that looks at new devices, may hold it for
/// a moment.
const ATTEMPTS: u32 = 100;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);

const FEATURES: Features = Features::ASYNC_READ
    .union(Features::ASYNC_DIO)
    .union(Features::BIG_WRITES)
    .union(Features::MAX_PAGES)
    .union(Features::PARALLEL_DIROPS)
    .union(Features::INIT_EXT);

/// Properties of the queue of a loop device, by its name and value: those of a hard disk, and of a drive without platters. They
/// are set before anything can look at it. A property that this kernel does not have is left out, but for the first.
const QUEUE: [(&str, [&str; 2]); 4] = [
    ("rotational", ["1", "0"]),
    ("scheduler", ["mq-deadline", "mq-deadline"]),
    ("max_sectors_kb", ["1024", "1024"]),
    ("read_ahead_kb", ["128", "128"]),
];

/// Properties that a loop device is left with: the kernel's defaults of those that it does not set anew.
const LEFT: [(&str, &str); 2] = [("scheduler", "none"), ("max_sectors_kb", "0")];

/// Makes a modelled disk and mounts it. It answers as soon as this returns.
///
/// # Errors
/// [`LabError`]; nothing is left then.
pub fn serve(options: &DiskOptions) -> Result<ServedDisk, LabError> {
    check_mountpoint(&options.mountpoint)?;
    let size_bytes = options.size_bytes.unwrap_or(options.model.size_bytes());
    let store = match &options.file {
        Some(path) => Store::in_file(path, size_bytes)?,
        None => Store::in_memory(size_bytes)?,
    };
    let disk = Arc::new(Disk::new(options.model.clone(), store)?);
    let shown = ShowOptions {
        mountpoint: options.mountpoint.clone(),
        source: options.model.to_string(),
        subtype: SUBTYPE,
        is_attached: options.is_attached,
        threads: THREADS,
    };
    show(disk, &shown)
}

/// Mounts a directory with a disk. It answers as soon as this returns.
///
/// # Errors
/// [`LabError`]; nothing is left then.
pub fn show<D: ShownDisk>(disk: Arc<D>, options: &ShowOptions) -> Result<ServedDisk, LabError> {
    let mountpoint = check_mountpoint(&options.mountpoint)?;
    let is_rotating = disk.is_rotating();
    let server =
        Arc::new(DiskServer { disk, loop_device: OnceLock::new(), hides_blocks: AtomicBool::default() });
    let Connection { device, .. } = connect(&mountpoint, &mount_options(options))?;
    let wishes = Wishes {
        features: FEATURES,
        request_bytes: REQUEST_BYTES,
        background: BACKGROUND,
        rings: RingUse::Off,
    };
    let start = || {
        let (channel, _) = Channel::open(device, &wishes)?;
        Session::start(&Arc::new(channel), &server, options.threads)
    };
    let session = match start() {
        Ok(session) => session,
        Err(error) => {
            unmount(&mountpoint, UnmountFlags::DETACH)?;
            return Err(LabError::Serve(error));
        }
    };
    let mut ending = Ending { mountpoint, loop_device: None };
    if options.is_attached {
        server.hides_blocks.store(is_rotating, Ordering::Release);
        let attached = attach(&ending.mountpoint.join(DISK_NAME), is_rotating);
        server.hides_blocks.store(false, Ordering::Release);
        match attached {
            Ok(device) => {
                server.loop_device.get_or_init(|| device.path().to_owned());
                ending.loop_device = Some(device);
            }
            Err(error) => {
                ending.end_by_force();
                session.join().map_err(LabError::Serve)?;
                return Err(error);
            }
        }
    }
    Ok(ServedDisk { session, ending })
}

fn check_mountpoint(path: &Path) -> Result<PathBuf, LabError> {
    let failed = |source| LabError::Mountpoint { path: path.to_owned(), source };
    let canonical = path.canonicalize().map_err(failed)?;
    if !canonical.metadata().map_err(failed)?.is_dir() {
        return Err(failed(Errno::NOTDIR.into()));
    }
    Ok(canonical)
}

fn mount_options(options: &ShowOptions) -> MountOptions {
    MountOptions {
        source: options.source.clone(),
        subtype: options.subtype,
        flags: MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NOATIME,
        allow_other: false,
        default_permissions: true,
        auto_unmount: false,
    }
}

/// Attaches a loop device that looks like a disk.
fn attach(disk: &Path, is_rotating: bool) -> Result<LoopDevice, LabError> {
    let device =
        LoopDevice::attach(disk).map_err(|source| LabError::Attach { path: disk.to_owned(), source })?;
    for (number, (property, values)) in QUEUE.into_iter().enumerate() {
        let value = values[usize::from(!is_rotating)];
        if let Err(source) = device.set_queue(property, value) {
            let (is_needed, path) = (number == 0, device.path().to_owned());
            if is_needed {
                if let Err(error) = device.detach(&LEFT) {
                    tracing::warn!("{} stays: {error}", path.display());
                }
                return Err(LabError::Queue { device: path, property, value, source });
            }
            tracing::warn!("{}: queue/{property} is not {value}: {source}", path.display());
        }
    }
    Ok(device)
}

impl ServedDisk {
    /// Directory that it is mounted on.
    pub fn mountpoint(&self) -> &Path {
        &self.ending.mountpoint
    }

    /// Its loop device.
    pub fn loop_device(&self) -> Option<&Path> {
        self.ending.loop_device.as_ref().map(LoopDevice::path)
    }

    /// A handle to end it by.
    pub fn ending(&self) -> Ending {
        self.ending.clone()
    }

    /// Waits until it is unmounted.
    ///
    /// # Errors
    /// Those of the threads that serve it.
    pub fn wait(self) -> Result<(), LabError> {
        let served = self.session.join().map_err(LabError::Serve);
        let stat = rustix::fs::stat(&self.ending.mountpoint);
        if matches!(stat, Err(Errno::NOTCONN | Errno::CONNABORTED)) {
            // The connection was aborted, and the mount is dead.
            unmount(&self.ending.mountpoint, UnmountFlags::DETACH)?;
        }
        served
    }
}

impl Ending {
    /// Of a disk that another process serves.
    pub(crate) fn of(mountpoint: PathBuf, loop_device: Option<PathBuf>) -> Self {
        Self { mountpoint, loop_device: loop_device.map(LoopDevice::at) }
    }

    /// Detaches the loop device and unmounts; [`ServedDisk::wait`] then returns.
    ///
    /// # Errors
    /// [`LabError::Detach`] if the loop device is in use, and a mount that is; the disk goes on then.
    pub fn end(&self) -> Result<(), LabError> {
        self.detach()?;
        for _ in 0..ATTEMPTS {
            match unmount(&self.mountpoint, UnmountFlags::empty()) {
                Err(MountError::Busy(_)) if self.loop_device.is_some() => {
                    std::thread::sleep(BETWEEN_ATTEMPTS);
                }
                done => return Ok(done?),
            }
        }
        Ok(unmount(&self.mountpoint, UnmountFlags::empty())?)
    }

    fn detach(&self) -> Result<(), LabError> {
        let Some(device) = &self.loop_device else { return Ok(()) };
        device.detach(&LEFT).map_err(|source| LabError::Detach { device: device.path().to_owned(), source })
    }

    /// Ends it, or takes it out of the tree at once: then it is served until its last user has gone.
    pub fn end_by_force(&self) {
        let Err(error) = self.end() else { return };
        tracing::warn!("{error}; it disappears now, and ends with its last user");
        let detached = self.loop_device.as_ref().map_or(Ok(()), |device| device.detach_with_last_user(&LEFT));
        if let Err(error) = detached {
            tracing::warn!("the loop device stays until `losetup --detach`: {error}");
        }
        if let Err(error) = unmount(&self.mountpoint, UnmountFlags::DETACH) {
            tracing::warn!("{error}");
        }
    }
}

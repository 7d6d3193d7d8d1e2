//! The life of a mount: made, served, waited for, ended.
//!
//! A mount ends when it is unmounted: by us on request, or by `umount` or `fusermount3 -u` from outside. Then the
//! kernel hangs up, the threads that serve it return, and [`MountHandle::wait`] with them. When a mount is busy
//! an unmount fails and changes nothing; a detached mount disappears from the tree at once and is served until
//! its last user has gone. Should this process be killed, the mount stays, answers every call with `ENOTCONN`,
//! and is removed by `fusermount3 -u` or `umount`.

mod error;
mod mount_id;

pub use error::MountError;

use crate::adapter::Adapter;
use crate::adapter::kernel_cache::NotifiedKernel;
use crate::ending::Ending;
use crate::negotiation::{OpensAlone, wishes};
use crate::operations::Operations;
use crate::options::MountOptions;
use brindle_fs::{Filesystem, Upkeep, UpkeepOptions, UpkeepOwner};
use brindle_transport::{Abort, Channel, Connection, Guard, Session, connect, connect_on, join};
use mount_id::MountId;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A mount that is being served. Dropped without [`wait`](Self::wait), it is unmounted, or detached if busy.
#[derive(Debug)]
pub struct MountHandle {
    session: Option<Session>,
    ending: Arc<Ending>,
    place: Arc<Place>,
    filesystem: Arc<Filesystem>,
}

/// Ends a mount from any thread, such as one that waits for signals.
#[derive(Clone, Debug)]
pub struct UnmountHandle {
    place: Arc<Place>,
    filesystem: Arc<Filesystem>,
}

/// Place of a mount.
#[derive(Debug)]
struct Place {
    /// Canonical mount point.
    mountpoint: PathBuf,
    /// `None` where there is no `/proc`.
    id: Option<MountId>,
    channel: Arc<Channel>,
    /// With `auto_unmount`.
    guard: Mutex<Option<Guard>>,
}

/// Mounts a filesystem on a directory. The mount answers as soon as this returns.
pub fn mount(
    filesystem: Arc<Filesystem>,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<MountHandle, MountError> {
    if !options.read_only && !filesystem.is_writable() {
        return Err(MountError::NotWritable);
    }
    let mountpoint = check_mountpoint(mountpoint)?;
    let Some(block_device) = &options.block_device else {
        let Connection { device, guard } = connect(&mountpoint, &options.for_kernel())?;
        return match serve(&filesystem, device, options) {
            Ok(served) => Ok(MountHandle::new(served, mountpoint, guard, filesystem)),
            Err(error) => {
                brindle_transport::unmount(&mountpoint, UnmountFlags::DETACH).ok();
                Err(MountError::Session(error))
            }
        };
    };
    let (device, mount) = connect_on(block_device, &options.for_kernel())?;
    let served = serve(&filesystem, device, options).map_err(MountError::Session)?;
    if let Err(error) = mount.attach(&options.part, &mountpoint) {
        // The mount is gone, and its end has been told to the threads that serve it.
        served.session.join().map_err(MountError::Serve)?;
        return Err(error.into());
    }
    Ok(MountHandle::new(served, mountpoint, None, filesystem))
}

/// Number of the top level's root, as stat(2) tells it.
const TOP_LEVEL: u64 = 256;

/// Mounts a part of a filesystem that another process serves on a block device, by its path from the root.
pub fn mount_further(
    block_device: &Path,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<(), MountError> {
    let mountpoint = check_mountpoint(mountpoint)?;
    Ok(join(block_device, &options.for_kernel(), TOP_LEVEL)?.attach(&options.part, &mountpoint)?)
}

/// A connection to the kernel that is being served.
struct Served {
    channel: Arc<Channel>,
    session: Session,
    ending: Arc<Ending>,
}

fn serve(
    filesystem: &Arc<Filesystem>,
    device: std::os::fd::OwnedFd,
    options: &MountOptions,
) -> std::io::Result<Served> {
    let operations = Arc::new(Operations::new(filesystem, options)?);
    let refusal = || std::io::Error::other("io_uring=on and auto_unmount don't go together");
    let rings = options.ring_use().ok_or_else(refusal)?;
    let wishes = wishes(operations.mode.is_written(), options.default_permissions, rings);
    let (channel, agreement) = Channel::open(device, &wishes)?;
    let channel = Arc::new(channel);
    operations.invalidations.set_kernel_cache(Box::new(NotifiedKernel(channel.notifier())));
    filesystem.set_autodefrag(options.autodefrag);
    let upkeep = || {
        let kept_up = UpkeepOptions { destage: options.destage, auto_defragment: options.auto_defragment };
        Upkeep::start(
            Arc::clone(filesystem),
            Arc::clone(&operations.remount) as Arc<dyn UpkeepOwner>,
            kept_up,
        )
    };
    let upkeep = operations.mode.is_written().then(upkeep).transpose()?;
    let ending = Arc::new(Ending::new(Arc::clone(&operations), Arc::clone(filesystem), upkeep));
    let adapter = Adapter::new(operations, OpensAlone::of(&agreement), Arc::clone(&ending))?;
    let session = Session::start(&channel, &Arc::new(adapter), options.thread_count())?;
    Ok(Served { channel, session, ending })
}

fn check_mountpoint(path: &Path) -> Result<PathBuf, MountError> {
    let explain = |error: std::io::Error| match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => MountError::NoMountpoint(path.to_owned()),
        Some(Errno::NOTDIR) => MountError::NotADirectory(path.to_owned()),
        Some(Errno::NOTCONN) => MountError::DeadMount(path.to_owned()),
        _ => MountError::Mountpoint { path: path.to_owned(), source: error },
    };
    let canonical = path.canonicalize().map_err(explain)?;
    if !std::fs::metadata(&canonical).map_err(explain)?.is_dir() {
        return Err(MountError::NotADirectory(path.to_owned()));
    }
    // Attributes may be remembered from a server that is gone; this is asked anew each time.
    rustix::fs::statfs(&canonical).map_err(|error| explain(error.into()))?;
    Ok(canonical)
}

impl MountHandle {
    fn new(served: Served, mountpoint: PathBuf, guard: Option<Guard>, filesystem: Arc<Filesystem>) -> Self {
        let Served { channel, session, ending } = served;
        let id = MountId::on(&mountpoint);
        let place = Place { mountpoint, id, channel, guard: Mutex::new(guard) };
        place.widen_readahead();
        Self { session: Some(session), ending, place: Arc::new(place), filesystem }
    }

    /// Mount point.
    pub fn mountpoint(&self) -> &Path {
        &self.place.mountpoint
    }

    /// A handle to unmount by, for another thread.
    pub fn unmount_handle(&self) -> UnmountHandle {
        UnmountHandle { place: Arc::clone(&self.place), filesystem: Arc::clone(&self.filesystem) }
    }

    /// The way to abort the connection, for another process, should this one be killed.
    ///
    /// # Errors
    /// Those of [`Abort::open`]; a mount that is not in the table, or has ended.
    pub fn abort(&self) -> std::io::Result<Abort> {
        let not_found = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let connection = self.place.id.as_ref().and_then(MountId::connection).ok_or_else(not_found)?;
        let abort = Abort::open(connection)?;
        // The number was ours all the time, and what was opened is so.
        if self.place.channel.is_connected() { Ok(abort) } else { Err(not_found()) }
    }

    /// Waits until the filesystem is unmounted, by whomever, and everything that was written is durable.
    pub fn wait(mut self) -> Result<(), MountError> {
        let served = self.end();
        // The connection may have ended without an unmount: aborted, or because of an error. A filesystem that
        // answers there was mounted over it meanwhile.
        if self.place.is_dead() {
            self.place.unmount(UnmountFlags::DETACH).ok();
        }
        served
    }

    /// Waits for the end of the mount, and makes durable what was written.
    fn end(&mut self) -> Result<(), MountError> {
        let served = self.session.take().map_or(Ok(()), Session::join).map_err(MountError::Serve);
        self.ending.finish();
        match self.ending.take_error() {
            Some(error) => Err(MountError::Lost(Box::new(error))),
            None => served,
        }
    }

    /// Unmounts; [`wait`](Self::wait) then returns. Fails if the mount is busy, which then goes on.
    pub fn unmount(&self) -> Result<(), MountError> {
        self.place.unmount(UnmountFlags::empty())
    }
}

impl Drop for MountHandle {
    fn drop(&mut self) {
        if self.session.is_none() {
            return;
        }
        if self.unmount().is_err() {
            self.place.unmount(UnmountFlags::DETACH).ok();
            return;
        }
        if let Err(error) = self.end() {
            tracing::error!("{error}");
        }
    }
}

impl UnmountHandle {
    /// Mount point.
    pub fn mountpoint(&self) -> &Path {
        &self.place.mountpoint
    }

    /// Unmounts; [`MountHandle::wait`] then returns. Fails if the mount is busy, which then goes on. Does nothing
    /// if it is unmounted already.
    pub fn unmount(&self) -> Result<(), MountError> {
        self.place.unmount(UnmountFlags::empty())
    }

    /// Makes durable what was written so far, whether or not the mount can end.
    pub fn sync(&self) -> Result<(), MountError> {
        if self.filesystem.is_writable() {
            self.filesystem.sync().map_err(|error| MountError::Lost(Box::new(error)))?;
        }
        Ok(())
    }

    /// Takes the mount out of the tree at once, even if it is busy; it is served until its last user has gone,
    /// and [`MountHandle::wait`] returns then.
    pub fn detach(&self) -> Result<(), MountError> {
        self.place.unmount(UnmountFlags::DETACH)
    }
}

impl Place {
    /// Unmounts every mount of the filesystem, the last one first.
    fn unmount(&self, how: UnmountFlags) -> Result<(), MountError> {
        for at in self.all().iter().rev() {
            if how.is_empty() {
                self.take_closings(at);
            }
            brindle_transport::unmount(at, how)?;
        }
        drop(self.guard.lock().unwrap_or_else(PoisonError::into_inner).take());
        Ok(())
    }

    /// Has the closings of files taken. The kernel does not wait for their answers, and drops those that are not taken yet. They
    /// are before this question in the queue; and rings have a queue for each processor.
    fn take_closings(&self, at: &Path) {
        let queues = self.channel.queues();
        let allowed = (queues > 1).then(|| sched_getaffinity(None).ok()).flatten();
        if let Some(allowed) = allowed {
            for queue in (0..usize::from(queues)).filter(|queue| allowed.is_set(*queue)) {
                let mut one = CpuSet::new();
                one.set(queue);
                sched_setaffinity(None, &one).ok();
                rustix::fs::statfs(at).ok();
            }
            sched_setaffinity(None, &allowed).ok();
        } else {
            rustix::fs::statfs(at).ok();
        }
    }

    /// The places where the filesystem is mounted. The number of a filesystem that is gone is given to the next one, wherever
    /// that is: so it counts only until the kernel has ended the connection.
    fn all(&self) -> Vec<PathBuf> {
        match &self.id {
            _ if !self.channel.is_connected() => Vec::new(),
            None => vec![self.mountpoint.clone()],
            Some(id) => id.places(),
        }
    }

    /// Returns true if the filesystem mounted there has lost its server.
    fn is_dead(&self) -> bool {
        matches!(rustix::fs::stat(&self.mountpoint), Err(Errno::NOTCONN | Errno::CONNABORTED))
    }

    /// Lets the kernel read further ahead than its usual 128 KiB. Only root may; others do without.
    fn widen_readahead(&self) {
        const READAHEAD_KIB: &str = "2048";
        if let Some(id) = &self.id {
            // A mount on a block device has the number of that, and a readahead of its own.
            let knob = |suffix: &str| format!("/sys/class/bdi/{}{suffix}/read_ahead_kb", id.as_str());
            let own = knob("-fuseblk");
            let knob = if Path::new(&own).exists() { own } else { knob("") };
            if let Err(error) = std::fs::write(&knob, READAHEAD_KIB) {
                tracing::debug!("{knob}: {error}");
            }
        }
    }
}

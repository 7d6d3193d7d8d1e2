//! A pool in three guises: mounted by the kernel, mounted by brindle, or on devices that nothing has mounted. [`Reach::of`]
//! decides between them, for all commands. [`PoolFacts`] asks, and [`PoolAdmin`] changes; each guise answers both, or refuses
//! by an error that names the tool for it.
//!
//! A long job runs where its guise has it: in the kernel, in the process that serves the mount, or in the caller. All of them
//! tell the caller's observer their progress, and take its control to go on, pause or cancel.

mod change;
mod error;
mod identity;
mod kernel;
mod kernel_balance;
mod kernel_replace;
mod offline;
mod replace;
mod served;
pub mod tiers;

pub use change::{Change, Changed};
pub use error::AdminError;
pub use identity::DeviceIdentity;
pub(crate) use identity::target_mark;
pub use kernel::KernelMount;
pub use offline::{OpenPool, inventory};
pub use replace::{InterruptedReplacement, ReplaceState, ReplaceStatus};
pub use served::BrindleMount;

use crate::balance::BalanceState;
use crate::control::{ControlError, Mounted};
use crate::tier::{FencedPool, Inventory, TierError};
use brindle_care::device::NewSize;
use brindle_care::job::{Control, Ended, Observer, Progress};
use brindle_ondisk::{DevId, Uuid};
use brindle_policy::balance::Balance;
use brindle_policy::class::DeviceClasses;
use brindle_tree::Pool;
use brindle_uapi::message::text;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time between two looks at a job that another process does.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Way to a pool that the operands of a command name.
#[derive(Debug)]
pub enum Reach {
    /// A directory of a mount of the kernel.
    Kernel(KernelMount),
    /// A directory of a mount of brindle.
    Brindle(BrindleMount),
    /// The devices of a pool that is not mounted.
    Devices(Vec<PathBuf>),
}

impl Reach {
    /// The way to the pool of one directory, or of devices.
    pub fn of(paths: &[PathBuf]) -> Result<Self, AdminError> {
        match paths {
            [path] if path.is_dir() => Self::of_mount(path),
            paths if paths.iter().any(|path| path.is_dir()) => Err(AdminError::Mixed),
            paths => match paths.iter().find_map(|path| ControlError::of_dead_mount(path)) {
                Some(error) => Err(error.into()),
                None => Ok(Self::Devices(paths.to_vec())),
            },
        }
    }

    /// The way to the pool that is mounted at a path.
    pub fn of_mount(path: &Path) -> Result<Self, AdminError> {
        Ok(Mounted::open(path)?.into())
    }

    /// The mount, of the kernel or of brindle; `None` for devices.
    pub fn mounted(&self) -> Option<&Mounted> {
        match self {
            Self::Kernel(KernelMount(mounted)) | Self::Brindle(BrindleMount(mounted)) => Some(mounted),
            Self::Devices(_) => None,
        }
    }

    /// The mount itself.
    pub fn into_mounted(self) -> Option<Mounted> {
        match self {
            Self::Kernel(KernelMount(mounted)) | Self::Brindle(BrindleMount(mounted)) => Some(mounted),
            Self::Devices(_) => None,
        }
    }

    /// UUID of the pool; `None` if the first device holds no pool.
    pub fn fsid(&self) -> Result<Option<Uuid>, AdminError> {
        if let Some(mounted) = self.mounted() {
            return Ok(Some(Uuid(mounted.filesystem()?.fsid)));
        }
        let Self::Devices(devices) = self else { return Ok(None) };
        let Some(path) = devices.first() else { return Ok(None) };
        Ok(DeviceIdentity::read(path)?.map(|device| device.fsid))
    }

    /// Facts of the pool. `open` opens devices that are not mounted, to read them.
    pub fn ask<E: From<AdminError>>(
        self,
        open: impl FnOnce(&[PathBuf]) -> Result<Pool, E>,
    ) -> Result<Box<dyn PoolFacts>, E> {
        Ok(match self {
            Self::Kernel(mount) => Box::new(mount),
            Self::Brindle(mount) => Box::new(mount),
            Self::Devices(devices) => Box::new(open(&devices)?),
        })
    }

    /// Administration of the pool. `open` opens devices that are not mounted.
    pub fn administer<E: From<AdminError>>(
        self,
        open: impl FnOnce(Vec<PathBuf>) -> Result<OpenPool, E>,
    ) -> Result<Box<dyn PoolAdmin>, E> {
        Ok(match self {
            Self::Kernel(mount) => Box::new(mount),
            Self::Brindle(mount) => Box::new(mount),
            Self::Devices(devices) => Box::new(open(devices)?),
        })
    }
}

impl From<Mounted> for Reach {
    fn from(mounted: Mounted) -> Self {
        if mounted.is_of_kernel() {
            Self::Kernel(KernelMount(mounted))
        } else {
            Self::Brindle(BrindleMount(mounted))
        }
    }
}

/// A device of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub devid: DevId,
    /// Its UUID.
    pub uuid: Uuid,
    /// Its size, in bytes.
    pub total_bytes: u64,
    /// The device is not there.
    pub is_missing: bool,
}

/// Leaves that a defragmentation has been through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefragmentProgress {
    /// Number of those seen.
    pub leaves: u64,
    /// Number of those written anew.
    pub moved: u64,
}

/// Receiver of the progress of a defragmentation after each piece.
pub type DefragmentObserver<'o> = &'o mut dyn FnMut(&DefragmentProgress) -> Control;

/// Error counters of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceErrors {
    /// Its id.
    pub devid: DevId,
    /// Its path; empty if it is missing.
    pub name: Vec<u8>,
    /// Failed writes, reads and flushes, wrong contents, and wrong generations, in the order of the format.
    pub counters: [u64; 5],
}

/// State of the balance of a pool.
#[derive(Clone, Debug)]
pub struct BalanceStatus {
    /// Running, paused (or interrupted), or none.
    pub state: BalanceState,
    /// The request that is kept in the pool, if it is known.
    pub balance: Option<Balance>,
    /// Progress; nothing where no process works on it.
    pub progress: Progress,
}

/// A balance to be carried out.
#[derive(Clone, Debug)]
pub struct BalanceJob {
    /// The request; `None` to go on with an interrupted one.
    pub balance: Option<Balance>,
    /// Metadata may have fewer copies afterwards.
    pub force: bool,
    /// Limit in bytes a second.
    pub rate: Option<u64>,
}

/// Facts of a pool.
pub trait PoolFacts {
    /// UUID of the pool.
    fn fsid(&self) -> Result<Uuid, AdminError>;
    /// Devices of the pool.
    fn members(&self) -> Result<Vec<Member>, AdminError>;
    /// Devices with their stored hints, and chunks with the bytes used of them, as of the last commit.
    fn inventory(&self) -> Result<Inventory, AdminError>;
    /// Classes of devices that the owner has listed.
    fn classes(&self) -> Result<DeviceClasses, AdminError>;
    /// State of the balance.
    fn balance_status(&self) -> Result<BalanceStatus, AdminError>;
    /// Error counters of all devices.
    fn device_errors(&self) -> Result<Vec<DeviceErrors>, AdminError>;
    /// State of the replacement of a device, running or the last one.
    fn replace_status(&self) -> Result<ReplaceStatus, AdminError>;
}

/// Changes of a pool.
pub trait PoolAdmin: PoolFacts {
    /// Carries a balance out; returns at its end.
    fn balance(&self, job: &BalanceJob, observer: Observer<'_>) -> Result<Ended, AdminError>;
    /// Pauses a balance that runs, and waits for its end. Returns false without one.
    fn pause_balance(&self) -> Result<bool, AdminError>;
    /// Cancels a balance that runs, is paused or was interrupted, and waits for its end. Returns false without one.
    fn cancel_balance(&self) -> Result<bool, AdminError>;
    /// Ends a replacement, or the return of a device, that another process has begun, and waits for its end. Returns false
    /// without one.
    fn cancel_replace(&self) -> Result<bool, AdminError>;
    /// Carries a change of devices out, but for the name of a class; returns at its end.
    fn carry_out(&self, change: &Change, observer: Observer<'_>) -> Result<Changed, AdminError>;
    /// Stores other classes of devices.
    fn set_classes(&self, classes: &DeviceClasses) -> Result<(), AdminError>;
    /// Defragments metadata a piece at a time, of the whole pool or of the subvolume of the mount's directory. A pause ends it as a
    /// cancellation does. Returns the last answer of the observer: [`Control::Continue`] if all is defragmented.
    fn defragment(&self, whole_pool: bool, observer: DefragmentObserver<'_>) -> Result<Control, AdminError>;
    /// Sets the error counters of all devices to zero. Returns those before.
    fn reset_device_errors(&self) -> Result<Vec<DeviceErrors>, AdminError>;
    /// Makes everything durable and closes a pool that the caller has opened; a mount stays.
    fn close(&self) -> Result<(), AdminError>;

    /// Carries a change of devices out; returns at its end. A device joins with its class, or, if there can be none of that name, not
    /// at all.
    fn change_devices(&self, change: &Change, observer: Observer<'_>) -> Result<Changed, AdminError> {
        let Change::Add { class_name: Some(name), .. } = change else {
            return self.carry_out(change, observer);
        };
        self.classes()?.assign(Uuid::NIL, name)?;
        let changed = self.carry_out(change, observer)?;
        let devid = changed.devid.unwrap_or(0);
        self.set_class(devid, name).map_err(|error| AdminError::ClassNotStored {
            devid,
            name: name.clone(),
            source: Box::new(error),
        })?;
        Ok(changed)
    }

    /// Makes a device one of a class that is listed.
    fn set_class(&self, devid: u64, name: &str) -> Result<(), AdminError> {
        let mut classes = self.classes()?;
        let device = self.members()?.into_iter().find(|member| member.devid.get() == devid);
        classes.assign(device.ok_or(AdminError::NoDevice(devid))?.uuid, name)?;
        self.set_classes(&classes)
    }

    /// Gives up an interrupted balance of misplaced block groups alone: the next one goes on with its work. Returns false
    /// without one.
    fn forget_misplaced(&self) -> Result<bool, AdminError> {
        let status = self.balance_status()?;
        let is_meant = status.balance.is_some_and(|kept| kept.is_for_misplaced_alone());
        Ok(status.state == BalanceState::Paused && is_meant && self.cancel_balance()?)
    }

    /// Ends the balance of a single chunk that a crash has left: no device can be resized beside it.
    fn end_balance_of_chunk(&self) -> Result<(), AdminError> {
        let status = self.balance_status()?;
        let is_meant = status.balance.is_some_and(|kept| kept.is_for_one_chunk());
        if status.state == BalanceState::Paused && is_meant {
            self.cancel_balance()?;
        }
        Ok(())
    }
}

impl FencedPool for dyn PoolAdmin {
    type Error = AdminError;

    fn device(&self, devid: DevId) -> Result<Option<(Uuid, u64)>, AdminError> {
        let mut members = self.members()?.into_iter();
        let found = members.find(|member| member.devid == devid);
        Ok(found.map(|member| (member.uuid, member.total_bytes)))
    }

    fn resize(&self, devid: DevId, bytes: u64) -> Result<(), AdminError> {
        let change = Change::Resize(devid, NewSize::To(bytes));
        match self.change_devices(&change, &mut |_| Control::Continue)?.control {
            Control::Continue => Ok(()),
            Control::Pause | Control::Cancel => Err(AdminError::Stopped(devid)),
        }
    }

    fn end_balance_of_chunk(&self) -> Result<(), AdminError> {
        PoolAdmin::end_balance_of_chunk(self)
    }
}

impl From<TierError> for AdminError {
    fn from(error: TierError) -> Self {
        match error {
            TierError::Control(error) => Self::Control(error),
            error => Self::Tier(error),
        }
    }
}

/// Devices of a mount.
fn members_of(mounted: &Mounted) -> Result<Vec<Member>, AdminError> {
    let member = |device: brindle_uapi::message::DeviceInfo| Member {
        devid: DevId::new(device.devid),
        uuid: Uuid(device.uuid),
        total_bytes: device.total_bytes,
        is_missing: device.path[0] == 0,
    };
    Ok(mounted.device_infos()?.into_iter().map(member).collect())
}

/// Error counters of the devices of a mount; set to zero with the same request if `reset`.
fn device_errors_of(mounted: &Mounted, reset: bool) -> Result<Vec<DeviceErrors>, AdminError> {
    let of_one = |device: brindle_uapi::message::DeviceInfo| {
        let counters = mounted.device_statistics(device.devid, reset)?;
        Ok(DeviceErrors { devid: DevId::new(device.devid), name: text(&device.path).to_vec(), counters })
    };
    mounted.device_infos()?.into_iter().map(of_one).collect()
}

//! Devices that are not there. [`Recorder`] hands out devices in memory that write down, in one order, what is
//! done to all of them, and [`Recording`] makes of it the devices as a crash at any point leaves them;
//! [`FaultyDevice`] fails as its script says; [`InterruptedDevice`] has something done before a write; [`ModelDevice`] answers when a hard disk, a SATA SSD or an NVMe drive would,
//! in [`VirtualTime`], and a [`RealDrive`] in real time. Everything but the latter follows from a seed.
//! Must not know: btrfs.

mod change;
mod drive;
mod faulty;
mod image;
mod image_device;
mod interrupted;
mod loss;
mod model_device;
mod random;
mod real_time;
mod recorder;
mod replay;
mod virtual_time;

#[cfg(test)]
mod tests;

pub use change::{Change, Tear};
pub use drive::{
    Completion, Drive, DriveCounts, DriveRequest, DriveRequestKind, HardDisk, HardDiskParameters,
    ShingleParameters, Solid, SolidParameters,
};
pub use faulty::{Counts, Fault, FaultyDevice};
pub use image::{Image, PAGE_BYTES};
pub use image_device::ImageDevice;
pub use interrupted::InterruptedDevice;
pub use loss::{LossMode, WriteOutcome};
pub use model_device::ModelDevice;
pub use random::Random;
pub use real_time::{Lateness, Load, RealDrive};
pub use recorder::{CrashDevice, Event, EventKind, Recorder};
pub use replay::{CrashState, Loss, Recording, Replay};
pub use virtual_time::{Ticket, VirtualTime};

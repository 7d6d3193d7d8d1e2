//! Devices that are not there. [`Recorder`] hands out devices in memory that write down, in one order, what is
//! done to all of them, and [`Recording`] makes of it the devices as a crash at any point leaves them;
//! [`FaultyDevice`] fails as its script says. Everything follows from a seed.
//! Must not know: btrfs.

mod change;
mod faulty;
mod image;
mod image_device;
mod loss;
mod random;
mod recorder;
mod replay;

#[cfg(test)]
mod tests;

pub use change::{Change, Tear};
pub use faulty::{Counts, Fault, FaultyDevice};
pub use image::{Image, PAGE_BYTES};
pub use image_device::ImageDevice;
pub use loss::{Fate, LossMode};
pub use random::Random;
pub use recorder::{CrashDevice, Event, EventKind, Recorder};
pub use replay::{CrashState, Loss, Recording, Replay};

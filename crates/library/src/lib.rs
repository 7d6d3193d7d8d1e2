//! A btrfs pool in a program: files read and written by path, without a mount and without root.
//!
//! ```
//! use brindle_pool::Pool;
//! use std::io::Read;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use brindle_care::mkfs::{MkfsOptions, NewDevice, mkfs};
//! # let image = tempfile::NamedTempFile::new()?;
//! # image.as_file().set_len(256 << 20)?;
//! # let device = brindle_device::FileDevice::open_writable(image.path())?;
//! # let options = MkfsOptions::new(brindle_ondisk::Uuid([7; 16]), [9; 16], 1_700_000_000);
//! # mkfs(&[NewDevice::new(std::sync::Arc::new(device))], &options)?;
//! let pool = Pool::options().write(true).open([image.path()])?;
//! pool.create_dir_all("srv/notes")?;
//! pool.write("srv/notes/today", b"buy a disk")?;
//! let mut text = String::new();
//! pool.open_file("srv/notes/today")?.read_to_string(&mut text)?;
//! for entry in pool.read_dir("srv/notes")? {
//!     println!("{}", entry?.name().to_string_lossy());
//! }
//! pool.close()?;
//! # assert_eq!(text, "buy a disk");
//! # Ok(())
//! # }
//! ```
//!
//! The walk of a call: a path is resolved from the root directory of the pool ([`walk`]), symbolic links included, and the
//! rest is an operation of [`brindle_fs::Filesystem`] on inodes. A pool that is written has the same upkeep as a mount: commits
//! every 30 seconds, deletions in the background, destaging ([`brindle_fs::Upkeep`]).
//!
//! **Durability.** What is written is durable after [`File::sync`], [`Pool::sync`] or [`Pool::close`], and with the next
//! commit otherwise. A [`Pool`] or [`File`] that is dropped loses nothing, but can only log an error that comes to light
//! then.
//!
//! **Permissions** are not checked: a caller with access to the devices is their root. **Threads** may share a pool and its
//! files. One process writes a pool at a time; what others wrote meanwhile is seen after it is opened anew.
//!
//! This interface is for programs. The crates below it, [`Pool::filesystem`] among them, change with the engine.
//! Must not know: FUSE, the command line.

mod directory;
mod error;
mod file;
mod options;
mod pool;
mod walk;

pub use brindle_fs::{
    AttributeChange, Attributes, ErrorKind, FileType, InodeId, NewTime, SpaceStatistics, Subvolume,
    SubvolumeChoice, Timestamp, WriteOptions, Xattr,
};
pub use directory::{DirEntry, ReadDir};
pub use error::Error;
pub use file::File;
pub use options::PoolOptions;
pub use pool::Pool;

/// The example of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

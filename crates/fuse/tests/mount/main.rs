//! Mounts held against the kernel's own. Needs root and FUSE.

mod reading;
mod replacing;
mod space;
mod subvolumes;
mod support;
mod writing;

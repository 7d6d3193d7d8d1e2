//! Mounts held against the kernel's own. Needs root and FUSE.

mod handles;
mod idmapped;
mod interfaces;
mod kernels_rules;
mod killed;
mod limits;
mod nameless;
mod quotas;
mod reading;
mod receiving;
mod replacing;
mod rings;
mod space;
mod subvolumes;
mod support;
mod times;
mod writing;

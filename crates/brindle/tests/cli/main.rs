//! The command line as its users meet it: the binary itself, on golden images, and side by side with
//! btrfs-progs 6.2 where that is installed. What needs root or a tool that is not there says that it was skipped.

mod administrator;
mod block_device;
mod boot;
mod cache;
mod check;
mod defragment;
mod devices;
mod documents;
mod durability;
mod ends;
mod failing;
mod files;
mod inspect;
mod lab;
mod logged;
mod lost;
mod metrics;
mod mount;
mod names;
mod nbd;
mod placement;
mod racing;
mod reads;
mod receive;
mod remount;
mod restore;
mod scrub;
mod send;
mod sorting;
mod status;
mod support;
mod syncs;
mod tier;
mod umount;
mod usage;

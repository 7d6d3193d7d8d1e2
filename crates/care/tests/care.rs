//! Pools made without root, examined by `brindle-check` and read by `brindle-fs`; and, with root and the tools,
//! by the kernel and btrfs-progs.

mod kernel;
mod offline;
mod support;

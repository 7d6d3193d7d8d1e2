//! Pools made in memory, examined by `brindle-check` and read by `brindle-fs`.

mod offline;
mod support;

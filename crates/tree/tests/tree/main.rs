//! Tests of the whole crate.

mod cursor;
mod readers;
mod stop;
mod writing;

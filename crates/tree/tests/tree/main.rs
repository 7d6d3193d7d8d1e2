//! Tests of the whole crate.

mod cursor;
mod difference;
mod readers;
mod stop;
mod writing;

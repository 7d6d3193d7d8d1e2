//! Schedules of threads, explored: each scenario runs a few threads in a small pool under many orders of their locks, and
//! then looks at what is in memory, on the device, and on what a crash would have left of it.
//!
//! A failure prints its schedule. `BRINDLE_REPLAY=<schedule> cargo test -p brindle-fs --features explore --test explore
//! <test>` goes through it again, and `BRINDLE_SCHEDULES=<number>` explores more of them.

mod apart;
mod commits;
mod logs;
mod orphans;
mod relocation;
mod space;
mod world;

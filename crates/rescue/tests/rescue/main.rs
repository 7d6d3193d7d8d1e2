//! Repairs of damaged pools: what is repaired is clean to the examiner and to the kernel, crashes leave the old or the new state, and
//! undoing gives the same bytes back.

mod chunk_kernel;
mod chunks;
mod crash;
mod damages;
mod kernel;
mod readmit;
mod repair;
mod support;
mod words;

//! Tiers of a pool in the long run: [`keep`](keep::keep) looks at a pool from time to time. What is misplaced is decided by
//! `brindle_policy::tier`, and moved by [`balance`](crate::balance), or by the kernel.

pub mod keep;

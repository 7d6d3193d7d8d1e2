//! Messages to a mount of ours about a balance, and its answers.

use super::work::WorkReport;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A balance to begin or go on with (ours).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BalanceStart {
    /// Its filters, as the pool keeps them (`btrfs_balance_item`); zeros, to go on with one.
    pub item: [u8; 448],
    /// No more bytes in a second; 0 for as many as can be.
    pub rate: u64,
    /// [`BALANCE_FORCE`], [`BALANCE_RESUME`].
    pub flags: u64,
}

/// Metadata may have fewer copies afterwards.
pub const BALANCE_FORCE: u64 = 1 << 0;
/// One that is paused, or was interrupted, goes on.
pub const BALANCE_RESUME: u64 = 1 << 1;

/// A balance that runs is to end for now (ours).
pub const BALANCE_STOP_PAUSE: u32 = 1;
/// A balance that runs, or is paused, is to end (ours).
pub const BALANCE_STOP_CANCEL: u32 = 2;

/// Progress of a balance (ours).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BalanceReport {
    /// Its filters; zeros if there is none.
    pub item: [u8; 448],
    /// [`BALANCE_REPORT_NONE`] and the following.
    pub state: u64,
    /// Its progress.
    pub work: WorkReport,
}

/// There is no balance.
pub const BALANCE_REPORT_NONE: u64 = 0;
/// One runs.
pub const BALANCE_REPORT_RUNNING: u64 = 1;
/// One is paused, or was interrupted.
pub const BALANCE_REPORT_PAUSED: u64 = 2;

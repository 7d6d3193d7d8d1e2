//! A read-only examiner of a whole pool, its passes a table ([`PASSES`]): everything that can be judged only
//! with more than one tree block at hand, and every block's own soundness besides.
//! Must not know: `tree`, `fs`. It has its own walk, so that it shares no bug with the writers.
//!
//! How it goes about it:
//!
//! - The shape of all trees is found level by level (`forest`): every tree block once, however many refer to
//!   it, in the order of addresses. Then the leaves are read, each once, by all cores (`walk`), and what
//!   the later passes need is gathered from each on the way (`gather`). The passes that follow judge it.
//! - What must agree between two places (an extent's back references and the references themselves, names in
//!   directories and in inodes, space allocated and free) is summed up from both sides as order-independent
//!   fingerprints (`fingerprint`), which take no memory worth the name. Only where sums differ a second,
//!   exact walk finds out what is wrong, looking at nothing but the buckets that differ.
//! - Whatever blocks snapshots share is summarised once (`files`): the summary of a node is put together
//!   from those of its children, and kept where more than one parent asks for it.
//!
//! Memory grows with the number of tree blocks (some fifty bytes each) and of sectors of data (three bits
//! each, where they are neither all alike, and up to three more where data or parity is bad), never with what
//! an item claims.

mod bootstrap;
mod examination;
mod facts;
mod files;
mod finding;
mod fingerprint;
mod forest;
mod gather;
mod ledger;
mod options;
mod owners;
mod page;
mod parallel;
mod pass;
mod passes;
mod reach;
mod read;
mod references;
mod regions;
mod report;
mod roots;
mod run;
mod sectors;
mod space;
mod walk;

pub use bootstrap::{Pool, open};
pub use finding::{Finding, Reference, TreeName};
pub use options::{CheckOptions, NoProgress, Progress};
pub use pass::{Needs, PASSES, Pass};
pub use report::{Findings, PassReport, Report, Statistics};

use brindle_device::Device;
use brindle_volume::VolumeError;
use std::sync::Arc;

/// Opens a pool and examines it. An error means that there is no pool to examine; whatever is wrong with one
/// is in the report.
pub fn check(
    devices: Vec<Arc<dyn Device>>,
    options: &CheckOptions,
    progress: &dyn Progress,
) -> Result<Report, VolumeError> {
    Ok(open(devices, options)?.examine(options, progress))
}

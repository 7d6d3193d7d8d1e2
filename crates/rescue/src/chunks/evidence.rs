//! Everything that proves chunks.

use super::gather::Facts;
use super::members::Members;
use super::scan::Scan;
use brindle_ondisk::TreeContext;

/// The devices, the blocks seen on them, and the facts of the last commit.
pub(crate) struct Evidence<'a> {
    pub(crate) members: &'a Members,
    pub(crate) scan: &'a Scan,
    pub(crate) facts: &'a Facts,
    pub(crate) context: &'a TreeContext,
}

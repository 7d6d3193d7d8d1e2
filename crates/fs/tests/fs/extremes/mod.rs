//! Extremes of fullness, number and depth: pools in memory.

mod copied;
mod dropping;
mod full;
mod many;
mod refused;

use crate::simulated::Layout;
use brindle_fs::{Filesystem, FsError, NewInode, Remaining, TreeError};
use brindle_ondisk::Profile;

/// One small device.
const SMALL: Layout = Layout {
    devices: 1,
    device_mib: 128,
    data: Profile::Single,
    metadata: Profile::Dup,
    nodesize: 4096,
    features: "",
    compression: None,
    fast: 0,
};

/// A plain file.
fn file() -> NewInode<'static> {
    NewInode { mode: 0o100_644, ..NewInode::default() }
}

fn is_no_space(error: &FsError) -> bool {
    matches!(error, FsError::Tree(TreeError::NoSpace(_)))
}

/// Runs the background work until nothing of it is left.
fn clean_up(fs: &Filesystem) {
    loop {
        while fs.background_step().expect("what frees space is always possible") == Remaining::More {}
        fs.sync().expect("a commit is always possible");
        if fs.background_step().expect("what frees space is always possible") == Remaining::Nothing {
            return;
        }
    }
}

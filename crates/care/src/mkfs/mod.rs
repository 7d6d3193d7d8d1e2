//! Making a pool.
//!
//! There is no running filesystem that could be asked to allocate and insert: the whole pool is computed first
//! (see the walk in [the crate's documentation](crate)), and then written once.

mod error;
mod items;
mod options;
mod plan;
mod report;
pub mod signature;
mod superblock;
mod trees;
pub(crate) mod write;

pub use brindle_policy::placement::{AllocationHint, PlacementClass};
pub use error::MkfsError;
pub use options::{Contents, FEATURES, FeatureName, Features, MkfsOptions, NewDevice};
pub use report::{MkfsReport, NewBlockGroup, PoolMember};

use crate::bulk::BlockFormat;
use plan::Plan;
pub(crate) use plan::SECTORSIZE;
use trees::Trees;

/// Makes a pool of these devices. Whatever they held is lost. Unless the error is [`MkfsError::Device`],
/// nothing has been written.
pub fn mkfs(given: &[NewDevice], options: &MkfsOptions) -> Result<MkfsReport, MkfsError> {
    for (index, new) in given.iter().enumerate() {
        let device = new.device.name();
        if given[..index].iter().any(|before| before.device.name() == device) {
            return Err(MkfsError::Duplicate { device: device.to_owned() });
        }
    }
    let plan = Plan::new(given, options)?;
    if !options.force {
        for new in given {
            if let Some(found) = signature::find(new.device.as_device())? {
                return Err(MkfsError::InUse { device: new.device.name().to_owned(), found });
            }
        }
    }
    let trees = Trees::build(&plan, options);
    let format = BlockFormat {
        nodesize: plan.nodesize,
        checksum: options.checksum,
        fsid: options.fsid,
        chunk_tree_uuid: plan.chunk_tree_uuid,
        generation: plan::GENERATION,
    };
    let superblock = superblock::of_pool(&plan, &trees, options);
    write::write(given, &plan, &trees, &format, &superblock, options)?;
    Ok(MkfsReport::new(given, &plan, &superblock, options))
}

//! The devices of a pool in use: one joins ([`add()`]), leaves ([`remove()`]), changes its size ([`resize()`]), is replaced by
//! another ([`replace()`]), or comes back ([`rejoin()`]).
//!
//! The walk of those that end with less: the rest of the pool is checked ([`DeviceCareError`]), from then on nothing new
//! is taken there, block groups that lie there are emptied one by one as a balance does it (`vacate.rs`), and when none is
//! left, one commit takes the device, or its end, out of the pool. A device that left loses its superblocks last, when
//! that commit is durable. One that joins is emptied of what it held first.
//!
//! The pool holds no record of it. Each step is a commit of its own and leaves a whole pool, of which part has moved;
//! a repeated request goes on where the last one ended, be it by a crash, by request of the caller, or for lack of
//! room.

mod add;
mod error;
mod mark;
mod rejoin;
mod remove;
mod renumber;
mod replace;
mod resize;
mod vacate;

pub use add::{AddOptions, Newcomer, add, open_device, prepare};
pub use brindle_volume::{LeaseFound, break_leases, find_leases, wipe_superblocks};
pub use error::DeviceCareError;
pub use mark::TargetMark;
pub use rejoin::{refusal_of_rejoin, rejoin};
pub use remove::{Leaving, remove};
pub use renumber::order_devids;
pub use replace::{ReplaceOptions, replace};
pub use resize::{NewSize, ParseSizeError, resize};

use crate::balance;
use brindle_ondisk::DevId;
use brindle_tree::{Pool, TreeError};
use brindle_volume::DeviceStatus;

/// A balance that was begun and not ended wants the devices that it was begun with.
fn check_no_balance(pool: &Pool) -> Result<(), DeviceCareError> {
    match balance::interrupted(pool)? {
        Some(_) => Err(DeviceCareError::BalanceUnderWay),
        None => Ok(()),
    }
}

/// A device of the pool that is no seed.
fn member(pool: &Pool, devid: DevId) -> Result<DeviceStatus, DeviceCareError> {
    let found = pool.volume().devices().into_iter().find(|device| device.devid == devid);
    let found = found.ok_or(DeviceCareError::NotThere { devid })?;
    if found.is_seed { Err(DeviceCareError::Seed { device: found.name }) } else { Ok(found) }
}

/// Does what is to be done in one commit, which says whether it could: not before what was freed is durably so.
fn when_vacant<T>(
    pool: &Pool,
    mut act: impl FnMut() -> Result<Option<T>, TreeError>,
) -> Result<T, TreeError> {
    /// A commit frees what the one before has emptied; others may be under way.
    const TRIES: usize = 10;
    for _ in 0..TRIES {
        if let Some(done) = act()? {
            pool.commit()?;
            return Ok(done);
        }
        // One with something to do, for others come to an end by the way.
        pool.exclusively(|_| Ok(()))?;
        pool.commit()?;
    }
    Err(TreeError::Unsettled)
}

//! Ids of devices, in an order in which fast devices can hold a log alone.

use super::{DeviceCareError, check_no_balance};
use brindle_ondisk::DevId;
use brindle_policy::log::{LogDevice, bulk_before_fast};
use brindle_policy::placement::PlacementClass;
use brindle_tree::Pool;

/// Gives bulk devices with lower ids than a fast one ids above all others, one after the other, each durable with a commit
/// of its own; the ids before and after. Nothing else uses the pool.
///
/// # Errors
/// A device that is missing or belongs to a seed, or a balance that is not ended: nothing has changed. Devices that fail: those
/// named by the log have their new ids.
pub fn order_devids(pool: &Pool) -> Result<Vec<(DevId, DevId)>, DeviceCareError> {
    let _alone = pool.begin_exclusive("tier apply --devids")?;
    check_no_balance(pool)?;
    let members = pool.volume().devices();
    for member in &members {
        if member.is_seed {
            return Err(DeviceCareError::Seed { device: member.name.clone() });
        }
        if member.missing {
            return Err(DeviceCareError::Missing { devid: member.devid });
        }
    }
    let devices: Vec<LogDevice> = pool
        .space_summary()?
        .devices
        .iter()
        .map(|device| LogDevice { devid: device.devid.get(), is_fast: device.class == PlacementClass::Fast })
        .collect();
    let highest = members.iter().map(|member| member.devid.get()).max().unwrap_or(0);
    let mut changed = Vec::new();
    for (devid, new) in bulk_before_fast(&devices).into_iter().zip(highest + 1..) {
        let (devid, new) = (DevId::new(devid), DevId::new(new));
        pool.renumber_device(devid, new)?;
        tracing::info!("devid {devid} is devid {new} now");
        changed.push((devid, new));
    }
    Ok(changed)
}

//! The superblocks by which a pool is entered, and the devices that belong to it.

use crate::error::RescueError;
use brindle_device::Device;
use brindle_ondisk::item::DevItem;
use brindle_ondisk::{DevId, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, SuperblockDefect, to_u64};
use std::sync::Arc;

/// A copy of a superblock that is right but for its system chunks.
#[derive(Clone, Debug)]
pub(crate) struct SoundCopy {
    pub(crate) offset: u64,
    pub(crate) superblock: Box<Superblock>,
}

/// Devices of a pool.
#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) devices: Vec<Arc<dyn Device>>,
    /// The newest superblock.
    pub(crate) superblock: Box<Superblock>,
    /// Superblocks of each device: copies of its highest generation.
    pub(crate) copies: Vec<Vec<SoundCopy>>,
}

impl Members {
    /// Finds the superblocks of one pool.
    ///
    /// # Errors
    /// Devices of several pools, or none with a superblock; a seed, of which the chunk map lies in two pools.
    pub(crate) fn find(devices: Vec<Arc<dyn Device>>) -> Result<Self, RescueError> {
        let copies: Vec<_> =
            devices.iter().map(|device| sound_copies(&**device)).collect::<Result<_, _>>()?;
        let mut newest: Option<&Superblock> = None;
        for (device, copies) in devices.iter().zip(&copies) {
            let Some(found) = copies.first().map(|copy| &*copy.superblock) else { continue };
            if let Some(other) = newest.filter(|other| other.fsid != found.fsid) {
                let (name, fsid, other) = (device.name(), found.fsid, other.fsid);
                return refuse(format!("{name} belongs to the pool {fsid}, not to {other}"));
            }
            if newest.is_none_or(|newest| newest.generation < found.generation) {
                newest = Some(found);
            }
        }
        let Some(newest) = newest else { return refuse("no device has a good superblock".to_owned()) };
        if newest.is_seeding() {
            return refuse("chunks of a seed are not recovered".to_owned());
        }
        let superblock = Box::new(newest.clone());
        let mut members = Self { devices, superblock, copies };
        members.leave_out_namesakes()?;
        Ok(members)
    }

    /// Of devices with one id the one with the newest superblock is the pool's.
    fn leave_out_namesakes(&mut self) -> Result<(), RescueError> {
        let all: Vec<_> = self.items().collect();
        let generation = |number: usize| self.copies[number].first().map(|copy| copy.superblock.generation);
        let mut left_out = Vec::new();
        for (number, item) in &all {
            let others = all.iter().filter(|(other, its)| its.devid == item.devid && other != number);
            for (other, _) in others {
                match generation(*number).cmp(&generation(*other)) {
                    std::cmp::Ordering::Less => left_out.push(*number),
                    std::cmp::Ordering::Equal => {
                        let (one, other) = (self.devices[*number].name(), self.devices[*other].name());
                        return refuse(format!("{one} and {other} are both devid {}", item.devid));
                    }
                    std::cmp::Ordering::Greater => {}
                }
            }
        }
        // The target of a replacement is no member before its end.
        left_out.extend(all.iter().filter(|(_, item)| item.devid.get() == 0).map(|(number, _)| *number));
        left_out.into_iter().for_each(|number| self.copies[number].clear());
        Ok(())
    }

    /// Leaves out devices with old superblocks that no chunk lies on, if the pool has all of its devices without them: they were removed.
    pub(crate) fn leave_out_removed(&mut self, is_used: impl Fn(DevId) -> bool) {
        let newest = self.superblock.generation;
        let is_old =
            |copies: &Vec<SoundCopy>| copies.first().is_some_and(|copy| copy.superblock.generation < newest);
        let present = self.items().count();
        let is_removed = |copies: &Vec<SoundCopy>| {
            is_old(copies) && copies.first().is_some_and(|copy| !is_used(copy.superblock.dev_item.devid))
        };
        let removed = self.copies.iter().filter(|copies| is_removed(copies)).count();
        if to_u64(present - removed) >= self.superblock.num_devices.get() {
            self.copies.iter_mut().filter(|copies| is_removed(copies)).for_each(Vec::clear);
        }
    }

    /// The number and the item of each device of the pool, as its superblock has it.
    pub(crate) fn items(&self) -> impl Iterator<Item = (usize, DevItem)> {
        let item = |(number, copies): (usize, &Vec<SoundCopy>)| {
            copies.first().map(|copy| (number, copy.superblock.dev_item))
        };
        self.copies.iter().enumerate().filter_map(item)
    }

    /// The number of a device among those that were given.
    pub(crate) fn number_of(&self, devid: DevId) -> Option<usize> {
        self.items().find(|(_, item)| item.devid == devid).map(|(number, _)| number)
    }
}

/// The copies of a device that have its highest generation, in the order of their places.
fn sound_copies(device: &dyn Device) -> Result<Vec<SoundCopy>, RescueError> {
    let mut copies: Vec<SoundCopy> = Vec::new();
    let fits = |offset: &u64| *offset + to_u64(SUPERBLOCK_SIZE) <= device.size_bytes();
    for offset in SUPERBLOCK_OFFSETS.into_iter().filter(fits) {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        if device.read_at(offset, &mut bytes).is_err() {
            continue;
        }
        match Superblock::parse_but_system_chunks(&bytes, offset) {
            Ok(superblock) => copies.push(SoundCopy { offset, superblock }),
            Err(defect @ (SuperblockDefect::Features(_) | SuperblockDefect::SectorSize(_))) => {
                return refuse(format!("{}: {defect}", device.name()));
            }
            Err(_) => {}
        }
    }
    let newest = copies.iter().map(|copy| copy.superblock.generation).max();
    copies.retain(|copy| Some(copy.superblock.generation) == newest);
    Ok(copies)
}

fn refuse<T>(why: String) -> Result<T, RescueError> {
    Err(RescueError::Refused(why))
}

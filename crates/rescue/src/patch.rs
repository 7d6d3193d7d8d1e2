//! Pages that are to be written, and writing them.

use crate::error::RescueError;
use brindle_device::WritableDevice;
use brindle_ondisk::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, to_u64};
use std::sync::Arc;

/// Upper bound on one write, in bytes.
const RUN_BYTES_MAX: usize = 1 << 20;

/// A page of a device that is to be written.
#[derive(Clone, Debug)]
pub struct Patch {
    /// Number of the device, in the order in which they were given.
    pub device: usize,
    /// Offset on it, in bytes.
    pub offset: u64,
    /// Present contents.
    pub old: Vec<u8>,
    /// Future contents, of the same length.
    pub new: Vec<u8>,
}

/// Amounts written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Pages.
    pub pages: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl Patch {
    /// Index of the superblock that the page is the place of.
    pub(crate) fn superblock(&self) -> Option<usize> {
        SUPERBLOCK_OFFSETS.iter().position(|offset| *offset == self.offset)
    }
}

/// Writes pages in their order, those that follow each other in one piece, and makes them durable.
pub(crate) fn write<'p>(
    devices: &[Arc<dyn WritableDevice>],
    patches: impl Iterator<Item = &'p Patch>,
    contents: impl Fn(&'p Patch) -> &'p Vec<u8>,
) -> Result<(), RescueError> {
    let mut run: Option<(usize, u64, Vec<u8>)> = None;
    let mut touched = vec![false; devices.len()];
    let put = |run: Option<(usize, u64, Vec<u8>)>| match run {
        Some((device, offset, bytes)) => devices[device].write_at(offset, &bytes),
        None => Ok(()),
    };
    for patch in patches {
        touched[patch.device] = true;
        match &mut run {
            Some((device, start, bytes))
                if *device == patch.device
                    && *start + to_u64(bytes.len()) == patch.offset
                    && bytes.len() < RUN_BYTES_MAX =>
            {
                bytes.extend_from_slice(contents(patch));
            }
            _ => put(run.replace((patch.device, patch.offset, contents(patch).clone())))?,
        }
    }
    put(run)?;
    for (device, _) in devices.iter().zip(touched).filter(|(_, touched)| *touched) {
        device.flush()?;
    }
    Ok(())
}

const _: () = assert!(SUPERBLOCK_SIZE == 4096, "a superblock is one page of an overlay");

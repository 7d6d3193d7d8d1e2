//! A device in memory.

use crate::file::fits;
use crate::{Device, DeviceError};

/// Bytes in memory, to be read as a device.
pub struct MemoryDevice {
    name: String,
    bytes: Vec<u8>,
}

impl MemoryDevice {
    /// A device of these bytes.
    pub fn new(name: impl Into<String>, bytes: Vec<u8>) -> Self {
        Self { name: name.into(), bytes }
    }
}

impl std::fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryDevice").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Device for MemoryDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let length = buffer.len();
        if !fits(offset, length, self.size_bytes()) {
            let size_bytes = self.size_bytes();
            return Err(DeviceError::BeyondEnd { device: self.name.clone(), offset, length, size_bytes });
        }
        let start = usize::try_from(offset).expect("an offset within memory fits usize");
        buffer.copy_from_slice(&self.bytes[start..start + length]);
        Ok(())
    }
}

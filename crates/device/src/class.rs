//! What kind of device this is, as the host sees it.

use rustix::fs::{Stat, major, minor};
use std::fs;
use std::path::Path;

/// How a device behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DeviceClass {
    /// Seeks cost nothing.
    Solid,
    /// Seeks cost a revolution.
    Rotating,
    /// The host doesn't say.
    #[default]
    Unknown,
}

impl DeviceClass {
    /// The class of a block device, or of the block device that holds an image file.
    pub(crate) fn of(stat: &Stat, is_block_device: bool) -> Self {
        let number = if is_block_device { stat.st_rdev } else { stat.st_dev };
        let node = format!("/sys/dev/block/{}:{}", major(number), minor(number));
        let node = Path::new(&node);
        // A partition has no queue of its own, its disk does.
        for queue in ["queue/rotational", "../queue/rotational"] {
            match fs::read_to_string(node.join(queue)).as_deref().map(str::trim) {
                Ok("0") => return Self::Solid,
                Ok("1") => return Self::Rotating,
                _ => {}
            }
        }
        Self::Unknown
    }
}

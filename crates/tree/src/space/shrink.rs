//! Shrinks devices whose end is unused.

use super::Space;
use brindle_ondisk::DevId;

impl Space {
    /// Makes each device end where its last chunk does; their sizes then, in bytes.
    pub(crate) fn shrink_devices(&self) -> Vec<(DevId, u64)> {
        let mut state = self.lock();
        let mut cut_bytes = 0;
        for device in &mut state.devices {
            let last = device.free.iter().next_back().filter(|free| free.end.get() == device.total_bytes);
            if let Some(unused) = last {
                device.free.remove(unused);
                device.total_bytes = unused.start.get();
                device.end = unused.start.get();
                device.is_changed = true;
                cut_bytes += unused.length();
            }
        }
        state.membership.cut_bytes += cut_bytes;
        state.devices.iter().map(|device| (device.devid, device.total_bytes)).collect()
    }
}

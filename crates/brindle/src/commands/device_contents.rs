//! Contents of the devices of a mounted pool: bytes of data, of metadata and of the write-back tier on each.

use brindle_admin::Mounted;
use brindle_policy::tier::{Content, TierChunk};
use std::collections::BTreeMap;
use std::path::Path;

/// Bytes of a device by content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceContents {
    /// Chunks of data, but for the write-back tier.
    pub(crate) data_bytes: u64,
    /// Chunks of metadata and of the system.
    pub(crate) metadata_bytes: u64,
    /// Chunks of the write-back tier.
    pub(crate) write_back_bytes: u64,
}

/// Contents of devices by their ids; `None` where the caller may not ask: only administrators may search trees.
pub(crate) fn contents_of(mount: &Path) -> Option<BTreeMap<u64, DeviceContents>> {
    let found = Mounted::open(mount).ok()?.inventory().ok()?;
    Some(contents(&found.chunks))
}

/// Bytes by device and content.
fn contents(chunks: &[TierChunk]) -> BTreeMap<u64, DeviceContents> {
    let mut all: BTreeMap<u64, DeviceContents> = BTreeMap::new();
    for chunk in chunks {
        // Each stripe has its share of the chunk's contents, copies and parity.
        let bytes = chunk.stripe_bytes();
        for stripe in &chunk.stripes {
            let device = all.entry(stripe.devid.get()).or_default();
            match chunk.content() {
                _ if chunk.is_write_back => device.write_back_bytes += bytes,
                Content::Data | Content::Mixed => device.data_bytes += bytes,
                Content::Metadata | Content::System => device.metadata_bytes += bytes,
            }
        }
    }
    all
}

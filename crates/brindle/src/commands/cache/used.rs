//! A cache as its user left it: with all blocks on the disk, or with some on the SSD alone.

use anyhow::{Result, bail};
use brindle_cache::{CacheWord, inspect};
use brindle_device::FileDevice;
use std::path::{Path, PathBuf};

/// Facts of a write-back cache in use, which are there after its end.
pub(crate) struct UsedCache {
    ssd: String,
    ssds: Vec<PathBuf>,
    disk: String,
    dirty_bytes: u64,
}

impl UsedCache {
    /// The cache that reports these lines; none for a mode in which the disk has everything.
    pub(crate) fn of(lines: &[(String, String)]) -> Option<Self> {
        let find = |name: &str| lines.iter().find(|(found, _)| found == name).map(|(_, value)| &**value);
        let number = |name: &str| find(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
        let (ssd, disk) = (find("ssd")?.to_owned(), find("disk")?.to_owned());
        if find("mode") != Some("back") {
            return None;
        }
        let word = CacheWord::parse(Path::new(&format!("cache:{ssd}:{disk}"))).ok().flatten();
        let ssds = word
            .map_or_else(Vec::new, |word| [Some(word.flash), word.mirror].into_iter().flatten().collect());
        let dirty_bytes = number("dirty_blocks") * number("block_bytes");
        Some(Self { ssd, ssds, disk, dirty_bytes })
    }

    /// Fails if blocks were left on the SSD that should be on the disk: its end tells.
    pub(crate) fn check_closed(&self) -> Result<()> {
        let is_closed = |ssd: &PathBuf| {
            FileDevice::open(ssd).is_ok_and(|device| inspect(&device).is_ok_and(|facts| facts.is_closed))
        };
        if self.ssds.iter().any(is_closed) {
            return Ok(());
        }
        bail!("the cache was not closed: {}", self.waiting())
    }

    /// Place and number of the bytes that wait for the disk, and the way to have them there.
    pub(crate) fn waiting(&self) -> String {
        let Self { ssd, disk, dirty_bytes, .. } = self;
        format!(
            "{dirty_bytes} bytes wait on {ssd} for {disk}, which can't be used alone: use both once more when they work \
             (`brindle cache load`, `brindle cache stop`), or give these bytes up with `brindle cache destroy --force`"
        )
    }
}

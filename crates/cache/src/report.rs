//! Facts, settings and counters of a cache in use as text, and settings by name: the words of `brindle cache stat` and `set`.

use crate::CacheError;
use crate::engine::{Cache, CacheStatus, GivenUpSsd, MirrorState};
use crate::latency::Latencies;
use crate::settings::Change;
use crate::statistics::ALWAYS_ZERO;
use brindle_device::WritableDevice;
use std::fmt::Display;

impl CacheStatus {
    /// Names and values, in the order in which they are shown.
    #[must_use]
    pub fn lines(&self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        let mut line = |name: &str, value: &dyn Display| lines.push((name.to_owned(), value.to_string()));
        line("name", &self.name);
        line("mode", &self.mode);
        line("ssd", &self.flash);
        match &self.mirror {
            None => {}
            Some(MirrorState::InSync) => line("mirror", &"in sync"),
            Some(MirrorState::Degraded { failed: None }) => line("mirror", &"degraded: one SSD is away"),
            Some(MirrorState::Degraded { failed: Some(failed) }) => {
                line("mirror", &format_args!("degraded: {failed} failed"));
            }
        }
        if let Some(GivenUpSsd { ssd, since }) = &self.given_up {
            line("given_up", ssd);
            line("given_up_since", since);
        }
        line("disk", &self.disk);
        match (&self.stopped, &self.disk_failure) {
            (Some(why), _) => line("state", why),
            (None, Some(error)) => line("state", &format_args!("the disk fails: {error}")),
            (None, None) if self.is_flash_off => line("state", &"without the SSD"),
            (None, None) => line("state", &"in use"),
        }
        line("veiled", &u8::from(self.is_veiled));
        line("disk_bytes", &self.disk_bytes);
        line("block_bytes", &self.block_bytes);
        line("associativity", &self.associativity);
        line("blocks", &self.slots);
        line("cached_blocks", &self.cached_blocks);
        line("dirty_blocks", &self.dirty_blocks);
        for (name, value) in self.settings.list() {
            line(name, &value);
        }
        if let Some(left) = self.wear_left_bytes {
            line("wear_left_bytes", &left);
        }
        line("ssd_lifetime_write_bytes", &self.written_bytes);
        let counters = self.counters;
        let percent = |part: u64, of: u64| part.saturating_mul(100).checked_div(of).unwrap_or(0);
        line("read_hit_percent", &percent(counters.read_hits, counters.reads));
        line("write_hit_percent", &percent(counters.write_hits, counters.writes));
        line("dirty_write_hit_percent", &percent(counters.dirty_write_hits, counters.writes));
        for (name, value) in counters.list() {
            line(name, &value);
        }
        for name in ALWAYS_ZERO {
            line(name, &0);
        }
        let Latencies { reads, writes, flushes } = &self.latencies;
        for (name, histogram) in [("read", reads), ("write", writes), ("flush", flushes)] {
            for (bucket, count) in histogram.buckets() {
                line(&format!("{name}_latency_us_{bucket}"), &count);
            }
        }
        lines
    }
}

impl Cache {
    /// Changes a setting, or does the one thing that a word asks for ([`Change`]).
    ///
    /// # Errors
    /// [`CacheError::Setting`], those of the devices.
    pub fn change(&self, name: &str, value: &str) -> Result<(), CacheError> {
        match Change::parse(name, value)? {
            Change::Nothing => {}
            Change::ZeroCounters => self.zero_counters(),
            Change::StopSync => self.stop_sync(),
            Change::Grow => {
                let size = self.refresh_size()?;
                tracing::info!("{}: the disk has {size} bytes", self.name);
            }
            Change::Sync => {
                let left = self.sync()?;
                tracing::info!("{}: cleaned; {left} blocks are dirty", self.name);
            }
            Change::Setting => self.set(name, value)?,
        }
        Ok(())
    }
}

//! Settings that may be changed while a cache is in use, under flashcache's names.

mod foreign;

use crate::CacheError;
use brindle_policy::cache::replacement::ReclaimPolicy;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Ways in which a cache treats writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Writes go to the flash, and later to the disk.
    Back,
    /// Writes go to both.
    Through,
    /// Writes go to the disk.
    Around,
}

impl Mode {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Back, Self::Through, Self::Around];

    /// Its name, as flashcache has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Back => "back",
            Self::Through => "thru",
            Self::Around => "around",
        }
    }

    /// Its number on flash: flashcache's.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Back => 1,
            Self::Through => 2,
            Self::Around => 3,
        }
    }

    /// Mode of a number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.number() == number)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMode;

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(word: &str) -> Result<Self, UnknownMode> {
        Self::ALL.into_iter().find(|mode| mode.name() == word).ok_or(UnknownMode)
    }
}

/// Changes of a cache in use that a name and a value ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A setting gets a value.
    Setting,
    /// All dirty blocks are written to the disk: `do_sync=1`.
    Sync,
    /// Such a work under way ends: `stop_sync=1`.
    StopSync,
    /// All counters are set to 0: `zero_stats=1`.
    ZeroCounters,
    /// The cache takes the new size of its disk: `grow=1`.
    Grow,
    /// Nothing: 0 for one of these works.
    Nothing,
}

impl Change {
    /// Change of a name and a value.
    ///
    /// # Errors
    /// [`CacheError::Setting`].
    pub fn parse(name: &str, value: &str) -> Result<Self, CacheError> {
        let work = match name {
            "do_sync" => Self::Sync,
            "stop_sync" => Self::StopSync,
            "zero_stats" => Self::ZeroCounters,
            "grow" => Self::Grow,
            _ => return Settings::default().set(name, value).map(|()| Self::Setting),
        };
        match value {
            "0" => Ok(Self::Nothing),
            "1" => Ok(work),
            _ => {
                let [name, value] = [name, value].map(str::to_owned);
                Err(CacheError::Setting { name, value, why: "must be 0 or 1".to_owned() })
            }
        }
    }
}

/// Settings of a cache in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// False if no further blocks are taken in.
    pub cache_all: bool,
    /// KiB from which on a stream of reads goes around the cache; 0 for never.
    pub skip_seq_read_kb: u64,
    /// KiB from which on a stream of writes goes around the cache; 0 for never.
    pub skip_seq_write_kb: u64,
    /// Percent of a set that may be dirty before it is cleaned.
    pub dirty_thresh_pct: u64,
    /// Percent of all blocks that may be dirty before sets with more than their share are cleaned.
    pub dirty_thresh_total_pct: u64,
    /// Seconds after which a dirty block that is not written any more is cleaned; 0 for never.
    pub fallow_delay: u64,
    /// Blocks of a set, on average, that are cleaned in a second because they are fallow; 0 for no limit.
    pub fallow_clean_speed: u64,
    /// Runs of 1 MiB, at most, that one round of cleaning writes.
    pub max_clean_ios_total: u64,
    /// Blocks that one round of cleaning takes of a set, in runs of 1 MiB.
    pub max_clean_ios_set: u64,
    /// Rule by which blocks make way.
    pub reclaim_policy: ReclaimPolicy,
    /// True if a cache is closed with its dirty blocks, without cleaning them.
    pub fast_remove: bool,
    /// False if the times of requests are not counted.
    pub io_latency_hist: bool,
    /// Bytes a day that may be written to the flash by choice; 0 for no limit.
    pub wear_bytes_per_day: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cache_all: true,
            skip_seq_read_kb: 0,
            skip_seq_write_kb: 0,
            dirty_thresh_pct: 20,
            dirty_thresh_total_pct: 100,
            fallow_delay: 900,
            fallow_clean_speed: 0,
            max_clean_ios_total: 4,
            max_clean_ios_set: 2,
            reclaim_policy: ReclaimPolicy::default(),
            fast_remove: false,
            io_latency_hist: true,
            wear_bytes_per_day: 0,
        }
    }
}

impl Settings {
    /// Time after which a dirty block is fallow.
    pub(crate) fn fallow(&self) -> Option<Duration> {
        (self.fallow_delay > 0).then(|| Duration::from_secs(self.fallow_delay))
    }

    /// Changes a setting by its name. `skip_seq_thresh_kb` changes both thresholds.
    ///
    /// # Errors
    /// [`CacheError::Setting`] for an unknown name, or a value out of range; nothing is changed then.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), CacheError> {
        let refused = |why: &str| CacheError::Setting {
            name: name.to_owned(),
            value: value.to_owned(),
            why: why.to_owned(),
        };
        if name == "reclaim_policy" {
            self.reclaim_policy =
                value.parse().map_err(|_| refused("must be 0 or fifo, 1 or lru, 2 or s3fifo"))?;
            return Ok(());
        }
        let number: u64 = value.parse().map_err(|_| refused("must be a number"))?;
        if let Some(foreign) = foreign::FOREIGN.iter().find(|foreign| foreign.name == name) {
            return if foreign.accepted.contains(&number) { Ok(()) } else { Err(refused(foreign.why)) };
        }
        let within = |low: u64, high: u64| {
            let is_within = (low..=high).contains(&number);
            is_within.then_some(number).ok_or_else(|| refused(&format!("must be from {low} to {high}")))
        };
        match name {
            "cache_all" => self.cache_all = within(0, 1)? == 1,
            "fast_remove" => self.fast_remove = within(0, 1)? == 1,
            "skip_seq_thresh_kb" => {
                (self.skip_seq_read_kb, self.skip_seq_write_kb) = (number, number);
            }
            "skip_seq_read_kb" => self.skip_seq_read_kb = number,
            "skip_seq_write_kb" => self.skip_seq_write_kb = number,
            "io_latency_hist" => self.io_latency_hist = within(0, 1)? == 1,
            "dirty_thresh_pct" => self.dirty_thresh_pct = within(10, 95)?,
            "dirty_thresh_total_pct" => self.dirty_thresh_total_pct = within(1, 100)?,
            "fallow_delay" => self.fallow_delay = number,
            "fallow_clean_speed" => self.fallow_clean_speed = within(0, 100)?,
            "max_clean_ios_total" => self.max_clean_ios_total = within(1, 128)?,
            "max_clean_ios_set" => self.max_clean_ios_set = within(1, 128)?,
            "wear_bytes_per_day" => self.wear_bytes_per_day = number,
            _ => return Err(refused("no such setting")),
        }
        Ok(())
    }

    /// Names and values.
    #[must_use]
    pub fn list(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("cache_all", self.cache_all.into()),
            ("skip_seq_read_kb", self.skip_seq_read_kb),
            ("skip_seq_write_kb", self.skip_seq_write_kb),
            ("dirty_thresh_pct", self.dirty_thresh_pct),
            ("dirty_thresh_total_pct", self.dirty_thresh_total_pct),
            ("fallow_delay", self.fallow_delay),
            ("fallow_clean_speed", self.fallow_clean_speed),
            ("max_clean_ios_total", self.max_clean_ios_total),
            ("max_clean_ios_set", self.max_clean_ios_set),
            ("reclaim_policy", self.reclaim_policy.number().into()),
            ("fast_remove", self.fast_remove.into()),
            ("io_latency_hist", self.io_latency_hist.into()),
            ("wear_bytes_per_day", self.wear_bytes_per_day),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_changed_by_name_and_nonsense_is_refused() {
        let mut settings = Settings::default();
        settings.set("skip_seq_thresh_kb", "32").expect("known");
        assert_eq!((settings.skip_seq_read_kb, settings.skip_seq_write_kb), (32, 32));
        settings.set("reclaim_policy", "1").expect("known");
        assert_eq!(settings.reclaim_policy, ReclaimPolicy::Lru);
        let before = settings.clone();
        for (name, value) in [
            ("dirty_thresh_pct", "5"),
            ("dirty_thresh_pct", "96"),
            ("cache_all", "2"),
            ("cache_all", "yes"),
            ("reclaim_policy", "mru"),
            ("max_clean_ios_total", "0"),
            ("skip_seq_thresh", "1"),
            ("dirty_thresh_total_pct", "0"),
            ("fallow_clean_speed", "101"),
            ("max_clean_ios_set", "0"),
        ] {
            assert!(matches!(settings.set(name, value), Err(CacheError::Setting { .. })), "{name}={value}");
        }
        assert_eq!(settings, before);
        for (name, value) in settings.list() {
            settings.set(name, &value.to_string()).expect("each that is listed can be set");
        }
        assert_eq!(settings, before);
    }

    #[test]
    fn modes_have_names_and_numbers() {
        for mode in Mode::ALL {
            assert_eq!((mode.to_string().parse(), Mode::from_number(mode.number())), (Ok(mode), Some(mode)));
        }
        assert_eq!((Mode::from_number(0), "none".parse::<Mode>()), (None, Err(UnknownMode)));
    }
}

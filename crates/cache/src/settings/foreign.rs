//! Settings of flashcache that have no meaning here. Values that ask for nothing else than a cache does anyway are taken, so that
//! scripts for flashcache run; others are refused with the reason.

/// A setting of flashcache.
pub(super) struct ForeignSetting {
    pub(super) name: &'static str,
    /// Values that are taken: the default of flashcache, and others that change nothing.
    pub(super) accepted: &'static [u64],
    /// Reason for which other values are refused.
    pub(super) why: &'static str,
}

const NO_PIDS: &str = "there are no lists of processes: a request that comes through a loop device or NBD tells of none; \
                       use cache_all and skip_seq_thresh_kb";
const NO_LISTS: &str = "lru has one list; reclaim_policy=s3fifo keeps apart the blocks that are used again";
const NO_CLEANING: &str =
    "requests never clean; a thread looks at all sets five times a second, see dirty_thresh_pct";

/// All of them.
pub(super) const FOREIGN: [ForeignSetting; 9] = [
    ForeignSetting { name: "do_pid_expiry", accepted: &[0], why: NO_PIDS },
    ForeignSetting { name: "max_pids", accepted: &[100], why: NO_PIDS },
    ForeignSetting { name: "pid_expiry_secs", accepted: &[60], why: NO_PIDS },
    ForeignSetting {
        name: "error_inject",
        accepted: &[0],
        why: "faults are for tests, and are made below the cache: `brindle lab disk`",
    },
    ForeignSetting { name: "clean_on_read_miss", accepted: &[0], why: NO_CLEANING },
    ForeignSetting { name: "clean_on_write_miss", accepted: &[0], why: NO_CLEANING },
    ForeignSetting { name: "lru_promote_thresh", accepted: &[2], why: NO_LISTS },
    ForeignSetting { name: "lru_hot_pct", accepted: &[75], why: NO_LISTS },
    ForeignSetting {
        name: "new_style_write_merge",
        accepted: &[0, 1],
        why: "must be 0 or 1; dirty neighbours are always written together",
    },
];

#[cfg(test)]
mod tests {
    use crate::{CacheError, Settings};

    /// Settings of flashcache, their defaults, and other values.
    const OF_FLASHCACHE: [(&str, &str, &str); 19] = [
        ("io_latency_hist", "0", "1"),
        ("dirty_thresh_pct", "20", "95"),
        ("max_clean_ios_total", "4", "8"),
        ("max_clean_ios_set", "2", "8"),
        ("do_pid_expiry", "0", "1"),
        ("max_pids", "100", "50"),
        ("pid_expiry_secs", "60", "5"),
        ("reclaim_policy", "0", "1"),
        ("error_inject", "0", "4"),
        ("fast_remove", "0", "1"),
        ("cache_all", "1", "0"),
        ("fallow_clean_speed", "2", "100"),
        ("fallow_delay", "900", "60"),
        ("skip_seq_thresh_kb", "0", "32"),
        ("clean_on_read_miss", "0", "1"),
        ("clean_on_write_miss", "0", "1"),
        ("lru_promote_thresh", "2", "3"),
        ("lru_hot_pct", "75", "50"),
        ("new_style_write_merge", "0", "1"),
    ];

    #[test]
    fn settings_of_flashcache_do_something_or_are_refused_with_a_reason() {
        for (name, default, other) in OF_FLASHCACHE {
            let mut settings = Settings::default();
            settings.set(name, default).expect("a script may set each to its default");
            let before = settings.clone();
            match settings.set(name, other) {
                Ok(()) => {
                    assert!(settings != before || name == "new_style_write_merge", "{name} does nothing");
                }
                Err(CacheError::Setting { why, .. }) => {
                    assert!(why.contains(' ') && why != "no such setting", "{name}: {why}");
                    assert_eq!(settings, before);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

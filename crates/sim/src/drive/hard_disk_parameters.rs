//! Sizes, rates and times of a hard disk.

/// Parameters of a hard disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardDiskParameters {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Throughput at the outer edge, where it begins.
    pub outer_bytes_per_second: u64,
    /// Throughput at the inner edge.
    pub inner_bytes_per_second: u64,
    /// Rotation speed.
    pub revolutions_per_minute: u64,
    /// Seek times to the next track, over a third of all, and over all.
    pub seek_ns: [u64; 3],
    /// Additional time for a write.
    pub write_settle_ns: u64,
    /// Time that the firmware adds to a seek, to be sure not to come late.
    pub margin_ns: u64,
    /// Time of a command.
    pub command_ns: u64,
    /// Throughput of its cache.
    pub interface_bytes_per_second: u64,
    /// Number of requests it chooses from.
    pub queue_depth: usize,
    /// Longest time for which a request waits for nearer ones.
    pub wait_ns_max: u64,
    /// Bytes of the write cache.
    pub write_cache_bytes: u64,
    /// Idle time after the last read before the write cache drains.
    pub write_idle_ns: u64,
    /// Number of streams it remembers.
    pub read_segments: usize,
    /// Bytes cached of each stream.
    pub read_segment_bytes: u64,
    /// Bytes that it reads ahead while idle.
    pub look_ahead_bytes: u64,
    /// Idle time after which the platters stop; `None` if they always turn.
    pub spin_down_ns: Option<u64>,
    /// Time that the platters take to start again.
    pub spin_up_ns: u64,
    /// Shingled tracks; `None` if tracks do not overlap.
    pub shingles: Option<ShingleParameters>,
}

/// Parameters of shingled tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShingleParameters {
    /// Bytes of a band, which is rewritten as a whole.
    pub band_bytes: u64,
    /// Bytes of the persistent cache, which lies before the first band.
    pub cache_bytes: u64,
    /// Ranges that the persistent cache has room for in its map.
    pub map_entries: usize,
    /// Time without a request before bands are rewritten.
    pub clean_idle_ns: u64,
    /// Time without a write before the volatile cache is drained: a stream may become long enough for its bands.
    pub hold_ns: u64,
}

impl ShingleParameters {
    /// Bytes of the platters that lie before the first band: the persistent cache, and a spare band.
    pub(super) fn base(&self) -> u64 {
        self.cache_bytes + self.band_bytes
    }
}

impl Default for HardDiskParameters {
    fn default() -> Self {
        Self {
            size_bytes: 2_000_398_934_016,
            outer_bytes_per_second: 210 << 20,
            inner_bytes_per_second: 100 << 20,
            revolutions_per_minute: 7200,
            seek_ns: [900_000, 8_500_000, 18_000_000],
            write_settle_ns: 500_000,
            margin_ns: 300_000,
            command_ns: 60_000,
            interface_bytes_per_second: 550_000_000,
            queue_depth: 32,
            wait_ns_max: 800_000_000,
            write_cache_bytes: 64 << 20,
            write_idle_ns: 4_000_000,
            read_segments: 32,
            read_segment_bytes: 4 << 20,
            look_ahead_bytes: 2 << 20,
            spin_down_ns: None,
            spin_up_ns: 7_000_000_000,
            shingles: None,
        }
    }
}

impl HardDiskParameters {
    /// An older, smaller disk.
    pub fn old() -> Self {
        Self {
            size_bytes: 250_059_350_016,
            outer_bytes_per_second: 110 << 20,
            inner_bytes_per_second: 55 << 20,
            seek_ns: [900_000, 9_000_000, 18_000_000],
            write_cache_bytes: 8 << 20,
            ..Self::default()
        }
    }

    /// A shingled disk of 8 TB that manages its bands itself.
    pub fn shingled() -> Self {
        Self {
            size_bytes: 8_001_563_222_016,
            outer_bytes_per_second: 190_000_000,
            inner_bytes_per_second: 110_000_000,
            revolutions_per_minute: 5900,
            seek_ns: [1_000_000, 12_000_000, 22_000_000],
            write_cache_bytes: 128 << 20,
            spin_up_ns: 10_000_000_000,
            shingles: Some(ShingleParameters {
                band_bytes: 30 << 20,
                cache_bytes: 25_000_000_000,
                map_entries: 250_000,
                clean_idle_ns: 1_000_000_000,
                hold_ns: 500_000_000,
            }),
            ..Self::default()
        }
    }
}

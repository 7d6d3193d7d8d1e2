//! Pools to play on.

use super::pool::SharedPool;
use crate::kernel::pool::try_run;
use brindle_care::mkfs::{Features, MkfsOptions, NewDevice, mkfs};
use brindle_device::FileDevice;
use brindle_fs::{Host, SystemHost};
use brindle_ondisk::{ChecksumType, Profile};
use std::path::PathBuf;
use std::sync::Arc;

/// Maker of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    Progs,
    Brindle,
}

/// A way to make a pool, in the words of `mkfs.btrfs`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) devices: usize,
    pub(super) data: &'static str,
    pub(super) metadata: &'static str,
    pub(super) checksum: &'static str,
    pub(super) nodesize: u32,
    pub(super) features: &'static str,
    /// Value for `mkfs.btrfs` after `-R`; or [`SIMPLE_QUOTAS`].
    pub(super) runtime: &'static str,
}

/// Word for a pool on which simple quotas are turned on once it is made.
pub(super) const SIMPLE_QUOTAS: &str = "squota";

impl Case {
    /// A pool of `devices` devices, with the usual features.
    pub(super) const fn of(devices: usize, data: &'static str, metadata: &'static str) -> Self {
        Self { devices, data, metadata, checksum: "crc32c", nodesize: 16384, features: "", runtime: "" }
    }

    /// A pool of one device with these features.
    pub(super) const fn with(features: &'static str, runtime: &'static str) -> Self {
        Self { features, runtime, ..Self::of(1, "single", "dup") }
    }

    pub(super) fn make(&self, maker: Maker) -> SharedPool {
        self.make_on(SharedPool::of_devices(self.devices), maker)
    }

    /// Makes it on these devices.
    pub(super) fn make_on(&self, pool: SharedPool, maker: Maker) -> SharedPool {
        match maker {
            Maker::Progs => self.by_progs(&pool),
            Maker::Brindle => self.by_brindle(&pool),
        }
        if self.runtime == SIMPLE_QUOTAS {
            pool.enable_simple_quotas();
        }
        pool
    }

    /// Value for `mkfs.btrfs`.
    fn runtime(&self) -> &'static str {
        if self.runtime == SIMPLE_QUOTAS { "" } else { self.runtime }
    }

    fn by_progs(&self, pool: &SharedPool) {
        // Some versions know no block group tree, and make none.
        let without = self.features.replace("^block-group-tree", "").replace(",,", ",");
        let without = without.trim_matches(',');
        if self.try_by_progs(pool, self.features).is_err() {
            self.try_by_progs(pool, without).unwrap_or_else(|why| panic!("{why}"));
        }
    }

    fn try_by_progs(&self, pool: &SharedPool, features: &str) -> Result<String, String> {
        let nodesize = self.nodesize.to_string();
        let mut options = vec!["-q", "-f", "-d", self.data, "-m", self.metadata, "--csum", self.checksum];
        options.extend(["-n", &nodesize]);
        if !features.is_empty() {
            options.extend(["-O", features]);
        }
        if !self.runtime().is_empty() {
            options.extend(["-R", self.runtime()]);
        }
        try_run("mkfs.btrfs", options, pool.loops())
    }

    fn by_brindle(&self, pool: &SharedPool) {
        // The kernel knows a pool by it.
        let fsid = SystemHost.new_uuid();
        let mut options = MkfsOptions::new(fsid, fsid.0, 1_700_000_000);
        let profile = |name: &str| {
            let row = Profile::TABLE.iter().find(|row| row.name.eq_ignore_ascii_case(name));
            Some(row.expect("a profile").profile)
        };
        (options.data, options.metadata) = (profile(self.data), profile(self.metadata));
        let is_named = |kind: &ChecksumType| kind.name().starts_with(self.checksum);
        options.checksum = ChecksumType::ALL.into_iter().find(is_named).expect("a checksum");
        options.nodesize = Some(self.nodesize);
        let words: Vec<&str> =
            [self.features, self.runtime()].into_iter().filter(|words| !words.is_empty()).collect();
        options.features = Features::default().with_list(&words.join(",")).expect("known words");
        let device = |path: &PathBuf| {
            NewDevice::new(Arc::new(FileDevice::open_writable(path).expect("nobody has it")))
        };
        let devices: Vec<NewDevice> = pool.loops().iter().map(device).collect();
        mkfs(&devices, &options).expect("enough devices");
    }
}

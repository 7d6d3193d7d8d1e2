//! Published figures, and the configurations that stand in their places.

/// A published table.
pub(super) struct Published {
    pub(super) title: &'static str,
    pub(super) work: &'static str,
    pub(super) phase: &'static str,
    pub(super) unit: Unit,
    /// Rows; the ratios of a row are to the one of this index.
    pub(super) rows: &'static [PublishedRow],
    pub(super) reference: usize,
}

/// A row: its name, the published value if there is one, and our configuration.
pub(super) type PublishedRow = (&'static str, Option<f64>, &'static str);

/// Unit of the published values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Less is faster.
    Seconds,
    /// More is faster; bytes a second are shown in MiB.
    MebibytesPerSecond,
}

/// An upgrade of all packages, in seconds.
const UPGRADE: &[PublishedRow] = &[
    ("btrfs, hard disk", Some(8558.0), "btrfs-hdd"),
    ("btrfs, metadata on the SSD (the patch)", Some(4864.0), "btrfs-ssd+hdd"),
    ("brindle, metadata on the SSD", None, "brindle-ssd+hdd-off"),
    ("ext4, hard disk", Some(3159.0), "ext4-hdd"),
    ("btrfs on bcache; here on the cache of brindle", Some(2159.0), "btrfs-cache"),
    ("brindle, SSD + hard disk, writeback=sync", None, "brindle-ssd+hdd-sync"),
    ("btrfs, SSD", Some(1351.0), "btrfs-ssd"),
    ("ext4, SSD", Some(739.0), "ext4-ssd"),
];

/// The same with `--force-unsafe-io`.
const UPGRADE_WITHOUT_SYNCS: &[PublishedRow] = &[
    ("btrfs, hard disk", Some(3362.0), "btrfs-hdd"),
    ("ext4, hard disk", Some(3092.0), "ext4-hdd"),
    ("btrfs, metadata on the SSD (the patch)", Some(2010.0), "btrfs-ssd+hdd"),
    ("brindle, metadata on the SSD", None, "brindle-ssd+hdd-off"),
    ("btrfs on bcache; here on the cache of brindle", Some(1137.0), "btrfs-cache"),
    ("brindle, SSD + hard disk, writeback=sync", None, "brindle-ssd+hdd-sync"),
    ("btrfs, SSD", Some(944.0), "btrfs-ssd"),
    ("ext4, SSD", Some(709.0), "ext4-ssd"),
];

/// Objects of 512 KiB from one client, in MiB a second.
const OBJECTS: &[PublishedRow] = &[
    ("XFS, hard disk", Some(35.3), "xfs-hdd"),
    ("XFS, with a flash cache", Some(85.8), "xfs-cache"),
    ("brindle, SSD + hard disk, writeback=sync", None, "brindle-ssd+hdd-sync"),
];

/// All tables.
pub(super) const PUBLISHED: [Published; 11] = [
    Published {
        title: "Upgrade of all packages of a distribution, with syncs (2020, allocation hints for metadata)",
        work: "upgrade",
        phase: "upgrade",
        unit: Unit::Seconds,
        rows: UPGRADE,
        reference: 6,
    },
    Published {
        title: "Upgrade of all packages without syncs (--force-unsafe-io)",
        work: "upgrade-nosync",
        phase: "upgrade",
        unit: Unit::Seconds,
        rows: UPGRADE_WITHOUT_SYNCS,
        reference: 6,
    },
    Published {
        title: "The upgrade by dpkg itself, with syncs",
        work: "dpkg",
        phase: "upgrade",
        unit: Unit::Seconds,
        rows: UPGRADE,
        reference: 6,
    },
    Published {
        title: "The upgrade by dpkg itself, without syncs",
        work: "dpkg-nosync",
        phase: "upgrade",
        unit: Unit::Seconds,
        rows: UPGRADE_WITHOUT_SYNCS,
        reference: 6,
    },
    Published {
        title: "A stream from raid1c3 on three hard disks, one job (2021, read policies)",
        work: "reads-1",
        phase: "sequential",
        unit: Unit::MebibytesPerSecond,
        rows: &[
            ("kernel, pid", Some(217.0), "btrfs-3hdd"),
            ("kernel with roundrobin (the patch); brindle, auto", Some(409.0), "brindle-3hdd"),
        ],
        reference: 0,
    },
    Published {
        title: "A stream from raid1c3 on two hard disks and an SSD, one job",
        work: "reads-1",
        phase: "sequential",
        unit: Unit::MebibytesPerSecond,
        rows: &[
            ("kernel, pid (220 or 513, by chance)", Some(220.0), "btrfs-ssd+2hdd"),
            ("kernel with roundrobin (the patch); brindle, auto", Some(541.0), "brindle-ssd+2hdd"),
        ],
        reference: 0,
    },
    Published {
        title: "Eight jobs that read one file, three hard disks",
        work: "reads-8",
        phase: "sequential",
        unit: Unit::MebibytesPerSecond,
        rows: &[
            ("kernel, pid", Some(1569.0), "btrfs-3hdd"),
            ("kernel with roundrobin (the patch); brindle, auto", Some(1733.0), "brindle-3hdd"),
        ],
        reference: 0,
    },
    Published {
        title: "Eight jobs that read one file, two hard disks and an SSD",
        work: "reads-8",
        phase: "sequential",
        unit: Unit::MebibytesPerSecond,
        rows: &[
            ("kernel, pid", Some(1843.0), "btrfs-ssd+2hdd"),
            ("kernel with roundrobin (the patch); brindle, auto", Some(2485.0), "brindle-ssd+2hdd"),
        ],
        reference: 0,
    },
    Published {
        title: "Eight threads that write and fsync (batches of log items; an NVMe drive there)",
        work: "threads",
        phase: "write+fsync",
        unit: Unit::MebibytesPerSecond,
        rows: &[
            ("kernel before; kernel btrfs", Some(116.0), "btrfs-ssd"),
            ("kernel with the patches; brindle", Some(125.0), "brindle-ssd"),
        ],
        reference: 0,
    },
    Published {
        title: "Objects of 512 KiB, one client (a flash cache below an object store there)",
        work: "objects-1",
        phase: "put",
        unit: Unit::MebibytesPerSecond,
        rows: OBJECTS,
        reference: 0,
    },
    Published {
        title: "Objects of 512 KiB written to Ceph itself, one client of `rados bench`",
        work: "rados-1",
        phase: "write",
        unit: Unit::MebibytesPerSecond,
        rows: OBJECTS,
        reference: 0,
    },
];

/// Share of its first speed that a sequential read had on btrfs after overwrites anywhere, as published, and our aim.
pub(super) const OVERWRITTEN: (f64, f64) = (0.30, 0.80);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Plan;

    #[test]
    fn tables_are_of_works_and_configurations_that_there_are() {
        let plan = Plan::find("full").expect("a plan");
        for table in &PUBLISHED {
            let work = plan.works.iter().find(|work| work.name == table.work).expect(table.work);
            for (_, _, name) in table.rows {
                assert!(work.configurations.iter().any(|it| it.name == *name), "{}: {name}", table.title);
            }
            assert!(table.rows[table.reference].1.is_some(), "{}", table.title);
        }
    }
}

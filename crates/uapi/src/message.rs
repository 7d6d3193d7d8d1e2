//! Messages of ioctls, in the machine's own byte order.

mod balance;
mod classes;
mod defragment;
mod device;
mod log;
mod quota;
mod reads;
mod replace;
mod scrub;
mod space;
mod stream;
mod traffic;
mod work;
mod write_back;

pub use balance::{
    BALANCE_FORCE, BALANCE_REPORT_NONE, BALANCE_REPORT_PAUSED, BALANCE_REPORT_RUNNING, BALANCE_RESUME,
    BALANCE_STOP_CANCEL, BALANCE_STOP_PAUSE, BalanceReport, BalanceStart,
};
pub use classes::{CLASSES_BYTES, ClassesRequest};
pub use defragment::{
    CONTENTS_COMPRESS, CONTENTS_END, CONTENTS_UNSHARE, ContentsPart, DEFRAGMENT_POOL, DefragmentPiece,
    KERNEL_COMPRESS, KernelDefragment,
};
pub use device::{
    DEVICE_ADD, DEVICE_AVOID, DEVICE_BEHIND, DEVICE_BULK, DEVICE_DISCARD, DEVICE_FAST, DEVICE_FORCE,
    DEVICE_MISSING, DEVICE_REJOIN, DEVICE_REMOVE, DEVICE_REPLACE, DEVICE_RESIZE, DEVICE_STALE, DeviceReport,
    DeviceStart, SIZE_GROW, SIZE_MAX, SIZE_SHRINK, SIZE_TO,
};
pub use log::LogReport;
pub use quota::{
    INHERIT_QGROUPS, QGROUP_NO_LIMIT, QUOTA_DISABLE, QUOTA_ENABLE, QUOTA_ENABLE_SIMPLE, QgroupAssign,
    QgroupCreate, QgroupLimits, QuotaControl, QuotaRescan, inherited_groups,
};
pub use reads::{DeviceReads, ReadsPage, ReadsReport};
pub use replace::{
    KERNEL_REPLACE_ALREADY_STARTED, KERNEL_REPLACE_AVOID, KERNEL_REPLACE_CANCEL, KERNEL_REPLACE_NOT_STARTED,
    KERNEL_REPLACE_SCRUB_RUNS, KERNEL_REPLACE_START, KERNEL_REPLACE_STATUS, KernelReplace,
    KernelReplaceProgress, KernelReplaceStart,
};
pub use scrub::{
    KERNEL_SCRUB_READ_ONLY, KernelScrub, KernelScrubProgress, SCRUB_DEVICES_MAX, SCRUB_LEAVE_SLEEPING,
    SCRUB_READ_ONLY, SCRUB_RESUME, SCRUB_TEXT_BYTES, ScrubLimit, ScrubPage, ScrubStart,
};
pub use space::{DeviceSpace, GroupSpace, SPACE_RESERVE, SpaceEntry, SpaceList, SpacePage, SpaceReport};
pub use stream::{
    CloneRange, KERNEL_SEND_COMPRESSED, KERNEL_SEND_NO_DATA, KERNEL_SEND_NO_END, KERNEL_SEND_NO_HEADER,
    KERNEL_SEND_VERSION, KernelEncodedWrite, KernelReceived, KernelSend, RECEIVE_ONE_STREAM, ReceiveStart,
    SEND_COMPRESSED, SEND_IDS_MAX, SEND_NO_DATA, SEND_ONE_STREAM, STREAM_COMPLAINT, STREAM_DONE,
    STREAM_FAILED, STREAM_RECEIVED, STREAM_SENDS, STREAM_TEXT_MAX, SendStart, StreamEvent,
};
pub use traffic::{
    DeviceTraffic, MetadataCache, RecordPage, RecordedRequest, TRAFFIC_ASLEEP, TRAFFIC_COUNTED, TrafficPage,
    TrafficReport,
};
pub use work::{WORK_ENDED_CANCELLED, WORK_ENDED_DONE, WORK_ENDED_FAILED, WORK_ENDED_PAUSED, WorkReport};
pub use write_back::{WRITE_BACK_KEEP, WriteBackReport, WriteBackRequest};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A name (`btrfs_ioctl_vol_args`).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct VolumeArguments {
    /// Unused here.
    pub fd: i64,
    /// With a zero at the end.
    pub name: [u8; 4088],
}
const _: () = assert!(size_of::<VolumeArguments>() == 4096);

/// A name and flags (`btrfs_ioctl_vol_args_v2`).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct VolumeArgumentsV2 {
    /// The source of a snapshot, as a file descriptor of the caller.
    pub fd: i64,
    /// Unused here.
    pub transid: u64,
    /// [`READ_ONLY`], [`BY_ID`].
    pub flags: u64,
    /// With [`INHERIT_QGROUPS`] the size of the [list of quota groups](inherited_groups) and its address in the caller; else
    /// nothing.
    pub inherited: [u64; 2],
    /// Nothing.
    pub unused: [u64; 2],
    /// With a zero at the end; or, [by id](BY_ID), the id in the first eight bytes.
    pub name: [u8; 4040],
}
const _: () = assert!(size_of::<VolumeArgumentsV2>() == 4096);

/// The snapshot or subvolume is read-only (`BTRFS_SUBVOL_RDONLY`).
pub const READ_ONLY: u64 = 1 << 1;
/// The subvolume is named by its id (`BTRFS_SUBVOL_SPEC_BY_ID`).
pub const BY_ID: u64 = 1 << 4;
/// The device is named by its id (`BTRFS_DEVICE_SPEC_BY_ID`).
pub const REMOVE_BY_ID: u64 = 1 << 3;

/// A subvolume and a path in it (`btrfs_ioctl_ino_lookup_args`).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InodeLookup {
    /// The subvolume; 0 for that of the open file, which is then answered.
    pub subvolume: u64,
    /// The inode number in it.
    pub inode: u64,
    /// The path from the root of the subvolume, a slash behind each part, and a zero.
    pub path: [u8; 4080],
}
const _: () = assert!(size_of::<InodeLookup>() == 4096);

/// Extended attributes of an inode (`struct fsxattr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ExtendedFlags {
    /// Flags (`FS_XFLAG_*`).
    pub flags: u32,
    /// Hints for extents, and projects.
    pub others: [u32; 6],
}
const _: () = assert!(size_of::<ExtendedFlags>() == 28);

/// A point in time (`btrfs_ioctl_timespec`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Time {
    /// Since 1970.
    pub seconds: u64,
    /// On top of them.
    pub nanoseconds: u32,
    /// Nothing.
    pub padding: u32,
}

/// Facts about a subvolume (`btrfs_ioctl_get_subvol_info_args`).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SubvolumeInfo {
    /// Its id.
    pub id: u64,
    /// Its name, with a zero at the end; empty for the top level.
    pub name: [u8; 256],
    /// The subvolume that holds it; 0 for the top level.
    pub parent: u64,
    /// The directory that holds it.
    pub directory: u64,
    /// The transaction that changed it last.
    pub generation: u64,
    /// Its flags on disk.
    pub flags: u64,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// The UUID of what it is a snapshot of.
    pub parent_uuid: [u8; 16],
    /// The UUID of what it was received from.
    pub received_uuid: [u8; 16],
    /// Transactions: of the last change, of creation, of sending, of receiving.
    pub transactions: [u64; 4],
    /// Times of the same.
    pub times: [Time; 4],
    /// Nothing.
    pub reserved: [u64; 8],
}
const _: () = assert!(size_of::<SubvolumeInfo>() == 504);

/// Facts about a filesystem (`btrfs_ioctl_fs_info_args`).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FilesystemInfo {
    /// The greatest device id.
    pub devid_max: u64,
    /// Number of devices.
    pub devices: u64,
    /// UUID of the filesystem.
    pub fsid: [u8; 16],
    /// Size of a tree block, in bytes.
    pub nodesize: u32,
    /// Size of a sector, in bytes.
    pub sectorsize: u32,
    /// Unit of cloned ranges, in bytes.
    pub clone_alignment: u32,
    /// Number of the checksum algorithm.
    pub checksum_type: u16,
    /// Size of a checksum, in bytes.
    pub checksum_size: u16,
    /// Fields below that are asked for, and answered; none here.
    pub flags: u64,
    /// The last committed transaction.
    pub generation: u64,
    /// UUID in the tree blocks.
    pub metadata_uuid: [u8; 16],
    /// Nothing.
    pub reserved: [u8; 944],
}
const _: () = assert!(size_of::<FilesystemInfo>() == 1024);

/// Facts about a device (`btrfs_ioctl_dev_info_args`).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceInfo {
    /// Id of the device.
    pub devid: u64,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Allocated to chunks, in bytes.
    pub used_bytes: u64,
    /// Its size, in bytes.
    pub total_bytes: u64,
    /// UUID of the filesystem.
    pub fsid: [u8; 16],
    /// Nothing.
    pub reserved: [u64; 377],
    /// Its path, with a zero at the end.
    pub path: [u8; 1024],
}
const _: () = assert!(size_of::<DeviceInfo>() == 4096);

/// Error counters of a device (`btrfs_ioctl_get_dev_stats`).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceStatistics {
    /// Id of the device.
    pub devid: u64,
    /// Number of counters asked for, and answered.
    pub count: u64,
    /// [`RESET_STATISTICS`].
    pub flags: u64,
    /// Failed writes, failed reads, failed flushes, wrong contents, wrong generations.
    pub counters: [u64; 5],
    /// Nothing.
    pub unused: [u64; 121],
}
const _: () = assert!(size_of::<DeviceStatistics>() == 1032);

/// The counters are set to zero once they are answered (`BTRFS_DEV_STATS_RESET`).
pub const RESET_STATISTICS: u64 = 1;

/// A label, with a zero at the end.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Label(pub [u8; 256]);

/// Range to be discarded (`fstrim_range`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TrimRange {
    /// From here on.
    pub start: u64,
    /// Length in bytes; the answer has the number of bytes discarded.
    pub length: u64,
    /// No shorter pieces.
    pub minimum: u64,
}

/// Range of items of a tree, and room for them (`btrfs_ioctl_search_args`).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TreeSearch {
    /// The tree.
    pub tree: u64,
    /// The least object id.
    pub objectid_min: u64,
    /// The greatest.
    pub objectid_max: u64,
    /// The least offset, of the least object id and type.
    pub offset_min: u64,
    /// The greatest, of the greatest object id and type.
    pub offset_max: u64,
    /// No leaves that are older.
    pub transid_min: u64,
    /// No leaves that are younger.
    pub transid_max: u64,
    /// The least type, of the least object id.
    pub type_min: u32,
    /// The greatest, of the greatest object id.
    pub type_max: u32,
    /// Asked for: upper bound on the items; answered: their number.
    pub items: u32,
    /// Nothing.
    pub unused: u32,
    /// Nothing.
    pub reserved: [u64; 4],
    /// For each a [`FoundItem`] and its bytes.
    pub records: [u8; 3992],
}
const _: () = assert!(size_of::<TreeSearch>() == 4096);

/// Header before the bytes of an item (`btrfs_ioctl_search_header`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FoundItem {
    /// The transaction that wrote its leaf.
    pub transid: u64,
    /// The first part of its key.
    pub objectid: u64,
    /// The last part.
    pub offset: u64,
    /// The middle part.
    pub item_type: u32,
    /// Number of bytes that follow.
    pub length: u32,
}
const _: () = assert!(size_of::<FoundItem>() == 32);

/// Filters of a balance for one kind of chunks (`btrfs_balance_args`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BalanceFilter {
    /// Profiles, a bit each.
    pub profiles: u64,
    /// Usage of the chunks, in percent.
    pub usage: u64,
    /// A device.
    pub devid: u64,
    /// A range on it.
    pub physical_start: u64,
    /// Its end.
    pub physical_end: u64,
    /// A range of logical addresses; whatever overlaps it is meant.
    pub logical_start: u64,
    /// Its end.
    pub logical_end: u64,
    /// The profile to convert to.
    pub target: u64,
    /// Filters that count.
    pub flags: u64,
    /// Number of chunks.
    pub limit: u64,
    /// Number of their stripes: least and greatest.
    pub stripes: [u32; 2],
    /// Nothing.
    pub unused: [u64; 6],
}
const _: () = assert!(size_of::<BalanceFilter>() == 136);

/// The [range of logical addresses](BalanceFilter::logical_start) counts (`BTRFS_BALANCE_ARGS_VRANGE`).
pub const BALANCE_LOGICAL_RANGE: u64 = 1 << 4;

/// A balance (`btrfs_ioctl_balance_args`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Balance {
    /// Kinds of chunks: bits of the block group type.
    pub flags: u64,
    /// Answered: [`BALANCE_RUNNING`] and the like.
    pub state: u64,
    /// Data chunks.
    pub data: BalanceFilter,
    /// Metadata chunks.
    pub metadata: BalanceFilter,
    /// System chunks.
    pub system: BalanceFilter,
    /// Answered: how many chunks are estimated to be relocated, were considered, and were relocated.
    pub progress: [u64; 3],
    /// Nothing.
    pub unused: [u64; 72],
}
const _: () = assert!(size_of::<Balance>() == 1024);

/// The balance runs; without it, it is paused (`BTRFS_BALANCE_STATE_RUNNING`).
pub const BALANCE_RUNNING: u64 = 1 << 0;
/// Ends a balance (`BTRFS_BALANCE_CTL_CANCEL`).
pub const BALANCE_CANCEL: usize = 2;

/// A snapshot, or a subvolume in quota groups, to be made (ours).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SnapshotRequest {
    /// The inode number of the source, as `stat` shows it; 0 for a subvolume that is empty.
    pub source: u64,
    /// [`READ_ONLY`], of a snapshot.
    pub flags: u64,
    /// Quota groups that it becomes part of, with zeros behind them.
    pub groups: [u64; 32],
    /// With a zero at the end.
    pub name: [u8; 256],
}

/// Part of the list of subvolumes (ours).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SubvolumePage {
    /// Asked for: those of a greater id.
    pub after: u64,
    /// Answered: how many bytes of [`records`](Self::records) are used; 0 if there are no more subvolumes.
    pub used: u64,
    /// The default subvolume.
    pub default_subvolume: u64,
    /// For each a [`SubvolumeInfo`] and the path from the top level: its length in eight bytes, and its bytes.
    pub records: [u8; 15_000],
}

/// Server of a mount (ours).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ServerInfo {
    /// UUID of the filesystem.
    pub fsid: [u8; 16],
    /// The process, if it ends with the mount; else 0.
    pub process: u32,
    /// 1 if the mount may be written.
    pub is_writable: u32,
}

/// Reason for which nothing is written any more (ours): a text with a zero behind it.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReadOnlyReason(pub [u8; 1024]);

/// Another hint for a device (ours).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HintRequest {
    /// The device.
    pub devid: u64,
    /// Hint that the pool is to store for it (`dev_item.type`).
    pub stored_type: u64,
}

/// Work of one commit, or of several together (ours).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CommitReport {
    /// Tree blocks written by kind of tree (files, extents, checksums, free space, block groups, chunks, roots,
    /// other) and level.
    pub blocks: [[u64; 8]; 8],
    /// Size of these blocks, in bytes, each counted once.
    pub metadata_bytes: u64,
    /// Extents whose references were applied.
    pub references: u64,
    /// Rounds that it took.
    pub rounds: u64,
    /// Nanoseconds by phase: advance, close, settle, write, flush.
    pub phases_ns: [u64; 5],
}

/// Commits of a mount (ours).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CommitsReport {
    /// Number of commits.
    pub commits: u64,
    /// Duration of the longest, in nanoseconds.
    pub longest_ns: u64,
    /// The last one.
    pub last: CommitReport,
    /// All together.
    pub total: CommitReport,
    /// Syncs of the log, the fsyncs that they were for, items, blocks, and runs of adjacent blocks.
    pub log: [u64; 5],
    /// Fsyncs that were commits, by reason.
    pub log_commits: [u64; 8],
    /// Histograms of syncs: microseconds of an fsync, of the log's lock in it, and of an entry into the log; fsyncs and bytes
    /// of a write of the log.
    pub histograms: [Histogram; 5],
}

/// A histogram by powers of two (ours): bucket 0 counts zeros, bucket N values from 2^(N-1) to 2^N - 1, the last one all
/// beyond.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Histogram {
    /// Number of values in each bucket.
    pub buckets: [u64; 32],
    /// Sum of all values.
    pub sum: u64,
}

/// A setting of a mount (ours): a name and a value, each with a zero at the end.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Setting {
    /// Name of the setting.
    pub name: [u8; 64],
    /// Value of the setting, or its new value.
    pub value: [u8; 1024],
}

/// The bytes before the zero.
pub fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A name with zeros behind it; `None` if it has no room, or holds a zero.
pub fn field<const N: usize>(name: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let is_text = name.len() < N && !name.contains(&0);
    is_text.then(|| bytes[..name.len()].copy_from_slice(name))?;
    Some(bytes)
}

impl SubvolumePage {
    /// An answer without subvolumes.
    pub fn empty(default_subvolume: u64) -> Self {
        Self { after: 0, used: 0, default_subvolume, records: [0; 15_000] }
    }

    /// Adds a subvolume; false if it has no room any more. A path longer than a page is cut off.
    pub fn push(&mut self, info: &SubvolumeInfo, path: &[u8]) -> bool {
        const HEAD: usize = size_of::<SubvolumeInfo>() + size_of::<u64>();
        let path = &path[..path.len().min(self.records.len() - HEAD)];
        let used = usize::try_from(self.used).unwrap_or(usize::MAX).min(self.records.len());
        let free = &mut self.records[used..];
        let needed = HEAD + path.len();
        if free.len() < needed {
            return false;
        }
        free[..size_of::<SubvolumeInfo>()].copy_from_slice(info.as_bytes());
        free[size_of::<SubvolumeInfo>()..HEAD].copy_from_slice(&path.len().to_ne_bytes());
        free[HEAD..needed].copy_from_slice(path);
        self.used = u64::try_from(used + needed).expect("less than a page");
        true
    }

    /// The subvolumes of an answer.
    pub fn iter(&self) -> impl Iterator<Item = (SubvolumeInfo, &[u8])> {
        let used = usize::try_from(self.used).unwrap_or(usize::MAX).min(self.records.len());
        let mut rest = &self.records[..used];
        std::iter::from_fn(move || {
            let (info, behind) = SubvolumeInfo::read_from_prefix(rest).ok()?;
            let (length, behind) = u64::read_from_prefix(behind).ok()?;
            let (path, behind) = behind.split_at_checked(usize::try_from(length).ok()?)?;
            rest = behind;
            Some((info, path))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn names_have_an_end() {
        let label: [u8; 8] = field(b"label").expect("room");
        assert_eq!(text(&label), b"label");
        assert_eq!(field::<5>(b"label"), None, "no room for the zero");
        assert_eq!(field::<8>(b"a\0b"), None);
        assert_eq!(text(b"whole"), b"whole");
    }

    #[test]
    fn a_page_holds_what_was_put_into_it() {
        let mut page = SubvolumePage::empty(5);
        let mut info = SubvolumeInfo::new_zeroed();
        let mut pushed = 0;
        loop {
            info.id = 256 + pushed;
            if !page.push(&info, format!("some/path/{pushed}").as_bytes()) {
                break;
            }
            pushed += 1;
        }
        assert!(pushed > 20);
        let found: Vec<_> = page.iter().map(|(info, path)| (info.id, path.to_vec())).collect();
        assert_eq!(found.len() as u64, pushed);
        assert_eq!(found[7], (263, b"some/path/7".to_vec()));
        let mut page = SubvolumePage::empty(5);
        assert!(page.push(&info, &[b'x'; 100_000]), "cut off, but there");
        assert_eq!(page.iter().count(), 1);
    }

    #[test]
    fn nonsense_in_a_page_ends_it() {
        let mut page = SubvolumePage::empty(5);
        page.used = u64::MAX;
        page.records.fill(0xff);
        assert_eq!(page.iter().count(), 0);
    }
}

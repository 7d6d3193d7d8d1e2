//! The table of ioctls: one row each, from which the client encodes and the server dispatches.
//!
//! A row names the number, the argument and its direction, the servers that answer, the privilege that the server demands,
//! the pace, and the effect. A new verb is a row here and a handler in the server's table (`fuse/src/operations/verbs.rs`).

use crate::message::{
    Balance, BalanceReport, BalanceStart, ClassesRequest, CloneRange, CommitsReport, ContentsPart,
    DefragmentPiece, DeviceInfo, DeviceReport, DeviceStart, DeviceStatistics, ExtendedFlags, FilesystemInfo,
    HintRequest, InodeLookup, KernelDefragment, KernelEncodedWrite, KernelReceived, KernelReplace,
    KernelScrub, KernelSend, Label, LogReport, QgroupAssign, QgroupCreate, QgroupLimits, QuotaControl,
    QuotaRescan, ReadOnlyReason, ReadsPage, ReceiveStart, RecordPage, ScrubLimit, ScrubPage, ScrubStart,
    SendStart, ServerInfo, Setting, SnapshotRequest, SpaceList, SpacePage, SubvolumeInfo, SubvolumePage,
    TrafficPage, TreeSearch, TrimRange, VolumeArguments, VolumeArgumentsV2, WriteBackReport,
    WriteBackRequest,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An ioctl as a type.
pub trait Verb {
    /// Message of the client; `()` without one.
    type Told: Message;
    /// Answer of the server; `()` without one.
    type Answer: Message;
    /// The row of the table.
    const ROW: Row;
}

/// A value that an ioctl carries: any bytes of its size are one.
pub trait Message: FromBytes + IntoBytes + Immutable + KnownLayout {}

impl<T: FromBytes + IntoBytes + Immutable + KnownLayout> Message for T {}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name of the verb.
    pub name: &'static str,
    /// Number of the ioctl.
    pub number: u32,
    /// Direction of the argument.
    pub direction: Direction,
    /// Servers that answer.
    pub server: Server,
    /// Privilege that brindle's server demands.
    pub privilege: Privilege,
    /// Time that brindle's server may take.
    pub pace: Pace,
    /// Effect on the pool.
    pub effect: Effect,
}

/// Direction of an ioctl's argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// No argument.
    Plain = 0,
    /// Argument of the client alone.
    Tells = 1,
    /// Answer of the server alone.
    Asks = 2,
    /// Argument that the server answers in its place.
    Exchanges = 3,
}

/// Servers that answer an ioctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// The kernel's mounts alone.
    Kernel,
    /// Mounts of brindle alone.
    Brindle,
    /// Both.
    Any,
}

/// Privilege that an ioctl takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// The handler decides, by the file and the argument.
    Judged,
    /// Root, or the user that serves the mount.
    Administrator,
}

/// Thread that carries an ioctl out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The thread that takes requests.
    Quick,
    /// A worker. The ioctl may take long, or makes the kernel drop cached names, for which it may need locks that other
    /// processes hold while they wait for the server.
    Slow,
}

/// Effect of an ioctl on the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// None that a mount at rest would refuse.
    Nothing,
    /// A change, refused by a mount that is remounted read-only.
    Change,
    /// A change of a subvolume, which a mount with `sync` also makes durable at once.
    Subvolume,
    /// A change of names, which mounts with `sync` or `dirsync` also make durable at once.
    Names,
}

impl Row {
    /// The row of an ioctl.
    pub fn find(number: u32) -> Option<&'static Self> {
        TABLE.iter().find(|row| row.number == number)
    }

    /// Returns true if brindle's server answers it.
    pub fn is_served(&self) -> bool {
        self.server != Server::Kernel
    }

    /// Bytes of the argument by the number.
    pub const fn argument_bytes(&self) -> usize {
        ((self.number >> 16) & ((1 << SIZE_BITS) - 1)) as usize
    }
}

/// Bits of a number that hold the size of the argument.
const SIZE_BITS: u32 = 14;

/// Place of a number.
#[derive(Clone, Copy)]
enum Number {
    /// Family and command.
    Of(u8, u8),
    /// The number itself, where its size is not that of the argument.
    Exact(u32),
}

/// Numbers of btrfs.
const fn btrfs(command: u8) -> Number {
    Number::Of(0x94, command)
}

/// Numbers of brindle, in a family that the kernel's list leaves free.
const fn brindle(command: u8) -> Number {
    Number::Of(0xeb, command)
}

impl Number {
    /// The number by the layout of `_IOC` on the machines that brindle runs on.
    const fn with(self, direction: Direction, size: usize) -> u32 {
        match self {
            Self::Exact(number) => number,
            Self::Of(family, command) => {
                assert!(size < 1 << SIZE_BITS, "the size has 14 bits");
                #[expect(clippy::cast_possible_truncation, reason = "just checked")]
                let size = size as u32;
                (direction as u32) << 30 | size << 16 | (family as u32) << 8 | command as u32
            }
        }
    }
}

macro_rules! told {
    (Plain) => {
        ()
    };
    (Asks $argument:ty) => {
        ()
    };
    ($direction:ident $argument:ty) => {
        $argument
    };
}

macro_rules! answer {
    (Plain) => {
        ()
    };
    (Tells $argument:ty) => {
        ()
    };
    ($direction:ident $argument:ty) => {
        $argument
    };
}

macro_rules! argument {
    () => {
        ()
    };
    ($argument:ty) => {
        $argument
    };
}

macro_rules! verbs {
    ($(
        $(#[$doc:meta])*
        $name:ident: $number:expr, $direction:ident $(($argument:ty))?, $server:ident, $privilege:ident, $pace:ident, $effect:ident;
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub enum $name {}

            impl Verb for $name {
                type Told = told!($direction $($argument)?);
                type Answer = answer!($direction $($argument)?);
                const ROW: Row = Row {
                    name: stringify!($name),
                    number: $number.with(Direction::$direction, size_of::<argument!($($argument)?)>()),
                    direction: Direction::$direction,
                    server: Server::$server,
                    privilege: Privilege::$privilege,
                    pace: Pace::$pace,
                    effect: Effect::$effect,
                };
            }
        )*

        /// All rows.
        pub const TABLE: &[Row] = &[$($name::ROW),*];
    };
}

verbs! {
    /// Attributes of the inode, as FUSE passes them on (`FS_IOC_GETFLAGS`): four bytes, whatever the number says.
    InodeGetFlags: Number::Exact(0x8008_6601), Asks(u32), Any, Judged, Quick, Nothing;
    /// Changes attributes of the inode (`FS_IOC_SETFLAGS`).
    InodeSetFlags: Number::Exact(0x4008_6602), Tells(u32), Any, Judged, Quick, Change;
    /// Generation of the inode (`FS_IOC_GETVERSION`): four bytes, whatever the number says.
    InodeGetVersion: Number::Exact(0x8008_7601), Asks(u32), Any, Judged, Quick, Nothing;
    /// Extended attributes of the inode (`FS_IOC_FSGETXATTR`).
    InodeGetExtended: Number::Of(b'X', 31), Asks(ExtendedFlags), Any, Judged, Quick, Nothing;
    /// Changes extended attributes of the inode (`FS_IOC_FSSETXATTR`).
    InodeSetExtended: Number::Of(b'X', 32), Tells(ExtendedFlags), Any, Judged, Quick, Change;

    /// Makes a subvolume in the directory.
    SubvolumeCreate: btrfs(14), Tells(VolumeArguments), Any, Judged, Slow, Names;
    /// Makes a subvolume in the directory.
    SubvolumeCreateV2: btrfs(24), Tells(VolumeArgumentsV2), Any, Judged, Slow, Names;
    /// Makes a snapshot in the directory.
    SnapshotCreateV2: btrfs(23), Tells(VolumeArgumentsV2), Kernel, Judged, Slow, Names;
    /// Deletes a subvolume of the directory.
    SnapshotDestroy: btrfs(15), Tells(VolumeArguments), Any, Judged, Slow, Names;
    /// Deletes a subvolume of the directory, or by its id.
    SnapshotDestroyV2: btrfs(63), Tells(VolumeArgumentsV2), Any, Judged, Slow, Names;
    /// Flags of the subvolume: whether it is read-only.
    SubvolumeGetFlags: btrfs(25), Asks(u64), Any, Judged, Quick, Nothing;
    /// Makes the subvolume read-only or writable.
    SubvolumeSetFlags: btrfs(26), Tells(u64), Any, Judged, Slow, Subvolume;
    /// Sets the default subvolume.
    DefaultSubvolume: btrfs(19), Tells(u64), Any, Administrator, Quick, Subvolume;
    /// Subvolume of a file, and its path in it.
    LookUpInode: btrfs(18), Exchanges(InodeLookup), Any, Judged, Quick, Nothing;
    /// Facts of the subvolume.
    DescribeSubvolume: btrfs(60), Asks(SubvolumeInfo), Any, Judged, Quick, Nothing;

    /// Commits.
    Sync: btrfs(8), Plain, Any, Judged, Slow, Nothing;
    /// Begins a commit; answers the transaction.
    StartSync: btrfs(24), Asks(u64), Any, Judged, Slow, Nothing;
    /// Waits for the commit of a transaction.
    WaitSync: btrfs(22), Tells(u64), Any, Judged, Slow, Nothing;
    /// Facts of the filesystem.
    DescribeFilesystem: btrfs(31), Asks(FilesystemInfo), Any, Judged, Quick, Nothing;
    /// Facts of a device.
    DescribeDevice: btrfs(30), Exchanges(DeviceInfo), Any, Judged, Quick, Nothing;
    /// Error counters of a device.
    CountDeviceErrors: btrfs(52), Exchanges(DeviceStatistics), Any, Judged, Quick, Nothing;
    /// Label (`FS_IOC_GETFSLABEL`).
    GetLabel: btrfs(49), Asks(Label), Any, Judged, Quick, Nothing;
    /// Changes the label (`FS_IOC_SETFSLABEL`).
    SetLabel: btrfs(50), Tells(Label), Any, Administrator, Slow, Change;
    /// Gives unused space back to the devices (`FITRIM`).
    Trim: Number::Of(b'X', 121), Exchanges(TrimRange), Any, Administrator, Slow, Nothing;
    /// Items of a tree.
    SearchTree: btrfs(17), Exchanges(TreeSearch), Any, Administrator, Quick, Nothing;

    /// Turns quotas on or off.
    ControlQuotas: btrfs(40), Exchanges(QuotaControl), Any, Administrator, Slow, Change;
    /// Makes a quota group part of another one, or takes it out; the kernel answers 1 if a rescan is needed, brindle
    /// begins it.
    AssignQgroup: btrfs(41), Tells(QgroupAssign), Any, Administrator, Slow, Change;
    /// Makes or removes a quota group.
    CreateQgroup: btrfs(42), Tells(QgroupCreate), Any, Administrator, Slow, Change;
    /// Limits a quota group. The kernel reads the argument, though the number says that it answers.
    LimitQgroup: btrfs(43), Asks(QgroupLimits), Kernel, Administrator, Slow, Change;
    /// Begins to count quota groups anew.
    RescanQuotas: btrfs(44), Tells(QuotaRescan), Any, Administrator, Slow, Change;
    /// Progress of a rescan.
    FollowRescan: btrfs(45), Asks(QuotaRescan), Any, Administrator, Quick, Nothing;

    /// Makes a device known to the kernel (`/dev/btrfs-control`).
    ScanDevice: btrfs(4), Tells(VolumeArguments), Kernel, Administrator, Slow, Nothing;
    /// Makes the kernel forget a device, or with an empty name all that are not mounted (`/dev/btrfs-control`).
    ForgetDevice: btrfs(5), Tells(VolumeArguments), Kernel, Administrator, Slow, Nothing;
    /// Sums by content and profile; the number has the size of what precedes the entries.
    ListSpaces: Number::Exact(0xc010_9414), Exchanges(SpaceList), Kernel, Judged, Quick, Nothing;
    /// Gives a device of the pool another size.
    Resize: btrfs(3), Tells(VolumeArguments), Kernel, Administrator, Slow, Change;
    /// Adds a device (`BTRFS_IOC_ADD_DEV`).
    AddDevice: btrfs(10), Tells(VolumeArguments), Kernel, Administrator, Slow, Change;
    /// Removes a device (`BTRFS_IOC_RM_DEV_V2`).
    RemoveDevice: btrfs(58), Tells(VolumeArgumentsV2), Kernel, Administrator, Slow, Change;
    /// Balances, and returns at the end.
    RunBalance: btrfs(32), Exchanges(Balance), Kernel, Administrator, Slow, Change;
    /// Ends or pauses a balance. The argument is the command itself.
    ControlBalance: btrfs(33), Tells(i32), Kernel, Administrator, Slow, Nothing;
    /// Progress of a balance.
    FollowBalance: btrfs(34), Asks(Balance), Kernel, Administrator, Quick, Nothing;

    /// Scrubs a device, and returns at the end.
    RunScrub: btrfs(27), Exchanges(KernelScrub), Kernel, Administrator, Slow, Nothing;
    /// Ends the scrubs of all devices.
    CancelScrub: btrfs(28), Plain, Kernel, Administrator, Slow, Nothing;
    /// Progress of the scrub of a device.
    FollowScrub: btrfs(29), Exchanges(KernelScrub), Kernel, Administrator, Quick, Nothing;
    /// Defragments a range of the file (`BTRFS_IOC_DEFRAG_RANGE`).
    DefragmentRange: btrfs(16), Tells(KernelDefragment), Kernel, Judged, Slow, Change;
    /// Sends the subvolume, and returns at the end (`BTRFS_IOC_SEND`).
    SendSubvolume: btrfs(38), Tells(KernelSend), Kernel, Administrator, Slow, Nothing;
    /// Marks the subvolume as received, or takes the mark away (`BTRFS_IOC_SET_RECEIVED_SUBVOL`).
    MarkReceived: btrfs(37), Exchanges(KernelReceived), Kernel, Judged, Slow, Subvolume;
    /// Shares a range of another file (`FICLONERANGE`).
    ShareRange: btrfs(13), Tells(CloneRange), Kernel, Judged, Slow, Change;
    /// Writes contents that are encoded (`BTRFS_IOC_ENCODED_WRITE`).
    WriteEncoded: btrfs(64), Tells(KernelEncodedWrite), Kernel, Administrator, Slow, Change;
    /// Begins the replacement of a device, which returns at the end, ends it, or tells its state.
    ReplaceDevice: btrfs(53), Exchanges(KernelReplace), Kernel, Administrator, Slow, Nothing;

    /// Makes a snapshot of the subvolume whose root has this inode number, or an empty subvolume; in quota groups.
    Snapshot: brindle(1), Tells(SnapshotRequest), Brindle, Judged, Slow, Names;
    /// A page of the list of subvolumes.
    ListSubvolumes: brindle(2), Exchanges(SubvolumePage), Brindle, Administrator, Slow, Nothing;
    /// Process that serves the mount.
    DescribeServer: brindle(3), Asks(ServerInfo), Brindle, Judged, Quick, Nothing;
    /// A page of the space of the pool.
    ReportSpace: brindle(4), Exchanges(SpacePage), Brindle, Judged, Quick, Nothing;
    /// Work of the commits.
    ReportCommits: brindle(5), Asks(CommitsReport), Brindle, Judged, Quick, Nothing;
    /// Reason why nothing is written any more; empty while the pool is written.
    ExplainReadOnly: brindle(6), Asks(ReadOnlyReason), Brindle, Judged, Quick, Nothing;
    /// Begins a balance, or goes on with one; answers at once.
    StartBalance: brindle(7), Tells(BalanceStart), Brindle, Administrator, Slow, Change;
    /// Pauses or cancels a balance; answers at once.
    StopBalance: brindle(8), Tells(u32), Brindle, Administrator, Slow, Nothing;
    /// Progress of a balance.
    ReportBalance: brindle(9), Asks(BalanceReport), Brindle, Judged, Quick, Nothing;
    /// Begins a change of devices.
    StartDeviceChange: brindle(10), Tells(DeviceStart), Brindle, Administrator, Slow, Change;
    /// Stops a change of devices.
    StopDeviceChange: brindle(11), Tells(u32), Brindle, Administrator, Slow, Nothing;
    /// Progress of a change of devices.
    ReportDeviceChange: brindle(12), Asks(DeviceReport), Brindle, Judged, Quick, Nothing;
    /// Begins a scrub, or goes on with one; answers at once.
    StartScrub: brindle(13), Tells(ScrubStart), Brindle, Administrator, Slow, Nothing;
    /// Ends a scrub for now; answers at once.
    StopScrub: brindle(14), Plain, Brindle, Administrator, Slow, Nothing;
    /// Limits a scrub that runs.
    LimitScrub: brindle(15), Tells(ScrubLimit), Brindle, Administrator, Quick, Nothing;
    /// A page of the record of the last scrub, which names files.
    ReportScrub: brindle(16), Exchanges(ScrubPage), Brindle, Administrator, Slow, Nothing;
    /// Stores another allocation hint.
    SetHint: brindle(20), Tells(HintRequest), Brindle, Administrator, Slow, Change;
    /// Stores another limit for small files.
    SetSmallFiles: brindle(21), Tells(u64), Brindle, Administrator, Slow, Change;
    /// Changes the weight of the class of devices; as in the report of space.
    SetPlacement: brindle(22), Tells(u64), Brindle, Administrator, Slow, Change;
    /// Stores other settings of the write-back tier.
    SetWriteBack: brindle(23), Tells(WriteBackRequest), Brindle, Administrator, Slow, Change;
    /// State of the write-back tier.
    ReportWriteBack: brindle(24), Asks(WriteBackReport), Brindle, Judged, Quick, Nothing;
    /// Stores another profile of the log: the number of copies that are enough, 0 for as many as of other metadata.
    SetLogProfile: brindle(25), Tells(u64), Brindle, Administrator, Slow, Change;
    /// Profile of the log.
    ReportLog: brindle(26), Asks(LogReport), Brindle, Judged, Quick, Nothing;
    /// Limits a quota group, as [`LimitQgroup`], whose argument FUSE does not pass on.
    LimitQuotaGroup: brindle(27), Tells(QgroupLimits), Brindle, Administrator, Slow, Change;
    /// Stores other classes of devices.
    SetClasses: brindle(28), Tells(ClassesRequest), Brindle, Administrator, Slow, Change;
    /// A setting of the mount, by its name.
    GetSetting: brindle(30), Exchanges(Setting), Brindle, Judged, Quick, Nothing;
    /// Changes a setting of the mount.
    SetSetting: brindle(31), Tells(Setting), Brindle, Administrator, Quick, Nothing;
    /// A page of the reads of the devices.
    ReportReads: brindle(32), Exchanges(ReadsPage), Brindle, Judged, Quick, Nothing;
    /// A page of the requests of the devices, and the cache of metadata.
    ReportTraffic: brindle(33), Exchanges(TrafficPage), Brindle, Judged, Quick, Nothing;
    /// Begins a record of the requests of all devices: 1; or ends it: 0.
    RecordRequests: brindle(34), Tells(u64), Brindle, Administrator, Quick, Nothing;
    /// Takes recorded requests of a device.
    TakeRecorded: brindle(35), Exchanges(RecordPage), Brindle, Administrator, Quick, Nothing;
    /// Defragments a piece of the metadata, and says where the next one begins.
    Defragment: brindle(40), Exchanges(DefragmentPiece), Brindle, Administrator, Slow, Change;
    /// Defragments a part of the contents of the file, and says where the next one begins.
    DefragmentContents: brindle(41), Exchanges(ContentsPart), Brindle, Judged, Slow, Change;
    /// Begins to send subvolumes; answers at once.
    StartSend: brindle(50), Tells(SendStart), Brindle, Administrator, Slow, Nothing;
    /// Begins to receive subvolumes into the directory; answers at once.
    StartReceive: brindle(51), Tells(ReceiveStart), Brindle, Administrator, Slow, Change;
}

// Numbers as the kernel's headers have them.
const _: () = assert!(Sync::ROW.number == 0x9408);
const _: () = assert!(InodeGetExtended::ROW.number == 0x801c_581f);
const _: () = assert!(InodeSetExtended::ROW.number == 0x401c_5820);
const _: () = assert!(SubvolumeCreate::ROW.number == 0x5000_940e);
const _: () = assert!(SubvolumeGetFlags::ROW.number == 0x8008_9419);
const _: () = assert!(LookUpInode::ROW.number == 0xd000_9412);
const _: () = assert!(DescribeSubvolume::ROW.number == 0x81f8_943c);
const _: () = assert!(DescribeFilesystem::ROW.number == 0x8400_941f);
const _: () = assert!(DescribeDevice::ROW.number == 0xd000_941e);
const _: () = assert!(CountDeviceErrors::ROW.number == 0xc408_9434);
const _: () = assert!(GetLabel::ROW.number == 0x8100_9431 && Trim::ROW.number == 0xc018_5879);
const _: () = assert!(Resize::ROW.number == 0x5000_9403 && SearchTree::ROW.number == 0xd000_9411);
const _: () = assert!(RunBalance::ROW.number == 0xc400_9420);
const _: () = assert!(ControlBalance::ROW.number == 0x4004_9421);
const _: () = assert!(RunScrub::ROW.number == 0xc400_941b && CancelScrub::ROW.number == 0x941c);
const _: () = assert!(FollowScrub::ROW.number == 0xc400_941d);
const _: () = assert!(ReplaceDevice::ROW.number == 0xca28_9435);
const _: () = assert!(ControlQuotas::ROW.number == 0xc010_9428 && AssignQgroup::ROW.number == 0x4018_9429);
const _: () = assert!(CreateQgroup::ROW.number == 0x4010_942a && LimitQgroup::ROW.number == 0x8030_942b);
const _: () = assert!(RescanQuotas::ROW.number == 0x4040_942c && FollowRescan::ROW.number == 0x8040_942d);
const _: () = assert!(FollowBalance::ROW.number == 0x8400_9422 && SendSubvolume::ROW.number == 0x4048_9426);
const _: () = assert!(MarkReceived::ROW.number == 0xc0c8_9425 && ShareRange::ROW.number == 0x4020_940d);
const _: () = assert!(WriteEncoded::ROW.number == 0x4080_9440);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_and_names_are_unique() {
        let numbers: BTreeSet<u32> = TABLE.iter().map(|row| row.number).collect();
        let names: BTreeSet<&str> = TABLE.iter().map(|row| row.name).collect();
        assert_eq!((numbers.len(), names.len()), (TABLE.len(), TABLE.len()));
        assert!(TABLE.iter().all(|row| Row::find(row.number) == Some(row)));
        assert_eq!(Row::find(0x1234), None);
    }

    #[test]
    fn a_number_tells_the_direction_and_the_size_of_the_argument() {
        for row in TABLE {
            assert_eq!(row.number >> 30, row.direction as u32, "{}", row.name);
            assert_eq!(row.argument_bytes() == 0, row.direction == Direction::Plain, "{}", row.name);
        }
        assert_eq!(SearchTree::ROW.argument_bytes(), 4096);
    }
}

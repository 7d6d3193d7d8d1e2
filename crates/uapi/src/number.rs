//! The numbers of ioctls.

use crate::message::{
    Balance, BalanceReport, BalanceStart, CommitsReport, DefragmentPiece, DeviceInfo, DeviceReport,
    DeviceStart, DeviceStatistics, FilesystemInfo, HintRequest, InodeLookup, Label, ReadOnlyReason,
    ReadsPage, ServerInfo, Setting, SnapshotRequest, SpacePage, SubvolumeInfo, SubvolumePage, TreeSearch,
    TrimRange, VolumeArguments, VolumeArgumentsV2,
};

/// What an ioctl's argument is to the kernel.
#[derive(Clone, Copy)]
enum Direction {
    None = 0,
    Write = 1,
    Read = 2,
    Both = 3,
}

const BTRFS: u8 = 0x94;
/// Ours; used by nobody in the kernel's list.
const BRINDLE: u8 = 0xeb;

/// The number as `_IOC` of the kernel makes it on all machines that we know of.
const fn number<T>(direction: Direction, family: u8, command: u8) -> u32 {
    const SIZE_BITS: u32 = 14;
    let size = size_of::<T>();
    assert!(size < 1 << SIZE_BITS, "the size has 14 bits");
    #[expect(clippy::cast_possible_truncation, reason = "just checked")]
    let size = size as u32;
    (direction as u32) << 30 | size << 16 | (family as u32) << 8 | command as u32
}

/// Makes a subvolume in the directory.
pub const SUBVOLUME_CREATE: u32 = number::<VolumeArguments>(Direction::Write, BTRFS, 14);
/// Makes a subvolume in the directory.
pub const SUBVOLUME_CREATE_V2: u32 = number::<VolumeArgumentsV2>(Direction::Write, BTRFS, 24);
/// Makes a snapshot in the directory.
pub const SNAPSHOT_CREATE_V2: u32 = number::<VolumeArgumentsV2>(Direction::Write, BTRFS, 23);
/// Deletes a subvolume of the directory.
pub const SNAPSHOT_DESTROY: u32 = number::<VolumeArguments>(Direction::Write, BTRFS, 15);
/// Deletes a subvolume of the directory, or by its id.
pub const SNAPSHOT_DESTROY_V2: u32 = number::<VolumeArgumentsV2>(Direction::Write, BTRFS, 63);
/// Whether the subvolume is read-only.
pub const SUBVOLUME_GET_FLAGS: u32 = number::<u64>(Direction::Read, BTRFS, 25);
/// Makes the subvolume read-only or writable.
pub const SUBVOLUME_SET_FLAGS: u32 = number::<u64>(Direction::Write, BTRFS, 26);
/// Sets the default subvolume.
pub const DEFAULT_SUBVOLUME: u32 = number::<u64>(Direction::Write, BTRFS, 19);
/// The subvolume of a file, and its path in it.
pub const INODE_LOOKUP: u32 = number::<InodeLookup>(Direction::Both, BTRFS, 18);
/// What there is to know of the subvolume.
pub const SUBVOLUME_INFO: u32 = number::<SubvolumeInfo>(Direction::Read, BTRFS, 60);
/// Commits.
pub const SYNC: u32 = number::<()>(Direction::None, BTRFS, 8);
/// Begins a commit; answers the transaction.
pub const START_SYNC: u32 = number::<u64>(Direction::Read, BTRFS, 24);
/// Waits for the commit of a transaction.
pub const WAIT_SYNC: u32 = number::<u64>(Direction::Write, BTRFS, 22);
/// What there is to know of the filesystem.
pub const FILESYSTEM_INFO: u32 = number::<FilesystemInfo>(Direction::Read, BTRFS, 31);
/// What there is to know of a device.
pub const DEVICE_INFO: u32 = number::<DeviceInfo>(Direction::Both, BTRFS, 30);
/// Gives a device of the pool another size.
pub const RESIZE: u32 = number::<VolumeArguments>(Direction::Write, BTRFS, 3);
/// A device joins (`BTRFS_IOC_ADD_DEV`).
pub const ADD_DEVICE: u32 = number::<VolumeArguments>(Direction::Write, BTRFS, 10);
/// A device leaves (`BTRFS_IOC_RM_DEV_V2`).
pub const REMOVE_DEVICE: u32 = number::<VolumeArgumentsV2>(Direction::Write, BTRFS, 58);
/// Items of a tree.
pub const TREE_SEARCH: u32 = number::<TreeSearch>(Direction::Both, BTRFS, 17);
/// Balances, and returns when it is done.
pub const BALANCE: u32 = number::<Balance>(Direction::Both, BTRFS, 32);
/// Ends or pauses a balance. The argument is the command itself.
pub const BALANCE_CONTROL: u32 = number::<i32>(Direction::Write, BTRFS, 33);
/// How far a balance is.
pub const BALANCE_PROGRESS: u32 = number::<Balance>(Direction::Read, BTRFS, 34);
/// What a device has got wrong.
pub const DEVICE_STATISTICS: u32 = number::<DeviceStatistics>(Direction::Both, BTRFS, 52);
/// The label (`FS_IOC_GETFSLABEL`).
pub const GET_LABEL: u32 = number::<Label>(Direction::Read, BTRFS, 49);
/// Sets the label (`FS_IOC_SETFSLABEL`).
pub const SET_LABEL: u32 = number::<Label>(Direction::Write, BTRFS, 50);
/// Gives unused space back to the devices (`FITRIM`).
pub const TRIM: u32 = number::<TrimRange>(Direction::Both, b'X', 121);

/// Ours: makes a snapshot of the subvolume whose root has this inode number.
pub const BRINDLE_SNAPSHOT: u32 = number::<SnapshotRequest>(Direction::Write, BRINDLE, 1);
/// Ours: lists subvolumes.
pub const BRINDLE_SUBVOLUMES: u32 = number::<SubvolumePage>(Direction::Both, BRINDLE, 2);
/// Ours: a page of the space there is.
pub const BRINDLE_SPACE: u32 = number::<SpacePage>(Direction::Both, BRINDLE, 4);
/// Ours: stores another allocation hint.
pub const BRINDLE_SET_HINT: u32 = number::<HintRequest>(Direction::Write, BRINDLE, 20);
/// Ours: stores another limit for small files.
pub const BRINDLE_SET_SMALL_FILES: u32 = number::<u64>(Direction::Write, BRINDLE, 21);
/// Ours: lets the class of devices weigh more or less; as in the report of space.
pub const BRINDLE_SET_PLACEMENT: u32 = number::<u64>(Direction::Write, BRINDLE, 22);
/// Ours: what commits did.
pub const BRINDLE_COMMITS: u32 = number::<CommitsReport>(Direction::Read, BRINDLE, 5);
/// Ours: who serves the mount.
pub const BRINDLE_SERVER: u32 = number::<ServerInfo>(Direction::Read, BRINDLE, 3);
/// Asks why nothing is written any more; empty while something may be.
pub const BRINDLE_READ_ONLY_REASON: u32 = number::<ReadOnlyReason>(Direction::Read, BRINDLE, 6);
/// Ours: a setting of the mount, by its name.
pub const BRINDLE_SETTING: u32 = number::<Setting>(Direction::Both, BRINDLE, 30);
/// Ours: changes a setting of the mount.
pub const BRINDLE_SET_SETTING: u32 = number::<Setting>(Direction::Write, BRINDLE, 31);
/// Ours: a page of the reads of the devices.
pub const BRINDLE_READS: u32 = number::<ReadsPage>(Direction::Both, BRINDLE, 32);
/// Ours: begins a balance, or goes on with one; answers at once.
pub const BRINDLE_BALANCE_START: u32 = number::<BalanceStart>(Direction::Write, BRINDLE, 7);
/// Ours: pauses or cancels a balance; answers at once.
pub const BRINDLE_BALANCE_STOP: u32 = number::<u32>(Direction::Write, BRINDLE, 8);
/// Ours: how far a balance is.
pub const BRINDLE_BALANCE_REPORT: u32 = number::<BalanceReport>(Direction::Read, BRINDLE, 9);
/// Begins a change of devices (ours).
pub const BRINDLE_DEVICE_START: u32 = number::<DeviceStart>(Direction::Write, BRINDLE, 10);
/// Stops one (ours).
pub const BRINDLE_DEVICE_STOP: u32 = number::<u32>(Direction::Write, BRINDLE, 11);
/// How far it is (ours).
pub const BRINDLE_DEVICE_REPORT: u32 = number::<DeviceReport>(Direction::Read, BRINDLE, 12);
/// Ours: defragments a piece of the metadata, and says where the next one begins.
pub const BRINDLE_DEFRAGMENT: u32 = number::<DefragmentPiece>(Direction::Both, BRINDLE, 40);

// As the kernel's headers have them.
const _: () = assert!(SYNC == 0x9408);
const _: () = assert!(SUBVOLUME_CREATE == 0x5000_940e && SUBVOLUME_GET_FLAGS == 0x8008_9419);
const _: () = assert!(INODE_LOOKUP == 0xd000_9412 && SUBVOLUME_INFO == 0x81f8_943c);
const _: () = assert!(FILESYSTEM_INFO == 0x8400_941f && DEVICE_INFO == 0xd000_941e);
const _: () = assert!(DEVICE_STATISTICS == 0xc408_9434);
const _: () = assert!(GET_LABEL == 0x8100_9431 && TRIM == 0xc018_5879);
const _: () = assert!(RESIZE == 0x5000_9403 && TREE_SEARCH == 0xd000_9411 && BALANCE == 0xc400_9420);
const _: () = assert!(BALANCE_CONTROL == 0x4004_9421 && BALANCE_PROGRESS == 0x8400_9422);

//! Ioctls: flags of inodes, and what concerns the filesystem as a whole.

use super::{Operations, number};
use crate::flags;
use crate::permission::Caller;
use brindle_fs::{AllocationHint, InodeId, PlacementClass, PlacementMode, SpaceSummary, Spread};
use brindle_ondisk::{DevId, Logical, to_u64, to_usize};
use brindle_uapi::message::{
    BalanceStart, CommitReport, CommitsReport, DEVICE_BEHIND, DEVICE_MISSING, DEVICE_STALE, DeviceInfo,
    DeviceSpace, DeviceStart, DeviceStatistics, FilesystemInfo, GroupSpace, HintRequest, InodeLookup, Label,
    RESET_STATISTICS, ReadOnlyReason, ReadsPage, ServerInfo, Setting, SnapshotRequest, SpacePage,
    SubvolumePage, TreeSearch, TrimRange, VolumeArguments, VolumeArgumentsV2, field, text,
};
use brindle_uapi::number as command;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::time::Duration;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// An ioctl.
#[derive(Clone, Debug)]
pub(crate) struct Ioctl {
    pub(crate) caller: Caller,
    /// The open file or directory.
    pub(crate) node: u64,
    pub(crate) command: u32,
    pub(crate) input: Vec<u8>,
}

/// Returns true if an ioctl may take long, or makes the kernel forget something, for which it may need locks held by
/// processes that wait for us: a thread that serves requests must not wait for such.
pub(crate) fn is_slow(asked: u32) -> bool {
    const SLOW: [u32; 20] = [
        command::SUBVOLUME_CREATE,
        command::SUBVOLUME_CREATE_V2,
        command::BRINDLE_SNAPSHOT,
        command::SNAPSHOT_DESTROY,
        command::SNAPSHOT_DESTROY_V2,
        command::SUBVOLUME_SET_FLAGS,
        command::BRINDLE_SUBVOLUMES,
        command::SYNC,
        command::START_SYNC,
        command::WAIT_SYNC,
        command::TRIM,
        command::SET_LABEL,
        command::BRINDLE_SET_HINT,
        command::BRINDLE_SET_SMALL_FILES,
        command::BRINDLE_SET_PLACEMENT,
        command::BRINDLE_BALANCE_START,
        command::BRINDLE_BALANCE_STOP,
        command::BRINDLE_DEVICE_START,
        command::BRINDLE_DEVICE_STOP,
        command::BRINDLE_DEFRAGMENT,
    ];
    SLOW.contains(&asked)
}

impl Operations {
    /// Does it, and answers.
    pub(crate) fn ioctl(&self, ioctl: &Ioctl) -> Result<Vec<u8>, Errno> {
        self.require_awake(ioctl.command)?;
        let answer = self.ioctl_of_node(ioctl)?;
        self.settle_ioctl(ioctl.command)?;
        Ok(answer)
    }

    /// Ioctls that concern an inode or a subvolume, or else the filesystem.
    fn ioctl_of_node(&self, ioctl: &Ioctl) -> Result<Vec<u8>, Errno> {
        let (caller, node, input) = (ioctl.caller, ioctl.node, ioctl.input.as_slice());
        let done = |()| Vec::new();
        match ioctl.command {
            flags::FS_IOC_GETFLAGS | flags::FS_IOC_FSGETXATTR => self.get_flags(node, ioctl.command),
            flags::FS_IOC_SETFLAGS | flags::FS_IOC_FSSETXATTR => {
                self.set_flags(node, ioctl.command, input).map(done)
            }
            command::SUBVOLUME_CREATE => {
                let name = read::<VolumeArguments>(input)?.name;
                self.create_subvolume(caller, node, text(&name)).map(done)
            }
            command::SUBVOLUME_CREATE_V2 => {
                let arguments = read::<VolumeArgumentsV2>(input)?;
                self.create_subvolume(caller, node, plain_name(&arguments)?).map(done)
            }
            command::BRINDLE_SNAPSHOT => {
                self.snapshot(caller, node, &read::<SnapshotRequest>(input)?).map(done)
            }
            command::SNAPSHOT_DESTROY => {
                let name = read::<VolumeArguments>(input)?.name;
                self.delete_subvolume(caller, node, text(&name)).map(done)
            }
            command::SNAPSHOT_DESTROY_V2 => {
                self.delete_subvolume_v2(caller, node, &read::<VolumeArgumentsV2>(input)?).map(done)
            }
            command::SUBVOLUME_GET_FLAGS => Ok(self.subvolume_flags(node)?.as_bytes().to_vec()),
            command::SUBVOLUME_SET_FLAGS => {
                self.set_subvolume_flags(caller, node, read::<u64>(input)?).map(done)
            }
            command::SUBVOLUME_INFO => Ok(self.subvolume_info(node)?.as_bytes().to_vec()),
            command::BRINDLE_SUBVOLUMES => {
                let page = self.subvolume_page(caller, read::<SubvolumePage>(input)?.after)?;
                Ok(page.as_bytes().to_vec())
            }
            command::DEFAULT_SUBVOLUME => {
                self.set_default_subvolume(caller, node, read::<u64>(input)?).map(done)
            }
            command::INODE_LOOKUP => {
                Ok(self.lookup_inode(caller, node, read::<InodeLookup>(input)?)?.as_bytes().to_vec())
            }
            command::BRINDLE_DEFRAGMENT => {
                Ok(self.defragment(caller, node, &read(input)?)?.as_bytes().to_vec())
            }
            other => self.ioctl_of_filesystem(caller, other, input),
        }
    }

    /// Ioctls of the filesystem as a whole.
    fn ioctl_of_filesystem(&self, caller: Caller, asked: u32, input: &[u8]) -> Result<Vec<u8>, Errno> {
        match asked {
            command::SYNC => self.sync_with_pages().map(|()| Vec::new()),
            command::START_SYNC | command::WAIT_SYNC => {
                self.sync_with_pages()?;
                let generation = self.filesystem.pool().superblock().generation.get();
                Ok(if asked == command::START_SYNC { generation.as_bytes().to_vec() } else { Vec::new() })
            }
            command::FILESYSTEM_INFO => Ok(self.filesystem_info().as_bytes().to_vec()),
            command::DEVICE_INFO => Ok(self.device_info(&read::<DeviceInfo>(input)?)?.as_bytes().to_vec()),
            command::DEVICE_STATISTICS => {
                let asked = read::<DeviceStatistics>(input)?;
                Ok(self.device_statistics(caller, asked)?.as_bytes().to_vec())
            }
            command::GET_LABEL => {
                let superblock = self.filesystem.pool().superblock();
                Ok(Label(field(superblock.label()).ok_or(Errno::IO)?).as_bytes().to_vec())
            }
            command::SET_LABEL => self.set_label(caller, &read::<Label>(input)?).map(|()| Vec::new()),
            command::BRINDLE_SET_HINT => {
                self.set_hint(caller, &read::<HintRequest>(input)?).map(|()| Vec::new())
            }
            command::BRINDLE_SET_SMALL_FILES => {
                caller.require_administrator()?;
                number(self.filesystem.set_small_file_bytes(read::<u64>(input)?))?;
                number(self.filesystem.sync()).map(|()| Vec::new())
            }
            command::BRINDLE_SET_PLACEMENT => {
                caller.require_administrator()?;
                let mode = match read::<u64>(input)? {
                    0 => PlacementMode::Classic,
                    1 => PlacementMode::Preferred,
                    2 => PlacementMode::Strict,
                    _ => return Err(Errno::INVAL),
                };
                // What waits is written first, where it was promised to be.
                number(self.filesystem.sync())?;
                number(self.filesystem.pool().set_placement(mode).map_err(Into::into)).map(|()| Vec::new())
            }
            command::BRINDLE_SPACE => Ok(self.space_page(&read::<SpacePage>(input)?)?.as_bytes().to_vec()),
            command::BRINDLE_COMMITS => Ok(self.commits_report().as_bytes().to_vec()),
            command::TRIM => {
                caller.require_administrator()?;
                let mut range = read::<TrimRange>(input)?;
                let wanted = trimmed_addresses(&range, self.filesystem.pool().superblock().sectorsize.get())?;
                let trimmed = self.filesystem.pool().trim(wanted, range.minimum);
                range.length = number(trimmed.map_err(Into::into))?;
                Ok(range.as_bytes().to_vec())
            }
            command::BRINDLE_READ_ONLY_REASON => Ok(self.read_only_reason().as_bytes().to_vec()),
            command::BRINDLE_SETTING => Ok(self.setting(read::<Setting>(input)?)?.as_bytes().to_vec()),
            command::BRINDLE_SET_SETTING => {
                self.set_setting(caller, &read::<Setting>(input)?).map(|()| Vec::new())
            }
            command::BRINDLE_READS => {
                Ok(self.reads_page(read::<ReadsPage>(input)?.after_device).as_bytes().to_vec())
            }
            command::BRINDLE_SERVER => Ok(self.server_info().as_bytes().to_vec()),
            command::TREE_SEARCH => Ok(self.search(caller, read::<TreeSearch>(input)?)?.as_bytes().to_vec()),
            other => self.ioctl_of_care(caller, other, input),
        }
    }

    /// Ioctls of long jobs, which are begun, stopped and queried.
    fn ioctl_of_care(&self, caller: Caller, asked: u32, input: &[u8]) -> Result<Vec<u8>, Errno> {
        match asked {
            command::BRINDLE_BALANCE_START => {
                caller.require_administrator()?;
                self.balance.start(&self.filesystem, &read::<BalanceStart>(input)?).map(|()| Vec::new())
            }
            command::BRINDLE_BALANCE_STOP => {
                caller.require_administrator()?;
                self.balance.stop(&self.filesystem, read::<u32>(input)?).map(|()| Vec::new())
            }
            command::BRINDLE_BALANCE_REPORT => Ok(self.balance.report(&self.filesystem)?.as_bytes().to_vec()),
            command::BRINDLE_DEVICE_START => {
                caller.require_administrator()?;
                self.devices.start(&self.filesystem, &read::<DeviceStart>(input)?).map(|()| Vec::new())
            }
            command::BRINDLE_DEVICE_STOP => {
                caller.require_administrator()?;
                self.devices.stop().map(|()| Vec::new())
            }
            command::BRINDLE_DEVICE_REPORT => Ok(self.devices.report().as_bytes().to_vec()),
            _ => Err(Errno::NOTTY),
        }
    }

    fn get_flags(&self, node: u64, command: u32) -> Result<Vec<u8>, Errno> {
        let attributes = number(self.filesystem.attributes(self.inode(node)?))?;
        flags::answer(command, attributes.flags).ok_or(Errno::NOTTY)
    }

    fn set_label(&self, caller: Caller, label: &Label) -> Result<(), Errno> {
        caller.require_administrator()?;
        let is_text = label.0.contains(&0) && !text(&label.0).contains(&b'\n');
        let label = field(text(&label.0)).filter(|_| is_text).ok_or(Errno::INVAL)?;
        number(self.filesystem.pool().set_label(&label).map_err(Into::into))?;
        number(self.filesystem.sync())
    }

    fn set_hint(&self, caller: Caller, request: &HintRequest) -> Result<(), Errno> {
        caller.require_administrator()?;
        let hint = AllocationHint::from_disk(request.stored_type).filter(|hint| hint.is_stored());
        let (devid, pool) = (DevId::new(request.devid), self.filesystem.pool());
        number(pool.set_allocation_hint(devid, hint.ok_or(Errno::INVAL)?).map_err(Into::into))?;
        number(self.filesystem.sync())
    }

    /// The space from the group and the device on that are asked for.
    fn space_page(&self, asked: &SpacePage) -> Result<SpacePage, Errno> {
        let summary = number(self.filesystem.pool().space_summary().map_err(Into::into))?;
        let mut page = SpacePage {
            first_group: asked.first_group,
            after_device: asked.after_device,
            kept_back_bytes: summary.kept_back_bytes,
            waiting_bytes: summary.promised_data_bytes,
            placement: match summary.placement {
                PlacementMode::Classic => 0,
                PlacementMode::Preferred => 1,
                PlacementMode::Strict => 2,
            },
            has_tiers: summary.has_tiers.into(),
            small_file_bytes: self.filesystem.small_file_bytes(),
            data_room: [summary.data_room.preferred_bytes, summary.data_room.bytes],
            fast_data_room: summary.fast_data_room.bytes,
            metadata_room: [summary.metadata_room.preferred_bytes, summary.metadata_room.bytes],
            ..SpacePage::new_zeroed()
        };
        let groups = summary.groups.iter().map(|group| GroupSpace {
            kind: group.kind.bits(),
            total_bytes: group.total_bytes,
            used_bytes: group.used_bytes + group.reserved_bytes,
            spread: match group.spread {
                Spread::Both => 0,
                Spread::Fast => 1,
                Spread::Bulk => 2,
            },
        });
        page.fill(&groups.collect::<Vec<_>>(), &self.device_spaces(&summary));
        Ok(page)
    }

    /// The space of all devices, also of those that take no chunks, by their ids.
    fn device_spaces(&self, summary: &SpaceSummary) -> Vec<DeviceSpace> {
        let all = self.filesystem.pool().volume().devices();
        let states = all
            .iter()
            .map(|device| (device.devid, device_state(device.missing, device.is_stale, device.is_behind)));
        let states: BTreeMap<DevId, u64> = states.collect();
        let state = |devid| states.get(&devid).copied().unwrap_or(0);
        let there = summary.devices.iter().map(|device| DeviceSpace {
            devid: device.devid.get(),
            total_bytes: device.total_bytes,
            unallocated_bytes: device.unallocated_bytes,
            class: match device.class {
                PlacementClass::Fast => 1,
                PlacementClass::Bulk => 2,
            },
            stored_type: device.stored_type,
            state: state(device.devid),
        });
        let is_there = |devid| summary.devices.iter().any(|device| device.devid == devid);
        let absent = all.iter().filter(|device| !is_there(device.devid)).map(|device| DeviceSpace {
            devid: device.devid.get(),
            total_bytes: device.total_bytes,
            unallocated_bytes: 0,
            class: 0,
            stored_type: device.hint.number().into(),
            state: state(device.devid),
        });
        let mut devices: Vec<DeviceSpace> = there.chain(absent).collect();
        devices.sort_by_key(|device| device.devid);
        devices
    }

    fn commits_report(&self) -> CommitsReport {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let report = |of: &brindle_fs::CommitReport| CommitReport {
            blocks: of.blocks,
            metadata_bytes: of.metadata_bytes,
            references: of.references,
            rounds: of.rounds,
            phases_ns: of.phases.map(nanoseconds),
        };
        let statistics = self.filesystem.pool().commit_statistics();
        let log = statistics.log;
        CommitsReport {
            commits: statistics.commits,
            longest_ns: nanoseconds(statistics.longest),
            last: report(&statistics.last),
            total: report(&statistics.total),
            log: [log.syncs, log.fsyncs, log.items, log.blocks],
            log_commits: log.commits,
        }
    }

    fn filesystem_info(&self) -> FilesystemInfo {
        let pool = self.filesystem.pool();
        let superblock = pool.superblock();
        let devices = pool.volume().devices();
        let context = pool.volume().tree_context();
        FilesystemInfo {
            devid_max: devices.iter().map(|device| device.devid.get()).max().unwrap_or(0),
            devices: to_u64(devices.len()),
            fsid: superblock.fsid.0,
            nodesize: context.nodesize,
            sectorsize: context.sectorsize,
            clone_alignment: context.sectorsize,
            generation: superblock.generation.get(),
            metadata_uuid: superblock.metadata_uuid.0,
            ..FilesystemInfo::new_zeroed()
        }
    }

    fn device_info(&self, asked: &DeviceInfo) -> Result<DeviceInfo, Errno> {
        let pool = self.filesystem.pool();
        let devices = pool.volume().devices();
        let is_meant = |devid: DevId, uuid: [u8; 16]| {
            (asked.devid == 0 || asked.devid == devid.get()) && (asked.uuid == [0; 16] || asked.uuid == uuid)
        };
        let found =
            devices.iter().find(|device| is_meant(device.devid, device.uuid.0)).ok_or(Errno::NODEV)?;
        Ok(DeviceInfo {
            devid: found.devid.get(),
            uuid: found.uuid.0,
            used_bytes: found.bytes_used,
            total_bytes: found.total_bytes,
            fsid: pool.superblock().fsid.0,
            path: field(if found.missing { b"" } else { found.name.as_bytes() }).unwrap_or([0; 1024]),
            ..DeviceInfo::new_zeroed()
        })
    }

    fn device_statistics(
        &self,
        caller: Caller,
        mut asked: DeviceStatistics,
    ) -> Result<DeviceStatistics, Errno> {
        let (pool, devid) = (self.filesystem.pool(), DevId::new(asked.devid));
        let found = if asked.flags & RESET_STATISTICS == 0 {
            let all = number(pool.device_statistics().map_err(Into::into))?;
            all.into_iter().find(|(device, _)| device.devid == devid).map(|(_, statistics)| statistics)
        } else {
            caller.require_administrator()?;
            number(pool.reset_device_statistics(devid).map_err(Into::into))?
        };
        let found = found.ok_or(Errno::NODEV)?.values();
        asked.count = asked.count.min(to_u64(found.len()));
        for (counter, value) in asked.counters.iter_mut().zip(found).take(to_usize(asked.count)) {
            *counter = value;
        }
        Ok(asked)
    }

    fn server_info(&self) -> ServerInfo {
        ServerInfo {
            fsid: self.filesystem.pool().superblock().fsid.0,
            process: if self.process_ends_with_mount { std::process::id() } else { 0 },
            is_writable: self.filesystem.is_writable().into(),
        }
    }

    /// Reason for being read-only, cut off to the room in the answer.
    fn read_only_reason(&self) -> ReadOnlyReason {
        let since = self.filesystem.pool().read_only_reason().filter(|_| self.is_written);
        let why = since.as_deref().or(self.unwritten_reason.as_deref()).unwrap_or_default();
        let mut text = [0; 1024];
        let room = text.len() - 1;
        for (byte, from) in text[..room].iter_mut().zip(why.bytes()) {
            *byte = from;
        }
        ReadOnlyReason(text)
    }

    /// The subvolume of an inode and its path in that.
    fn lookup_inode(&self, caller: Caller, node: u64, mut asked: InodeLookup) -> Result<InodeLookup, Errno> {
        let here = self.inode(node)?;
        let root = InodeId::root_of(here.tree);
        if asked.subvolume != 0 || asked.inode != root.number.get() {
            caller.require_administrator()?;
        }
        let tree = if asked.subvolume == 0 { here.tree } else { brindle_fs::RootId::new(asked.subvolume) };
        let mut at = InodeId { tree, number: brindle_fs::ObjectId::new(asked.inode) };
        let mut path = Vec::new();
        while at.number != root.number {
            let (parent, name) = number(self.filesystem.first_name(at))?.ok_or(Errno::NOENT)?;
            path.splice(0..0, name.into_iter().chain([b'/']));
            if path.len() >= asked.path.len() {
                return Err(Errno::NAMETOOLONG);
            }
            at.number = parent;
        }
        asked.subvolume = tree.get();
        asked.path = field(&path).ok_or(Errno::NAMETOOLONG)?;
        Ok(asked)
    }
}

/// The state of a device, in the bits of the report.
fn device_state(is_missing: bool, is_stale: bool, is_behind: bool) -> u64 {
    let bits = [(is_missing, DEVICE_MISSING), (is_stale, DEVICE_STALE), (is_behind, DEVICE_BEHIND)];
    bits.into_iter().filter(|(is_so, _)| *is_so).map(|(_, bit)| bit).sum()
}

/// The name in arguments that hold nothing else.
fn plain_name(arguments: &VolumeArgumentsV2) -> Result<&[u8], Errno> {
    if arguments.flags == 0 { Ok(text(&arguments.name)) } else { Err(Errno::OPNOTSUPP) }
}

fn read<T: FromBytes>(input: &[u8]) -> Result<T, Errno> {
    T::read_from_bytes(input).map_err(|_| Errno::INVAL)
}

/// The logical addresses that `FITRIM` names; what the kernel refuses is refused.
fn trimmed_addresses(range: &TrimRange, sector: u32) -> Result<std::ops::Range<Logical>, Errno> {
    if range.length < u64::from(sector) || range.start == u64::MAX {
        return Err(Errno::INVAL);
    }
    // The greatest length stands for all that follows.
    let end = match range.length {
        u64::MAX => u64::MAX,
        length => range.start.checked_add(length).ok_or(Errno::INVAL)?,
    };
    Ok(Logical::new(range.start)..Logical::new(end))
}

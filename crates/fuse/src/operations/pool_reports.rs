//! Reports of the pool as a whole.

use crate::errno::number;
use crate::permission::Caller;
use brindle_fs::{
    Filesystem, PlacementClass, PlacementMode, SpaceStatistics, SpaceSummary, Spread, WriteBackSettings,
};
use brindle_ondisk::{DevId, to_u64, to_usize};
use brindle_uapi::message::{
    CommitReport, CommitsReport, DEVICE_BEHIND, DEVICE_MISSING, DEVICE_STALE, DeviceInfo, DeviceSpace,
    DeviceStatistics, FilesystemInfo, GroupSpace, Histogram, Label, LogReport, RESET_STATISTICS, SpacePage,
    WriteBackReport, field,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::FromZeros;

/// Reports of the pool.
#[derive(Debug)]
pub(crate) struct PoolReports {
    filesystem: Arc<Filesystem>,
}

impl PoolReports {
    pub(super) fn new(filesystem: Arc<Filesystem>) -> Self {
        Self { filesystem }
    }

    /// Room for files, for statfs(2).
    pub(crate) fn space(&self) -> Result<SpaceStatistics, Errno> {
        number(self.filesystem.space())
    }

    pub(super) fn label(&self) -> Result<Label, Errno> {
        let superblock = self.filesystem.pool().superblock();
        Ok(Label(field(superblock.label()).ok_or(Errno::IO)?))
    }

    pub(super) fn filesystem_info(&self) -> FilesystemInfo {
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

    pub(super) fn device_info(&self, asked: &DeviceInfo) -> Result<DeviceInfo, Errno> {
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

    pub(super) fn device_statistics(
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

    /// The space from the group and the device on that are asked for.
    pub(super) fn space_page(&self, asked: &SpacePage) -> Result<SpacePage, Errno> {
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
        let states = all.iter().map(|device| {
            (device.devid, device_state(device.missing, device.is_left_out(), device.is_behind))
        });
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

    pub(super) fn commits_report(&self) -> CommitsReport {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let report = |of: &brindle_fs::CommitReport| CommitReport {
            blocks: of.blocks,
            metadata_bytes: of.metadata_bytes,
            references: of.references,
            rounds: of.rounds,
            phases_ns: of.phases.map(nanoseconds),
        };
        let histogram = |of: brindle_fs::HistogramCounts| Histogram { buckets: of.buckets, sum: of.sum };
        let statistics = self.filesystem.pool().commit_statistics();
        let log = statistics.log;
        CommitsReport {
            commits: statistics.commits,
            longest_ns: nanoseconds(statistics.longest),
            last: report(&statistics.last),
            total: report(&statistics.total),
            log: [log.syncs, log.fsyncs, log.items, log.blocks, log.runs],
            log_commits: std::array::from_fn(|why| log.commits.get(why).copied().unwrap_or(0)),
            histograms: self.filesystem.pool().sync_histograms().map(histogram),
        }
    }

    pub(super) fn log_report(&self) -> Result<LogReport, Errno> {
        let stored = number(self.filesystem.pool().stored_log_profile().map_err(Into::into))?;
        let profile = number(self.filesystem.log_profile())?;
        Ok(LogReport { copies: profile.copies(), stored_copies: stored.copies() })
    }

    pub(super) fn write_back_report(&self) -> Result<WriteBackReport, Errno> {
        let status = number(self.filesystem.write_back_status())?;
        let destaged = self.filesystem.destage_statistics();
        let counts = WriteBackSettings { mode: Some(status.mode), profile: Some(status.profile) };
        let ([mode, profile], [stored_mode, stored_profile]) =
            (counts.to_numbers(), status.stored.to_numbers());
        let obstacle = status.obstacle.map(|obstacle| obstacle.to_string()).unwrap_or_default();
        Ok(WriteBackReport {
            mode,
            stored_mode,
            profile,
            stored_profile,
            waiting_bytes: status.waiting_bytes,
            capacity_bytes: status.capacity_bytes,
            since: status.since.unwrap_or(0),
            destaged_bytes: destaged.bytes,
            destaging_ns: u64::try_from(destaged.time.as_nanos()).unwrap_or(u64::MAX),
            obstacle: field(obstacle.as_bytes()).ok_or(Errno::OVERFLOW)?,
        })
    }
}

/// The state of a device, in the bits of the report.
fn device_state(is_missing: bool, is_stale: bool, is_behind: bool) -> u64 {
    let bits = [(is_missing, DEVICE_MISSING), (is_stale, DEVICE_STALE), (is_behind, DEVICE_BEHIND)];
    bits.into_iter().filter(|(is_so, _)| *is_so).map(|(_, bit)| bit).sum()
}

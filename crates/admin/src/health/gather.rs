//! Facts of one pool: from a mount, or from a pool that the caller has opened.

use super::{BadSuperblock, DeviceHealth, Job, PoolHealth, PoolServer, SpaceHealth, Writing};
use crate::balance::BalanceState;
use crate::call;
use crate::control::{ControlError, Mounted};
use crate::pool::{AdminError, BrindleMount, PoolFacts, Reach};
use crate::quotas::are_inconsistent;
use crate::scrub::last_scrub;
use crate::sysfs;
use crate::{WriteBack, devices::name_of_change};
use brindle_cache::look_at_device;
use brindle_care::scrub::ScrubRecord;
use brindle_device::DeviceClass;
use brindle_ondisk::{DevId, Uuid};
use brindle_policy::placement::PlacementClass;
use brindle_tree::Pool;
use brindle_uapi::message::{
    BALANCE_RUNNING, DEVICE_BEHIND, DEVICE_MISSING, DEVICE_STALE, DeviceInfo, SpaceReport, text,
};
use brindle_uapi::mount_table::Mount;
use brindle_uapi::verb;
use rustix::io::Errno;
use std::path::Path;

impl PoolHealth {
    /// Facts of a mounted pool, whose mounts are these. Records of scrubs are kept in the directory.
    ///
    /// # Errors
    /// A mount that does not answer.
    pub fn of_mount(reach: &Reach, mounts: &[Mount], records: &Path) -> Result<Self, AdminError> {
        let Some(mounted) = reach.mounted() else { return Err(AdminError::Mixed) };
        let fsid = Uuid(mounted.filesystem()?.fsid);
        let (is_of_kernel, infos) = (mounted.is_of_kernel(), mounted.device_infos()?);
        let mut devices = Vec::new();
        for info in &infos {
            devices.push(device_of(mounted, &fsid, info)?);
        }
        let writing = writing_of(mounted, mounts)?;
        let replacement = match (&reach, &writing) {
            // One that was to be written says it itself.
            (Reach::Brindle(mount), Writing::Declined) => unless_closed(mount.replace_status().map(Some))?,
            _ => None,
        };
        let (space, jobs, write_back) = if is_of_kernel {
            (SpaceHealth::of_kernel(&fsid, &devices), kernel_jobs(mounted, &fsid), None)
        } else {
            let report = mounted.space()?;
            devices.iter_mut().for_each(|device| take_report(device, &report));
            // A mount that is only read has no write-back tier to speak of.
            (SpaceHealth::of_report(&report), served_jobs(reach)?, mounted.write_back().ok())
        };
        Ok(Self {
            fsid,
            label: String::from_utf8_lossy(&mounted.label()?).into_owned(),
            server: if is_of_kernel { PoolServer::Kernel } else { PoolServer::Brindle },
            mountpoints: mounts.iter().map(|mount| mount.mountpoint.clone()).collect(),
            writing,
            devices,
            space,
            // The mount is read-only then, and says why.
            damaged_trees: Vec::new(),
            // Its commits write all copies anew.
            bad_superblocks: Vec::new(),
            begun_returns: Vec::new(),
            fenced: Vec::new(),
            has_wrong_quotas: has_wrong_quotas(mounted, &fsid)?,
            replacement: replacement.and_then(|status| status.interrupted(None)),
            jobs,
            scrub: unless_closed(last_scrub(reach, records))?,
            write_back,
            commits: if is_of_kernel { None } else { Some(mounted.commits()?) },
            caches: if is_of_kernel { Vec::new() } else { mounted.caches()? },
            // An older server does not have it.
            autodefrag: mounted.autodefrag_statistics().unwrap_or_default(),
            activity: Some(mounted.activity()?),
        })
    }

    /// Facts of a pool that is not mounted, as of its last commit.
    ///
    /// # Errors
    /// Trees that can't be read.
    pub fn of_devices(pool: &Pool, records: &Path) -> Result<Self, AdminError> {
        let superblock = pool.superblock();
        let space = pool.space_summary()?;
        let devices = pool.device_statistics()?.into_iter().map(|(device, counters)| DeviceHealth {
            devid: device.devid,
            uuid: device.uuid,
            path: if device.missing { String::new() } else { device.name.clone() },
            total_bytes: device.total_bytes,
            allocated_bytes: device.bytes_used,
            class: space.devices.iter().find(|other| other.devid == device.devid).map(|device| device.class),
            is_missing: device.missing,
            is_stale: device.is_left_out(),
            is_behind: device.is_behind,
            errors: Some(counters.values()),
        });
        let devices = devices.collect();
        let interrupted = pool.balance_status()?.state == BalanceState::Paused;
        let target = pool.volume().replacement_target();
        let replacement = pool.replace_status()?.interrupted(target);
        let balance = Job { name: "balance".to_owned(), is_running: false, progress: None };
        Ok(Self {
            fsid: superblock.fsid,
            label: String::from_utf8_lossy(superblock.label()).into_owned(),
            server: PoolServer::None,
            mountpoints: Vec::new(),
            writing: Writing::Allowed,
            devices,
            space: SpaceHealth::of_summary(&space),
            has_wrong_quotas: are_inconsistent(pool)?,
            damaged_trees: pool
                .damaged_trees()
                .into_iter()
                .map(|(tree, error)| (tree, error.to_string()))
                .collect(),
            bad_superblocks: bad_superblocks(pool),
            begun_returns: Vec::new(),
            fenced: Vec::new(),
            replacement,
            jobs: interrupted.then_some(balance).into_iter().collect(),
            scrub: stored_scrub(records, &superblock.fsid)?,
            write_back: Some(WriteBack::of_pool(pool)?),
            commits: None,
            caches: Vec::new(),
            autodefrag: Vec::new(),
            activity: None,
        })
    }
}

fn bad_superblocks(pool: &Pool) -> Vec<BadSuperblock> {
    let warnings = pool.volume().warnings();
    let bad = warnings.iter().filter_map(|warning| warning.bad_superblock());
    bad.map(|(path, offset, problem)| BadSuperblock {
        path: path.to_owned(),
        offset,
        problem: problem.to_string(),
    })
    .collect()
}

/// Returns true if the numbers of quota groups are wrong: the kernel tells everybody, a mount of brindle those that may look into
/// its trees, of which the status is one item that each commit keeps in memory.
fn has_wrong_quotas(mounted: &Mounted, fsid: &Uuid) -> Result<bool, AdminError> {
    if mounted.is_of_kernel() {
        let is_counting = mounted.quota_rescan().ok().flatten().is_some();
        return Ok(sysfs::has_wrong_quotas(fsid) && !is_counting);
    }
    let wrong = unless_closed(are_inconsistent(mounted).map(Some))?;
    Ok(wrong.unwrap_or(false))
}

/// The stored record of the last scrub of a pool, and true while it runs.
fn stored_scrub(records: &Path, fsid: &Uuid) -> Result<Option<(ScrubRecord, bool)>, AdminError> {
    let record = ScrubRecord::load(records, fsid)?;
    Ok(record.map(|mut record| {
        let is_running = record.is_running();
        if !is_running {
            record.interrupt();
        }
        (record, is_running)
    }))
}

fn device_of(mounted: &Mounted, fsid: &Uuid, info: &DeviceInfo) -> Result<DeviceHealth, AdminError> {
    let devid = DevId::new(info.devid);
    let path = String::from_utf8_lossy(text(&info.path)).into_owned();
    let errors = match mounted.device_statistics(info.devid, false) {
        Ok(counters) => Some(counters),
        // The kernel has none of a device that is missing.
        Err(ControlError::Refused { source: Errno::NODEV, .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let is_missing = path.is_empty() || (mounted.is_of_kernel() && sysfs::is_missing(fsid, devid));
    let class = (mounted.is_of_kernel() && !is_missing).then(|| class_by_host(Path::new(&path)));
    Ok(DeviceHealth {
        devid,
        uuid: Uuid(info.uuid),
        path: if is_missing { String::new() } else { path },
        total_bytes: info.total_bytes,
        allocated_bytes: info.used_bytes,
        class: class.flatten(),
        is_missing,
        is_stale: false,
        is_behind: false,
        errors,
    })
}

/// Class by the rotation that the host reports.
fn class_by_host(path: &Path) -> Option<PlacementClass> {
    match look_at_device(path).ok()?.class() {
        DeviceClass::Solid => Some(PlacementClass::Fast),
        DeviceClass::Rotating => Some(PlacementClass::Bulk),
        DeviceClass::Unknown => None,
    }
}

/// Adds the facts that a mount of brindle tells of a device.
fn take_report(device: &mut DeviceHealth, report: &SpaceReport) {
    let Some(told) = report.devices.iter().find(|told| told.devid == device.devid.get()) else { return };
    device.is_missing |= told.state & DEVICE_MISSING != 0;
    device.is_stale = told.state & DEVICE_STALE != 0;
    device.is_behind = told.state & DEVICE_BEHIND != 0;
    device.class = match told.class {
        1 => Some(PlacementClass::Fast),
        2 => Some(PlacementClass::Bulk),
        _ => None,
    };
}

fn writing_of(mounted: &Mounted, mounts: &[Mount]) -> Result<Writing, AdminError> {
    if !mounted.is_of_kernel() {
        let why = mounted.read_only_reason()?;
        let is_written = mounted.server()?.is_writable != 0;
        return Ok(match why {
            Some(why) => Writing::Refused(why),
            None if is_written => Writing::Allowed,
            None => Writing::Declined,
        });
    }
    let is_read_only = |options: &str| options.split(',').next() == Some("ro");
    // The kernel makes the filesystem read-only after an error, and leaves its mounts as they are.
    let is_forced = mounts.iter().any(|mount| !is_read_only(&mount.options));
    Ok(match mounts.iter().any(|mount| is_read_only(&mount.super_options)) {
        false => Writing::Allowed,
        true if is_forced => Writing::Refused("the kernel has made it so: its log says why".to_owned()),
        true => Writing::Declined,
    })
}

/// `None` where the answer is for administrators alone.
fn unless_closed<T>(answer: Result<Option<T>, AdminError>) -> Result<Option<T>, AdminError> {
    match answer {
        Err(AdminError::Control(ControlError::Refused { source: Errno::PERM | Errno::ACCESS, .. })) => {
            Ok(None)
        }
        answer => answer,
    }
}

/// The operation of which the kernel runs one at a time.
fn kernel_jobs(mounted: &Mounted, fsid: &Uuid) -> Vec<Job> {
    let Some(name) = sysfs::exclusive_operation(fsid).filter(|name| name != "none") else {
        return Vec::new();
    };
    let (name, is_running) = match name.strip_suffix(" paused") {
        Some(name) => (name.to_owned(), false),
        None => (name, true),
    };
    // Only root may ask for the progress.
    let balance = (name == "balance").then(|| call::get::<verb::FollowBalance>(&mounted.file).ok()).flatten();
    let is_running = balance.map_or(is_running, |balance| balance.state & BALANCE_RUNNING != 0);
    let progress = balance.map(|balance| {
        let [expected, considered, _] = balance.progress;
        (considered, expected)
    });
    vec![Job { name, is_running, progress }]
}

/// Jobs of a process that serves a mount.
fn served_jobs(reach: &Reach) -> Result<Vec<Job>, AdminError> {
    let Reach::Brindle(mount) = reach else { return Ok(Vec::new()) };
    let mut jobs = Vec::new();
    let balance = BrindleMount::balance_status(mount)?;
    if balance.state != BalanceState::None {
        let progress = (balance.progress.moved_bytes, balance.progress.expected_bytes);
        let is_running = balance.state == BalanceState::Running;
        let progress = Some(progress).filter(|_| is_running);
        jobs.push(Job { name: "balance".to_owned(), is_running, progress });
    }
    let change = mount.0.device_report()?;
    if change.is_running != 0 {
        let progress = Some((change.work.moved_bytes, change.work.expected_bytes));
        jobs.push(Job { name: name_of_change(change.change).to_owned(), is_running: true, progress });
    }
    Ok(jobs)
}

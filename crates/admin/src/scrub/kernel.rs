//! Scrubs by the kernel: a request for each device, which returns at the end. The record is ours.

use super::{DeviceScrubLimit, LOOK_EVERY, now};
use crate::call;
use crate::control::{ControlError, Mounted};
use crate::pool::AdminError;
use brindle_care::job::Control;
use brindle_care::scrub::{
    DeviceProgress, DeviceState, ScrubCounts, ScrubError, ScrubJob, ScrubObserver, ScrubRecord,
};
use brindle_ondisk::{DevId, Uuid};
use brindle_uapi::message::{KERNEL_SCRUB_READ_ONLY, KernelScrub, KernelScrubProgress, text};
use brindle_uapi::verb;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zerocopy::FromZeros;

/// Time between two stores of the record.
const STORE_EVERY: Duration = Duration::from_secs(5);

/// Carries one out.
pub(super) fn carry_out(
    mounted: &Mounted,
    job: &ScrubJob,
    directory: &Path,
    observer: ScrubObserver<'_>,
) -> Result<ScrubRecord, AdminError> {
    let fsid = Uuid(mounted.filesystem()?.fsid);
    let last = ScrubRecord::load(directory, &fsid)?;
    if last.as_ref().is_some_and(ScrubRecord::is_running) {
        return Err(AdminError::ScrubRuns);
    }
    let mut record = planned(mounted, job, &fsid, last)?;
    let before = record.report.devices.clone();
    if job.limit != 0 {
        for device in before.iter().filter(|device| device.state == DeviceState::Running) {
            limit(mounted, Some(device.devid.get()), job.limit)?;
        }
    }
    record.claim();
    record.store(directory)?;
    let begun = Instant::now();
    let mut stored = begun;
    let run = |device: &DeviceProgress| run_device(mounted, device, job.read_only);
    let answers = std::thread::scope(|scope| {
        let running = before.iter().filter(|device| device.state == DeviceState::Running);
        let threads: Vec<_> = running.map(|device| scope.spawn(move || run(device))).collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            for (device, earlier) in record.report.devices.iter_mut().zip(&before) {
                look(mounted, device, earlier, begun);
            }
            if observer(&record) != Control::Continue {
                // A device whose request is just on its way is told the next time.
                let _ = call::tell::<verb::CancelScrub>(&mounted.file);
            }
            if stored.elapsed() >= STORE_EVERY {
                stored = Instant::now();
                record.store(directory)?;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let answers = threads.into_iter().map(|thread| thread.join().expect("asking does not panic"));
        Ok::<_, AdminError>(answers.collect::<Vec<_>>())
    })?;
    for (devid, state, progress) in answers {
        let earlier = before.iter().find(|device| device.devid == devid);
        let device = record.report.devices.iter_mut().find(|device| device.devid == devid);
        if let Some((device, earlier)) = device.zip(earlier) {
            device.state = state;
            take(device, earlier, &progress, begun);
        }
    }
    record.interrupt();
    observer(&record);
    record.store(directory)?;
    Ok(record)
}

/// Ends all; false without one.
pub(super) fn cancel(mounted: &Mounted) -> Result<bool, AdminError> {
    match call::tell::<verb::CancelScrub>(&mounted.file) {
        Err(Errno::NOTCONN) => Ok(false),
        answer => Ok(mounted.explain("cancel a scrub (root may)", answer).map(|()| true)?),
    }
}

/// Limits the scrubs of a device, or of all; this stays until the pool is unmounted.
pub(super) fn limit(mounted: &Mounted, devid: Option<u64>, bytes: u64) -> Result<(), AdminError> {
    let fsid = Uuid(mounted.filesystem()?.fsid);
    let devices = mounted.device_infos()?.into_iter().map(|device| device.devid);
    let meant: Vec<u64> = devices.filter(|id| devid.is_none_or(|devid| devid == *id)).collect();
    if meant.is_empty() {
        return Err(ScrubError::NoDevice(DevId::new(devid.unwrap_or(0))).into());
    }
    for devid in meant {
        let path = limit_file(&fsid, devid);
        std::fs::write(&path, bytes.to_string()).map_err(|source| AdminError::Path { path, source })?;
    }
    Ok(())
}

/// Limits of the scrubs of all devices, with their paths.
pub(super) fn limits(mounted: &Mounted) -> Result<Vec<DeviceScrubLimit>, AdminError> {
    let fsid = Uuid(mounted.filesystem()?.fsid);
    let mut limits = Vec::new();
    for info in mounted.device_infos()? {
        let path = limit_file(&fsid, info.devid);
        let shown = std::fs::read_to_string(&path).map_err(|source| AdminError::Path { path, source })?;
        let path = String::from_utf8_lossy(text(&info.path)).into_owned();
        let bytes = shown.trim().parse().unwrap_or(0);
        limits.push(DeviceScrubLimit { devid: DevId::new(info.devid), path, bytes });
    }
    Ok(limits)
}

fn limit_file(fsid: &Uuid, devid: u64) -> PathBuf {
    PathBuf::from(format!("/sys/fs/btrfs/{fsid}/devinfo/{devid}/scrub_speed_max"))
}

/// Returns true if the kernel scrubs a device of the record.
pub(super) fn is_at_work(mounted: &Mounted, record: &ScrubRecord) -> bool {
    let is_scrubbed = |device: &DeviceProgress| {
        let mut asked = request(device.devid);
        call::update::<verb::FollowScrub>(&mounted.file, &mut asked).is_ok()
    };
    record.report.devices.iter().any(is_scrubbed)
}

/// Brings the record of one that another process follows up to date.
pub(super) fn refresh(mounted: &Mounted, record: &mut ScrubRecord) -> Result<(), AdminError> {
    for device in record.report.devices.iter_mut().filter(|device| device.state == DeviceState::Running) {
        let mut asked = request(device.devid);
        match call::update::<verb::FollowScrub>(&mounted.file, &mut asked) {
            // What was found before a resume is in the record alone.
            Ok(()) if device.counts == ScrubCounts::default() => {
                device.counts = counts_of(&asked.progress);
                device.last_physical = asked.progress.last_physical;
            }
            Ok(()) | Err(Errno::NOTCONN | Errno::NODEV) => {}
            Err(error) => return Err(mounted.refused("state of a scrub", error).into()),
        }
    }
    Ok(())
}

/// The devices, and what is known of them.
fn planned(
    mounted: &Mounted,
    job: &ScrubJob,
    fsid: &Uuid,
    last: Option<ScrubRecord>,
) -> Result<ScrubRecord, AdminError> {
    let mut record = match (job.resume, last) {
        (true, Some(last)) => last,
        (true, None) => return Err(ScrubError::NothingToResume.into()),
        (false, _) => ScrubRecord { started: now(), ..ScrubRecord::default() },
    };
    record.interrupt();
    (record.fsid, record.read_only) = (fsid.to_string(), job.read_only);
    let known = std::mem::take(&mut record.report.devices);
    for info in mounted.device_infos()? {
        let devid = DevId::new(info.devid);
        let before = known.iter().find(|device| device.devid == devid);
        let is_meant = job.devices.is_empty() || job.devices.contains(&devid);
        if !is_meant || (job.resume && before.is_none()) {
            continue;
        }
        let mut device = before.filter(|_| job.resume).cloned().unwrap_or_default();
        device.devid = devid;
        device.name = String::from_utf8_lossy(text(&info.path)).into_owned();
        (device.total_bytes, device.limit) = (info.used_bytes, job.limit);
        if device.state != DeviceState::Finished {
            device.state = if info.path[0] == 0 { DeviceState::Missing } else { DeviceState::Running };
        }
        record.report.devices.push(device);
    }
    if let Some(unknown) =
        job.devices.iter().find(|id| record.report.devices.iter().all(|it| it.devid != **id))
    {
        return Err(ScrubError::NoDevice(*unknown).into());
    }
    if job.resume && !record.report.is_running() {
        return Err(ScrubError::NothingToResume.into());
    }
    Ok(record)
}

/// Scrubs a device; returns its state and what was found.
fn run_device(
    mounted: &Mounted,
    device: &DeviceProgress,
    read_only: bool,
) -> (DevId, DeviceState, KernelScrubProgress) {
    let mut asked = request(device.devid);
    (asked.start, asked.end) = (device.last_physical, u64::MAX);
    asked.flags = if read_only { KERNEL_SCRUB_READ_ONLY } else { 0 };
    let state = match call::update::<verb::RunScrub>(&mounted.file, &mut asked) {
        Ok(()) => DeviceState::Finished,
        Err(Errno::CANCELED) => DeviceState::Cancelled,
        Err(Errno::NODEV) => DeviceState::Missing,
        Err(error) => {
            let error: ControlError = mounted.refused("scrub (root may)", error);
            DeviceState::Failed(error.to_string())
        }
    };
    (device.devid, state, asked.progress)
}

fn request(devid: DevId) -> KernelScrub {
    KernelScrub { devid: devid.get(), ..KernelScrub::new_zeroed() }
}

/// Asks for the progress of a device.
fn look(mounted: &Mounted, device: &mut DeviceProgress, before: &DeviceProgress, begun: Instant) {
    let mut asked = request(device.devid);
    if call::update::<verb::FollowScrub>(&mounted.file, &mut asked).is_ok() {
        take(device, before, &asked.progress, begun);
    }
}

/// Takes over what was found since the scrub was begun or resumed.
fn take(
    device: &mut DeviceProgress,
    before: &DeviceProgress,
    progress: &KernelScrubProgress,
    begun: Instant,
) {
    device.counts = before.counts;
    device.counts.add(&counts_of(progress));
    device.last_physical = progress.last_physical.max(before.last_physical);
    device.duration = before.duration + begun.elapsed();
    // The kernel tells the place, and what it has looked at; what lies between is not known.
    let looked_at = device.counts.data_bytes + device.counts.tree_bytes;
    device.done_bytes = if device.state == DeviceState::Finished {
        device.total_bytes
    } else {
        looked_at.min(device.total_bytes)
    };
}

fn counts_of(progress: &KernelScrubProgress) -> ScrubCounts {
    ScrubCounts {
        data_extents: progress.data_extents,
        tree_extents: progress.tree_extents,
        data_bytes: progress.data_bytes,
        tree_bytes: progress.tree_bytes,
        read_errors: progress.read_errors,
        csum_errors: progress.csum_errors,
        verify_errors: progress.verify_errors,
        no_csum: progress.no_csum,
        super_errors: progress.super_errors,
        parity_errors: 0,
        uncorrectable_errors: progress.uncorrectable_errors,
        corrected_errors: progress.corrected_errors,
        correctable_errors: 0,
        read_bytes: progress.data_bytes + progress.tree_bytes,
    }
}

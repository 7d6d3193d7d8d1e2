//! Scrubs of a pool, wherever it is: opened by this process, mounted by brindle ([`served`]), or mounted by the kernel
//! ([`kernel`]). All tell of themselves by the same record.

mod kernel;
mod served;

use crate::pool::{AdminError, Reach};
use brindle_care::job::Control;
use brindle_care::scrub::{DeviceProgress, ScrubJob, ScrubObserver, ScrubRecord, carry_out};
use brindle_fs::Filesystem;
use brindle_ondisk::DevId;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time between two looks at a scrub that another process, or the kernel, does.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Carries a scrub out of a pool that this process has opened; its record is kept in the directory.
pub fn scrub_here(
    filesystem: &Filesystem,
    job: &ScrubJob,
    directory: &Path,
    observer: ScrubObserver<'_>,
) -> Result<ScrubRecord, AdminError> {
    let last = ScrubRecord::load(directory, &filesystem.pool().superblock().fsid)?;
    let (scrub, record) = job.begin(filesystem, last, now())?;
    Ok(carry_out(filesystem, &scrub, record, Some(directory), observer)?)
}

/// Carries a scrub out on a mount; returns at its end. Records of the kernel's are kept in the directory. `None` for devices.
pub fn scrub_mount(
    reach: &Reach,
    job: &ScrubJob,
    directory: &Path,
    observer: ScrubObserver<'_>,
) -> Result<Option<ScrubRecord>, AdminError> {
    match reach {
        Reach::Brindle(mount) => {
            served::start(&mount.0, job)?;
            served::follow(&mount.0, observer).map(Some)
        }
        Reach::Kernel(mount) => kernel::carry_out(&mount.0, job, directory, observer).map(Some),
        Reach::Devices(_) => Ok(None),
    }
}

/// Begins a scrub on a mount of brindle, whose process goes on with it by itself. Returns false for any other.
pub fn start_scrub(reach: &Reach, job: &ScrubJob) -> Result<bool, AdminError> {
    match reach {
        Reach::Brindle(mount) => served::start(&mount.0, job).map(|()| true),
        Reach::Kernel(_) | Reach::Devices(_) => Ok(false),
    }
}

/// Returns true while a process has the kernel scrub a pool: it has stored its record, and the kernel is at work.
pub fn is_scrubbed_by(reach: &Reach, directory: &Path, process: u32) -> Result<bool, AdminError> {
    let (Reach::Kernel(mount), Some(fsid)) = (reach, reach.fsid()?) else { return Ok(false) };
    let record = ScrubRecord::load(directory, &fsid)?.filter(ScrubRecord::is_running);
    let record = record.filter(|record| record.process.0 == u64::from(process));
    Ok(record.is_some_and(|record| kernel::is_at_work(&mount.0, &record)))
}

/// Ends a scrub that runs on a mount, and waits for its end. Returns false without one.
pub fn cancel_scrub(reach: &Reach) -> Result<bool, AdminError> {
    match reach {
        Reach::Brindle(mount) => {
            if !served::stop(&mount.0)? {
                return Ok(false);
            }
            served::follow(&mount.0, &mut |_| Control::Continue).map(|_| true)
        }
        Reach::Kernel(mount) => kernel::cancel(&mount.0),
        Reach::Devices(_) => Ok(false),
    }
}

/// Limits the bytes of a device, or of all, that are read in a second; 0 for no limit. Returns false if no scrub runs, which
/// only the mounts of brindle want.
pub fn limit_scrub(reach: &Reach, devid: Option<u64>, bytes: u64) -> Result<bool, AdminError> {
    match reach {
        Reach::Brindle(mount) => served::limit(&mount.0, devid.unwrap_or(0), bytes),
        Reach::Kernel(mount) => kernel::limit(&mount.0, devid, bytes).map(|()| true),
        Reach::Devices(_) => Ok(false),
    }
}

/// The limit of the scrubs of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceScrubLimit {
    /// Its id.
    pub devid: DevId,
    /// Its path.
    pub path: String,
    /// Bytes that are read in a second, at most; 0 for no limit.
    pub bytes: u64,
}

/// Limits of the devices: of the scrub that runs, on a mount of the kernel of all. `None` where no scrub runs.
pub fn scrub_limits(reach: &Reach, directory: &Path) -> Result<Option<Vec<DeviceScrubLimit>>, AdminError> {
    if let Reach::Kernel(mount) = reach {
        return kernel::limits(&mount.0).map(Some);
    }
    let running = last_scrub(reach, directory)?.filter(|(_, is_running)| *is_running);
    let devices = running.map(|(record, _)| record.report.devices);
    let limit = |device: DeviceProgress| DeviceScrubLimit {
        devid: device.devid,
        path: device.name,
        bytes: device.limit,
    };
    Ok(devices.map(|devices| devices.into_iter().map(limit).collect()))
}

/// The record of the last scrub of a pool, and true while it runs.
pub fn last_scrub(reach: &Reach, directory: &Path) -> Result<Option<(ScrubRecord, bool)>, AdminError> {
    if let Reach::Brindle(mount) = reach {
        if let Some(found) = served::record(&mount.0)? {
            return Ok(Some(found));
        }
    }
    let Some(fsid) = reach.fsid()? else { return Ok(None) };
    let Some(mut record) = ScrubRecord::load(directory, &fsid)? else { return Ok(None) };
    let is_running = record.is_running();
    if !is_running {
        record.interrupt();
    } else if let Reach::Kernel(mount) = reach {
        kernel::refresh(&mount.0, &mut record)?;
    }
    Ok(Some((record, is_running)))
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

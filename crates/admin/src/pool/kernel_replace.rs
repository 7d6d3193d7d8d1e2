//! Replacements of devices by the kernel: one request, which returns at the end; others ask for its state, or end it.

use super::change::absolute;
use super::{AdminError, Changed, LOOK_EVERY, ReplaceState, ReplaceStatus};
use crate::call;
use crate::control::Mounted;
use brindle_care::device::{AddOptions, DeviceCareError, Leaving, ReplaceOptions, prepare};
use brindle_care::job::{Control, Observer, Progress};
use brindle_device::{Device, FileDevice};
use brindle_ondisk::{DevId, RootId};
use brindle_uapi::message::{
    DeviceInfo, KERNEL_REPLACE_ALREADY_STARTED, KERNEL_REPLACE_AVOID, KERNEL_REPLACE_CANCEL,
    KERNEL_REPLACE_NOT_STARTED, KERNEL_REPLACE_SCRUB_RUNS, KERNEL_REPLACE_START, KERNEL_REPLACE_STATUS,
    KernelReplace, KernelReplaceProgress, KernelReplaceStart, field,
};
use brindle_uapi::verb;
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread::sleep;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

const WHAT: &str = "replace a device (root may)";

/// Carries one out.
pub(super) fn carry_out(
    mounted: &Mounted,
    which: Leaving,
    path: &Path,
    options: &ReplaceOptions,
    observer: Observer<'_>,
) -> Result<Changed, AdminError> {
    let source = find(mounted, which)?;
    let is_running =
        |asked: KernelReplaceProgress| ReplaceState::of_number(asked.state) == ReplaceState::Started;
    if is_running(progress(mounted)?) {
        return Err(AdminError::ReplacementRuns);
    }
    let path = absolute(path)?;
    empty(&path, &source, options)?;
    let start = KernelReplaceStart {
        devid: source.devid,
        mode: if options.avoid_source { KERNEL_REPLACE_AVOID } else { 0 },
        source: [0; 1025],
        target: field(path.as_os_str().as_bytes()).ok_or(AdminError::LongPath)?,
        reserved: [0; 6],
    };
    let mut asked = request(KERNEL_REPLACE_START);
    asked.arguments.copy_from_slice(start.as_bytes());
    let (answer, followed) = std::thread::scope(|scope| {
        let running = scope.spawn(|| call::update::<verb::ReplaceDevice>(&mounted.file, &mut asked));
        let followed = follow(mounted, &source, observer, &|| running.is_finished());
        (running.join().expect("asking does not panic"), followed)
    });
    let (so_far, control) = followed?;
    let devid = Some(source.devid);
    match answer {
        Err(Errno::CANCELED) => {
            // Another process may have ended it.
            let control = if control == Control::Continue { Control::Cancel } else { control };
            Ok(Changed { devid, progress: so_far, control })
        }
        Err(error) => Err(mounted.refused(WHAT, error).into()),
        Ok(()) => {
            explain(mounted, asked.result)?;
            let left = progress(mounted)?.lost_reads;
            let done = Progress { moved_bytes: so_far.expected_bytes, done: 1, left, ..so_far };
            Ok(Changed { devid, progress: done, control: Control::Continue })
        }
    }
}

/// Ends one; false without one.
pub(super) fn cancel(mounted: &Mounted) -> Result<bool, AdminError> {
    let mut asked = request(KERNEL_REPLACE_CANCEL);
    mounted.explain(WHAT, call::update::<verb::ReplaceDevice>(&mounted.file, &mut asked))?;
    Ok(asked.result != KERNEL_REPLACE_NOT_STARTED)
}

/// State of one that runs, or of the last.
pub(super) fn status(mounted: &Mounted) -> Result<ReplaceStatus, AdminError> {
    let key = ReplaceStatus::key();
    let found = mounted.search(RootId::DEV_TREE, key, key)?;
    let record = ReplaceStatus::of_record(found.first().map(|(_, record)| record.as_slice()));
    let asked = progress(mounted)?;
    let infos = mounted.device_infos()?;
    let device = infos.iter().find(|device| record.devid == Some(DevId::new(device.devid)));
    Ok(ReplaceStatus {
        state: ReplaceState::of_number(asked.state),
        devid: record.devid,
        progress: device.map(|device| in_bytes(device, asked.permille)).unwrap_or_default(),
        started: asked.started,
        stopped: asked.stopped,
        write_errors: asked.write_errors,
        lost_reads: asked.lost_reads,
    })
}

/// The device that is meant.
fn find(mounted: &Mounted, which: Leaving) -> Result<DeviceInfo, AdminError> {
    let infos = mounted.device_infos()?;
    let is_meant = |device: &DeviceInfo| match which {
        Leaving::Id(devid) => device.devid == devid.get(),
        Leaving::Missing => device.path[0] == 0,
    };
    let unknown = match which {
        Leaving::Id(devid) => DeviceCareError::NotThere { devid },
        Leaving::Missing => DeviceCareError::NoneMissing,
    };
    infos.into_iter().find(is_meant).ok_or_else(|| unknown.into())
}

/// Empties the target, which is free again when the kernel takes it.
fn empty(path: &Path, source: &DeviceInfo, options: &ReplaceOptions) -> Result<(), AdminError> {
    let target = FileDevice::open_writable(path)?;
    let (device, size_bytes) = (target.name().to_owned(), target.size_bytes());
    let (devid, minimum_bytes) = (DevId::new(source.devid), source.total_bytes);
    if size_bytes < minimum_bytes {
        return Err(DeviceCareError::TargetTooSmall { device, size_bytes, devid, minimum_bytes }.into());
    }
    Ok(prepare(&target, &AddOptions { force: options.force, discard: options.discard })?)
}

/// Shows the observer the progress until the request has returned, and ends it where the observer says so.
fn follow(
    mounted: &Mounted,
    source: &DeviceInfo,
    observer: Observer<'_>,
    has_returned: &dyn Fn() -> bool,
) -> Result<(Progress, Control), AdminError> {
    let (mut so_far, mut control) = (in_bytes(source, 0), Control::Continue);
    while !has_returned() {
        let asked = progress(mounted)?;
        if ReplaceState::of_number(asked.state) == ReplaceState::Started {
            so_far = in_bytes(source, asked.permille);
        }
        control = observer(&so_far);
        if control != Control::Continue {
            // A request that is just on its way is told the next time.
            cancel(mounted)?;
        }
        sleep(LOOK_EVERY);
    }
    Ok((so_far, control))
}

/// Progress of a device, of whose address space this many thousandths are copied.
fn in_bytes(device: &DeviceInfo, permille: u64) -> Progress {
    let moved_bytes = device.total_bytes / 1000 * permille.min(1000);
    Progress { expected: 1, expected_bytes: device.total_bytes, moved_bytes, ..Progress::default() }
}

/// State as the kernel has it.
fn progress(mounted: &Mounted) -> Result<KernelReplaceProgress, AdminError> {
    let mut asked = request(KERNEL_REPLACE_STATUS);
    mounted.explain(WHAT, call::update::<verb::ReplaceDevice>(&mounted.file, &mut asked))?;
    let (progress, _) = KernelReplaceProgress::read_from_prefix(&asked.arguments).expect("it is larger");
    Ok(progress)
}

fn request(command: u64) -> KernelReplace {
    KernelReplace { command, ..KernelReplace::new_zeroed() }
}

/// Result of a request that was heard.
fn explain(mounted: &Mounted, result: u64) -> Result<(), AdminError> {
    match result {
        0 => Ok(()),
        KERNEL_REPLACE_ALREADY_STARTED => Err(AdminError::ReplacementRuns),
        KERNEL_REPLACE_SCRUB_RUNS => Err(AdminError::ScrubRuns),
        _ => Err(mounted.refused(WHAT, Errno::INVAL).into()),
    }
}

//! Scrubs by the process that serves a mount of brindle.

use super::LOOK_EVERY;
use crate::call;
use crate::control::Mounted;
use crate::pool::AdminError;
use brindle_care::job::Control;
use brindle_care::scrub::{ScrubError, ScrubJob, ScrubObserver, ScrubRecord};
use brindle_ondisk::{DevId, to_usize};
use brindle_uapi::message::{
    SCRUB_DEVICES_MAX, SCRUB_LEAVE_SLEEPING, SCRUB_READ_ONLY, SCRUB_RESUME, SCRUB_TEXT_BYTES, ScrubLimit,
    ScrubPage, ScrubStart,
};
use brindle_uapi::verb;
use rustix::io::Errno;
use std::thread::sleep;

/// Begins one.
pub(super) fn start(mounted: &Mounted, job: &ScrubJob) -> Result<(), AdminError> {
    let mut devices = [0; SCRUB_DEVICES_MAX];
    if job.devices.len() > SCRUB_DEVICES_MAX {
        return Err(AdminError::TooManyDevices(SCRUB_DEVICES_MAX));
    }
    devices.iter_mut().zip(&job.devices).for_each(|(to, devid)| *to = devid.get());
    let flags = [
        (job.read_only, SCRUB_READ_ONLY),
        (job.resume, SCRUB_RESUME),
        (job.leaves_sleeping, SCRUB_LEAVE_SLEEPING),
    ];
    let flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum();
    let start = ScrubStart { flags, limit: job.limit, count: job.devices.len() as u64, devices };
    match call::set::<verb::StartScrub>(&mounted.file, start) {
        Err(Errno::INPROGRESS) => Err(AdminError::ScrubRuns),
        Err(Errno::NOENT) => Err(ScrubError::NothingToResume.into()),
        Err(Errno::NODEV) => {
            Err(ScrubError::NoDevice(job.devices.first().copied().unwrap_or(DevId::new(0))).into())
        }
        answer => Ok(mounted.explain("scrub", answer)?),
    }
}

/// Ends one; false without one.
pub(super) fn stop(mounted: &Mounted) -> Result<bool, AdminError> {
    match call::tell::<verb::StopScrub>(&mounted.file) {
        Err(Errno::NOTCONN) => Ok(false),
        answer => Ok(mounted.explain("stop a scrub", answer).map(|()| true)?),
    }
}

/// Limits one; false without one.
pub(super) fn limit(mounted: &Mounted, devid: u64, bytes: u64) -> Result<bool, AdminError> {
    match call::set::<verb::LimitScrub>(&mounted.file, ScrubLimit { devid, bytes }) {
        Err(Errno::NOTCONN) => Ok(false),
        Err(Errno::NODEV) => Err(ScrubError::NoDevice(DevId::new(devid)).into()),
        answer => Ok(mounted.explain("limit a scrub", answer).map(|()| true)?),
    }
}

/// The record of the last one, and true while it runs.
pub(super) fn record(mounted: &Mounted) -> Result<Option<(ScrubRecord, bool)>, AdminError> {
    let mut text = Vec::new();
    let mut page = ScrubPage { offset: 0, length: 0, is_running: 0, text: [0; SCRUB_TEXT_BYTES] };
    loop {
        page.offset = text.len() as u64;
        let answer = call::update::<verb::ReportScrub>(&mounted.file, &mut page);
        mounted.explain("state of a scrub", answer)?;
        let left = to_usize(page.length).saturating_sub(text.len()).min(SCRUB_TEXT_BYTES);
        text.extend_from_slice(&page.text[..left]);
        if left < SCRUB_TEXT_BYTES {
            break;
        }
    }
    if text.is_empty() {
        return Ok(None);
    }
    let mut record = ScrubRecord::parse(&String::from_utf8_lossy(&text))?;
    let is_running = page.is_running != 0;
    if !is_running {
        record.interrupt();
    }
    Ok(Some((record, is_running)))
}

/// Shows one to the observer until its end.
pub(super) fn follow(mounted: &Mounted, observer: ScrubObserver<'_>) -> Result<ScrubRecord, AdminError> {
    let mut is_told = false;
    loop {
        let found = record(mounted).map_err(|error| match error {
            AdminError::Control(error) if error.is_end_of_server() => {
                AdminError::ServerGone(mounted.path().to_owned())
            }
            error => error,
        });
        let (record, is_running) =
            found?.ok_or_else(|| AdminError::Failed("no scrub was begun".to_owned()))?;
        let control = observer(&record);
        if !is_running {
            return Ok(record);
        }
        if control != Control::Continue && !std::mem::replace(&mut is_told, true) {
            stop(mounted)?;
        }
        sleep(LOOK_EVERY);
    }
}

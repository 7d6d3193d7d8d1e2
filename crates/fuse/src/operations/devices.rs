//! A change of the mounted pool's devices.

use super::long_work::LongWork;
use brindle_care::device::{
    AddOptions, DeviceCareError, Leaving, NewSize, Newcomer, ReplaceOptions, add, open_device, rejoin,
    remove, replace, resize,
};
use brindle_care::job::{Control, Ended, Observer, Progress};
use brindle_fs::{Filesystem, Host, PlacementClass, SystemHost};
use brindle_ondisk::DevId;
use brindle_uapi::message::{
    DEVICE_ADD, DEVICE_AVOID, DEVICE_BULK, DEVICE_DISCARD, DEVICE_FAST, DEVICE_FORCE, DEVICE_REJOIN,
    DEVICE_REMOVE, DEVICE_REPLACE, DEVICE_RESIZE, DeviceReport, DeviceStart, SIZE_GROW, SIZE_MAX,
    SIZE_SHRINK, SIZE_TO, text,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The changes of a mount's devices.
#[derive(Debug)]
pub(super) struct DeviceService {
    filesystem: Arc<Filesystem>,
    work: LongWork<Subject>,
}

/// Subject of a change.
#[derive(Clone, Copy, Debug, Default)]
struct Subject {
    change: u64,
    devid: u64,
}

/// Change of the devices.
enum Change {
    Add { path: PathBuf, class: Option<PlacementClass>, options: AddOptions },
    Remove(Leaving),
    Resize(DevId, NewSize),
    Replace { which: Leaving, path: PathBuf, options: ReplaceOptions },
    Rejoin { path: PathBuf },
}

impl Change {
    fn read(start: &DeviceStart) -> Option<Self> {
        let is_set = |flag: u64| start.flags & flag != 0;
        let devid = DevId::new(start.devid);
        let path = || Path::new(OsStr::from_bytes(text(&start.path))).to_owned();
        let which = || if start.devid == 0 { Leaving::Missing } else { Leaving::Id(devid) };
        match start.change {
            DEVICE_ADD => Some(Self::Add {
                path: path(),
                class: match (is_set(DEVICE_FAST), is_set(DEVICE_BULK)) {
                    (true, false) => Some(PlacementClass::Fast),
                    (false, true) => Some(PlacementClass::Bulk),
                    _ => None,
                },
                options: AddOptions { force: is_set(DEVICE_FORCE), discard: is_set(DEVICE_DISCARD) },
            }),
            DEVICE_REMOVE => Some(Self::Remove(which())),
            DEVICE_REPLACE => Some(Self::Replace {
                which: which(),
                path: path(),
                options: ReplaceOptions {
                    force: is_set(DEVICE_FORCE),
                    discard: is_set(DEVICE_DISCARD),
                    avoid_source: is_set(DEVICE_AVOID),
                },
            }),
            DEVICE_REJOIN => Some(Self::Rejoin { path: path() }),
            DEVICE_RESIZE => {
                let size = match start.size_kind {
                    SIZE_MAX => NewSize::Max,
                    SIZE_TO => NewSize::To(start.size_bytes),
                    SIZE_GROW => NewSize::Grow(start.size_bytes),
                    SIZE_SHRINK => NewSize::Shrink(start.size_bytes),
                    _ => return None,
                };
                Some(Self::Resize(devid, size))
            }
            _ => None,
        }
    }

    /// Does it; returns the device that joined or was replaced, if one was.
    fn carry_out(
        &self,
        filesystem: &Filesystem,
        observer: Observer<'_>,
    ) -> Result<(Ended, Option<DevId>), DeviceCareError> {
        let pool = filesystem.pool();
        match self {
            Self::Add { path, class, options } => {
                let new = Newcomer::open(path, SystemHost.new_uuid(), *class)?;
                let devids = add(pool, &[new], options)?;
                let ended = Ended { progress: Progress::default(), control: Control::Continue };
                Ok((ended, devids.first().copied()))
            }
            Self::Remove(which) => remove(pool, *which, observer).map(|ended| (ended, None)),
            Self::Resize(devid, size) => resize(pool, *devid, *size, observer).map(|ended| (ended, None)),
            Self::Replace { which, path, options } => {
                let (devid, ended) = replace(filesystem, *which, &open_device(path)?, options, observer)?;
                Ok((ended, Some(devid)))
            }
            Self::Rejoin { path } => {
                let (devid, ended) = rejoin(filesystem, &open_device(path)?, observer)?;
                Ok((ended, Some(devid)))
            }
        }
    }
}

impl DeviceService {
    pub(super) fn new(filesystem: Arc<Filesystem>) -> Self {
        Self { filesystem, work: LongWork::new("devices", Control::Cancel) }
    }

    /// Stops a change that runs, for the mount ends.
    pub(super) fn end(&self) {
        self.work.end();
    }

    /// Begins one.
    pub(super) fn start(&self, start: &DeviceStart) -> Result<(), Errno> {
        if !self.filesystem.is_writable() {
            return Err(Errno::ROFS);
        }
        let change = Change::read(start).ok_or(Errno::INVAL)?;
        let subject = Subject { change: start.change, devid: start.devid };
        let filesystem = Arc::clone(&self.filesystem);
        self.work.start(subject, None, move |observer| {
            let (ended, joined) = change.carry_out(&filesystem, observer)?;
            let devid = joined.map_or(subject.devid, DevId::get);
            Ok::<_, DeviceCareError>((ended, Subject { devid, ..subject }))
        })
    }

    /// Stops one.
    pub(super) fn stop(&self) -> Result<(), Errno> {
        if self.work.stop(Control::Cancel) { Ok(()) } else { Err(Errno::NOTCONN) }
    }

    /// Returns true while a change is under way.
    pub(super) fn is_running(&self) -> bool {
        self.work.report().0
    }

    /// Progress of the change.
    pub(super) fn report(&self) -> DeviceReport {
        let (is_running, Subject { change, devid }, work) = self.work.report();
        DeviceReport { is_running: is_running.into(), change, devid, work }
    }
}

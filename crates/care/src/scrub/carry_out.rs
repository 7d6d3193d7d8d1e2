//! A scrub from its beginning to its end, with its record kept.

use super::{Plan, Scrub, ScrubError, ScrubRecord};
use crate::job::Control;
use brindle_fs::Filesystem;
use brindle_ondisk::DevId;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time between two looks at the progress.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time between two stores of the record.
const STORE_EVERY: Duration = Duration::from_secs(5);

/// Receiver of the record from time to time. Anything but [`Control::Continue`] ends the scrub for now.
pub type ScrubObserver<'o> = &'o mut dyn FnMut(&ScrubRecord) -> Control;

/// A scrub to be carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubJob {
    /// Devices; all if there are none.
    pub devices: Vec<DevId>,
    /// True if errors are only looked for.
    pub read_only: bool,
    /// Limit of each device in bytes a second; 0 for none.
    pub limit: u64,
    /// True to go on with the last one.
    pub resume: bool,
    /// True if devices that are asleep at the begin are left for later.
    pub leaves_sleeping: bool,
}

impl ScrubJob {
    /// The scrub and the record that it begins with. `last` is the record of the last one, `now` the time in seconds since
    /// 1970.
    pub fn begin(
        &self,
        filesystem: &Filesystem,
        last: Option<ScrubRecord>,
        now: u64,
    ) -> Result<(Scrub, ScrubRecord), ScrubError> {
        let mut record = match (self.resume, last) {
            (true, Some(last)) => last,
            (true, None) => return Err(ScrubError::NothingToResume),
            (false, _) => ScrubRecord { started: now, ..ScrubRecord::default() },
        };
        record.fsid = filesystem.pool().superblock().fsid.to_string();
        record.read_only = self.read_only || !filesystem.is_writable();
        record.interrupt();
        let resumed = self.resume.then(|| std::mem::take(&mut record.report));
        let plan = Plan {
            devices: self.devices.clone(),
            resumed,
            read_only: record.read_only,
            limit: self.limit,
            leaves_sleeping: self.leaves_sleeping,
        };
        let scrub = Scrub::new(filesystem, &plan)?;
        record.report = scrub.report();
        Ok((scrub, record))
    }
}

/// Carries a scrub out, and stores its record in a directory; returns the last record. A record that can't be stored is a
/// warning: the scrub goes on.
pub fn carry_out(
    filesystem: &Filesystem,
    scrub: &Scrub,
    mut record: ScrubRecord,
    directory: Option<&Path>,
    observer: ScrubObserver<'_>,
) -> Result<ScrubRecord, ScrubError> {
    let mut warned = false;
    let mut store = |record: &ScrubRecord| {
        let stored = directory.map_or(Ok(()), |directory| record.store(directory));
        if let Err(error) = stored.as_ref().map_err(ToString::to_string) {
            if !std::mem::replace(&mut warned, true) {
                tracing::warn!("the record of the scrub is not kept: {error}");
            }
        }
    };
    record.claim();
    record.report = scrub.report();
    store(&record);
    let (ended, end) = channel();
    let done = std::thread::scope(|scope| {
        let runner = scope.spawn(move || {
            let done = scrub.run(filesystem);
            // The other end waits for this.
            let _ = ended.send(());
            done
        });
        let mut stored = Instant::now();
        while end.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            record.report = scrub.report();
            if observer(&record) != Control::Continue {
                scrub.stop();
            }
            if stored.elapsed() >= STORE_EVERY {
                stored = Instant::now();
                store(&record);
            }
        }
        runner.join()
    });
    record.report = scrub.report();
    record.interrupt();
    observer(&record);
    store(&record);
    match done {
        Ok(done) => done.map(|()| record),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

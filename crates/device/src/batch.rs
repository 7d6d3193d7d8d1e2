//! Writes and flushes of several devices that are made together.
//!
//! Requests are added to a batch by their devices ([`WritableDevice::submit_write`]) and made when the batch is run. They
//! borrow what they write, for [`Batch::run`] returns when all of them have an answer. A device without an engine makes
//! its requests as they are added, which is as good: requests of one batch are in no order. A device with an engine of its
//! own submits them as they are added, and is waited for.

use crate::engine::{self, FileRequest};
use crate::{DeviceError, WritableDevice};
use std::fmt;

/// A write to be submitted.
#[derive(Clone, Debug)]
pub struct WriteRequest<'a> {
    /// First byte on the device.
    pub offset: u64,
    /// Bytes, piece after piece without a gap.
    pub pieces: Vec<&'a [u8]>,
    /// True if the write is durable when it is answered (FUA). Earlier writes need a flush as ever. If it fails by
    /// [`DeviceError::Flush`], these are as doubtful as after a flush that failed.
    pub is_durable: bool,
}

/// Requests to devices, to be made together.
#[derive(Debug, Default)]
pub struct Batch<'a> {
    requests: Vec<Request<'a>>,
}

#[derive(Debug)]
enum Request<'a> {
    Answered(Result<(), DeviceError>),
    Planned(FileRequest<'a>),
    UnderWay(Wait<'a>),
}

/// A request that a device works on already.
struct Wait<'a>(Box<dyn FnOnce() -> Result<(), DeviceError> + 'a>);

impl fmt::Debug for Wait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wait")
    }
}

impl<'a> Batch<'a> {
    /// Adds a request that has been made.
    pub fn answer(&mut self, answer: Result<(), DeviceError>) {
        self.requests.push(Request::Answered(answer));
    }

    /// Adds a request that is under way; `wait` returns its answer when it has one.
    pub fn under_way(&mut self, wait: impl FnOnce() -> Result<(), DeviceError> + 'a) {
        self.requests.push(Request::UnderWay(Wait(Box::new(wait))));
    }

    /// Adds a request of a file.
    pub(crate) fn plan(&mut self, request: FileRequest<'a>) {
        self.requests.push(Request::Planned(request));
    }

    /// Makes all requests, and waits for them; the answers are in the order in which the requests were added.
    pub fn run(self) -> Vec<Result<(), DeviceError>> {
        let planned: Vec<&FileRequest<'_>> = self.requests.iter().filter_map(Request::planned).collect();
        let mut answers = engine::make(&planned).into_iter();
        let answer = |request| match request {
            Request::Answered(answer) => answer,
            Request::Planned(_) => answers.next().expect("an answer to each"),
            Request::UnderWay(Wait(wait)) => wait(),
        };
        self.requests.into_iter().map(answer).collect()
    }
}

impl<'a> Request<'a> {
    fn planned(&self) -> Option<&FileRequest<'a>> {
        match self {
            Self::Answered(_) | Self::UnderWay(_) => None,
            Self::Planned(request) => Some(request),
        }
    }
}

/// Makes a write by the calling thread; a durable one is followed by a flush.
pub fn write_now(
    device: &(impl WritableDevice + ?Sized),
    write: &WriteRequest<'_>,
) -> Result<(), DeviceError> {
    device.write_pieces_at(write.offset, &write.pieces)?;
    if write.is_durable { device.flush_for_write() } else { Ok(()) }
}

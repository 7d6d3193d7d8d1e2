//! Consent to write a device again whose connection was lost.

use crate::{Device, DeviceError};
use std::fmt;
use std::time::Duration;
use thiserror::Error;

/// Judge of a device that was out of reach: other systems may have written it meanwhile.
///
/// Called by a thread of the device, while requests of the device wait: it must take no lock that is held during one.
pub trait ReconnectGuard: fmt::Debug + Send + Sync {
    /// Looks at the device before anything is written to it again; `device` reads it on the new connection. Returns the time from
    /// the begin of the look in which no other system that comes now can write. In it, writes are repeated; then, and after the
    /// last one, it is asked again, so that two consents enclose each of them.
    ///
    /// # Errors
    /// A device that can't be read, which is asked again on the next connection, or a refusal, which is for ever.
    fn admit(&self, device: &dyn Device) -> Result<Duration, ReconnectError>;
}

/// Reason for which a device is not written again.
#[derive(Debug, Error)]
pub enum ReconnectError {
    /// A failed read on this connection.
    #[error(transparent)]
    Unreadable(#[from] DeviceError),
    /// Contents that are another's.
    #[error("{why}")]
    Refused {
        /// Reason, for the log and all later errors of the device.
        why: String,
    },
}

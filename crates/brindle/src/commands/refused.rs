//! Refusals of a mounted pool in plain words.

use brindle_admin::{AdminError, ControlError};
use rustix::io::Errno;

/// Tells which users may look into a mounted pool, where that is the reason.
pub(crate) fn explain_admin(error: AdminError) -> anyhow::Error {
    match error {
        AdminError::Control(error) => explain(error),
        error => error.into(),
    }
}

pub(crate) fn explain(error: ControlError) -> anyhow::Error {
    match &error {
        ControlError::Refused { source, .. } if *source == Errno::PERM => {
            anyhow::Error::new(error).context("only root and the mounting user can look into a mounted pool")
        }
        _ => error.into(),
    }
}

//! `DEVICE... LAST`: the operands of commands that end in a place. Options may stand anywhere among them.

use clap::{Args, CommandFactory as _, error::ErrorKind};
use std::path::{Path, PathBuf};

/// Devices, and the place that follows them.
#[derive(Args, Debug)]
pub(crate) struct Operands {
    /// Image files or block devices, those of one pool in any order; and last, where to
    #[arg(required = true, value_name = "OPERAND")]
    operands: Vec<PathBuf>,
}

impl Operands {
    /// The devices.
    pub(crate) fn devices(&self) -> &[PathBuf] {
        let (_, devices) = self.split();
        devices
    }

    /// The last operand.
    pub(crate) fn last(&self) -> &Path {
        let (last, _) = self.split();
        last
    }

    fn split(&self) -> (&Path, &[PathBuf]) {
        match self.operands.split_last() {
            Some((last, devices)) if !devices.is_empty() => (last, devices),
            _ => {
                let message = "a DEVICE and the place behind it are needed, only one of them is there";
                crate::cli::Cli::command().error(ErrorKind::TooFewValues, message).exit()
            }
        }
    }
}

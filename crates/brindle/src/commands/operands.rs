//! `DEVICE... LAST`: the operands of commands that end in a place. Options may stand anywhere among them.

use crate::commands::usage::wrong_usage;
use anyhow::Result;
use clap::Args;
use std::path::{Path, PathBuf};

/// Devices, and the place that follows them.
#[derive(Args, Debug)]
pub(crate) struct Operands {
    /// Image files or block devices, those of one pool in any order; and last, where to
    #[arg(required = true, value_name = "OPERAND")]
    operands: Vec<PathBuf>,
}

impl Operands {
    /// Refuses a command line with too few of them.
    pub(crate) fn require(&self, command: &str) -> Result<()> {
        match self.split() {
            Some(_) => Ok(()),
            None => wrong_usage(format!(
                "a DEVICE and the place behind it are needed, only one of them is there: see `brindle {command} --help`"
            )),
        }
    }

    /// The devices.
    pub(crate) fn devices(&self) -> &[PathBuf] {
        self.split().map_or(&[], |(_, devices)| devices)
    }

    /// The last operand.
    pub(crate) fn last(&self) -> &Path {
        self.split().expect("`require` comes first").0
    }

    /// The last operand, which may be the only one.
    pub(crate) fn place(&self) -> &Path {
        self.operands.last().expect("at least one is required")
    }

    fn split(&self) -> Option<(&Path, &[PathBuf])> {
        let (last, devices) = self.operands.split_last()?;
        (!devices.is_empty()).then_some((last, devices))
    }
}

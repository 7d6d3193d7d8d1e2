//! `DEVICE... LAST`: the operands of commands that end in a place. Options may stand anywhere among them.

use clap::{Args, Command, error::ErrorKind};
use std::path::{Path, PathBuf};

/// Devices, and the place that follows them.
#[derive(Args, Debug)]
pub(crate) struct Operands {
    /// Image files or block devices, those of one pool in any order; and last, where to
    #[arg(required = true, value_name = "OPERAND")]
    operands: Vec<PathBuf>,
}

impl Operands {
    /// Ends with the usage of this command, of a tree of commands, if there are too few.
    pub(crate) fn require(&self, command: &str, tree: &Command) {
        if self.split().is_some() {
            return;
        }
        let mut tree = tree.clone();
        tree.build();
        let command = tree.find_subcommand_mut(command).expect("it is being run");
        let message = "a DEVICE and the place behind it are needed, only one of them is there";
        command.error(ErrorKind::TooFewValues, message).exit()
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

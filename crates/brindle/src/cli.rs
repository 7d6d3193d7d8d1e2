//! Command line: the top of the argument tree.

use crate::commands::Command;
use crate::options::Verbosity;
use clap::Parser;

/// Command line of brindle.
#[derive(Parser, Debug)]
#[command(
    name = "brindle",
    version,
    about = "btrfs in userspace, for pools that mix SSDs and hard disks",
    long_about = "brindle reads and writes btrfs pools in userspace: no kernel driver, and for image files no privileges.\n\n\
                  A DEVICE is an image file, a block device, or a URI such as nbd://host/name. Where a command takes several, they are the \
                  devices of one pool, in any order.",
    after_long_help = EXIT_STATUS_AND_ENVIRONMENT,
    subcommand_required = true,
    arg_required_else_help = true,
    propagate_version = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// Verbosity of messages on standard error.
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_STATUS_AND_ENVIRONMENT: &str = "\
EXIT STATUS
  0  success
  1  failure: one line on standard error says what is wrong and what to do
  2  wrong usage

ENVIRONMENT
  BRINDLE_LOG  what is logged to standard error, such as `debug` or `brindle_volume=trace`;
               overrides -v and -q";

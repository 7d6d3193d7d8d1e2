//! `brindle balance`: block groups emptied, so that what lay in them lies elsewhere.

mod control;
mod start;
pub(crate) mod work;

use crate::commands::mkfs::parse_size;
use anyhow::{Result, bail};
use clap::Subcommand;
use std::process::ExitCode;

/// Move the contents of block groups to other places
#[derive(Subcommand, Debug)]
pub(crate) enum BalanceCommand {
    Start(Box<start::StartCommand>),
    Status(control::StatusCommand),
    Pause(control::PauseCommand),
    Cancel(control::CancelCommand),
    Resume(control::ResumeCommand),
}

/// Runs one of the commands.
pub(crate) fn run(command: &BalanceCommand) -> Result<ExitCode> {
    match command {
        BalanceCommand::Start(command) => start::run(command),
        BalanceCommand::Status(command) => control::status(command),
        BalanceCommand::Pause(command) => control::pause(command),
        BalanceCommand::Cancel(command) => control::cancel(command),
        BalanceCommand::Resume(command) => control::resume(command),
    }
}

/// Bytes in a second. None at all would never end.
pub(crate) fn parse_rate(word: &str) -> Result<u64> {
    match parse_size(word)? {
        0 => bail!("a rate of 0 would never end; leave it out for no limit"),
        rate => Ok(rate),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_rate;

    #[test]
    fn a_rate_is_no_standstill() {
        assert_eq!(parse_rate("20M").expect("a rate"), 20 << 20);
        assert!(parse_rate("0").is_err() && parse_rate("0M").is_err() && parse_rate("x").is_err());
    }
}

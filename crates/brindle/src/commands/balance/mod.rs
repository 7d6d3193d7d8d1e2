//! `brindle balance`: block groups emptied, so that what lay in them lies elsewhere.

mod control;
mod start;
pub(crate) mod work;

use crate::commands::mkfs::parse_size;
use anyhow::{Result, bail};
use clap::Subcommand;
use std::ffi::OsString;
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

/// The arguments with the filters of `balance start` as the parser takes them: `-dusage=5` becomes `-d=usage=5`. Without
/// that it would not know a filter from a path that follows.
pub(crate) fn attach_filters(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let words: Vec<&OsString> =
        arguments.iter().skip(1).filter(|word| !word.as_encoded_bytes().starts_with(b"-")).take(2).collect();
    if words.iter().map(|word| word.to_str()).collect::<Vec<_>>() != [Some("balance"), Some("start")] {
        return arguments;
    }
    for argument in &mut arguments {
        let Some(text) = argument.to_str() else { continue };
        let filters = ["-d", "-m", "-s"].into_iter().find_map(|option| text.strip_prefix(option));
        if let Some(filters) = filters.filter(|filters| !filters.is_empty() && !filters.starts_with('=')) {
            *argument = format!("{}={filters}", &text[..2]).into();
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::{attach_filters, parse_rate};
    use std::ffi::OsString;

    #[test]
    fn a_rate_is_no_standstill() {
        assert_eq!(parse_rate("20M").expect("a rate"), 20 << 20);
        assert!(parse_rate("0").is_err() && parse_rate("0M").is_err() && parse_rate("x").is_err());
    }

    #[test]
    fn filters_are_told_from_paths() {
        let rewrite = |words: &[&str]| {
            let rewritten = attach_filters(words.iter().map(OsString::from).collect());
            rewritten.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            rewrite(&["brindle", "-v", "balance", "start", "-dusage=5", "-m", "-s=limit=2", "/mnt"]),
            "brindle -v balance start -d=usage=5 -m -s=limit=2 /mnt"
        );
        assert_eq!(rewrite(&["brindle", "ls", "-dx", "a"]), "brindle ls -dx a");
    }
}

//! The command line: arguments, progress, tables, exit codes.
//! Must not know: how anything works.
//!
//! Each command is a module of [`commands`]; [`dump`] has the text of `inspect`, [`format`] numbers and times.

mod cli;
mod commands;
mod dump;
mod format;
mod logging;
mod output;

use clap::{CommandFactory, Parser};
use std::process::ExitCode;

fn main() -> ExitCode {
    let command = cli::Cli::command();
    let is_command = |name: &str| command.find_subcommand(name).is_some();
    let arguments = commands::mount::helper::rewrite(std::env::args_os().collect(), is_command);
    let cli = cli::Cli::parse_from(commands::balance::attach_filters(arguments));
    let done = logging::start(&cli.verbosity).and_then(|()| commands::run(cli.command, cli.verbosity));
    match done {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&error);
            ExitCode::FAILURE
        }
    }
}

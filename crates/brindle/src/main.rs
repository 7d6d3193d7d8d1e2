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
use commands::usage::WrongUsage;
use std::process::ExitCode;

/// The exit code that `clap` has for wrong usage.
const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    let command = cli::Cli::command();
    let is_command = |name: &str| command.find_subcommand(name).is_some();
    let arguments = commands::mount::helper::rewrite(std::env::args_os().collect(), is_command);
    let cli = cli::Cli::parse_from(commands::balance::attach_filters(arguments));
    let done = logging::start(&cli.verbosity).and_then(|()| commands::run(cli.command, cli.verbosity));
    let code = match done {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&error);
            if error.is::<WrongUsage>() { ExitCode::from(WRONG_USAGE) } else { ExitCode::FAILURE }
        }
    };
    logging::end();
    code
}

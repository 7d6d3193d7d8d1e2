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

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    logging::start(&cli.verbosity);
    match commands::run(cli.command) {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&error);
            ExitCode::FAILURE
        }
    }
}

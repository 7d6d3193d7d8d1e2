//! The command line: arguments, progress, tables, exit codes.
//! Must not know: how anything works.
//!
//! Each command is a module of [`commands`]; [`dump`] has the text of `inspect`, [`format`] numbers and times.

mod cli;
mod commands;
mod damage;
mod dump;
mod format;
mod logging;
mod options;
mod output;
mod progs;
mod tags;
mod words;

use clap::{CommandFactory, Parser};
use commands::usage::WrongUsage;
use std::ffi::OsString;
use std::process::ExitCode;

/// The exit code that `clap` has for wrong usage.
const WRONG_USAGE: u8 = 2;

/// The exit code of a failure.
const FAILURE: u8 = 1;

fn main() -> ExitCode {
    let given: Vec<OsString> = std::env::args_os().collect();
    if let Some(code) = commands::mount::guard::run(&given) {
        return code;
    }
    let command = cli::Cli::command();
    let is_command = |name: &str| command.find_subcommand(name).is_some();
    let arguments = commands::mount::helper::rewrite(given.clone(), is_command);
    let mut is_json = words::asks_for_json(&arguments);
    let done = words::rewrite(arguments, &command).and_then(|arguments| {
        is_json |= words::asks_for_json(&arguments);
        let cli = match cli::Cli::try_parse_from(&arguments) {
            Ok(cli) => cli,
            Err(error) => {
                let word = progs::word_for(&error, &arguments);
                error.print()?;
                if let Some(word) = word {
                    output::complain_line(&word);
                }
                return Ok(ExitCode::from(u8::try_from(error.exit_code())?));
            }
        };
        logging::start(&cli.verbosity)?;
        commands::run(cli.command, cli.verbosity, &command)
    });
    let code = match done {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            damage::note(&*error);
            let status = if error.is::<WrongUsage>() { WRONG_USAGE } else { FAILURE };
            match is_json {
                true => output::complain_json(&error, status),
                false => output::complain(&error),
            }
            ExitCode::from(status)
        }
    };
    if let Some(advice) = damage::advice(&given).filter(|_| !is_json) {
        output::complain_line(&advice);
    }
    let is_all_on_disks = brindle_cache::close_all();
    logging::end();
    if !is_all_on_disks && code == ExitCode::SUCCESS { ExitCode::from(FAILURE) } else { code }
}

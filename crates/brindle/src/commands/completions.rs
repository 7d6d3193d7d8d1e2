//! `brindle completions`: completions of words for shells.

use crate::output;
use anyhow::Result;
use clap::{Args, Command};
use clap_complete::Shell;
use std::io::Write;
use std::process::ExitCode;

/// Print the completions for a shell
///
/// `make install` puts them where bash, zsh and fish look for them. For one user alone:
///
///     brindle completions bash > ~/.local/share/bash-completion/completions/brindle
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct CompletionsCommand {
    /// The shell
    shell: Shell,
}

/// Runs the command.
pub(crate) fn run(command: &CompletionsCommand, tree: &Command) -> Result<ExitCode> {
    let mut out = output::stdout();
    out.write_all(script(command.shell, tree).as_bytes())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The completions of a tree of commands for a shell.
fn script(shell: Shell, tree: &Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut tree.clone(), "brindle", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::{CommandFactory, ValueEnum};

    #[test]
    fn completions_of_each_shell_have_the_commands() {
        for shell in Shell::value_variants() {
            let script = script(*shell, &Cli::command());
            for word in ["scrub", "check-data-csum", "mkfs"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}

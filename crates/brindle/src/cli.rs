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
  BRINDLE_LOG  what is logged to standard error, such as `debug` or
               `brindle_volume=trace`; overrides -v and -q";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Texts of a command and of all below it that stand in its help as they are, each with the command's words.
    fn texts_as_they_are(command: &clap::Command, words: &str) -> Vec<(String, String)> {
        let words = format!("{words} {}", command.get_name());
        let texts = [
            command.get_before_help(),
            command.get_before_long_help(),
            command.get_after_help(),
            command.get_after_long_help(),
        ];
        let mut found: Vec<_> =
            texts.into_iter().flatten().map(|text| (words.clone(), text.to_string())).collect();
        found.extend(command.get_subcommands().flat_map(|below| texts_as_they_are(below, &words)));
        found
    }

    /// A line that is wider would be broken in the middle of its table or its command.
    #[test]
    fn tables_and_examples_of_all_help_fit_80_columns() {
        let texts = texts_as_they_are(&Cli::command(), "");
        assert!(texts.len() > 80, "{} texts", texts.len());
        let lines = texts.iter().flat_map(|(words, text)| text.lines().map(move |line| (words, line)));
        let wide: Vec<String> = lines
            .filter(|(_, line)| line.chars().count() > 80)
            .map(|(words, line)| format!("{words}: {line}"))
            .collect();
        assert!(wide.is_empty(), "{}", wide.join("\n"));
    }
}

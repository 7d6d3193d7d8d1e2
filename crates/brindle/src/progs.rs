//! Options of btrfs(8) that are none here: the word for it, beside the parser's error.

use clap::error::{ContextKind, ContextValue, Error};
use std::ffi::OsString;

/// Commands, options of btrfs-progs, and the word for them.
const WORDS: [(&[&str], &[&str], &str); 19] = [
    (
        &["check"],
        &["-r", "--tree-root"],
        "the root trees of older commits are found by themselves: --backup checks the newest one that can be read",
    ),
    (&["check"], &["--chunk-root"], "-o rescue=chunks makes a chunk tree that can't be read anew, in memory"),
    (
        &["check"],
        &["-Q", "--qgroup-report"],
        "the numbers of groups are compared in any case; `brindle qgroup show DEVICE...` shows them",
    ),
    (
        &["check"],
        &["-E", "--subvol-extents"],
        "`brindle inspect dump-tree -t ID DEVICE...` lists the extents of a subvolume",
    ),
    (&["check"], &["--clear-space-cache"], "`brindle rescue clear-space-cache v1|v2 DEVICE...`"),
    (&["check"], &["--clear-ino-cache"], "such a cache is left alone, and does no harm"),
    (
        &["check"],
        &["--init-csum-tree"],
        "no checksum is made of contents that may be wrong: -o rescue=idatacsums reads them without",
    ),
    (
        &["check"],
        &["--init-extent-tree"],
        "--repair sets right what another fact proves; -o rescue=ibadroots reads a pool without that tree",
    ),
    (
        &["restore"],
        &["-l", "--list-roots"],
        "`brindle subvolume list DEVICE...` lists the subvolumes, `brindle inspect dump-tree -R` all trees",
    ),
    (&["restore"], &["-t", "-f"], "-o rescue=usebackuproot goes by the newest older commit that can be read"),
    (
        &["restore"],
        &["-u", "--super"],
        "a copy of the superblock that can't be read is passed over by itself",
    ),
    (&["restore"], &["--path-regex", "-c"], "--path PATH restores a file, or a directory with all below it"),
    (&["restore"], &["-r"], "--subvolid ID, also called --root"),
    (&["restore"], &["-d"], "--path PATH restores a directory with all below it"),
    (
        &["filesystem", "defragment"],
        &["-s", "--start", "-l", "--len"],
        "a file is defragmented as a whole: what lies well stays",
    ),
    (
        &["filesystem", "defragment"],
        &["--step"],
        "it is done in steps: it can be stopped at any time, and goes on where it is worth it",
    ),
    (&["filesystem", "defragment"], &["--nocomp"], "-c none"),
    (&["filesystem", "defragment"], &["-L", "--level"], "-cALG:LEVEL, as in -czstd:9"),
    (
        &["balance"],
        &["--enqueue"],
        "a balance begins at once, or says what runs: wait for that with `brindle balance status`",
    ),
];

/// The word for an option that the parser does not know.
pub(crate) fn word_for(error: &Error, arguments: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else { return None };
    let option = unknown.split('=').next().unwrap_or_default();
    let mut words = arguments.iter().skip(1).filter(|word| !word.as_encoded_bytes().starts_with(b"-"));
    let given: Vec<&OsString> = words.by_ref().take(2).collect();
    let is_meant = |command: &[&str]| {
        given.len() >= command.len() && command.iter().zip(&given).all(|(word, given)| *given == word)
    };
    let found = WORDS.iter().find(|(command, options, _)| is_meant(command) && options.contains(&option));
    found.map(|(_, _, word)| format!("{option} of btrfs: {word}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::{CommandFactory, Parser};

    fn word(line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        word_for(&Cli::try_parse_from(&words).expect_err("no option of ours"), &words)
    }

    #[test]
    fn options_of_btrfs_that_are_none_here_have_another_word() {
        let said = word("brindle check --tree-root=4096 a.img").expect("a word");
        assert!(said.starts_with("--tree-root of btrfs: ") && said.contains("--backup"), "{said}");
        assert!(word("brindle filesystem defragment --step 1M x").expect("a word").contains("in steps"));
        assert_eq!(word("brindle check --nonsense a.img"), None);
        assert_eq!(word("brindle ls --step a.img"), None);
    }

    #[test]
    fn every_option_with_another_word_is_refused_by_its_command() {
        let root = Cli::command();
        for (words, options, _) in WORDS {
            let mut command = &root;
            for word in words {
                command = command.find_subcommand(word).expect("a command");
            }
            for option in options {
                let is_taken = command.get_arguments().any(|argument| {
                    option.strip_prefix("--").is_some_and(|long| argument.get_long() == Some(long))
                        || option.len() == 2 && argument.get_short() == option.chars().nth(1)
                });
                assert!(!is_taken, "{words:?} {option}");
            }
        }
    }
}

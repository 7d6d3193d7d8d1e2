//! Options and commands of btrfs(8) that are none here: the word for them, beside the parser's error.

use clap::error::{ContextKind, ContextValue, Error};
use std::ffi::OsString;

/// Commands, options of btrfs-progs, and the word for them.
const WORDS: [(&[&str], &[&str], &str); 29] = [
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
    (
        &["device"],
        &["--enqueue"],
        "a change of devices begins at once, or says what runs: give the command again after its end",
    ),
    (
        &["replace"],
        &["--enqueue"],
        "a replacement begins at once, or says what runs: give the command again after its end",
    ),
    (&["scrub", "start"], &["-c", "-n"], PRIORITY),
    (&["scrub", "resume"], &["-c", "-n"], PRIORITY),
    (
        &["scrub", "status"],
        &["--raw", "--human-readable", "--iec", "--si", "--kbytes", "--mbytes", "--gbytes", "--tbytes"],
        "sizes have the unit that fits; --json has them in bytes",
    ),
    (
        &["inspect-internal", "dump-super"],
        &["-i"],
        "-s N shows one copy of the superblock, and -a all of them",
    ),
    (
        &["inspect-internal", "dump-tree"],
        &["--noscan"],
        "other block devices are looked for only where those that are named are not all of the pool",
    ),
    (
        &["mkfs"],
        &["-R", "--runtime-features"],
        "-O takes all features, and `brindle quota enable MOUNT` switches quotas on",
    ),
    (&["mkfs"], &["-l", "--leafsize"], "-n is the size of all tree blocks, leaves included"),
    (&["mkfs"], &["-A", "--alloc-start"], "it means nothing any more: chunks begin at 1 MiB of each device"),
];

/// Groups, commands in them and programs of btrfs-progs that are none here, and the word for them.
const COMMANDS: [(&[&str], &[&str], &str); 11] = [
    (
        &[],
        &["convert", "btrfs-convert"],
        "a pool is made anew, and filled with the files of a directory, by `brindle mkfs --rootdir DIR`",
    ),
    (
        &[],
        &["tune", "btrfstune"],
        "`brindle mkfs` chooses features and UUIDs; the program of btrfs-progs changes them where nothing has \
         mounted the pool",
    ),
    (
        &[],
        &["image", "btrfs-image"],
        "`brindle inspect dump-tree` prints the trees; the program of btrfs-progs copies them",
    ),
    (
        &[],
        &["find-root", "btrfs-find-root"],
        "-o rescue=usebackuproot reads an older commit, and `brindle check --backup` checks it",
    ),
    (&["filesystem"], &["balance"], "`brindle balance`"),
    (&["filesystem"], &["mkswapfile"], NO_SWAP),
    (&["inspect-internal"], &["map-swapfile"], NO_SWAP),
    (
        &["inspect-internal"],
        &["map-logical"],
        "`brindle inspect list-chunks` shows where chunks lie, `logical-resolve` which files an address is of",
    ),
    (
        &["inspect-internal", "rescue"],
        &["select-super"],
        "`brindle rescue super-recover DEVICE...` writes the superblocks anew from the newest good copy",
    ),
    (
        &["rescue"],
        &["fix-data-checksum", "clear-ino-cache"],
        "what it would change is left alone: -o rescue=idatacsums reads data that no checksum matches, and a cache \
         of inode numbers does no harm",
    ),
    (&["rescue"], &["create-control-device"], "no command of brindle needs /dev/btrfs-control"),
];

/// The word for the priority of a scrub.
const PRIORITY: &str = "`brindle scrub limit -l BYTES PATH` bounds the bytes that a running scrub reads in a second; on devices, `ionice` \
                        and `nice` before the command do";

/// The word for commands of swap files.
const NO_SWAP: &str =
    "the system swaps to no file of a FUSE mount; on a mount of the kernel, the command of btrfs-progs works";

/// The word for an option that the parser does not know.
pub(crate) fn word_for(error: &Error, arguments: &[OsString]) -> Option<String> {
    if let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidSubcommand) {
        return word_for_command(unknown, arguments);
    }
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

/// The word for a command that the parser does not know.
fn word_for_command(unknown: &str, arguments: &[OsString]) -> Option<String> {
    let group = arguments.iter().skip(1).take_while(|word| *word != unknown).last();
    let is_meant = |groups: &[&str]| match group {
        Some(group) => groups.iter().any(|word| group == word),
        None => groups.is_empty(),
    };
    let found = COMMANDS.iter().find(|(groups, names, _)| is_meant(groups) && names.contains(&unknown));
    found.map(|(_, _, word)| format!("{unknown} of btrfs: {word}"))
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

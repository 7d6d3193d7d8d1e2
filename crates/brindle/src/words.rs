//! The words of a command line, before the parser sees them, as btrfs takes them: commands by any prefix that fits one alone
//! (`fi us`), the options `--format TYPE` and `--dry-run` in any place, filters of a balance, and the letters that mean
//! something else to one command than to all others.

use crate::commands::usage::wrong_usage;
use crate::tags;
use anyhow::Result;
use clap::Command;
use std::ffi::OsString;

/// Filters of a balance, for `-d usage=50`: btrfs-progs have no blank there, and people write one.
const FILTERS: [&str; 12] = [
    "profiles",
    "usage",
    "devid",
    "drange",
    "vrange",
    "convert",
    "soft",
    "limit",
    "stripes",
    "misplaced",
    "raid",
    "nodes",
];

/// The arguments in the form that the parser understands.
///
/// # Errors
/// A format that a command does not have.
pub(crate) fn rewrite(arguments: Vec<OsString>, root: &Command) -> Result<Vec<OsString>> {
    let Found { mut arguments, command, path, behind } = resolve(arguments, root);
    // A command of btrfs, and an option here.
    if path.is_empty() && arguments.get(1).is_some_and(|word| word == "version") {
        arguments[1] = "--version".into();
    }
    let mut added: Vec<OsString> = Vec::new();
    if let Some(format) = take_format(&mut arguments, command) {
        match format.as_str() {
            "text" => {}
            "json" if has(command, "json") => added.push("--json".into()),
            "json" => return wrong_usage(format!("{} has no output as JSON", name_of(&path))),
            other => return wrong_usage(format!("--format {other}: neither text nor json")),
        }
    }
    let dry_run = arguments.iter().take(behind).position(|word| word == "--dry-run");
    if let Some(at) = dry_run {
        if !has(command, "dry_run") {
            return wrong_usage(format!("{} has no --dry-run", name_of(&path)));
        }
        arguments.remove(at);
        added.push("--dry-run".into());
    }
    let last_word = path.last().and_then(|word| arguments.iter().skip(1).position(|found| found == *word));
    let behind = last_word.map_or(arguments.len().min(1), |at| at + 2);
    // A group has its words one behind the other but for global options, so that its last one may stand twice.
    let behind = behind.max(path.len() + 1).min(arguments.len());
    arguments.splice(behind..behind, added);
    let arguments = tags::resolve(arguments, behind, command)?;
    match path.as_slice() {
        ["balance", "start"] => Ok(attach_filters(arguments)),
        ["filesystem", "defragment"] => Ok(name_compression(arguments, behind)),
        ["subvolume", "list"] => Ok(parent_uuid(&arguments, behind)),
        _ => Ok(arguments),
    }
}

/// Returns true if `--json` stands before the operands that follow `--`.
pub(crate) fn asks_for_json(arguments: &[OsString]) -> bool {
    arguments.iter().take_while(|word| *word != "--").any(|word| word == "--json")
}

/// The words of the command line with those of its command written out.
struct Found<'c> {
    arguments: Vec<OsString>,
    command: &'c Command,
    path: Vec<&'c str>,
    /// Index of the first word behind those of the command.
    behind: usize,
}

fn resolve(mut arguments: Vec<OsString>, root: &Command) -> Found<'_> {
    let (mut command, mut path, mut at) = (root, Vec::new(), 1);
    while at < arguments.len() && command.has_subcommands() {
        let Some(word) = arguments[at].to_str() else { break };
        if word == "--format" {
            at += 2;
            continue;
        }
        if word.starts_with('-') && word != "--" {
            at += 1;
            continue;
        }
        let Some(found) = find(command, word) else { break };
        arguments[at] = found.get_name().into();
        path.push(found.get_name());
        command = found;
        at += 1;
    }
    Found { behind: at.min(arguments.len()), arguments, command, path }
}

/// The command of this name, or the only one that begins so.
fn find<'c>(command: &'c Command, word: &str) -> Option<&'c Command> {
    if let Some(found) = command.find_subcommand(word) {
        return Some(found);
    }
    let fits = |found: &&Command| {
        found.get_name().starts_with(word) || found.get_all_aliases().any(|alias| alias.starts_with(word))
    };
    let mut fitting = command.get_subcommands().filter(fits);
    let first = fitting.next().filter(|_| !word.is_empty())?;
    fitting.next().is_none().then_some(first)
}

fn has(command: &Command, id: &str) -> bool {
    command.get_arguments().any(|argument| argument.get_id() == id)
}

fn name_of(path: &[&str]) -> String {
    format!("brindle {}", path.join(" ")).trim_end().to_owned()
}

/// Takes `--format TYPE` and `--format=TYPE` away, unless the command has an option of that name. The last one counts.
fn take_format(arguments: &mut Vec<OsString>, command: &Command) -> Option<String> {
    if has(command, "format") {
        return None;
    }
    let (mut format, mut at) = (None, 1);
    while at < arguments.len() {
        let word = arguments[at].to_string_lossy().into_owned();
        if word == "--" {
            break;
        }
        if word == "--format" && at + 1 < arguments.len() {
            format = Some(arguments[at + 1].to_string_lossy().into_owned());
            arguments.drain(at..at + 2);
        } else if let Some(value) = word.strip_prefix("--format=") {
            format = Some(value.to_owned());
            arguments.remove(at);
        } else {
            at += 1;
        }
    }
    format
}

/// Filters of `balance start` as the parser takes them: `-dusage=5` and `-d usage=5` become `-d=usage=5`. Without that it would
/// not know a filter from a path that follows.
fn attach_filters(arguments: Vec<OsString>) -> Vec<OsString> {
    let mut attached: Vec<OsString> = Vec::new();
    let mut rest = arguments.into_iter().peekable();
    while let Some(argument) = rest.next() {
        let text = argument.to_str().unwrap_or_default();
        let option = ["-d", "-m", "-s"].into_iter().find(|option| text.starts_with(option));
        let Some(option) = option else {
            attached.push(argument);
            continue;
        };
        let filters = &text[option.len()..];
        let is_next = |next: &OsString| filters.is_empty() && next.to_str().is_some_and(are_filters);
        if let Some(next) = rest.next_if(is_next) {
            attached.push(format!("{option}={}", next.to_string_lossy()).into());
        } else if filters.is_empty() || filters.starts_with('=') {
            attached.push(argument);
        } else {
            attached.push(format!("{option}={filters}").into());
        }
    }
    attached
}

/// Returns true for filters; a path of such a name is written `./usage=5`.
fn are_filters(word: &str) -> bool {
    let is_filter = |part: &str| {
        let name = part.split('=').next().unwrap_or_default();
        FILTERS.contains(&name) && (part.contains('=') || ["soft", "misplaced"].contains(&name))
    };
    word.split(',').all(is_filter)
}

/// `-c` behind `filesystem defragment` alone, or as the last of several letters, is zlib: a path may follow.
fn name_compression(arguments: Vec<OsString>, behind: usize) -> Vec<OsString> {
    let mut named: Vec<OsString> = Vec::new();
    let mut rest = arguments.into_iter().enumerate().peekable();
    while let Some((at, argument)) = rest.next() {
        let text = argument.to_str().unwrap_or_default();
        let is_flag = |letter: char| "rcvqf".contains(letter);
        let letters = text.strip_prefix('-').filter(|letters| letters.chars().all(is_flag));
        let is_bare = text == "--compress" || letters.is_some_and(|letters| letters.ends_with('c'));
        named.push(argument);
        let is_algorithm = |word: &OsString| {
            let word = word.to_str().unwrap_or_default();
            ["zlib", "lzo", "zstd", "no", "none"].contains(&word.split(':').next().unwrap_or_default())
        };
        if at >= behind && is_bare && !rest.peek().is_some_and(|(_, next)| is_algorithm(next)) {
            named.push("zlib".into());
        }
    }
    named
}

/// `-q` behind `subvolume list` is btrfs's column of parent UUIDs, alone or among other letters.
fn parent_uuid(arguments: &[OsString], behind: usize) -> Vec<OsString> {
    let mut rewritten: Vec<OsString> = arguments[..behind].to_vec();
    let mut rest = arguments[behind..].iter();
    for argument in rest.by_ref() {
        let text = argument.to_str().unwrap_or_default();
        if text == "--" {
            rewritten.push(argument.clone());
            break;
        }
        // What follows -G and -C in the same word is their value.
        let letters = text.strip_prefix('-').filter(|letters| !letters.starts_with('-')).unwrap_or_default();
        let end = letters.find(['G', 'C']).unwrap_or(letters.len());
        let (flags, value) = letters.split_at(end);
        if !flags.contains('q') {
            rewritten.push(argument.clone());
            continue;
        }
        rewritten.push("--parent-uuid".into());
        let others = format!("-{}{value}", flags.replace('q', ""));
        rewritten.extend((others.len() > 1).then(|| others.into()));
    }
    rewritten.extend(rest.cloned());
    rewritten
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    fn rewritten(line: &str) -> String {
        let words = std::iter::once("brindle").chain(line.split(' ')).map(OsString::from).collect();
        match rewrite(words, &Cli::command()) {
            Ok(words) => {
                let words: Vec<_> =
                    words.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
                words.join(" ")
            }
            Err(error) => format!("refused: {error}"),
        }
    }

    #[test]
    fn a_path_behind_the_letter_of_compression_is_no_algorithm() {
        for (line, expected) in [
            ("fi defrag -c /mnt/file", "filesystem defragment -c zlib /mnt/file"),
            ("fi defrag -rc /mnt", "filesystem defragment -rc zlib /mnt"),
            ("fi defrag -c zstd:9 /mnt/file", "filesystem defragment -c zstd:9 /mnt/file"),
            ("fi defrag -czstd /mnt/file", "filesystem defragment -czstd /mnt/file"),
            ("fi defrag /mnt/file -c", "filesystem defragment /mnt/file -c zlib"),
        ] {
            assert_eq!(rewritten(line), expected);
        }
    }

    #[test]
    fn a_prefix_that_fits_one_command_is_that_command() {
        for (line, expected) in [
            ("fi us /mnt", "filesystem usage /mnt"),
            ("-q su li -q /mnt", "-q subvolume list --parent-uuid /mnt"),
            ("su l fi", "subvolume list fi"),
            ("insp dump-s x", "inspect-internal dump-super x"),
            ("bal st /mnt", "balance st /mnt"),
            ("f us x", "filesystem usage x"),
            ("x y", "x y"),
        ] {
            assert_eq!(rewritten(line), expected);
        }
    }

    #[test]
    fn the_format_may_stand_anywhere() {
        let expected = "subvolume list --json /mnt";
        for line in [
            "--format json su list /mnt",
            "su --format=json list /mnt",
            "su list --format json /mnt",
            "su list /mnt --format json",
        ] {
            assert_eq!(rewritten(line), expected);
        }
        assert_eq!(rewritten("su list -- --format json"), "subvolume list -- --format json");
        assert_eq!(rewritten("--format text fi df x"), "filesystem df x");
        assert!(rewritten("--format json su create x").contains("no output as JSON"));
        assert!(rewritten("--format xml fi df x").contains("neither text nor json"));
    }

    #[test]
    fn a_dry_run_is_for_commands_that_have_one() {
        assert_eq!(rewritten("--dry-run su delete x"), "subvolume delete --dry-run x");
        assert_eq!(rewritten("su delete --dry-run x"), "subvolume delete --dry-run x");
        assert!(rewritten("--dry-run fi sync x").contains("no --dry-run"));
    }

    #[test]
    fn filters_are_told_from_paths() {
        for (line, expected) in [
            ("-v bal start -dusage=5 -m -s=limit=2 /mnt", "-v balance start -d=usage=5 -m -s=limit=2 /mnt"),
            ("balance start -d usage=50 /mnt", "balance start -d=usage=50 /mnt"),
            ("balance start -d usage=50,soft -m /mnt", "balance start -d=usage=50,soft -m /mnt"),
            ("balance start -d ./usage=50", "balance start -d ./usage=50"),
            ("ls -dx a", "ls -dx a"),
        ] {
            assert_eq!(rewritten(line), expected);
        }
    }

    #[test]
    fn the_letter_q_of_a_list_is_a_column() {
        assert_eq!(rewritten("su list -puqR -G +5 /q"), "subvolume list --parent-uuid -puR -G +5 /q");
        assert_eq!(rewritten("su list -qG+5 -- -q"), "subvolume list --parent-uuid -G+5 -- -q");
        assert_eq!(rewritten("su show -q x"), "subvolume show -q x");
    }
}

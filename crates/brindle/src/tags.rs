//! `UUID=`, `LABEL=`, `PARTUUID=` and `PARTLABEL=` in place of a block device, as mount(8) takes them. A file of such a name is
//! written `./UUID=...`.

use anyhow::{Result, bail};
use brindle_admin::health::find_tagged;
use clap::{ArgAction, Command};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Tags, and the directory in which udev links the devices that have them.
const TAGS: [(&str, &str); 4] = [
    ("UUID=", "/dev/disk/by-uuid"),
    ("LABEL=", "/dev/disk/by-label"),
    ("PARTUUID=", "/dev/disk/by-partuuid"),
    ("PARTLABEL=", "/dev/disk/by-partlabel"),
];

/// Names of operands that are devices of a pool which is there.
const OPERANDS: [&str; 4] = ["DEVICE", "PATH|DEVICE", "MOUNTPOINT|DEVICE", "OPERAND"];

/// Writes devices in place of tags among the operands of a command, which begin at `behind`.
///
/// # Errors
/// A tag that no device has, or that those of several pools have.
pub(crate) fn resolve(
    mut arguments: Vec<OsString>,
    behind: usize,
    command: &Command,
) -> Result<Vec<OsString>> {
    let is_device = |argument: &clap::Arg| {
        let names = argument.get_value_names().unwrap_or_default();
        argument.is_positional() && names.iter().any(|name| OPERANDS.contains(&name.as_str()))
    };
    // Devices that are about to be overwritten are named themselves.
    if !command.get_arguments().any(is_device) || ["mkfs", "create"].contains(&command.get_name()) {
        return Ok(arguments);
    }
    let mut takes_value = false;
    for argument in arguments.iter_mut().skip(behind) {
        let Some(word) = argument.to_str().map(str::to_owned) else {
            takes_value = false;
            continue;
        };
        let tag = TAGS.iter().find(|(tag, _)| word.starts_with(tag));
        if let Some((tag, directory)) = tag.filter(|_| !takes_value) {
            *argument = device_of(tag, &word[tag.len()..], Path::new(directory))?.into();
        }
        takes_value = is_option_with_value(&word, command);
    }
    Ok(arguments)
}

/// Returns true for an option, or a group of letters, that takes the next word, and not as a device.
fn is_option_with_value(word: &str, command: &Command) -> bool {
    let takes = |argument: &clap::Arg| {
        matches!(argument.get_action(), ArgAction::Set | ArgAction::Append)
            && argument.get_long() != Some("pool")
    };
    match (word.strip_prefix("--"), word.strip_prefix('-')) {
        (Some(long), _) => {
            command.get_arguments().any(|argument| argument.get_long() == Some(long) && takes(argument))
        }
        (None, Some(letters)) => letters.chars().last().is_some_and(|last| {
            command.get_arguments().any(|argument| argument.get_short() == Some(last) && takes(argument))
        }),
        (None, None) => false,
    }
}

/// The device that has a tag, by udev's link or by its superblock.
fn device_of(tag: &str, value: &str, directory: &Path) -> Result<PathBuf> {
    let value = value.trim_matches('"');
    let link = directory.join(value);
    if !value.is_empty() && !value.contains('/') && link.exists() {
        return Ok(link);
    }
    let found = match tag {
        "UUID=" => find_tagged(|superblock| superblock.fsid.to_string().eq_ignore_ascii_case(value)),
        "LABEL=" => find_tagged(|superblock| superblock.label() == value.as_bytes()),
        _ => Vec::new(),
    };
    let Some((first, fsid)) = found.first() else { bail!("{tag}{value}: no block device has it") };
    if let Some((other, _)) = found.iter().find(|(_, other)| other != fsid) {
        bail!(
            "{tag}{value}: {} and {} have it, of different pools: use the UUID",
            first.display(),
            other.display()
        );
    }
    Ok(first.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    fn resolved(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let root = Cli::command();
        let command = root.find_subcommand(&words[0]).expect("a command");
        match resolve(words, 1, command) {
            Ok(words) => words.join(std::ffi::OsStr::new(" ")).into_string().expect("text"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn operands_alone_are_tags() {
        for line in ["mkfs LABEL=none", "mount -o LABEL=none a b", "ls ./LABEL=none", "umount LABEL=none"] {
            assert_eq!(resolved(line), line);
        }
        let refused = "LABEL=no pool's: no block device has it";
        for line in
            ["mount LABEL=no|pool's /mnt", "ls -l LABEL=no|pool's", "check --progress LABEL=no|pool's"]
        {
            let words: Vec<OsString> = line.split(' ').map(|word| word.replace('|', " ").into()).collect();
            let root = Cli::command();
            let command = root.find_subcommand(&words[0]).expect("a command");
            assert_eq!(resolve(words, 1, command).expect_err("no device").to_string(), refused);
        }
    }
}

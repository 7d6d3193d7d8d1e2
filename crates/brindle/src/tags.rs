//! `UUID=`, `LABEL=`, `PARTUUID=` and `PARTLABEL=` in place of a block device, as mount(8) takes them. A file of such a name is
//! written `./UUID=...`.

use anyhow::{Result, bail};
use brindle_admin::health::find_tagged;
use brindle_admin::pool::DeviceIdentity;
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

/// Returns true for the name of an operand that may be a device of a pool which is there.
fn is_device(name: &str) -> bool {
    name == "OPERAND" || name.split('|').any(|word| word == "DEVICE")
}

/// Writes devices in place of tags among the operands of a command, which begin at `behind`.
///
/// # Errors
/// A tag that no device has, that those of several pools have, or that a device has and its copy.
pub(crate) fn resolve(
    mut arguments: Vec<OsString>,
    behind: usize,
    command: &Command,
) -> Result<Vec<OsString>> {
    let has_devices = |argument: &clap::Arg| {
        let names = argument.get_value_names().unwrap_or_default();
        argument.is_positional() && names.iter().any(|name| is_device(name))
    };
    // Devices that are about to be overwritten are named themselves.
    if !command.get_arguments().any(has_devices) || ["mkfs", "create"].contains(&command.get_name()) {
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

/// The device that has a tag, by its superblock, else by udev's link: of several devices udev links one, whichever it is.
fn device_of(tag: &str, value: &str, directory: &Path) -> Result<PathBuf> {
    let value = value.trim_matches('"');
    if value.is_empty() {
        bail!("{tag} has no value");
    }
    let found = match tag {
        "UUID=" => find_tagged(|superblock| superblock.fsid.to_string().eq_ignore_ascii_case(value)),
        "LABEL=" => find_tagged(|superblock| superblock.label() == value.as_bytes()),
        _ => Vec::new(),
    };
    let link = directory.join(value);
    match found.first() {
        Some((first, _)) => {
            check_alike(&format!("{tag}{value}"), &found)?;
            Ok(first.clone())
        }
        // Of devices that the user may not read, opening tells.
        None if !value.contains('/') && link.exists() => Ok(link),
        None => bail!(
            "{tag}{value}: no block device has it; `brindle filesystem show` lists pools, and image files are named by \
             their paths"
        ),
    }
}

/// Refuses devices of several pools, and a device with its copy.
fn check_alike(tag: &str, found: &[(PathBuf, DeviceIdentity)]) -> Result<()> {
    for (at, (one, identity)) in found.iter().enumerate() {
        for (other, another) in &found[at + 1..] {
            let both = format!("{} and {}", one.display(), other.display());
            if identity.fsid != another.fsid {
                bail!("{tag}: {both} have it, of different pools: use the UUID");
            }
            if identity.devid == another.devid {
                bail!(
                    "{tag}: {both} have it, and both are devid {}: one is a copy; name the devices themselves",
                    identity.devid
                );
            }
        }
    }
    Ok(())
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
        for line in ["ls LABEL=", "receive LABEL=\"\"", "send UUID="] {
            assert!(resolved(line).ends_with("= has no value"), "{line}");
        }
        for line in ["mkfs LABEL=none", "mount -o LABEL=none a b", "ls ./LABEL=none", "umount LABEL=none"] {
            assert_eq!(resolved(line), line);
        }
        let refused = "LABEL=no pool's: no block device has it;";
        for line in
            ["mount LABEL=no|pool's /mnt", "ls -l LABEL=no|pool's", "check --progress LABEL=no|pool's"]
        {
            let words: Vec<OsString> = line.split(' ').map(|word| word.replace('|', " ").into()).collect();
            let root = Cli::command();
            let command = root.find_subcommand(&words[0]).expect("a command");
            let said = resolve(words, 1, command).expect_err("no device").to_string();
            assert!(said.starts_with(refused), "{said}");
        }
    }
}

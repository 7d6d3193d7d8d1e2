//! `mount -o remount`: changes of a mount that is there. Those of the kernel's mount are made by mount(2), those of the
//! server by asking it. mount(8) hands over all options that fstab or the mount table has for the place, so that options that
//! are in effect already are taken.

use crate::commands::mount_options::{MountOptions, Remount, is_without_effect, remount_of};
use crate::commands::usage::OrWrongUsage;
use anyhow::{Context, Result, bail};
use brindle_admin::Mounted;
use brindle_uapi::mount_table::{self, Mount};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use std::path::Path;
use std::process::ExitCode;

/// The words of the mount table for the flags of a mount, which a remount keeps unless it says otherwise.
const FLAGS: [(&str, MountFlags); 9] = [
    ("ro", MountFlags::RDONLY),
    ("nosuid", MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("relatime", MountFlags::RELATIME),
    ("sync", MountFlags::SYNCHRONOUS),
    ("dirsync", MountFlags::DIRSYNC),
];
/// Words of the kernel's FUSE that the mount table shows and mount(8) hands over.
const OF_KERNEL: [&str; 6] = ["user_id=", "group_id=", "rootmode=", "fd=", "max_read=", "blksize="];

/// Returns true if these options are those of a remount.
pub(super) fn is_asked_for<S: AsRef<str>>(lists: &[S]) -> bool {
    words(lists).any(|word| word == "remount")
}

fn words<S: AsRef<str>>(lists: &[S]) -> impl Iterator<Item = &str> {
    lists.iter().flat_map(|list| list.as_ref().split(',')).map(str::trim).filter(|word| !word.is_empty())
}

/// Remounts what is mounted at a path.
pub(super) fn run(lists: &[String], place: &Path) -> Result<ExitCode> {
    let given = place.display();
    let path = place.canonicalize().with_context(|| format!("cannot find {given}"))?;
    let mounts = mount_table::read().context("cannot read the mount table")?;
    let mount = mount_table::at(&mounts, &path).filter(|mount| mount.is_ours());
    let mount = mount.with_context(|| format!("{given}: nothing is mounted there by brindle"))?;
    let mounted = Mounted::open(&path)?;
    let server = mounted.server()?;
    let wanted = Wanted::read(lists, mount, &first_options(server.process)).or_wrong_usage()?;
    let is_read_only = wanted.flags.contains(MountFlags::RDONLY);
    if !is_read_only && server.is_writable == 0 {
        bail!(
            "{given}: was mounted to be read only, which a remount can't change: unmount it, and mount it with rw"
        );
    }
    for (name, value) in &wanted.settings {
        mounted.set_setting(name, value).with_context(|| format!("option '{name}={value}'"))?;
    }
    if !is_read_only {
        mounted.set_setting("read_only", "false")?;
    }
    match mount_remount(&path, wanted.flags, c"") {
        Ok(()) => {}
        Err(Errno::BUSY) => bail!("{given}: busy: a file is open there to be written"),
        Err(Errno::PERM) => bail!("{given}: only root can remount"),
        Err(error) => return Err(error).with_context(|| format!("cannot remount {given}")),
    }
    // The kernel has handed over all that it had: now the server makes it durable.
    if is_read_only && server.is_writable != 0 {
        if let Err(error) = mounted.set_setting("read_only", "true") {
            mount_remount(&path, wanted.flags - MountFlags::RDONLY, c"").ok();
            return Err(error).with_context(|| {
                format!("{given}: is not remounted read-only; a balance or the like may be running")
            });
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The mount as it is to be.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    flags: MountFlags,
    /// Settings of the server, by their names.
    settings: Vec<(&'static str, String)>,
}

impl Wanted {
    /// Reads the options of a remount, of a mount that was made with the options `first`.
    fn read<S: AsRef<str>>(lists: &[S], mount: &Mount, first: &[String]) -> Result<Self> {
        let shown = || mount.options.split(',').chain(mount.super_options.split(','));
        let set = FLAGS.iter().filter(|(word, _)| shown().any(|shown| shown == *word));
        let mut wanted =
            Self { flags: set.fold(MountFlags::empty(), |all, (_, flag)| all | *flag), settings: Vec::new() };
        for word in words(lists) {
            match remount_of(word) {
                Remount::Flag(flag, is_set) => wanted.flags.set(flag, is_set),
                Remount::Setting(name) => {
                    MountOptions::parse(&[word])?;
                    let value = word.split_once('=').map_or("", |(_, value)| value);
                    wanted.settings.push((name, value.to_owned()));
                }
                Remount::Switch(name, is_on) => {
                    MountOptions::parse(&[word])?;
                    wanted.settings.push((name, is_on.to_string()));
                }
                Remount::Fixed if is_in_effect(word, shown(), first) => {}
                Remount::Fixed => {
                    bail!("option '{word}' can't be changed by a remount: unmount, and mount with it")
                }
            }
        }
        Ok(wanted)
    }
}

/// Returns true if an option is one of the mount as it is, or changes nothing of any.
fn is_in_effect<'s>(word: &str, mut shown: impl Iterator<Item = &'s str>, first: &[String]) -> bool {
    word == "remount"
        || is_without_effect(word)
        || ["async", "default_permissions"].contains(&word)
        || OF_KERNEL.iter().any(|prefix| word.starts_with(prefix))
        || shown.any(|shown| shown == word)
        || words(first).any(|first| first == word)
}

/// The options that a mount was made with: those that its server was called with.
fn first_options(server: u32) -> Vec<String> {
    let line = std::fs::read(format!("/proc/{server}/cmdline")).unwrap_or_default();
    let arguments = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    given_options(arguments)
}

/// The values of `-o`, in all the ways in which it can be given.
fn given_options(mut arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut lists = Vec::new();
    while let Some(argument) = arguments.next() {
        if argument == "-o" || argument == "--options" {
            lists.extend(arguments.next());
        } else if let Some(list) = argument.strip_prefix("--options=").or_else(|| argument.strip_prefix("-o"))
        {
            lists.push(list.trim_start_matches('=').to_owned());
        }
    }
    lists
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(options: &str) -> Result<Wanted> {
        let table =
            b"31 22 0:41 / /mnt rw,nosuid,nodev,relatime - fuse.brindle x.img rw,user_id=0,allow_other\n";
        let first = ["rw,compress=zstd".to_owned(), "device=/dev/sdc".to_owned()];
        Wanted::read(&[options], &mount_table::parse(table)[0], &first)
    }

    #[test]
    fn options_not_named_in_a_remount_stay() {
        let flags = |options| wanted(options).expect("allowed").flags;
        let now = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RELATIME;
        assert_eq!(flags("remount"), now);
        assert_eq!(flags("remount,ro"), now | MountFlags::RDONLY);
        assert_eq!(flags("remount,ro,rw,dev,noexec"), (now - MountFlags::NODEV) | MountFlags::NOEXEC);
        let as_mount_8_has_it =
            "rw,nosuid,relatime,user_id=0,group_id=0,allow_other,default_permissions,x-a,remount";
        assert_eq!(flags(as_mount_8_has_it), now);
        let settings = |options| wanted(options).expect("allowed").settings;
        assert_eq!(settings("remount,commit=7"), [("commit", "7".to_owned())]);
        let switched = [("autodefrag", "true".to_owned()), ("autodefrag", "false".to_owned())];
        assert_eq!(settings("autodefrag,remount,noautodefrag"), switched);
        assert_eq!(settings("remount,read_policy=pid"), [("read_policy", "pid".to_owned())]);
    }

    #[test]
    fn fixed_options_are_refused_by_name() {
        assert!(wanted("remount,rw,compress=zstd,device=/dev/sdc,nofail").is_ok());
        for option in ["compress=lzo", "noatime", "sync", "subvol=a", "bogus"] {
            let said = wanted(&format!("remount,{option}")).expect_err("refused").to_string();
            assert_eq!(
                said,
                format!("option '{option}' can't be changed by a remount: unmount, and mount with it")
            );
        }
        assert!(wanted("remount,commit=x").is_err() && wanted("remount,autodefrag=1").is_err());
    }

    #[test]
    fn options_are_found_in_a_command_line() {
        let line = ["brindle", "mount", "-o", "ro", "--options=a,b", "-oc", "x.img", "/mnt", "-f"];
        assert_eq!(given_options(line.into_iter().map(str::to_owned)), ["ro", "a,b", "c"]);
    }
}

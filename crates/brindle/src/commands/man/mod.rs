//! `brindle man`: the man pages.
//!
//! The pages of commands are made of their help, with the sections behind the options as sections of their own. Two pages have
//! texts of their own in the same layout: brindle(7), an overview, and mount.fuse.brindle(8), for mount(8) and fstab.

mod layout;
mod roff;

use crate::commands::mount_options;
use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_mangen::Man;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A page that no command has.
struct Page {
    name: &'static str,
    section: u8,
    about: &'static str,
    /// Sections from the synopsis on; `@MOUNT OPTIONS@` stands for the table of those.
    text: &'static str,
    see_also: &'static [&'static str],
}

const PAGES: [Page; 2] = [
    Page {
        name: "brindle",
        section: 7,
        about: "pools of SSDs and hard disks on btrfs, in userspace",
        text: include_str!("brindle.7.txt"),
        see_also: &[
            "brindle(1)",
            "brindle-mkfs(1)",
            "brindle-mount(1)",
            "brindle-tier(1)",
            "brindle-status(1)",
            "brindle-scrub(1)",
            "brindle-rescue(1)",
            "mount.fuse.brindle(8)",
            "btrfs(5)",
        ],
    },
    Page {
        name: "mount.fuse.brindle",
        section: 8,
        about: "mount a pool by mount(8) and fstab(5)",
        text: include_str!("mount.fuse.brindle.8.txt"),
        see_also: &[
            "brindle-mount(1)",
            "brindle-umount(1)",
            "brindle(7)",
            "fstab(5)",
            "systemd.mount(5)",
            "mount(8)",
            "umount(8)",
        ],
    },
];

const MOUNT_OPTIONS: &str = "@MOUNT OPTIONS@\n";

/// Write the man pages of all commands into a directory.
#[derive(Args, Debug)]
#[command(hide = true)]
pub(crate) struct ManCommand {
    /// Directory to write them to; made if it is missing
    directory: PathBuf,
}

/// Runs the command, for a tree of commands.
pub(crate) fn run(command: &ManCommand, tree: &Command) -> Result<ExitCode> {
    let directory = &command.directory;
    write_all(directory, tree)
        .with_context(|| format!("cannot write man pages to {}", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn write_all(directory: &Path, tree: &Command) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut tree = tree.clone().disable_help_subcommand(true);
    tree.build();
    write_commands(directory, &tree, None)?;
    for page in &PAGES {
        fs::write(directory.join(format!("{}.{}", page.name, page.section)), of_text(page))?;
    }
    Ok(())
}

/// Writes the pages of a command and of those below it.
fn write_commands(directory: &Path, command: &Command, parent: Option<&Command>) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_commands(directory, below, Some(command))?;
    }
    let name = name_of(command);
    fs::write(directory.join(format!("{name}.1")), of_command(command, parent)?)?;
    // An alias that is no beginning of the name is looked for under its own.
    let aliases = command.get_visible_aliases().filter(|alias| !command.get_name().starts_with(alias));
    for alias in aliases {
        let alias = format!("{}-{alias}.1", parent.map_or("brindle", name_of));
        fs::write(directory.join(alias), format!(".so man1/{name}.1\n"))?;
    }
    Ok(())
}

fn name_of(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn of_command(command: &Command, parent: Option<&Command>) -> io::Result<String> {
    let man = Man::new(command.clone());
    let mut sections = Vec::new();
    man.render_name_section(&mut sections)?;
    man.render_synopsis_section(&mut sections)?;
    man.render_description_section(&mut sections)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut sections)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut sections)?;
    }
    let sections = String::from_utf8(sections).map_err(io::Error::other)?;
    let help = command.get_after_long_help().or_else(|| command.get_after_help());
    let rest = roff::body(&layout::blocks(&help.map(ToString::to_string).unwrap_or_default()));
    let mut others: Vec<String> = parent.iter().map(|parent| format!("{}(1)", name_of(parent))).collect();
    if others.first().is_some_and(|other| other != "brindle(1)") {
        others.push("brindle(1)".to_owned());
    }
    others.push("brindle(7)".to_owned());
    if matches!(command.get_name(), "mount" | "umount") {
        others.push("mount.fuse.brindle(8)".to_owned());
    }
    let head = roff::head(name_of(command), 1);
    Ok(head + &roff::tidied(&format!("{sections}{rest}{}", roff::see_also(&others))))
}

fn of_text(page: &Page) -> String {
    let text = page.text.replace(MOUNT_OPTIONS, &mount_options::manual());
    let name = format!("{}{} \\- {}\n", roff::section("NAME"), page.name, page.about);
    let others: Vec<String> = page.see_also.iter().map(ToString::to_string).collect();
    let body = roff::body(&layout::blocks(&text));
    roff::head(page.name, page.section) + &roff::tidied(&format!("{name}{body}{}", roff::see_also(&others)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_fstab_are_those_of_the_table() {
        let page = of_text(&PAGES[1]);
        for option in ["\\fBcommit=SECONDS\\fR", "\\fBdegraded[=named]\\fR", "\\fBnofail\\fR"] {
            assert!(page.contains(option), "{option}");
        }
        assert!(!page.contains(MOUNT_OPTIONS.trim_end()));
    }
}

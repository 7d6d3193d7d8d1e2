//! Help, man pages, exit codes.

use super::support::{Image, brindle, brindle_fails, brindle_prints};
use std::process::Command;

const COMMANDS: [&[&str]; 30] = [
    &["filesystem", "sync"],
    &["filesystem", "label"],
    &["filesystem", "df"],
    &["filesystem", "usage"],
    &["filesystem", "commit-stats"],
    &["filesystem", "resize"],
    &["filesystem", "defragment"],
    &["device", "add"],
    &["device", "remove"],
    &["property", "get"],
    &["property", "set"],
    &["subvolume", "create"],
    &["subvolume", "snapshot"],
    &["subvolume", "delete"],
    &["subvolume", "list"],
    &["subvolume", "show"],
    &["subvolume", "get-default"],
    &["subvolume", "set-default"],
    &["inspect", "dump-super"],
    &["inspect", "dump-tree"],
    &["inspect", "tree-stats"],
    &["filesystem", "show"],
    &["ls"],
    &["cat"],
    &["stat"],
    &["restore"],
    &["cp"],
    &["check"],
    &["mount"],
    &["umount"],
];

#[test]
fn every_command_explains_itself() {
    for command in COMMANDS {
        let help = brindle_prints([command, &["--help"]].concat());
        assert!(help.contains("EXAMPLES\n") && help.contains("EXIT STATUS\n"), "{command:?}:\n{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 110), "{command:?}");
    }
}

#[test]
fn wrong_usage_is_told_from_failure() {
    assert_eq!(brindle(["bogus"]).status.code(), Some(2));
    assert_eq!(brindle(["ls"]).status.code(), Some(2));
    assert_eq!(brindle(["ls", "-v", "-q", "x"]).status.code(), Some(2));
    brindle_fails(1, ["ls", "nosuch.img"]);
}

#[test]
fn a_quiet_mkfs_says_nothing() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let image = directory.path().join("a.img");
    let image = image.to_str().expect("UTF-8");
    for words in [&["mkfs", "-q", "--size", "512M", image][..], &["-q", "mkfs", "-f", image]] {
        let done = brindle(words);
        assert_eq!((done.status.code(), &done.stdout[..], &done.stderr[..]), (Some(0), &b""[..], &b""[..]));
    }
    assert!(!brindle_prints(["mkfs", "-f", image]).is_empty());
}

#[test]
fn every_command_has_a_man_page() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let pages = directory.path().join("man1");
    brindle_prints(["man", pages.to_str().expect("UTF-8")]);
    for name in ["brindle", "brindle-restore", "brindle-inspect-internal-dump-tree", "brindle-mount"] {
        let page = std::fs::read_to_string(pages.join(format!("{name}.1"))).expect("the page is there");
        assert!(page.contains(".SH"), "{name}");
    }
}

#[test]
fn too_few_operands_show_the_usage_of_the_command() {
    for command in ["mount", "restore", "cp"] {
        let said = brindle_fails(2, [command, "x.img"]);
        let name = if command == "cp" { "restore" } else { command };
        assert!(said.contains(&format!("Usage: brindle {name} ")), "{said}");
    }
}

#[test]
fn headings_of_help_end_where_they_should() {
    let help = brindle_prints(["filesystem", "show", "--help"]);
    let (_, arguments) = help.split_once("Arguments:\n").expect("operands have their heading");
    assert!(arguments.trim_start().starts_with("[DEVICE|PATH|UUID|LABEL]..."), "{help}");
    let (_, units) = help.split_once("Units:\n").expect("units have theirs");
    let (units, _) = units.split_once("Global options:\n").expect("and so have these");
    assert!(units.contains("--raw") && !units.contains("DEVICE|PATH") && !units.contains("--json"), "{help}");
    assert!(brindle_prints(["inspect", "dump-tree", "--help"]).contains("JSON Lines"));
    assert!(brindle_prints(["ls", "--help"]).contains("arrays of bytes"));
}

#[test]
fn a_log_filter_that_is_none_is_named() {
    let run = |filter: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
        command.args(["ls", "nosuch.img"]).env("BRINDLE_LOG", filter);
        let output = command.output().expect("the binary was built");
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for filter in ["bogus", "brindle=loud", "debugg,brindle=info"] {
        let said = run(filter);
        assert!(said.contains(&format!("BRINDLE_LOG={filter}: ")) && said.lines().count() == 1, "{said}");
    }
    for filter in ["", "debug", "WARN", "brindle_volume=trace", "warn,brindle_fs=debug"] {
        assert!(run(filter).contains("cannot open nosuch.img"), "{filter}");
    }
}

#[test]
fn a_full_standard_output_is_named() {
    let image = Image::unpack("single");
    for words in
        [&["ls"][..], &["ls", "--json"], &["stat"], &["filesystem", "show"], &["inspect", "dump-tree"]]
    {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("there is /dev/full");
        let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
        command.arg("-q").args(words).args(&image.devices).stdout(full).env_remove("BRINDLE_LOG");
        let output = command.output().expect("the binary was built");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        let is_named = said.contains("cannot write to standard output: No space");
        assert!(is_named && said.lines().count() == 1, "{words:?}: {said}");
    }
}

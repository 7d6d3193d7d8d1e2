//! Help, man pages, exit codes.

use super::support::{brindle, brindle_fails, brindle_prints};

const COMMANDS: [&[&str]; 12] = [
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
fn every_command_has_a_man_page() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let pages = directory.path().join("man1");
    brindle_prints(["man", pages.to_str().expect("UTF-8")]);
    for name in ["brindle", "brindle-restore", "brindle-inspect-dump-tree", "brindle-mount"] {
        let page = std::fs::read_to_string(pages.join(format!("{name}.1"))).expect("the page is there");
        assert!(page.contains(".SH"), "{name}");
    }
}

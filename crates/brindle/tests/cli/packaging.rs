//! The files of a package are those that are installed.

use super::support::text;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Place of the files of a package, as the list of assets has it.
const STAGE: &str = "../../target/stage/";

/// An asset for cargo-deb: pattern of sources, and directory in the package.
struct Asset {
    source: String,
    directory: String,
}

impl Asset {
    /// All that the manifest lists.
    fn all() -> Vec<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let manifest = fs::read_to_string(manifest).expect("readable");
        let lines = manifest.lines().skip_while(|line| *line != "assets = [").skip(1);
        let lines = lines.take_while(|line| *line != "]");
        let of_line = |line: &str| {
            let words: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
            let [source, directory, _mode] = words[..] else { panic!("three texts: {line}") };
            Self { source: source.to_owned(), directory: directory.to_owned() }
        };
        lines.map(of_line).collect()
    }

    /// Returns true for a file that it puts into the package.
    fn takes(&self, file: &str) -> bool {
        let (directory, name) = file.rsplit_once('/').expect("below a directory");
        let is_there = format!("{directory}/") == self.directory;
        let Some(source) = self.source.strip_prefix(STAGE) else {
            return is_there && self.source == "target/release/brindle" && name == "brindle";
        };
        let (place, pattern) = source.rsplit_once('/').expect("below a directory");
        let is_meant = match pattern.split_once('*') {
            Some((begin, end)) => name.starts_with(begin) && name.ends_with(end),
            None => name == pattern,
        };
        is_there && place == directory && is_meant
    }
}

/// Files and links below a directory, by their paths there.
fn files_below(root: &Path, directory: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.is_symlink() {
            files_below(root, &path, found);
        } else {
            found.push(text(path.strip_prefix(root).expect("below it")).to_owned());
        }
    }
}

#[test]
fn the_files_of_the_package_are_those_that_are_installed() {
    let (stage, other) = (tempfile::tempdir(), tempfile::tempdir());
    let (stage, other) = (stage.expect("temporary directory"), other.expect("temporary directory"));
    let notices = other.path().join("notices");
    fs::write(&notices, "texts").expect("room");
    let script: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/install.sh");
    let run = |words: &[&str]| {
        let mut command = Command::new(&script);
        command.env("BRINDLE", env!("CARGO_BIN_EXE_brindle"));
        command.env("ZSH_COMPLETIONS", "/usr/share/zsh/vendor-completions");
        command.env("RULES", "/usr/lib/udev/rules.d");
        command.env("NOTICES", &notices);
        command.args(words).args([text(stage.path()), "/usr", "/usr/sbin", "/usr/lib/systemd/system"]);
        let output = command.output().expect("bash");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(&[]);
    let mut files = Vec::new();
    files_below(stage.path(), stage.path(), &mut files);
    let assets = Asset::all();
    assert!(files.len() > 100 && assets.len() > 10, "{files:?}");
    for file in &files {
        let count = assets.iter().filter(|asset| asset.takes(file)).count();
        assert_eq!(count, 1, "{file} is in crates/brindle/Cargo.toml");
    }
    for asset in &assets {
        let is_needed = files.iter().any(|file| asset.takes(file));
        assert!(is_needed, "{} is installed", asset.source);
    }
    run(&["--remove"]);
    let mut left = Vec::new();
    files_below(stage.path(), stage.path(), &mut left);
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_notices_have_each_crate_that_is_linked_with_its_licence_and_its_texts() {
    let notices = || {
        let mut command = Command::new(contributed("notices.sh"));
        // All sources are there, as this was built.
        let output = command.env("CARGO_NET_OFFLINE", "true").output().expect("bash");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let text = notices();
    let (list, texts) = text.split_once("\n---- text 1 ----\n").expect("a text");
    let (_, list) = list.split_once(").\n\n").expect("a head");
    let crates: Vec<&str> = list.lines().filter(|line| !line.starts_with(' ')).collect();
    assert!(crates.len() > 80 && crates.iter().all(|it| it.contains(": ")), "{crates:?}");
    let has = |name: &str| crates.iter().any(|it| it.starts_with(&format!("{name} ")));
    assert!(["anyhow", "ring", "zstd-sys", "rustix"].iter().all(|name| has(name)), "{crates:?}");
    // Ours, those of tests, and those that take part in the build alone.
    assert!(!["brindle", "brindle-fs", "proptest", "syn", "cc"].iter().any(|name| has(name)), "{crates:?}");
    let without: Vec<&str> = list.lines().filter(|line| line.starts_with("    without")).collect();
    assert!(without.len() < 4, "{without:?}");
    for line in list.lines().filter_map(|line| line.strip_prefix("    text ")) {
        let (number, file) = line.split_once(": ").expect("a file");
        assert!(number == "1" || texts.contains(&format!("\n---- text {number} ----\n")), "{file}");
    }
    assert!(texts.contains("Meta Platforms") && texts.contains("Permission is hereby granted"));
    assert!(!texts.contains("GNU GENERAL PUBLIC LICENSE"));
    assert!(notices() == text, "the same bytes again");
}

/// A file of the directory `contrib`.
fn contributed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(name)
}

#[test]
fn units_are_nice_and_confined_and_reach_the_devices() {
    for unit in ["brindle-tier@.service", "brindle-tier-recover.service"] {
        let lines = fs::read_to_string(contributed(unit)).expect("readable");
        let has = |setting: &str| lines.lines().any(|line| line.starts_with(setting));
        for setting in
            ["NoNewPrivileges=yes", "CapabilityBoundingSet=CAP_SYS_ADMIN ", "StateDirectory=brindle"]
        {
            assert!(has(setting), "{unit}: {setting}");
        }
        // Classes of devices are those that their disks say, and each of these leaves a service without disks.
        for setting in ["PrivateDevices=", "DeviceAllow=", "DevicePolicy=", "ProtectClock="] {
            assert!(!has(setting), "{unit}: {setting}");
        }
        assert_eq!(has("Nice=") && has("IOSchedulingClass=idle"), unit.contains('@'), "{unit}");
    }
}

#[test]
fn a_purged_package_leaves_nothing_but_the_journal_of_an_interrupted_move() {
    let root = tempfile::tempdir().expect("temporary directory");
    let (state, wants) =
        (root.path().join("var/lib/brindle"), root.path().join("etc/systemd/system/multi-user.target.wants"));
    let link = wants.join("brindle-tier@srv-pool.service");
    for directory in [&state, &wants] {
        fs::create_dir_all(directory).expect("room");
    }
    for file in ["scrub.json", "tier-77c4.json"] {
        fs::write(state.join(file), "{}").expect("room");
    }
    let run = |action: &str| {
        let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("debian/postrm"))
            .arg(action)
            .env("DPKG_ROOT", root.path())
            .output();
        let output = output.expect("sh");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    fs::write(&link, "").expect("room");
    assert_eq!(run("remove"), "");
    assert!(link.exists() && state.join("scrub.json").exists());
    assert!(run("purge").contains("tier-77c4.json stays"));
    assert!(!link.exists() && state.join("tier-77c4.json").exists());
    fs::remove_file(state.join("tier-77c4.json")).expect("it is there");
    assert_eq!(run("purge"), "");
    assert!(!state.exists());
}

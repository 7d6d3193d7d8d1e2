//! The tests of the workspace: built at once, and run binary by binary.
//!
//! `cargo test --package X` resolves the features of what X needs alone, and so builds nearly everything anew for each
//! X that is tested in a way of its own.

use crate::cargo;
use crate::steps::Steps;
use anyhow::{Result, bail};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// A binary of tests.
pub(crate) struct TestBinary {
    /// The folder of its package, in which it is to run.
    folder: PathBuf,
    /// The folder's name, which is what the package is called here.
    pub(crate) package: String,
    path: PathBuf,
}

impl TestBinary {
    /// Reads a line of what Cargo reports; none if it is of something else.
    fn of(line: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        let path = PathBuf::from(message["executable"].as_str().filter(|_| is_test)?);
        let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
        let package = folder.file_name()?.to_str()?.to_owned();
        Some(Self { folder, package, path })
    }

    /// The name of its file.
    pub(crate) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The command that runs it as `cargo test` does, but, where this may make one, in a mount namespace of its own: programs such
    /// as `btrfs check` ask for the state of every mount that they see, and fail at one whose server another binary has killed.
    pub(crate) fn command(&self) -> Command {
        let mut command = if has_namespaces() {
            let mut unshare = unshare();
            unshare.arg(&self.path);
            unshare
        } else {
            Command::new(&self.path)
        };
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// The start of a command in a mount namespace that gets its mounts from this one, and gives none back.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "slave", "--"]);
    command
}

/// Returns true if this process may make mount namespaces.
fn has_namespaces() -> bool {
    static HAS: LazyLock<bool> = LazyLock::new(|| {
        unshare().arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    });
    *HAS
}

/// Builds the tests that the options of Cargo choose.
pub(crate) fn build(steps: &mut Steps, chosen: &[&str]) -> Result<Vec<TestBinary>> {
    let mut build = cargo();
    build.arg("test").args(chosen).args(["--no-run", "--message-format=json-render-diagnostics"]);
    let binaries: Vec<TestBinary> = steps.output(&mut build)?.lines().filter_map(TestBinary::of).collect();
    if binaries.is_empty() {
        bail!("cargo names no tests");
    }
    Ok(binaries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const ARTIFACT: &str = r#"{"reason":"compiler-artifact","manifest_path":"/b/crates/tree/Cargo.toml",
        "profile":{"test":true},"executable":"/b/target/debug/deps/tree-1"}"#;

    #[test]
    fn binaries_do_not_see_the_mounts_of_each_other() {
        if !has_namespaces() {
            eprintln!("skipped: this process may make no mount namespace");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().display();
        let script = folder.path().join("mounts");
        let lines = format!("#!/bin/sh\nset -e\nmount -t tmpfs none {place}\ngrep -q {place} /proc/mounts\n");
        std::fs::write(&script, lines).expect("a script");
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("a mode");
        let binary = TestBinary { folder: "/".into(), package: "tree".into(), path: script };
        let status = binary.command().status().expect("it starts");
        assert!(status.success(), "it mounts, and sees it: {status}");
        let mounts = std::fs::read_to_string("/proc/mounts").expect("mounts");
        assert!(!mounts.contains(&*place.to_string()), "{mounts}");
    }

    #[test]
    fn tests_are_told_from_what_else_is_built() {
        let binary = TestBinary::of(ARTIFACT).expect("a test");
        assert_eq!((binary.package.as_str(), binary.folder), ("tree", PathBuf::from("/b/crates/tree")));
        assert_eq!(binary.path, PathBuf::from("/b/target/debug/deps/tree-1"));
        assert!(TestBinary::of(&ARTIFACT.replace("true", "false")).is_none(), "a program");
        assert!(TestBinary::of(&ARTIFACT.replace(r#""/b/target/debug/deps/tree-1""#, "null")).is_none());
        assert!(TestBinary::of(r#"{"reason":"build-finished","success":true}"#).is_none());
        assert!(TestBinary::of("warning: not JSON").is_none());
    }
}

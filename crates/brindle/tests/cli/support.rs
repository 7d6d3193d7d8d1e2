//! Running things, and images to run them on.

use brindle_testing::golden::Golden;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use tempfile::TempDir;

/// A golden image as files.
pub(crate) struct Image {
    pub(crate) golden: Golden,
    pub(crate) devices: Vec<PathBuf>,
    directory: TempDir,
}

impl Image {
    /// Unpacks a golden image.
    pub(crate) fn unpack(name: &str) -> Self {
        let golden = Golden::load(name);
        let directory = tempfile::tempdir().expect("temporary directory");
        let write = |device: &brindle_testing::golden::SparseImage| {
            let path = directory.path().join(format!("dev{}.img", device.devid()));
            device.write_to(&path).expect("room for the image");
            path
        };
        let devices = golden.devices.iter().map(write).collect();
        Self { golden, devices, directory }
    }

    /// A path next to the devices.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// Runs the binary that is tested; times are UTC everywhere.
pub(crate) fn brindle<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
    command.args(arguments).env("TZ", "UTC").env_remove("BRINDLE_LOG");
    command.output().expect("the binary was built")
}

/// Runs it, and expects success; what it printed.
pub(crate) fn brindle_prints<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> String {
    String::from_utf8_lossy(&brindle_succeeds(arguments).stdout).into_owned()
}

/// Runs it, and expects success.
pub(crate) fn brindle_succeeds<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    let output = brindle(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    output
}

/// Runs it, and expects a failure with this exit code; what it said on standard error.
pub(crate) fn brindle_fails<S: AsRef<OsStr>>(code: i32, arguments: impl IntoIterator<Item = S>) -> String {
    let output = brindle(arguments);
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Words before the devices.
pub(crate) fn with_devices(words: &[&str], devices: &[PathBuf]) -> Vec<PathBuf> {
    words.iter().map(PathBuf::from).chain(devices.iter().cloned()).collect()
}

/// Output of `btrfs` of btrfs-progs; `None`, with a message, if 6.2 is not installed.
pub(crate) fn btrfs_prints(arguments: &[PathBuf]) -> Option<Vec<u8>> {
    let version = Command::new("btrfs").arg("--version").output().ok();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    if !version.as_deref().unwrap_or_default().contains("v6.2") {
        println!("skipped: needs btrfs-progs 6.2 to compare with, found {version:?}");
        return None;
    }
    let output = Command::new("btrfs").args(arguments).env("TZ", "UTC").output().expect("it ran before");
    Some(output.stdout)
}

/// Answers of `btrfs` and of brindle to one question about a mount of the kernel, which commits and cleans up between two questions,
/// too: asked until `btrfs` says the same before and after. `None` as above.
pub(crate) fn both_print(arguments: &[PathBuf]) -> Option<(Vec<u8>, Output)> {
    for _ in 0..100 {
        let before = btrfs_prints(arguments)?;
        let found = brindle(arguments);
        if btrfs_prints(arguments)? == before {
            return Some((before, found));
        }
    }
    panic!("btrfs says something else each time: {arguments:?}");
}

/// Returns true if we are root; reports the skipped test if not.
pub(crate) fn is_root(what: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: {what} needs root");
    }
    is_root
}

/// Loop devices, gone when dropped.
pub(crate) struct Loops(pub(crate) Vec<PathBuf>);

impl Loops {
    /// One for each image, with these options of losetup.
    pub(crate) fn attach(images: &[PathBuf], options: &[&str]) -> Self {
        let attach = |image: &PathBuf| {
            let mut command = Command::new("losetup");
            let output = command.args(["--find", "--show"]).args(options).arg(image).output();
            let output = output.expect("losetup");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
        };
        Self(images.iter().map(attach).collect())
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for device in &self.0 {
            let _ = Command::new("losetup").arg("--detach").arg(device).output();
        }
    }
}

/// Panics with the first lines that differ.
pub(crate) fn assert_same_lines(what: &str, expected: &[u8], found: &[u8]) {
    let lines =
        |text: &[u8]| -> Vec<String> { String::from_utf8_lossy(text).lines().map(str::to_owned).collect() };
    let (expected, found) = (lines(expected), lines(found));
    for (number, (expected, found)) in expected.iter().zip(&found).enumerate() {
        assert_eq!(found, expected, "{what}: line {}", number + 1);
    }
    assert_eq!(found.len(), expected.len(), "{what}: number of lines");
}

/// A path as text.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("our own paths are UTF-8")
}

/// A number that the environment asks for.
pub(crate) fn number(name: &str, otherwise: u32) -> u32 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(otherwise)
}

/// One moment of each part of a run's time, somewhere within it.
pub(crate) fn moments(whole: Duration, count: u32, seed: u32) -> Vec<Duration> {
    let moment = |part: u32| {
        let mut hash = DefaultHasher::new();
        (seed, part).hash(&mut hash);
        let within = (hash.finish() % 1000) as f64 / 1000.0;
        whole.mul_f64((f64::from(part) + within) / f64::from(count))
    };
    (0..count).map(moment).collect()
}

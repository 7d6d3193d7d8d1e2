//! The synthetic twin of a package upgrade: the reads, writes, renames and fsyncs of dpkg, for packages that follow from a seed.
//!
//! Before the upgrade every file is there in its old version, and so are the archives. For each package: its archive is read, and each
//! of its files written beside the old one; then each is synced, the old one kept by a second name, the new one renamed over
//! it, and the second name removed. The list of its files is written, synced and renamed; its state is told three times by
//! a small file that is synced and renamed, with an fsync of the directory; then the status file of all packages is written anew
//! in the same way. Without syncs (dpkg's `--force-unsafe-io`) the package's own files are not synced; all else is.

use super::RunOptions;
use super::phase::{Done, Phase, measure};
use brindle_sim::Random;
use rustix::fs::syncfs;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Files of a package, on the average some 20: few have many.
const FILES_MAX: u64 = 64;
/// Lengths of files: from 2^9 to 2^18 bytes, any power as likely as another.
const LENGTH_BITS: [u64; 2] = [9, 18];
/// Files of a directory.
const FILES_PER_DIRECTORY: u64 = 16;
/// Bytes of a package in the status file.
const STATUS_BYTES: usize = 700;
/// Times that the state of a package is told: unpacked, half-configured, installed.
const STATES: u64 = 3;
/// The archive of a package has this share of its contents: they are compressed.
const ARCHIVE_DIVISOR: u64 = 3;
/// Random bytes that contents are taken from.
const POOL_BYTES: usize = 1 << 20;

/// A package: the lengths of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) lengths: Vec<u64>,
}

impl Package {
    /// The packages of a run.
    pub(super) fn all(options: &RunOptions) -> Vec<Self> {
        let random = Random::new(options.seed).fork(0xdeb);
        (0..options.count).map(|number| Self::draw(&mut random.fork(number))).collect()
    }

    fn draw(random: &mut Random) -> Self {
        let bound = 1 + random.below(FILES_MAX);
        let files = 1 + random.below(bound);
        let length = |random: &mut Random| {
            let low = 1 << (LENGTH_BITS[0] + random.below(LENGTH_BITS[1] - LENGTH_BITS[0]));
            low + random.below(low)
        };
        Self { lengths: (0..files).map(|_| length(random)).collect() }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.lengths.iter().sum()
    }
}

/// Directories of an installation.
struct Root {
    files: PathBuf,
    archives: PathBuf,
    info: PathBuf,
    updates: PathBuf,
    database: PathBuf,
    contents: Contents,
}

/// Random bytes that contents of files are taken from.
pub(super) struct Contents(Vec<u8>);

impl Contents {
    /// Those of a seed.
    pub(super) fn of(options: &RunOptions) -> Self {
        let mut contents = vec![0; POOL_BYTES];
        Random::new(options.seed).fill(&mut contents);
        Self(contents)
    }

    /// Contents of a file of a version.
    pub(super) fn bytes(&self, length: u64, salt: u64) -> &[u8] {
        let length = usize::try_from(length).unwrap_or(POOL_BYTES).min(POOL_BYTES);
        let start = usize::try_from(salt.wrapping_mul(4099) % (POOL_BYTES - length + 1) as u64).unwrap_or(0);
        &self.0[start..start + length]
    }
}

impl Root {
    fn make(place: &Path, options: &RunOptions) -> io::Result<Self> {
        let [files, archives, database] = ["usr", "archives", "dpkg"].map(|name| place.join(name));
        let [info, updates] = ["info", "updates"].map(|name| database.join(name));
        for directory in [&files, &archives, &database, &info, &updates] {
            fs::create_dir(directory)?;
        }
        Ok(Self { files, archives, info, updates, database, contents: Contents::of(options) })
    }

    fn file(&self, package: u64, number: usize) -> PathBuf {
        let folder = (number as u64 / FILES_PER_DIRECTORY).to_string();
        self.files.join(package.to_string()).join(folder).join(number.to_string())
    }

    fn bytes(&self, length: u64, salt: u64) -> &[u8] {
        self.contents.bytes(length, salt)
    }

    /// Writes the old version of a package, and the archive of the new one.
    fn install(&self, number: u64, package: &Package) -> io::Result<()> {
        for (file, &length) in package.lengths.iter().enumerate() {
            let path = self.file(number, file);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(path, self.bytes(length, number))?;
        }
        let mut archive = File::create(self.archives.join(number.to_string()))?;
        let mut left = package.bytes() / ARCHIVE_DIVISOR;
        while left > 0 {
            let bytes = self.bytes(left.min(POOL_BYTES as u64), left);
            archive.write_all(bytes)?;
            left -= bytes.len() as u64;
        }
        fs::write(self.info.join(format!("{number}.list")), "old")
    }

    fn upgrade(&self, number: u64, package: &Package, syncs: bool) -> io::Result<()> {
        let mut archive = Vec::new();
        File::open(self.archives.join(number.to_string()))?.read_to_end(&mut archive)?;
        for (file, &length) in package.lengths.iter().enumerate() {
            fs::write(with_suffix(&self.file(number, file), ".dpkg-new"), self.bytes(length, number + 1))?;
        }
        for file in 0..package.lengths.len() {
            let path = self.file(number, file);
            let [new, old] = [".dpkg-new", ".dpkg-tmp"].map(|suffix| with_suffix(&path, suffix));
            if syncs {
                File::open(&new)?.sync_all()?;
            }
            fs::hard_link(&path, &old)?;
            fs::rename(&new, &path)?;
            fs::remove_file(&old)?;
        }
        let list = (0..package.lengths.len()).map(|file| format!("{}\n", self.file(number, file).display()));
        replace(&self.info.join(format!("{number}.list")), list.collect::<String>().as_bytes())
    }

    /// Tells the state of a package, then that of all.
    fn record(&self, number: u64, packages: u64) -> io::Result<()> {
        for state in 0..STATES {
            replace(
                &self.updates.join(format!("{state:04}")),
                self.bytes(STATUS_BYTES as u64, number + state),
            )?;
            File::open(&self.updates)?.sync_all()?;
        }
        let status: Vec<u8> =
            (0..packages).flat_map(|other| self.bytes(STATUS_BYTES as u64, other)).copied().collect();
        replace(&self.database.join("status"), &status)?;
        File::open(&self.database)?.sync_all()?;
        (0..STATES).try_for_each(|state| fs::remove_file(self.updates.join(format!("{state:04}"))))
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Replaces a file, durably.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = with_suffix(path, "-new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(new, path)
}

pub(super) fn upgrade(place: &Path, options: &RunOptions) -> io::Result<Vec<Phase>> {
    let packages = Package::all(options);
    let root = Root::make(place, options)?;
    (0..).zip(&packages).try_for_each(|(number, package)| root.install(number, package))?;
    syncfs(File::open(place)?)?;
    options.make_cold()?;
    let handle = File::open(place)?;
    let upgrade = |_: u64| {
        let mut done = Done::default();
        for (number, package) in (0..).zip(&packages) {
            let begin = Instant::now();
            root.upgrade(number, package, options.syncs)?;
            root.record(number, options.count)?;
            done.add(package.bytes(), begin);
        }
        Ok(done)
    };
    Ok(vec![measure("upgrade", options, upgrade, || Ok(syncfs(&handle)?))?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::options;

    #[test]
    fn packages_follow_from_the_seed_and_are_of_all_sizes() {
        let scratch = tempfile::tempdir().expect("room");
        let options = RunOptions { count: 500, ..options(scratch.path()) };
        let packages = Package::all(&options);
        assert_eq!(packages, Package::all(&options));
        assert_ne!(packages, Package::all(&RunOptions { seed: options.seed + 1, ..options.clone() }));
        let files: usize = packages.iter().map(|package| package.lengths.len()).sum();
        assert!((10 * 500..25 * 500).contains(&files), "{files} files");
        assert!(packages.iter().any(|package| package.lengths.len() > 40));
        let lengths = packages.iter().flat_map(|package| &package.lengths);
        assert!(lengths.clone().all(|length| (512..1 << 18).contains(length)));
        assert!(
            lengths.clone().any(|length| *length < 1024) && lengths.clone().any(|length| *length > 200_000)
        );
    }

    #[test]
    fn upgrade_leaves_the_new_version_of_each_file_and_no_others() {
        let scratch = tempfile::tempdir().expect("room");
        let options = RunOptions { count: 7, jobs: 1, ..options(scratch.path()) };
        let phases = upgrade(scratch.path(), &options).expect("room");
        let packages = Package::all(&options);
        assert_eq!(phases[0].operations, 7);
        assert_eq!(phases[0].bytes, packages.iter().map(Package::bytes).sum::<u64>());
        let other = tempfile::tempdir().expect("room");
        let root = Root::make(other.path(), &options).expect("room");
        for (number, package) in (0..).zip(&packages) {
            for (file, &length) in package.lengths.iter().enumerate() {
                let path = root.file(number, file);
                let path = scratch.path().join(path.strip_prefix(other.path()).expect("below"));
                assert_eq!(fs::read(path).expect("there"), root.bytes(length, number + 1));
            }
            let folder = scratch.path().join(format!("usr/{number}/0"));
            let expected = package.lengths.len().min(16);
            assert_eq!(fs::read_dir(folder).expect("there").count(), expected, "no file of dpkg is left");
        }
        assert_eq!(fs::read_dir(scratch.path().join("dpkg/updates")).expect("there").count(), 0);
        let status = fs::metadata(scratch.path().join("dpkg/status")).expect("there");
        assert_eq!(status.len(), 7 * STATUS_BYTES as u64);
    }
}

//! Real packages by real dpkg: installed into a root of their own, then replaced by the next version.
//!
//! The packages are made here and follow from the seed, or are those of a directory, which are installed twice: dpkg writes the same files
//! again as it does for another version. Their scripts are left out, for these could do anything, and need a system to do it in.

use super::deb::{self, Tar};
use super::packages::{Contents, Package};
use super::phase::{Done, Phase, measure};
use super::{RunOptions, program};
use rustix::fs::syncfs;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Programs that it needs: dpkg-deb has control files unpacked by tar.
pub(super) const PROGRAMS: [&str; 3] = ["dpkg", "dpkg-deb", "tar"];
/// Files of a directory.
const FILES_PER_DIRECTORY: usize = 16;
/// State of a package that is all there.
const INSTALLED: &str = "Status: install ok installed";
/// Refusals of dpkg that say nothing of a filesystem.
const FORCED: &str =
    "--force-architecture,bad-path,breaks,confnew,conflicts,depends,downgrade,not-root,overwrite";

/// An installation.
struct Root {
    files: PathBuf,
    archives: PathBuf,
    database: PathBuf,
}

/// Packages as files, and the sum of their lengths.
#[derive(Clone, Default)]
struct Archives {
    paths: Vec<PathBuf>,
    bytes: u64,
}

impl Archives {
    fn add(&mut self, path: PathBuf, package: &[u8]) -> io::Result<()> {
        fs::write(&path, package)?;
        self.bytes += package.len() as u64;
        self.paths.push(path);
        Ok(())
    }
}

impl Root {
    fn make(place: &Path) -> io::Result<Self> {
        let [files, archives, database] = ["root", "archives", "dpkg"].map(|name| place.join(name));
        let inner = ["info", "updates", "triggers"].map(|name| database.join(name));
        [&files, &archives, &database].into_iter().chain(&inner).try_for_each(fs::create_dir)?;
        ["status", "available"].iter().try_for_each(|name| File::create(database.join(name)).map(drop))?;
        Ok(Self { files, archives, database })
    }

    /// Makes a version of all packages of the seed.
    fn make_archives(&self, version: u64, options: &RunOptions) -> io::Result<Archives> {
        let (mut archives, contents) = (Archives::default(), Contents::of(options));
        for (number, package) in (0..).zip(Package::all(options)) {
            let bytes = make(number, version, &package, &contents);
            archives.add(self.archives.join(format!("piece-{number}_{version}_all.deb")), &bytes)?;
        }
        Ok(archives)
    }

    /// Takes the packages of a directory, without their scripts.
    fn take_archives(&self, directory: &Path) -> io::Result<Archives> {
        let failed = |path: &Path, error: &io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        let entries = fs::read_dir(directory).map_err(|error| failed(directory, &error))?;
        let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
        let mut paths: Vec<_> =
            paths.into_iter().filter(|path| path.extension().is_some_and(|end| end == "deb")).collect();
        paths.sort();
        let mut archives = Archives::default();
        for path in &paths {
            let package = fs::read(path).map_err(|error| failed(path, &error))?;
            let path = fs::canonicalize(path)?;
            let control = program::output(program::command("dpkg-deb")?.arg("--ctrl-tarfile").arg(&path))?;
            let stripped = deb::without_scripts(&control).map_err(|error| failed(&path, &error))?;
            let (name, contents) = deb::contents(&package).map_err(|error| failed(&path, &error))?;
            let name_of_file = path.file_name().unwrap_or_default();
            archives.add(self.archives.join(name_of_file), &deb::package(&stripped, (&name, contents)))?;
        }
        if archives.paths.is_empty() {
            return Err(failed(directory, &io::Error::new(io::ErrorKind::NotFound, "no package is there")));
        }
        Ok(archives)
    }

    /// Installs packages, all by one dpkg.
    fn install(&self, archives: &Archives, syncs: bool) -> io::Result<Done> {
        let mut command = program::command("dpkg")?;
        let directory = |option: &str, path: &Path| {
            let mut word = std::ffi::OsString::from(option);
            word.push(path);
            word
        };
        // The host's settings of dpkg may leave files or syncs out.
        command.args(["--path-include=*", "--log=/dev/null", FORCED]);
        command.arg(if syncs { "--no-force-unsafe-io" } else { "--force-unsafe-io" });
        command.arg(directory("--admindir=", &self.database)).arg(directory("--instdir=", &self.files));
        program::output(command.arg("--install").args(&archives.paths))?;
        let (operations, bytes) = (archives.paths.len() as u64, archives.bytes);
        Ok(Done { operations, bytes, ..Done::default() })
    }

    /// Fails unless every package is installed.
    fn verify(&self) -> io::Result<()> {
        let status = fs::read_to_string(self.database.join("status"))?;
        let states: Vec<_> = status.lines().filter(|line| line.starts_with("Status: ")).collect();
        match states.iter().find(|state| **state != INSTALLED) {
            None if !states.is_empty() => Ok(()),
            other => Err(io::Error::other(format!(
                "a package is in the state {:?}, not installed",
                other.copied()
            ))),
        }
    }
}

/// A version of a package that follows from the seed.
fn make(number: u64, version: u64, package: &Package, pool: &Contents) -> Vec<u8> {
    let (mut control, mut data) = (Tar::default(), Tar::default());
    let fields = format!(
        "Package: piece-{number}\nVersion: {version}\nArchitecture: all\nMaintainer: none <none@example.org>\n\
         Description: a piece\n"
    );
    control.directory("./");
    control.file("./control", fields.as_bytes());
    let home = format!("./usr/share/piece-{number}/");
    ["./", "./usr/", "./usr/share/", &home].iter().for_each(|name| data.directory(name));
    for (file, &length) in package.lengths.iter().enumerate() {
        let folder = file / FILES_PER_DIRECTORY;
        if file % FILES_PER_DIRECTORY == 0 {
            data.directory(&format!("{home}{folder}/"));
        }
        data.file(&format!("{home}{folder}/{file}"), pool.bytes(length, number + version));
    }
    deb::package(&control.finish(), ("data.tar", &data.finish()))
}

pub(super) fn dpkg(place: &Path, options: &RunOptions) -> io::Result<Vec<Phase>> {
    // dpkg does not take a relative path of its root.
    let place = fs::canonicalize(place)?;
    let root = Root::make(&place)?;
    let versions = match &options.packages {
        Some(directory) => {
            let archives = root.take_archives(directory)?;
            [archives.clone(), archives]
        }
        None => [root.make_archives(1, options)?, root.make_archives(2, options)?],
    };
    let mut phases = Vec::new();
    for (name, archives) in ["install", "upgrade"].iter().zip(&versions) {
        syncfs(File::open(&place)?)?;
        options.make_cold()?;
        let handle = File::open(&place)?;
        let install = |_: u64| root.install(archives, options.syncs);
        phases.push(measure(name, options, install, || Ok(syncfs(&handle)?))?);
        root.verify()?;
    }
    Ok(phases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::options;

    fn is_there() -> bool {
        let missing = PROGRAMS.iter().find(|name| program::find(name).is_none());
        if let Some(name) = missing {
            assert!(std::env::var_os("CI").is_none(), "{name} is not installed");
        }
        missing.is_none()
    }

    #[test]
    fn dpkg_installs_each_file_of_the_new_version() {
        if !is_there() {
            return;
        }
        let scratch = tempfile::tempdir().expect("room");
        let options = RunOptions { count: 4, jobs: 1, ..options(scratch.path()) };
        for syncs in [true, false] {
            let place = scratch.path().join(syncs.to_string());
            fs::create_dir(&place).expect("new");
            let phases = dpkg(&place, &RunOptions { syncs, ..options.clone() }).expect("room");
            let told: Vec<_> = phases.iter().map(|phase| (phase.name.as_str(), phase.operations)).collect();
            assert_eq!(told, [("install", 4), ("upgrade", 4)]);
            let pool = Contents::of(&options);
            for (number, package) in (0..).zip(Package::all(&options)) {
                let home = place.join(format!("root/usr/share/piece-{number}"));
                for (file, &length) in package.lengths.iter().enumerate() {
                    let found = fs::read(home.join(format!("{}/{file}", file / 16))).expect("there");
                    assert_eq!(found, pool.bytes(length, number + 2));
                }
            }
            let status = fs::read_to_string(place.join("dpkg/status")).expect("there");
            assert_eq!(status.matches("\nVersion: 2\n").count(), 4, "{status}");
        }
    }

    #[test]
    fn packages_of_a_directory_are_installed_without_their_scripts() {
        if !is_there() {
            return;
        }
        let scratch = tempfile::tempdir().expect("room");
        let [given, tree, place] = ["given", "tree", "place"].map(|name| scratch.path().join(name));
        for directory in [&given, &tree, &place, &tree.join("DEBIAN"), &tree.join("etc")] {
            fs::create_dir(directory).expect("new");
        }
        let taken = RunOptions { packages: Some(given.clone()), jobs: 1, ..options(scratch.path()) };
        let error = dpkg(&place, &taken).expect_err("none").to_string();
        assert!(error.ends_with("given: no package is there"), "{error}");
        let fields = "Package: real\nVersion: 3\nArchitecture: all\nMaintainer: n <n@example.org>\n\
                      Depends: missing\nDescription: one\n";
        fs::write(tree.join("DEBIAN/control"), fields).expect("room");
        fs::write(tree.join("DEBIAN/conffiles"), "/etc/real\n").expect("room");
        let script = tree.join("DEBIAN/preinst");
        fs::write(&script, format!("#!/bin/sh\ntouch {}\n", scratch.path().join("run").display()))
            .expect("room");
        let executable: fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&script, executable).expect("ours");
        fs::write(tree.join("etc/real"), "setting").expect("room");
        let made = given.join("real_3_all.deb");
        let mut built = program::command("dpkg-deb").expect("there");
        built.args(["--root-owner-group", "-Zxz", "--build"]).arg(&tree).arg(&made);
        program::output(&mut built).expect("it is built");
        fs::write(given.join("notes"), "no package").expect("room");
        fs::remove_dir_all(&place).and_then(|()| fs::create_dir(&place)).expect("ours");
        let phases = dpkg(&place, &taken).expect("room");
        assert_eq!(phases.iter().map(|phase| phase.operations).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(fs::read_to_string(place.join("root/etc/real")).expect("there"), "setting");
        assert!(!place.join("dpkg/info/real.preinst").exists() && !scratch.path().join("run").exists());
        assert!(place.join("dpkg/info/real.conffiles").exists());
        fs::write(given.join("torn.deb"), &fs::read(&made).expect("there")[..300]).expect("room");
        fs::remove_dir_all(&place).and_then(|()| fs::create_dir(&place)).expect("ours");
        let error = dpkg(&place, &taken).expect_err("it is torn").to_string();
        assert!(error.contains("torn.deb"), "{error}");
    }
}

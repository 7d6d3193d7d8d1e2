//! A configuration that is set up: its disks, its filesystem, its mount. Everything of it goes when it is dropped.

use super::{CommandLine, CompareError, Comparison, Configuration, DiskKind, Plan, Setup};
use crate::compare::results::CheckRecord;
use crate::{Client, Remount, run::drop_caches};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

/// The end of a program's output that is kept, in bytes.
const OUTPUT_BYTES: usize = 2000;

/// Programs that were run, in their order.
pub(super) type Journal = Arc<Mutex<Vec<String>>>;

/// A configuration that is set up.
pub(super) struct Stand<'a> {
    comparison: &'a Comparison,
    configuration: &'static Configuration,
    directory: PathBuf,
    mountpoint: String,
    cache_mountpoint: String,
    devices: Vec<String>,
    cached_device: Option<String>,
    pub(super) disks: Vec<Client>,
    is_mounted: bool,
    pub(super) journal: Journal,
}

impl<'a> Stand<'a> {
    /// Makes the disks, the filesystem and the mount.
    pub(super) fn set_up(
        comparison: &'a Comparison,
        configuration: &'static Configuration,
        plan: &Plan,
        journal: &Journal,
    ) -> Result<Self, CompareError> {
        let directory = comparison.scratch.join(format!("brindle-compare-{}", std::process::id()));
        let [mountpoint, cache_mountpoint] = ["mount", "cache"].map(|name| directory.join(name));
        for path in [&mountpoint, &cache_mountpoint] {
            fs::create_dir_all(path).map_err(|source| CompareError::Scratch(directory.clone(), source))?;
        }
        let mut stand = Self {
            comparison,
            configuration,
            directory,
            mountpoint: mountpoint.display().to_string(),
            cache_mountpoint: cache_mountpoint.display().to_string(),
            devices: Vec::new(),
            cached_device: None,
            disks: Vec::new(),
            is_mounted: false,
            journal: Arc::clone(journal),
        };
        for (number, kind) in configuration.disks.iter().enumerate() {
            stand.add_disk(number, *kind, plan)?;
        }
        stand.load_cache()?;
        let setup = stand.setup();
        let (make, mount, prepare) = (setup.make(), setup.mount(), setup.prepare());
        stand.run_all(&make)?;
        stand.run_all(&mount)?;
        stand.is_mounted = true;
        stand.run_all(&prepare)?;
        Ok(stand)
    }

    fn add_disk(&mut self, number: usize, kind: DiskKind, plan: &Plan) -> Result<(), CompareError> {
        let place = self.directory.join(format!("disk{number}"));
        fs::create_dir_all(&place).map_err(|source| CompareError::Scratch(place.clone(), source))?;
        let place = place.display().to_string();
        let size = plan.disk_bytes(kind).to_string();
        let brindle = self.comparison.brindle.display().to_string();
        let words =
            [&brindle, "lab", "disk", "--attach", "--size", &size, self.comparison.model(kind), &place];
        let device = run(&words.map(str::to_owned), &self.journal)?;
        self.devices.push(device.trim_end().to_owned());
        self.disks.push(Client::at(Path::new(&place))?);
        Ok(())
    }

    fn load_cache(&mut self) -> Result<(), CompareError> {
        let setup = self.setup();
        self.run_all(&setup.make_cache())?;
        let device = setup.load_cache().map(|line| run(&line, &self.journal)).transpose()?;
        self.cached_device = device.map(|device| device.trim_end().to_owned());
        Ok(())
    }

    /// Ends the cache, so that the disk has everything.
    fn stop_cache(&mut self) -> Result<(), CompareError> {
        if self.cached_device.is_some() {
            // A failure says that the kernel does not know its filesystem.
            let _ = self.run_all(&self.setup().forget());
            self.run_all(&self.setup().stop_cache())?;
            self.cached_device = None;
        }
        Ok(())
    }

    fn setup(&self) -> Setup<'_> {
        let (configuration, brindle) = (self.configuration, self.comparison.brindle.as_path());
        Setup {
            configuration,
            brindle,
            devices: &self.devices,
            mountpoint: &self.mountpoint,
            cache_mountpoint: &self.cache_mountpoint,
            cached_device: self.cached_device.as_deref(),
        }
    }

    fn run_all(&self, lines: &[CommandLine]) -> Result<(), CompareError> {
        lines.iter().try_for_each(|line| run(line, &self.journal).map(drop))
    }

    /// Directory of the mount.
    pub(super) fn mountpoint(&self) -> PathBuf {
        PathBuf::from(&self.mountpoint)
    }

    /// Unmounts, writes what a cache has alone to its disk, drops what the host has in memory, and mounts.
    pub(super) fn remount(&self) -> Remount {
        let (setup, journal) = (self.setup(), Arc::clone(&self.journal));
        let (unmount, clean, mount) = (setup.unmount(), setup.clean_cache(), setup.mount());
        Remount(Arc::new(move || {
            let run_all = |lines: &[CommandLine]| {
                lines.iter().try_for_each(|line| run(line, &journal).map(drop)).map_err(io::Error::other)
            };
            run_all(&unmount)?;
            run_all(&clean)?;
            drop_caches()?;
            run_all(&mount)
        }))
    }

    /// Unmounts the filesystem, and examines it.
    pub(super) fn check(&mut self) -> Result<Vec<CheckRecord>, CompareError> {
        self.unmount()?;
        self.stop_cache()?;
        let examine = |line: &CommandLine| match run(line, &self.journal) {
            Ok(output) => Ok(CheckRecord { command: line.join(" "), passed: true, output: end_of(&output) }),
            Err(CompareError::Program { output, .. }) => {
                Ok(CheckRecord { command: line.join(" "), passed: false, output })
            }
            Err(error) => Err(error),
        };
        self.setup().check().iter().map(examine).collect()
    }

    fn unmount(&mut self) -> Result<(), CompareError> {
        if std::mem::take(&mut self.is_mounted) {
            let lines = self.setup().unmount();
            if let Err(error) = self.run_all(&lines) {
                self.is_mounted = true;
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Drop for Stand<'_> {
    fn drop(&mut self) {
        let told = |result: Result<(), CompareError>| {
            if let Err(error) = result {
                tracing::warn!("{error}");
            }
        };
        told(self.unmount());
        told(self.stop_cache());
        // A failure says that the kernel does not know it, as after most checks.
        let _ = self.run_all(&self.setup().forget());
        for disk in self.disks.drain(..) {
            told(disk.stop().map_err(CompareError::from));
        }
        if let Err(error) = remove_directories(&self.directory) {
            tracing::warn!("{}: {error}", self.directory.display());
        }
    }
}

/// Removes the directories of a stand, which are empty; never what lies in a mount that is left.
fn remove_directories(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        fs::remove_dir(entry?.path())?;
    }
    fs::remove_dir(directory)
}

fn end_of(output: &str) -> String {
    let start = output.len().saturating_sub(OUTPUT_BYTES);
    let start = (start..=output.len()).find(|at| output.is_char_boundary(*at)).unwrap_or(0);
    output[start..].to_owned()
}

/// Runs a program, and returns its output.
fn run(line: &[String], journal: &Journal) -> Result<String, CompareError> {
    let words = line.join(" ");
    journal.lock().unwrap_or_else(PoisonError::into_inner).push(words.clone());
    let Some((program, arguments)) = line.split_first() else { return Ok(String::new()) };
    // The stand before this one may have had these loop devices, and libblkid remembers for seconds what they held.
    let mut command = Command::new(program);
    command.args(arguments).env("BLKID_FILE", "/dev/null").stdin(Stdio::null());
    let output =
        command.output().map_err(|source| CompareError::Start { program: program.clone(), source })?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    let output = end_of(&(said + &String::from_utf8_lossy(&output.stderr)));
    Err(CompareError::Program { command: words, output: output.trim_end().to_owned() })
}

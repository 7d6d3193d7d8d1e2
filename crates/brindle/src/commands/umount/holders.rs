//! Reasons why a mount is busy, as far as they can be seen: nothing is asked of the mount itself, which may not
//! answer, and would be in use by that.

use brindle_uapi::mount_table::{self, Mount};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// A reason why a mount is busy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// Another mount lies on it.
    Mount(PathBuf),
    /// A loop device is backed by a file of it.
    Loop { device: String, file: PathBuf },
    /// A process uses it.
    Process { process: u32, name: String, how: Use },
}

/// Commands with a job in the mount, whose `start` and `resume` wait for its end.
const JOBS: [&str; 2] = ["balance", "scrub"];

/// A use that a process makes of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Use {
    WorkingDirectory,
    Root,
    File(PathBuf),
    Mapping(PathBuf),
}

impl Holder {
    /// Returns true for a process of this program, which asks a mount of something and lets it go, and for one that has ended
    /// since it was found.
    pub(super) fn may_go_soon(&self) -> bool {
        let program = |process: &str| fs::read_link(format!("/proc/{process}/exe"));
        match self {
            Self::Process { process, .. } => match program(&process.to_string()) {
                Ok(path) => program("self").is_ok_and(|own| own == path),
                Err(error) => error.kind() == std::io::ErrorKind::NotFound,
            },
            _ => false,
        }
    }
}

impl Holder {
    /// The command that ends the job of this program that is in the way.
    pub(super) fn remedy(&self, place: &Path) -> Option<String> {
        let Self::Process { name, .. } = self else { return None };
        let words: Vec<&str> = name.split(' ').collect();
        if !words.contains(&"start") && !words.contains(&"resume") {
            return None;
        }
        let job = JOBS.iter().find(|job| words.contains(job))?;
        Some(format!("`brindle {job} cancel {}` ends it", place.display()))
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mount(at) => write!(f, "{} is mounted on it", at.display()),
            Self::Loop { device, file } => write!(f, "{device} is backed by {}", file.display()),
            Self::Process { process, name, how } => {
                write!(f, "process {process} ({name}) ")?;
                match how {
                    Use::WorkingDirectory => write!(f, "stands in a directory of it"),
                    Use::Root => write!(f, "has its root there"),
                    Use::File(path) => write!(f, "has {} open", path.display()),
                    Use::Mapping(path) => write!(f, "has {} mapped", path.display()),
                }
            }
        }
    }
}

/// Finds a reason why a mount is busy.
pub(super) fn find(mount: &Mount) -> Option<Holder> {
    let above = mount_table::read().unwrap_or_default().into_iter().find(|other| other.parent == mount.id);
    above
        .map(|above| Holder::Mount(above.mountpoint))
        .or_else(|| processes().find_map(|process| used_by(process, mount)))
        .or_else(|| loop_device(mount))
}

/// Ids of all processes but this one.
pub(super) fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|process| *process != std::process::id())
}

/// The name of a process.
pub(super) fn name_of(process: u32) -> String {
    fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default().trim().to_owned()
}

/// The name of a process; of one of this program also its command.
fn command_of(process: u32) -> String {
    const SHOWN_MAX: usize = 80;
    let name = name_of(process);
    if name != name_of(std::process::id()) {
        return name;
    }
    let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words: Vec<_> = words.split(|byte| *byte == 0).skip(1).map(String::from_utf8_lossy).collect();
    let words: String = words.join(" ").trim_end().chars().take(SHOWN_MAX).collect();
    format!("{name} {words}").trim_end().to_owned()
}

fn used_by(process: u32, mount: &Mount) -> Option<Holder> {
    let how = open_file(process, mount)
        .or_else(|| is_below(process, "cwd", mount).then_some(Use::WorkingDirectory))
        .or_else(|| is_below(process, "root", mount).then_some(Use::Root))
        .or_else(|| mapping(process, mount))?;
    Some(Holder::Process { process, name: command_of(process), how })
}

fn is_below(process: u32, link: &str, mount: &Mount) -> bool {
    fs::read_link(format!("/proc/{process}/{link}")).is_ok_and(|at| at.starts_with(&mount.mountpoint))
}

fn open_file(process: u32, mount: &Mount) -> Option<Use> {
    let numbers = fs::read_dir(format!("/proc/{process}/fdinfo")).ok()?.flatten();
    let mut open = numbers.filter(|entry| {
        let info = fs::read_to_string(entry.path()).unwrap_or_default();
        let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
        id.and_then(|id| id.trim().parse().ok()) == Some(mount.id)
    });
    let number = open.next()?.file_name();
    fs::read_link(Path::new(&format!("/proc/{process}/fd")).join(number)).ok().map(Use::File)
}

fn mapping(process: u32, mount: &Mount) -> Option<Use> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    let path = maps.lines().find_map(|line| mapped_of(line, mount))?;
    Some(Use::Mapping(path))
}

/// The file of a line of `/proc/PID/maps`, if it is one of the mount.
fn mapped_of(line: &str, mount: &Mount) -> Option<PathBuf> {
    let mut fields = line.split_ascii_whitespace();
    let (major, minor) = fields.nth(3)?.split_once(':')?;
    let number = |digits| u32::from_str_radix(digits, 16).ok();
    let device = format!("{}:{}", number(major)?, number(minor)?);
    let path = Path::new(line.get(line.find('/')?..)?);
    (device == mount.device && path.starts_with(&mount.mountpoint)).then(|| path.to_owned())
}

fn loop_device(mount: &Mount) -> Option<Holder> {
    fs::read_dir("/sys/block").ok()?.flatten().find_map(|entry| {
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        let file = PathBuf::from(file.trim_end_matches('\n'));
        let device = format!("/dev/{}", entry.file_name().to_str()?);
        file.starts_with(&mount.mountpoint).then_some(Holder::Loop { device, file })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_is_in_the_way_for_a_moment_only() {
        let mut process = std::process::Command::new("sleep").arg("60").spawn().expect("starts");
        let holder = |process| Holder::Process { process, name: String::new(), how: Use::Root };
        // The child is this program until it has become the other one.
        while holder(process.id()).may_go_soon() {
            std::thread::yield_now();
        }
        process.kill().expect("runs");
        process.wait().expect("ends");
        assert!(holder(process.id()).may_go_soon());
    }

    #[test]
    fn a_mapped_file_is_told_by_its_filesystem_and_its_place() {
        let table = b"30 22 0:51 / /mnt rw - fuse.brindle x.img rw\n";
        let mount = mount_table::parse(table).remove(0);
        let line = "7f0-7f1 rw-s 00000000 00:33 257                        /mnt/a b";
        assert_eq!(mapped_of(line, &mount), Some(PathBuf::from("/mnt/a b")));
        assert_eq!(mapped_of("7f0-7f1 rw-s 00000000 00:34 257   /mnt/a", &mount), None);
        assert_eq!(mapped_of("7f0-7f1 rw-s 00000000 00:33 257   /other/a", &mount), None);
        assert_eq!(mapped_of("7f0-7f1 rw-p 00000000 00:00 0 ", &mount), None);
    }
}

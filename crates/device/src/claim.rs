//! Claims: a block device, or an image file, that one user has for itself.

use crate::DeviceError;
use crate::anchor::ANCHOR_BYTES;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Time after which an image that is still in use is refused.
const IMAGE_WAIT: Duration = Duration::from_secs(2);
/// Time between two looks at an image in use.
const IMAGE_INTERVAL: Duration = Duration::from_millis(5);

/// A claim on a block device, apart from the device itself, so that it can be given to a mount of the kernel.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    file: Option<File>,
}

impl Claim {
    /// Claims a block device.
    pub(crate) fn new(path: &Path) -> Result<Self, DeviceError> {
        let mut claim = Self { path: path.to_owned(), file: None };
        claim.renew()?;
        Ok(claim)
    }

    /// Gives up the claim, for the next user to take.
    pub fn release(&mut self) {
        self.file = None;
    }

    /// Takes the claim again, if it was released.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] if another user was faster, [`DeviceError::Open`].
    pub fn renew(&mut self) -> Result<(), DeviceError> {
        if self.file.is_none() {
            let exclusive = OFlags::EXCL.bits() as i32;
            let opened = File::options().read(true).custom_flags(exclusive).open(&self.path);
            self.file = Some(opened.map_err(|source| refusal(&self.path, source))?);
        }
        Ok(())
    }
}

/// Error of opening a device.
pub(crate) fn refusal(path: &Path, source: io::Error) -> DeviceError {
    let device = path.display().to_string();
    match Errno::from_io_error(&source) {
        Some(Errno::BUSY) => {
            let by = user_of(path)
                .unwrap_or_else(|| "it is mounted, or part of something that is running".to_owned());
            DeviceError::Busy { device, by }
        }
        _ => DeviceError::Open { device, source },
    }
}

/// The user of a block device, as far as the caller may see: a mount, a device that is built of it, a process.
fn user_of(path: &Path) -> Option<String> {
    let device = path.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounted = mounts.lines().find_map(|line| {
        let (source, rest) = line.split_once(' ')?;
        let (at, _) = rest.split_once(' ')?;
        (Path::new(source) == device).then(|| format!("it is mounted on {at}"))
    });
    mounted.or_else(|| built_of(&device)).or_else(|| process_with(&device))
}

/// The device that is built of another one.
fn built_of(device: &Path) -> Option<String> {
    let name = device.strip_prefix("/dev").ok()?.to_str()?.replace('/', "!");
    let mut above = std::fs::read_dir(format!("/sys/class/block/{name}/holders")).ok()?.flatten();
    Some(format!("/dev/{} is built of it", above.next()?.file_name().to_str()?))
}

/// Another process that has a device open.
fn process_with(device: &Path) -> Option<String> {
    let entries = std::fs::read_dir("/proc").ok()?.flatten();
    let mut processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has_it_open = |process: &u32| {
        let files = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        let mut targets = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        *process != std::process::id() && targets.any(|target| target == device)
    };
    let process = processes.find(has_it_open)?;
    Some(format!("{} has it open", shown_process(process)?))
}

/// Refuses an image that is in use, and marks it as such. The kernel ends a process before the reads and the loop device
/// that the process has left behind, and these keep the image in use; so it is looked at again for a while.
pub(crate) fn claim_image(file: &File, path: &Path) -> Result<(), DeviceError> {
    let begun = Instant::now();
    loop {
        match claim_image_now(file, path) {
            Err(DeviceError::Busy { .. }) if begun.elapsed() < IMAGE_WAIT => thread::sleep(IMAGE_INTERVAL),
            outcome => return outcome,
        }
    }
}

/// Refuses a device that another user has for itself. Nothing is claimed: it may be taken the next moment.
pub(crate) fn check_unclaimed(file: &File, path: &Path, is_block_device: bool) -> Result<(), DeviceError> {
    let begun = Instant::now();
    let look = || match is_block_device {
        true => Claim::new(path).map(drop),
        false => check_image_unclaimed(file, path),
    };
    loop {
        match look() {
            Err(DeviceError::Busy { .. }) if begun.elapsed() < IMAGE_WAIT => thread::sleep(IMAGE_INTERVAL),
            outcome => return outcome,
        }
    }
}

fn check_image_unclaimed(file: &File, path: &Path) -> Result<(), DeviceError> {
    let locked = flock(file, FlockOperation::NonBlockingLockShared);
    if locked == Err(Errno::WOULDBLOCK) {
        return Err(writer_of(file, path));
    }
    locked.and_then(|()| flock(file, FlockOperation::Unlock)).map_err(|errno| refusal(path, errno.into()))
}

fn claim_image_now(file: &File, path: &Path) -> Result<(), DeviceError> {
    let device = path.display().to_string();
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(writer_of(file, path)),
        Err(errno) => return Err(DeviceError::Open { device, source: errno.into() }),
    }
    match std::fs::canonicalize(path).ok().and_then(|path| loop_device_of(&path)) {
        Some(loop_device) => {
            Err(DeviceError::Busy { device, by: format!("{loop_device} is attached to it") })
        }
        None => Ok(()),
    }
}

/// The refusal of an image that another process has locked.
fn writer_of(file: &File, path: &Path) -> DeviceError {
    let by = holder_of(file)
        .map_or_else(|| "another process writes it".to_owned(), |holder| holder + " writes it");
    DeviceError::Busy { device: path.display().to_string(), by }
}

/// The process that has locked a file, by its id and its command, if the caller may see it.
fn holder_of(file: &File) -> Option<String> {
    let inode = file.metadata().ok()?.ino().to_string();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let process = locks.lines().find_map(|line| lock_on(line, &inode))?;
    shown_process(process.parse().ok()?)
}

/// A process by its id and its command.
fn shown_process(process: u32) -> Option<String> {
    let words = std::fs::read(format!("/proc/{process}/cmdline")).ok()?;
    Some(format!("process {process} ({})", shown_command(&words)))
}

/// A command line of `/proc` as one line; the end of a very long one is left out, and the dots tell it.
fn shown_command(words: &[u8]) -> String {
    const CHARACTERS_MAX: usize = 400;
    let words: Vec<_> = words.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let command = words.join(" ");
    let command = command.trim_end();
    match command.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &command[..end]),
        None => command.to_owned(),
    }
}

/// The process of a line of `/proc/locks`, if it is that of a lock by flock(2) on this inode, which is held.
fn lock_on<'l>(line: &'l str, inode: &str) -> Option<&'l str> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (kind, process) = (fields.next()?, fields.nth(2)?);
    let place = fields.next()?;
    (kind == "FLOCK" && place.rsplit(':').next() == Some(inode)).then_some(process)
}

/// The loop device, if any, that shows this file; an [`Anchor`](crate::Anchor) does not.
fn loop_device_of(path: &Path) -> Option<String> {
    let devices = std::fs::read_dir("/sys/block").ok()?;
    let names = devices.flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.into_string().ok()).find_map(|name| {
        let backing = std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()?;
        let is_shown = Path::new(backing.strip_suffix('\n')?) == path && !is_anchor(&name);
        is_shown.then(|| format!("/dev/{name}"))
    })
}

fn is_anchor(loop_device: &str) -> bool {
    let limit = std::fs::read_to_string(format!("/sys/block/{loop_device}/loop/sizelimit"));
    limit.is_ok_and(|limit| limit.trim().parse() == Ok(ANCHOR_BYTES))
}

#[cfg(test)]
mod tests {
    use super::shown_command;

    #[test]
    fn commands_are_shown_whole_and_very_long_ones_end_with_dots() {
        let image = format!("/tmp/{}/disk.img", "a".repeat(150));
        let words = format!("brindle\0mount\0{image}\0/mnt\0");
        assert_eq!(shown_command(words.as_bytes()), format!("brindle mount {image} /mnt"));
        assert_eq!(shown_command("é".repeat(500).as_bytes()), "é".repeat(400) + "...");
    }
}

//! The other side of a running disk: its state, and commands to it.

use crate::server::{ACTIVITY_NAME, CONTROL_NAME, DISK_NAME, STATUS_NAME};
use crate::{Activity, Command, CutMode, CutReport, Ending, LabError, Status};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A running disk, by the directory that it is mounted on.
#[derive(Clone, Debug)]
pub struct Client {
    mountpoint: PathBuf,
}

/// Longest wait for the end of a server.
const PATIENCE: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };
/// Room for a status.
const STATUS_BYTES: usize = 1 << 16;
/// Room for an activity.
const ACTIVITY_BYTES: usize = 1 << 18;

impl Client {
    /// The disk that is mounted there.
    ///
    /// # Errors
    /// [`LabError::NoDisk`] if there is none; [`LabError::Gone`] if its server has gone.
    pub fn at(mountpoint: &Path) -> Result<Self, LabError> {
        let canonical = mountpoint.canonicalize().map_err(|error| Self::explain(mountpoint, error))?;
        let client = Self { mountpoint: canonical };
        client.status()?;
        Ok(client)
    }

    fn explain(mountpoint: &Path, source: io::Error) -> LabError {
        match Errno::from_io_error(&source) {
            Some(Errno::NOTCONN | Errno::CONNABORTED) => LabError::Gone(mountpoint.to_owned()),
            Some(Errno::NOENT | Errno::NOTDIR) => LabError::NoDisk(mountpoint.to_owned()),
            _ => LabError::Control { path: mountpoint.to_owned(), source },
        }
    }

    /// The disk of any kind that is shown there.
    ///
    /// # Errors
    /// As [`at`](Self::at).
    pub fn of_any(mountpoint: &Path) -> Result<Self, LabError> {
        let canonical = mountpoint.canonicalize().map_err(|error| Self::explain(mountpoint, error))?;
        let client = Self { mountpoint: canonical };
        client.status_text()?;
        Ok(client)
    }

    /// The file that is the disk.
    pub fn disk(&self) -> PathBuf {
        self.mountpoint.join(DISK_NAME)
    }

    /// Its state.
    ///
    /// # Errors
    /// Those of [`at`](Self::at); [`LabError::Status`] for a disk of another version.
    pub fn status(&self) -> Result<Status, LabError> {
        let path = self.mountpoint.join(STATUS_NAME);
        Status::parse(&self.status_text()?).map_err(|line| LabError::Status { path, line })
    }

    /// Its state as text.
    ///
    /// # Errors
    /// Those of [`at`](Self::at).
    pub fn status_text(&self) -> Result<String, LabError> {
        // A directory of another filesystem may hold a file of this name.
        let is_ours = [DISK_NAME, CONTROL_NAME].iter().all(|name| self.mountpoint.join(name).exists());
        let text = self.text(STATUS_NAME, STATUS_BYTES)?;
        if is_ours { Ok(text) } else { Err(LabError::NoDisk(self.mountpoint.clone())) }
    }

    /// Contents of one of its files, of which there are no more bytes than this.
    fn text(&self, name: &str, room: usize) -> Result<String, LabError> {
        let mut text = vec![0; room];
        let read = File::open(self.mountpoint.join(name)).and_then(|file| file.read_at(&mut text, 0));
        text.truncate(read.map_err(|error| Self::explain(&self.mountpoint, error))?);
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Begins to note times and places of its requests anew.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn observe(&self) -> Result<(), LabError> {
        self.command(Command::Observe)
    }

    /// Times and places of its requests since then.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub fn activity(&self) -> Result<Activity, LabError> {
        let text = self.text(ACTIVITY_NAME, ACTIVITY_BYTES)?;
        let path = self.mountpoint.join(ACTIVITY_NAME);
        serde_json::from_str(&text).map_err(|_| LabError::Status { path, line: text })
    }

    /// Sends a line to its control file.
    ///
    /// # Errors
    /// The host's, or that of the disk: a command that it refuses.
    pub fn send(&self, line: &str) -> io::Result<()> {
        let path = self.mountpoint.join(CONTROL_NAME);
        File::options().write(true).open(path)?.write_all(line.as_bytes())
    }

    fn command(&self, command: Command) -> Result<(), LabError> {
        let path = self.mountpoint.join(CONTROL_NAME);
        self.send(&command.to_line()).map_err(|source| match (Errno::from_io_error(&source), command) {
            (Some(Errno::ALREADY), Command::Cut(..)) => LabError::IsOff(self.mountpoint.clone()),
            (Some(Errno::ALREADY), Command::Restore) => LabError::IsOn(self.mountpoint.clone()),
            (Some(Errno::NOTCONN | Errno::CONNABORTED), _) => LabError::Gone(self.mountpoint.clone()),
            _ => LabError::Control { path: path.clone(), source },
        })
    }

    /// Sets all counts to 0.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn reset(&self) -> Result<(), LabError> {
        self.command(Command::Reset)
    }

    /// Cuts the power.
    ///
    /// # Errors
    /// [`LabError::IsOff`].
    pub fn cut(&self, mode: CutMode, seed: u64) -> Result<CutReport, LabError> {
        self.command(Command::Cut(mode, seed))?;
        Ok(self.status()?.cut.map(|cut| cut.report).unwrap_or_default())
    }

    /// Turns the power on.
    ///
    /// # Errors
    /// [`LabError::IsOn`].
    pub fn restore(&self) -> Result<(), LabError> {
        self.command(Command::Restore)
    }

    /// Ends it, and waits for the end of its server, which lets its contents go then.
    ///
    /// # Errors
    /// [`LabError::Detach`] and those of a mount that is in use; [`LabError::Lasts`].
    pub fn stop(&self) -> Result<(), LabError> {
        let status = self.status()?;
        self.end(status.process, status.loop_device)
    }

    /// Ends a disk that a process serves, with its loop device, and waits for the end of the process.
    ///
    /// # Errors
    /// As [`stop`](Self::stop).
    pub fn end(&self, server: u64, loop_device: Option<PathBuf>) -> Result<(), LabError> {
        let number = i32::try_from(server).ok().and_then(Pid::from_raw);
        // `None` for a process of another namespace, or that is gone already.
        let process = number.and_then(|number| pidfd_open(number, PidfdFlags::empty()).ok());
        Ending::of(self.mountpoint.clone(), loop_device).end()?;
        let Some(process) = process else { return Ok(()) };
        let mut ends = [PollFd::new(&process, PollFlags::IN)];
        match poll(&mut ends, Some(&PATIENCE)) {
            Ok(0) => Err(LabError::Lasts(server)),
            _ => Ok(()),
        }
    }
}

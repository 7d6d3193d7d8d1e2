//! Connection to the kernel: a file descriptor of `/dev/fuse` that a mount belongs to. Root makes
//! the mount itself; others are helped by `fusermount3`, which sends the descriptor through a socket.

use super::MountError;
use crate::{MountOptions, Synchronous};
use brindle_fs::AtimeMode;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::ffi::CString;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// A connection to the kernel.
#[derive(Debug)]
pub(crate) struct Connection {
    /// `/dev/fuse`.
    pub(crate) device: OwnedFd,
    /// With `auto_unmount`: by which another process sees that we are gone.
    pub(crate) guard: Option<Guard>,
}

/// With `auto_unmount`: what another process waits for, which unmounts when we are gone. To be dropped after an unmount.
#[derive(Debug)]
pub(crate) enum Guard {
    /// `fusermount3` sees the end of its socket, and looks whether the mount has lost its server.
    Helper(#[expect(dead_code, reason = "it is held, not read")] UnixStream),
    /// A shell reads a line, or that there comes none any more.
    Shell(ChildStdin),
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Self::Shell(line) = self {
            // Without it there would be another attempt, at whatever is mounted there later.
            line.write_all(b"\n").ok();
        }
    }
}

/// Waits for a line, and unmounts if none comes. The signals that end us are for the terminal's whole group.
const SHELL_GUARD: &str = r#"trap "" HUP INT TERM; read -r line || exec fusermount3 -u -z -- "$0""#;

const TYPE: &str = "fuse.brindle";
const SUBTYPE: &str = "brindle";
const HELPER: &str = "fusermount3";
/// The helper answers on this descriptor, its standard input.
const HELPER_SOCKET: (&str, &str) = ("_FUSE_COMMFD", "0");

/// Mounts on a directory whose path is canonical.
pub(crate) fn connect(mountpoint: &Path, options: &MountOptions) -> Result<Connection, MountError> {
    if !options.auto_unmount
        && let Some(device) = mount_directly(mountpoint, options)?
    {
        return Ok(Connection { device, guard: None });
    }
    // Before the mount, so that there is none without it. Dropped without one, it does nothing.
    let needs_shell = options.auto_unmount && !helper_unmounts(options);
    let shell = needs_shell.then(|| shell_guard(mountpoint)).transpose().map_err(MountError::NoGuard)?;
    let connection = mount_with_help(mountpoint, options)?;
    Ok(Connection { guard: shell.or(connection.guard), ..connection })
}

/// Returns true if `fusermount3` can do it: it is a program of root, which may not look into the mount of an ordinary
/// user.
fn helper_unmounts(options: &MountOptions) -> bool {
    options.auto_unmount && (options.allow_other || rustix::process::getuid().is_root())
}

/// Starts the shell that unmounts when we are gone.
fn shell_guard(mountpoint: &Path) -> std::io::Result<Guard> {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(SHELL_GUARD).arg(mountpoint).current_dir("/").process_group(0);
    let shell = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(Guard::Shell(shell.stdin.expect("it was asked for")))
}

/// Mounts by ourselves; `None` if we may not.
fn mount_directly(mountpoint: &Path, options: &MountOptions) -> Result<Option<OwnedFd>, MountError> {
    let device = match rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        Ok(device) => device,
        Err(Errno::NOENT | Errno::NODEV | Errno::NXIO) => return Err(MountError::NoFuse),
        Err(Errno::ACCESS | Errno::PERM) => return Ok(None),
        Err(error) => return Err(MountError::Device(error)),
    };
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut data = format!("fd={},rootmode=40000,user_id={user},group_id={group}", device.as_raw_fd());
    for word in kernel_words(options) {
        data.push(',');
        data.push_str(word);
    }
    let data = CString::new(data).expect("numbers and words have no zero in them");
    match rustix::mount::mount(options.source.as_str(), mountpoint, TYPE, flags(options), data.as_c_str()) {
        Ok(()) => Ok(Some(device)),
        Err(Errno::PERM) => Ok(None),
        Err(Errno::NODEV) => Err(MountError::NoFuse),
        Err(source) => Err(MountError::Mount { path: mountpoint.to_owned(), source }),
    }
}

/// Mounts by `fusermount3`.
fn mount_with_help(mountpoint: &Path, options: &MountOptions) -> Result<Connection, MountError> {
    let failed = |error: std::io::Error| MountError::Session(error);
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let mut helper = Command::new(HELPER);
    helper.arg("-o").arg(helper_words(options)).arg("--").arg(mountpoint);
    helper.env(HELPER_SOCKET.0, HELPER_SOCKET.1).stdin(OwnedFd::from(theirs));
    let mut child =
        helper.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(MountError::NoHelper)?;
    // The command holds the other end of the socket; only when it is gone does a failure show as an end.
    drop(helper);
    let Some(device) = receive_descriptor(&ours) else {
        return Err(explain(mountpoint, &complaint(&mut child)));
    };
    if helper_unmounts(options) {
        // The helper stays, to see us go.
        return Ok(Connection { device, guard: Some(Guard::Helper(ours)) });
    }
    drop(ours);
    child.wait().map_err(failed)?;
    Ok(Connection { device, guard: None })
}

/// The descriptor that comes through the socket; `None` if the other side hangs up instead.
fn receive_descriptor(socket: &UnixStream) -> Option<OwnedFd> {
    let mut byte = [0u8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(&mut byte)];
    loop {
        match rustix::net::recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(_) => return None,
            Ok(_) => break,
        }
    }
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

/// Message of the helper.
fn complaint(child: &mut Child) -> String {
    let mut message = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut message).ok();
    }
    child.wait().ok();
    let message = message.trim();
    message.strip_prefix("fusermount3: ").unwrap_or(message).to_owned()
}

fn explain(mountpoint: &Path, message: &str) -> MountError {
    let path = mountpoint.to_owned();
    if message.contains("user_allow_other") {
        MountError::AllowOtherForbidden
    } else if message.contains("ermission denied")
        || message.contains("not permitted")
        || message.contains("no write access")
    {
        MountError::NotPermitted { path, why: message.to_owned() }
    } else if message.contains("device not found") || message.contains("/dev/fuse: No such") {
        MountError::NoFuse
    } else {
        let message = if message.is_empty() { "failed without a word" } else { message };
        MountError::Helper { path, message: message.to_owned() }
    }
}

/// Ends a mount with the help of `fusermount3`.
pub(crate) fn unmount_with_help(mountpoint: &Path, is_lazy: bool) -> Result<(), MountError> {
    let mut helper = Command::new(HELPER);
    helper.arg("-u").args(is_lazy.then_some("-z")).arg("--").arg(mountpoint);
    helper.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = helper.spawn().map_err(MountError::NoHelper)?;
    let message = complaint(&mut child);
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        _ if message.contains("busy") => Err(MountError::Busy(mountpoint.to_owned())),
        _ => Err(explain(mountpoint, &message)),
    }
}

fn flags(options: &MountOptions) -> MountFlags {
    let choices = [
        (options.read_only, MountFlags::RDONLY),
        (!options.devices, MountFlags::NODEV),
        (!options.set_user_id, MountFlags::NOSUID),
        (!options.execute, MountFlags::NOEXEC),
        (options.atime == AtimeMode::Never, MountFlags::NOATIME),
        (options.synchronous == Synchronous::Everything, MountFlags::SYNCHRONOUS),
        (options.synchronous == Synchronous::Names, MountFlags::DIRSYNC),
    ];
    choices.iter().filter(|(is_set, _)| *is_set).fold(MountFlags::empty(), |all, (_, flag)| all | *flag)
}

/// The words that the kernel's FUSE understands.
fn kernel_words(options: &MountOptions) -> impl Iterator<Item = &'static str> {
    let choices =
        [(options.default_permissions, "default_permissions"), (options.allow_other, "allow_other")];
    choices.into_iter().filter(|(is_set, _)| *is_set).map(|(_, word)| word)
}

/// Everything, as `fusermount3` wants it.
fn helper_words(options: &MountOptions) -> String {
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut words = vec![format!("fsname={source}"), format!("subtype={SUBTYPE}")];
    let choices = [
        (options.read_only, "ro"),
        (options.devices, "dev"),
        (options.set_user_id, "suid"),
        (!options.execute, "noexec"),
        (options.atime == AtimeMode::Never, "noatime"),
        (options.synchronous == Synchronous::Everything, "sync"),
        (options.synchronous == Synchronous::Names, "dirsync"),
        (helper_unmounts(options), "auto_unmount"),
    ];
    let set = choices.into_iter().filter(|(is_set, _)| *is_set).map(|(_, word)| word);
    words.extend(set.chain(kernel_words(options)).map(str::to_owned));
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_in_a_name_is_no_end() {
        let options = MountOptions { source: "a,b\\c".to_owned(), ..MountOptions::default() };
        let words = helper_words(&options);
        assert_eq!(words, "fsname=a\\,b\\\\c,subtype=brindle,ro,default_permissions");
    }

    #[test]
    fn nothing_dangerous_is_on_by_default() {
        let flags = flags(&MountOptions::default());
        assert_eq!(flags, MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID);
    }

    #[test]
    fn complaints_are_understood() {
        let at = Path::new("/mnt");
        let said = "option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf";
        assert!(matches!(explain(at, said), MountError::AllowOtherForbidden));
        let said = "user has no write access to mountpoint /mnt";
        assert!(matches!(explain(at, said), MountError::NotPermitted { .. }));
        let said = "mount failed: Operation not permitted";
        assert!(matches!(explain(at, said), MountError::NotPermitted { .. }));
        assert!(matches!(explain(at, ""), MountError::Helper { .. }));
    }
}

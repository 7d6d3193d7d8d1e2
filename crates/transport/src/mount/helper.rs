//! Mounts of users other than root, and mounts that end with their server: with the help of other programs.

use super::{Connection, MountError, MountOptions, kernel_words};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// With `auto_unmount`: what another process waits for, which unmounts when we are gone. To be dropped after an unmount.
#[derive(Debug)]
pub struct Guard(Watcher);

#[derive(Debug)]
enum Watcher {
    /// `fusermount3` sees the end of its socket, and looks whether the mount has lost its server.
    Helper(#[expect(dead_code, reason = "it is held, not read")] UnixStream),
    /// A shell reads a line, or that there comes none any more.
    Shell(ChildStdin),
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Watcher::Shell(line) = &mut self.0 {
            // Without it there would be another attempt, at whatever is mounted there later.
            line.write_all(b"\n").ok();
        }
    }
}

/// Waits for a line, and unmounts if none comes. The signals that end us are for the terminal's whole group.
const SHELL_GUARD: &str = r#"trap "" HUP INT TERM; read -r line || exec fusermount3 -u -z -- "$0""#;

const HELPER: &str = "fusermount3";
/// The helper answers on this descriptor, its standard input.
const HELPER_SOCKET: (&str, &str) = ("_FUSE_COMMFD", "0");

/// Returns true if `fusermount3` can do it: it is a program of root, which may not look into the mount of an ordinary
/// user.
pub(super) fn helper_unmounts(options: &MountOptions) -> bool {
    options.auto_unmount && (options.allow_other || rustix::process::getuid().is_root())
}

/// Starts the shell that unmounts when we are gone.
pub(super) fn shell_guard(mountpoint: &Path) -> std::io::Result<Guard> {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(SHELL_GUARD).arg(mountpoint).current_dir("/").process_group(0);
    let shell = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(Guard(Watcher::Shell(shell.stdin.expect("it was asked for"))))
}

/// Mounts by `fusermount3`.
pub(super) fn mount_with_help(mountpoint: &Path, options: &MountOptions) -> Result<Connection, MountError> {
    let failed = MountError::HelperFailed;
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
        return Ok(Connection { device, guard: Some(Guard(Watcher::Helper(ours))) });
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
pub(super) fn unmount_with_help(mountpoint: &Path, is_lazy: bool) -> Result<(), MountError> {
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

/// Everything, as `fusermount3` wants it.
fn helper_words(options: &MountOptions) -> String {
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut words = vec![format!("fsname={source}"), format!("subtype={}", options.subtype)];
    let has = |flag| options.flags.contains(flag);
    let choices = [
        (has(MountFlags::RDONLY), "ro"),
        (!has(MountFlags::NODEV), "dev"),
        (!has(MountFlags::NOSUID), "suid"),
        (has(MountFlags::NOEXEC), "noexec"),
        (has(MountFlags::NOATIME), "noatime"),
        (has(MountFlags::SYNCHRONOUS), "sync"),
        (has(MountFlags::DIRSYNC), "dirsync"),
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
        let options = MountOptions {
            source: "a,b\\c".to_owned(),
            subtype: "brindle",
            flags: MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID,
            allow_other: false,
            default_permissions: true,
            auto_unmount: false,
        };
        let words = helper_words(&options);
        assert_eq!(words, "fsname=a\\,b\\\\c,subtype=brindle,ro,default_permissions");
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

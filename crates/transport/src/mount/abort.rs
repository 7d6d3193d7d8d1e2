//! The end of a connection from outside of its server: the file `abort` of fusectl, by which every request that waits fails, and
//! every one that comes.
//!
//! A server that is killed while one of its threads tells the kernel to drop pages can't end by itself: that thread waits, in the
//! kernel and for no signal, until a page is written back, which is a request that nothing serves any more; and its hold on
//! `/dev/fuse` keeps the kernel from seeing that the server is gone. Only an abort, or `umount -f`, ends that.

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// The directory of all connections.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// The way to abort one connection. It stays that of this connection: once that is gone it does nothing, also when the number
/// belongs to another one.
#[derive(Debug)]
pub struct Abort(File);

impl Abort {
    /// Opens that of the connection with a number. Its owner may, where fusectl is mounted, and root in any case.
    ///
    /// # Errors
    /// Those of open(2) and, where fusectl is not mounted, of fsopen(2).
    pub fn open(connection: u32) -> io::Result<Self> {
        let file = format!("{connection}/abort");
        match OpenOptions::new().write(true).open(Path::new(CONNECTIONS).join(&file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self(open_apart(&file)?)),
            opened => opened.map(Self),
        }
    }

    /// Aborts the connection.
    ///
    /// # Errors
    /// Those of write(2), as when the connection is gone.
    pub fn run(&self) -> io::Result<()> {
        (&self.0).write_all(b"1")
    }

    /// The same for another process: as its standard output, into which it writes anything.
    ///
    /// # Errors
    /// No room for another descriptor.
    pub fn share(&self) -> io::Result<File> {
        self.0.try_clone()
    }
}

/// Opens a file of fusectl, which is mounted for that apart from the tree of mounts.
fn open_apart(file: &str) -> Result<File, Errno> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let harmless = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, harmless)?;
    openat(&mount, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map(File::from)
}

//! A manifest of a mounted tree. Each directory is held open while it is walked, and its children are
//! reached through it, so that no depth of nesting makes a path too long for the system.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::{Device, Entry, Kind, Manifest, Time, text};

const READ_BYTES: usize = 1 << 17;

/// `BTRFS_EMPTY_SUBVOL_DIR_OBJECTID`: an empty directory where a snapshot's source had a subvolume. It is
/// stored nowhere, and its times are those of looking at it, so that they are not recorded.
const EMPTY_SUBVOLUME_INO: u64 = 2;

struct Walker {
    mount_id: u64,
    /// Hard-linked inodes, by device and inode number. The walk is not in the order of the manifest, so
    /// the first of the paths is known only at the end.
    links: HashMap<(u32, u32, u64), Vec<Vec<u8>>>,
    entries: Vec<Entry>,
}

pub(super) fn walk(root: &Path) -> io::Result<Manifest> {
    let name = CString::new(root.as_os_str().as_bytes())?;
    let directory =
        rustix::fs::openat(CWD, &name, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY, Mode::empty())
            .map_err(|errno| at(root.as_os_str().as_bytes(), errno))?;
    let status = rustix::fs::statx(&directory, c"", AtFlags::EMPTY_PATH, wanted())?;
    let mut walker = Walker { mount_id: status.stx_mnt_id, links: HashMap::new(), entries: Vec::new() };
    let mut entry = entry_of(&[], Kind::Directory, &status);
    entry.flags = flags_of(&directory);
    entry.xattrs = xattrs_of(&proc_path(&directory, c".")?)?;
    walker.entries.push(entry);
    walker.directory(&directory, &[])?;
    Ok(walker.finish())
}

impl Walker {
    fn directory(&mut self, directory: &OwnedFd, path: &[u8]) -> io::Result<()> {
        let mut names = Vec::new();
        for found in Dir::read_from(directory).map_err(|errno| at(path, errno))? {
            let found = found.map_err(|errno| at(path, errno))?;
            let name = found.file_name();
            if name != c"." && name != c".." {
                names.push(name.to_owned());
            }
        }
        names.sort();
        for name in names {
            let mut child = path.to_vec();
            if !child.is_empty() {
                child.push(b'/');
            }
            child.extend_from_slice(name.as_bytes());
            self.child(directory, &name, &child).map_err(|error| named(&child, &error))?;
        }
        Ok(())
    }

    fn child(&mut self, directory: &OwnedFd, name: &CStr, path: &[u8]) -> io::Result<()> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let status = rustix::fs::statx(directory, name, flags, wanted())?;
        if status.stx_mnt_id != self.mount_id {
            return Ok(());
        }
        let open = |extra| {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | extra;
            rustix::fs::openat(directory, name, flags, Mode::empty())
        };
        let rdev = Device { major: status.stx_rdev_major, minor: status.stx_rdev_minor };
        let mut flags = None;
        let mut below = None;
        let kind = match FileType::from_raw_mode(status.stx_mode.into()) {
            FileType::RegularFile => {
                let file = open(OFlags::empty())?;
                flags = flags_of(&file);
                Kind::File { sha256: hash(&file)? }
            }
            FileType::Directory => {
                let directory = open(OFlags::DIRECTORY)?;
                flags = flags_of(&directory);
                below = Some(directory);
                Kind::Directory
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(directory, name, Vec::new())?;
                Kind::Symlink { target: target.into_bytes() }
            }
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharacterDevice => Kind::Char { rdev },
            FileType::BlockDevice => Kind::Block { rdev },
            FileType::Unknown => return Err(io::Error::other("unknown file type")),
        };
        let mut entry = entry_of(path, kind, &status);
        entry.flags = flags;
        entry.xattrs = xattrs_of(&proc_path(directory, name)?)?;
        if entry.kind == Kind::Directory && status.stx_ino == EMPTY_SUBVOLUME_INO {
            entry.mtime = Time { sec: 0, nsec: 0 };
            entry.ctime = None;
        }
        if entry.kind != Kind::Directory && entry.nlink > 1 {
            let inode = (status.stx_dev_major, status.stx_dev_minor, status.stx_ino);
            self.links.entry(inode).or_default().push(path.to_vec());
        }
        self.entries.push(entry);
        below.map_or(Ok(()), |directory| self.directory(&directory, path))
    }

    fn finish(self) -> Manifest {
        let mut manifest: Manifest = self.entries.into_iter().collect();
        for mut paths in self.links.into_values() {
            paths.sort();
            let (first, later) = paths.split_first().expect("a path was pushed when the list was made");
            for path in later {
                let entry = manifest.entries.get_mut(path).expect("each linked path is an entry");
                entry.same_as = Some(first.clone());
            }
        }
        manifest
    }
}

fn wanted() -> StatxFlags {
    StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID
}

fn entry_of(path: &[u8], kind: Kind, status: &Statx) -> Entry {
    let time = |time: rustix::fs::StatxTimestamp| Time { sec: time.tv_sec, nsec: time.tv_nsec };
    let has_btime = status.stx_mask & StatxFlags::BTIME.bits() != 0;
    Entry {
        mode: status.stx_mode & 0o7777,
        uid: status.stx_uid,
        gid: status.stx_gid,
        nlink: status.stx_nlink,
        size: status.stx_size,
        mtime: time(status.stx_mtime),
        ctime: Some(time(status.stx_ctime)),
        btime: has_btime.then(|| time(status.stx_btime)),
        ino: Some(status.stx_ino),
        ..Entry::new(path, kind)
    }
}

/// `None` where the filesystem has no such flags.
fn flags_of(file: &OwnedFd) -> Option<u32> {
    rustix::fs::ioctl_getflags(file).ok().map(|flags| flags.bits())
}

fn hash(file: impl AsFd) -> io::Result<[u8; 32]> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match rustix::io::read(&file, &mut buffer) {
            Ok(0) => return Ok(hasher.finalize().into()),
            Ok(length) => hasher.update(&buffer[..length]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// A path for the calls that take no directory.
fn proc_path(directory: &OwnedFd, name: &CStr) -> io::Result<CString> {
    let mut path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
    path.extend_from_slice(name.to_bytes());
    Ok(CString::new(path)?)
}

fn xattrs_of(path: &CStr) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = vec![0; 1 << 16];
    let length = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => 0,
        Err(errno) => return Err(errno.into()),
    };
    let mut found = BTreeMap::new();
    for name in names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 1 << 16];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..])?;
        value.truncate(length);
        found.insert(name.to_vec(), value);
    }
    Ok(found)
}

fn at(path: &[u8], errno: Errno) -> io::Error {
    named(path, &errno.into())
}

/// The error of a child already names it.
fn named(path: &[u8], error: &io::Error) -> io::Error {
    if error.raw_os_error().is_none() {
        return io::Error::new(error.kind(), error.to_string());
    }
    io::Error::new(error.kind(), format!("{}: {error}", text::path(path)))
}

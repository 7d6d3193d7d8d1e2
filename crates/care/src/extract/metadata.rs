//! Owner, mode, times and extended attributes.

use super::{Context, Failure, Note};
use brindle_fs::{Attributes, Timestamp, Xattr};
use rustix::fs::{
    AtFlags, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags, chownat, fchmod, fchown, fsetxattr,
    futimens, lsetxattr, utimensat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

const SET_ID_BITS: u32 = 0o6000;

/// Sets everything on an open directory; what fails is reported.
pub(super) fn apply(context: &Context<'_>, descriptor: impl AsFd, attributes: &Attributes, path: &[u8]) {
    apply_but_times(context, &descriptor, attributes, path);
    if let Err(error) = futimens(descriptor, &timestamps(attributes)) {
        context.fail(path, Failure::Set { what: "the times", error });
    }
}

/// Sets the times of a file by its name; what fails is reported.
pub(super) fn set_times(
    context: &Context<'_>,
    directory: impl AsFd,
    name: &[u8],
    attributes: &Attributes,
    path: &[u8],
) {
    if let Err(error) = utimensat(directory, name, &timestamps(attributes), AtFlags::SYMLINK_NOFOLLOW) {
        context.fail(path, Failure::Set { what: "the times", error });
    }
}

/// Sets owner, extended attributes and mode of an open file or directory; what fails is reported.
pub(super) fn apply_but_times(
    context: &Context<'_>,
    descriptor: impl AsFd,
    attributes: &Attributes,
    path: &[u8],
) {
    let descriptor = descriptor.as_fd();
    let failed = |what, error| context.fail(path, Failure::Set { what, error });
    let mut mode = mode_of(context, attributes);
    if context.options.is_root {
        if let Err(error) = fchown(descriptor, owner(attributes), group(attributes)) {
            failed("the owner", error);
            mode &= !SET_ID_BITS;
        }
    }
    set_xattrs(context, attributes, path, |xattr| {
        fsetxattr(descriptor, OsStr::from_bytes(&xattr.name), &xattr.value, XattrFlags::empty())
    });
    // After the owner, for that takes the set-id bits away, and after the ACL, which changes the mode.
    if let Err(error) = fchmod(descriptor, Mode::from_raw_mode(mode)) {
        failed("the mode", error);
    }
}

/// Sets what can be set on something that is not to be opened: a symbolic link or special file.
pub(super) fn apply_by_name(
    context: &Context<'_>,
    directory: impl AsFd,
    name: &[u8],
    attributes: &Attributes,
    path: &[u8],
) {
    let directory = directory.as_fd();
    let failed = |what, error| context.fail(path, Failure::Set { what, error });
    let follow_not = AtFlags::SYMLINK_NOFOLLOW;
    if context.options.is_root {
        if let Err(error) = chownat(directory, name, owner(attributes), group(attributes), follow_not) {
            failed("the owner", error);
        }
    }
    let by_path: PathBuf = format!("/proc/self/fd/{}", directory.as_raw_fd()).into();
    let by_path = by_path.join(OsStr::from_bytes(name));
    set_xattrs(context, attributes, path, |xattr| {
        lsetxattr(&by_path, OsStr::from_bytes(&xattr.name), &xattr.value, XattrFlags::empty())
    });
    // Links have no mode; anything else was made with the right one, less what the umask took.
    if attributes.kind != brindle_fs::FileType::Symlink {
        let mode = Mode::from_raw_mode(mode_of(context, attributes));
        if let Err(error) = rustix::fs::chmodat(directory, name, mode, AtFlags::empty()) {
            failed("the mode", error);
        }
    }
    set_times(context, directory, name, attributes, path);
}

fn set_xattrs(
    context: &Context<'_>,
    attributes: &Attributes,
    path: &[u8],
    set: impl Fn(&Xattr) -> Result<(), Errno>,
) {
    let xattrs = match context.filesystem.xattrs(attributes.id) {
        Ok(xattrs) => xattrs,
        Err(error) => return context.fail(path, error),
    };
    let mut count = 0;
    let mut first = None;
    for xattr in xattrs {
        let name = String::from_utf8_lossy(&xattr.name);
        match set(&xattr) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP) => {
                let kind = name.split('.').next().unwrap_or_default();
                let (name, kind) = (name.to_string(), kind.to_owned());
                context.observer.noted(&Note::NoXattrs { name, kind });
            }
            Err(Errno::PERM | Errno::ACCESS) if !context.options.is_root => {
                let kind = name.split('.').next().unwrap_or_default();
                context.observer.noted(&Note::XattrsOfRoot(kind.to_owned()));
            }
            Err(error) => {
                count += 1;
                first.get_or_insert_with(|| (name.into_owned(), error));
            }
        }
    }
    if let Some((name, error)) = first {
        context.fail(path, Failure::SetXattrs { count, name, error });
    }
}

/// The mode that a file gets. The set-id bits would lend the rights of another user than the pool says.
fn mode_of(context: &Context<'_>, attributes: &Attributes) -> u32 {
    let mode = attributes.mode & 0o7777;
    if context.options.is_root { mode } else { mode & !SET_ID_BITS }
}

/// Returns true if something that is there has the owner and the mode that it would get.
pub(super) fn is_owned_alike(context: &Context<'_>, attributes: &Attributes, found: &Stat) -> bool {
    let owners_agree = (found.st_uid, found.st_gid) == (attributes.uid, attributes.gid);
    let modes_agree = attributes.kind == brindle_fs::FileType::Symlink
        || found.st_mode & 0o7777 == mode_of(context, attributes);
    modes_agree && (owners_agree || !context.options.is_root)
}

fn owner(attributes: &Attributes) -> Option<Uid> {
    Some(Uid::from_raw(attributes.uid))
}

fn group(attributes: &Attributes) -> Option<Gid> {
    Some(Gid::from_raw(attributes.gid))
}

fn timestamps(attributes: &Attributes) -> Timestamps {
    let time = |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    Timestamps { last_access: time(attributes.accessed), last_modification: time(attributes.modified) }
}

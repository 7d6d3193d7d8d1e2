//! Conversion of errors to numbers. Any fault of the pool is `EIO`, with its cause in the log.

use brindle_fs::{ErrorKind, FsError};
use rustix::io::Errno;

/// The number for an error; logs those that a user could not make sense of by the number alone.
pub(crate) fn errno_of(error: &FsError) -> Errno {
    let errno = number_of(error.kind());
    if errno == Errno::IO {
        tracing::error!("{error}");
    }
    errno
}

/// The number of an error.
pub(crate) fn number<T>(result: Result<T, FsError>) -> Result<T, Errno> {
    result.map_err(|error| errno_of(&error))
}

fn number_of(kind: ErrorKind) -> Errno {
    match kind {
        ErrorKind::NotFound => Errno::NOENT,
        // The kernel has come by a name that stands for something else by now: it looks the path up anew.
        ErrorKind::Stale => Errno::STALE,
        ErrorKind::Exists => Errno::EXIST,
        ErrorKind::NotADirectory => Errno::NOTDIR,
        ErrorKind::IsADirectory => Errno::ISDIR,
        ErrorKind::NotEmpty => Errno::NOTEMPTY,
        ErrorKind::Invalid => Errno::INVAL,
        ErrorKind::NameTooLong => Errno::NAMETOOLONG,
        ErrorKind::TooManyCollisions => Errno::OVERFLOW,
        ErrorKind::TooManyLinks => Errno::MLINK,
        ErrorKind::TooLarge => Errno::FBIG,
        ErrorKind::CrossSubvolume => Errno::XDEV,
        ErrorKind::NotPermitted => Errno::PERM,
        ErrorKind::NoAttribute => Errno::NODATA,
        ErrorKind::NoSpace => Errno::NOSPC,
        ErrorKind::QuotaExceeded => Errno::DQUOT,
        ErrorKind::QuotasOff => Errno::NOTCONN,
        ErrorKind::ReadOnly => Errno::ROFS,
        ErrorKind::Unsupported => Errno::OPNOTSUPP,
        ErrorKind::Loop => Errno::LOOP,
        ErrorKind::NoDevice => Errno::NODEV,
        ErrorKind::Busy => Errno::BUSY,
        ErrorKind::Interrupted => Errno::INTR,
        ErrorKind::Damaged => Errno::IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_fs::{InodeId, RootId, TreeError};
    use brindle_ondisk::DevId;
    use std::sync::Arc;

    #[test]
    fn refusals_have_their_numbers() {
        let tree = RootId::new(5);
        let id = InodeId::root_of(tree);
        let cases = [
            (FsError::NotFound(b"a".to_vec()), Errno::NOENT),
            (FsError::NoInode(id), Errno::STALE),
            (FsError::NoSubvolume(tree), Errno::NOENT),
            (FsError::DeletedSubvolume(tree), Errno::NOENT),
            (FsError::NotADirectory(id), Errno::NOTDIR),
            (FsError::IsADirectory(id), Errno::ISDIR),
            (FsError::NotAFile(id), Errno::INVAL),
            (FsError::NotASymlink(id), Errno::INVAL),
            (FsError::NotASubvolume(b"a".to_vec()), Errno::INVAL),
            (FsError::SubvolumeLoop(tree), Errno::LOOP),
            (FsError::Exists(b"a".to_vec()), Errno::EXIST),
            (FsError::NotEmpty(id), Errno::NOTEMPTY),
            (FsError::NestedSubvolume(tree, tree), Errno::NOTEMPTY),
            (FsError::InvalidName(b"a/".to_vec()), Errno::INVAL),
            (FsError::Invalid { file: id, why: "x" }, Errno::INVAL),
            (FsError::NameTooLong(vec![b'a'; 256]), Errno::NAMETOOLONG),
            (FsError::TooManyCollisions(b"a".to_vec()), Errno::OVERFLOW),
            (FsError::TooManyLinks(id), Errno::MLINK),
            (FsError::TooLarge(id), Errno::FBIG),
            (FsError::CrossSubvolume(id), Errno::XDEV),
            (FsError::NotPermitted { file: id, why: "x" }, Errno::PERM),
            (FsError::DefaultSubvolume(tree), Errno::PERM),
            (FsError::HeldSubvolume(tree), Errno::BUSY),
            (FsError::NoXattr(b"a".to_vec()), Errno::NODATA),
            (FsError::XattrExists(b"a".to_vec()), Errno::EXIST),
            (FsError::XattrTooLarge(b"a".to_vec()), Errno::NOSPC),
            (FsError::ReadOnlySubvolume(tree), Errno::ROFS),
            (FsError::Interrupted, Errno::INTR),
            (TreeError::NoSpace("data".to_owned()).into(), Errno::NOSPC),
            (TreeError::ReadOnly("why".into()).into(), Errno::ROFS),
            (FsError::Unsupported { file: id, what: "a flag" }, Errno::OPNOTSUPP),
            (TreeError::NoDevice(DevId::new(9)).into(), Errno::NODEV),
            (TreeError::NoTree(tree).into(), Errno::NOENT),
            (TreeError::UnderWay("a test").into(), Errno::BUSY),
            (TreeError::Unsettled.into(), Errno::IO),
            (
                FsError::WriteBack { file: id, why: Arc::new(TreeError::NoSpace(String::new()).into()) },
                Errno::NOSPC,
            ),
        ];
        for (error, errno) in cases {
            assert_eq!(errno_of(&error), errno, "{error}");
        }
    }
}

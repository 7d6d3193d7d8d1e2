//! Conversion of errors to numbers. Any fault of the pool is `EIO`, with its cause in the log.

use brindle_fs::{FsError, TreeError};
use rustix::io::Errno;

/// The number for an error; logs those that a user could not make sense of by the number alone.
pub(crate) fn errno_of(error: &FsError) -> Errno {
    let errno = number_of(error);
    if errno == Errno::IO {
        tracing::error!("{error}");
    }
    errno
}

fn number_of(error: &FsError) -> Errno {
    match error {
        FsError::NotFound(_) | FsError::NoSubvolume(_) | FsError::DeletedSubvolume(_) => Errno::NOENT,
        // The kernel has come by a name that stands for something else by now: it looks the path up anew.
        FsError::NoInode(_) => Errno::STALE,
        FsError::Exists(_) | FsError::XattrExists(_) => Errno::EXIST,
        FsError::NotADirectory(_) => Errno::NOTDIR,
        FsError::IsADirectory(_) => Errno::ISDIR,
        FsError::NotEmpty(_) | FsError::NestedSubvolume(..) => Errno::NOTEMPTY,
        FsError::NotAFile(_)
        | FsError::NotASymlink(_)
        | FsError::NotASubvolume(_)
        | FsError::InvalidName(_)
        | FsError::Invalid { .. } => Errno::INVAL,
        FsError::NameTooLong(_) => Errno::NAMETOOLONG,
        FsError::TooManyCollisions(_) => Errno::OVERFLOW,
        FsError::TooManyLinks(_) => Errno::MLINK,
        FsError::TooLarge(_) => Errno::FBIG,
        FsError::CrossSubvolume(_) => Errno::XDEV,
        FsError::NotPermitted { .. } | FsError::DefaultSubvolume(_) => Errno::PERM,
        FsError::NoXattr(_) => Errno::NODATA,
        FsError::XattrTooLarge(_) => Errno::NOSPC,
        FsError::ReadOnlySubvolume(_) => Errno::ROFS,
        FsError::Unsupported { .. } => Errno::OPNOTSUPP,
        FsError::SubvolumeLoop(_) => Errno::LOOP,
        FsError::WriteBack { why, .. } => number_of(why),
        FsError::Log(why) | FsError::Relocation(why) => number_of(why),
        FsError::Data { .. }
        | FsError::NoChecksum { .. }
        | FsError::Decompress { .. }
        | FsError::Item { .. } => Errno::IO,
        FsError::Tree(error) => number_of_tree(error),
    }
}

/// The number for an error of a tree, or of the pool as a whole.
fn number_of_tree(error: &TreeError) -> Errno {
    match error {
        TreeError::NoSpace(_) => Errno::NOSPC,
        TreeError::ReadOnly(_) => Errno::ROFS,
        TreeError::NoDevice(_) => Errno::NODEV,
        TreeError::NoTree(_) => Errno::NOENT,
        TreeError::UnderWay(_) | TreeError::Busy { .. } => Errno::BUSY,
        TreeError::Volume(_)
        | TreeError::Read(_)
        | TreeError::KeyBeyondBound { .. }
        | TreeError::WrongTree { .. }
        | TreeError::Item { .. }
        | TreeError::Exists { .. }
        | TreeError::TooLarge { .. }
        | TreeError::Space { .. }
        | TreeError::Refused(_)
        | TreeError::Unsettled
        | TreeError::Write(_) => Errno::IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_fs::{InodeId, RootId};
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
            (FsError::NoXattr(b"a".to_vec()), Errno::NODATA),
            (FsError::XattrExists(b"a".to_vec()), Errno::EXIST),
            (FsError::XattrTooLarge(b"a".to_vec()), Errno::NOSPC),
            (FsError::ReadOnlySubvolume(tree), Errno::ROFS),
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

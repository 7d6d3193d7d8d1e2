//! Where errors become numbers. Whatever is wrong with the pool is `EIO`, and says why in the log.

use brindle_fs::FsError;
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
        FsError::NotFound(_)
        | FsError::NoInode(_)
        | FsError::NoSubvolume(_)
        | FsError::DeletedSubvolume(_) => Errno::NOENT,
        FsError::NotADirectory(_) => Errno::NOTDIR,
        FsError::IsADirectory(_) => Errno::ISDIR,
        FsError::NotAFile(_) | FsError::NotASymlink(_) | FsError::NotASubvolume(_) => Errno::INVAL,
        FsError::SubvolumeLoop(_) => Errno::LOOP,
        _ => Errno::IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_fs::{InodeId, RootId};

    #[test]
    fn refusals_have_their_numbers() {
        let tree = RootId::new(5);
        let id = InodeId::root_of(tree);
        let cases = [
            (FsError::NotFound(b"a".to_vec()), Errno::NOENT),
            (FsError::NoInode(id), Errno::NOENT),
            (FsError::NoSubvolume(tree), Errno::NOENT),
            (FsError::DeletedSubvolume(tree), Errno::NOENT),
            (FsError::NotADirectory(id), Errno::NOTDIR),
            (FsError::IsADirectory(id), Errno::ISDIR),
            (FsError::NotAFile(id), Errno::INVAL),
            (FsError::NotASymlink(id), Errno::INVAL),
            (FsError::NotASubvolume(b"a".to_vec()), Errno::INVAL),
            (FsError::SubvolumeLoop(tree), Errno::LOOP),
        ];
        for (error, errno) in cases {
            assert_eq!(errno_of(&error), errno, "{error}");
        }
    }
}

//! Errors of operations, in the system's own terms.

use std::fmt;

/// The refusals that a filesystem knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Errno {
    /// `EPERM`.
    NotPermitted,
    /// `ENOENT`.
    NotFound,
    /// `EIO`.
    Io,
    /// `EEXIST`.
    Exists,
    /// `EXDEV`: the other side is in another subvolume.
    CrossDevice,
    /// `ENOTDIR`.
    NotDirectory,
    /// `EISDIR`.
    IsDirectory,
    /// `EINVAL`.
    Invalid,
    /// `EFBIG`.
    FileTooLarge,
    /// `ENOSPC`.
    NoSpace,
    /// `EROFS`.
    ReadOnly,
    /// `EMLINK`.
    TooManyLinks,
    /// `ENAMETOOLONG`.
    NameTooLong,
    /// `ENOTEMPTY`.
    NotEmpty,
    /// `ENODATA`: no such extended attribute.
    NoData,
    /// `EOPNOTSUPP`.
    NotSupported,
    /// Any other.
    Other(i32),
    /// A program refused, and didn't say which; as good as any.
    Unknown,
}

const CODES: [(Errno, i32, &str); 16] = [
    (Errno::NotPermitted, 1, "EPERM"),
    (Errno::NotFound, 2, "ENOENT"),
    (Errno::Io, 5, "EIO"),
    (Errno::Exists, 17, "EEXIST"),
    (Errno::CrossDevice, 18, "EXDEV"),
    (Errno::NotDirectory, 20, "ENOTDIR"),
    (Errno::IsDirectory, 21, "EISDIR"),
    (Errno::Invalid, 22, "EINVAL"),
    (Errno::FileTooLarge, 27, "EFBIG"),
    (Errno::NoSpace, 28, "ENOSPC"),
    (Errno::ReadOnly, 30, "EROFS"),
    (Errno::TooManyLinks, 31, "EMLINK"),
    (Errno::NameTooLong, 36, "ENAMETOOLONG"),
    (Errno::NotEmpty, 39, "ENOTEMPTY"),
    (Errno::NoData, 61, "ENODATA"),
    (Errno::NotSupported, 95, "EOPNOTSUPP"),
];

impl Errno {
    /// From the number that Linux has for it.
    #[must_use]
    pub fn from_code(code: i32) -> Self {
        CODES.iter().find(|(_, known, _)| *known == code).map_or(Self::Other(code), |(errno, ..)| *errno)
    }

    /// The number that Linux has for it.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::Other(code) => code,
            Self::Unknown => 0,
            _ => CODES.iter().find(|(errno, ..)| *errno == self).map_or(0, |(_, code, _)| *code),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match CODES.iter().find(|(errno, ..)| errno == self) {
            Some((_, _, name)) => f.write_str(name),
            None if *self == Self::Unknown => f.write_str("some error"),
            None => write!(f, "errno {}", self.code()),
        }
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        error.raw_os_error().map_or(Self::Io, Self::from_code)
    }
}

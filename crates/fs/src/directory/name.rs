//! Names that can be.

use crate::error::FsError;

/// The longest name, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// Refuses what can't be a name.
pub(crate) fn check_name(name: &[u8]) -> Result<(), FsError> {
    if name.len() > NAME_BYTES_MAX {
        return Err(FsError::NameTooLong(name.to_vec()));
    }
    if matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(FsError::InvalidName(name.to_vec()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_lead_elsewhere_are_refused() {
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert!(matches!(check_name(name), Err(FsError::InvalidName(_))), "{name:?}");
        }
        assert!(matches!(check_name(&[b'a'; 256]), Err(FsError::NameTooLong(_))));
        for name in [&b"a"[..], b"...", b" ", b"\xff", &[b'a'; 255]] {
            assert!(check_name(name).is_ok(), "{name:?}");
        }
    }
}

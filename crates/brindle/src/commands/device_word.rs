//! `DEVICE[:fast|:bulk]`: a device, and what is said of it.

use anyhow::{Result, bail};
use brindle_policy::placement::PlacementClass;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A path and what is said of it. What exists is a path as a whole, colon or not.
pub(crate) fn split_class(word: &Path) -> Result<(PathBuf, Option<PlacementClass>)> {
    let bytes = word.as_os_str().as_bytes();
    let Some(colon) = bytes.iter().rposition(|byte| *byte == b':').filter(|_| !word.exists()) else {
        return Ok((word.to_owned(), None));
    };
    let (path, class) = (Path::new(OsStr::from_bytes(&bytes[..colon])), &bytes[colon + 1..]);
    match class {
        b"fast" => Ok((path.to_owned(), Some(PlacementClass::Fast))),
        b"bulk" => Ok((path.to_owned(), Some(PlacementClass::Bulk))),
        _ if path.exists() => {
            bail!("{}: what follows the colon is neither fast nor bulk", word.display())
        }
        _ => Ok((word.to_owned(), None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_class_follows_the_last_colon_of_what_is_no_path() {
        let of = |word: &str| split_class(Path::new(word)).expect("known words");
        assert_eq!(of("a.img:fast"), ("a.img".into(), Some(PlacementClass::Fast)));
        assert_eq!(of("a:b:bulk"), ("a:b".into(), Some(PlacementClass::Bulk)));
        assert_eq!(of("a:b"), ("a:b".into(), None));
        let directory = tempfile::tempdir().expect("temporary directory");
        let odd = directory.path().join("x:fast");
        fs::write(&odd, "").expect("room");
        assert_eq!(split_class(&odd).expect("a path"), (odd, None));
        let slow = directory.path().join("x:fast:slow");
        assert!(split_class(&slow).expect_err("no class").to_string().contains("neither fast nor bulk"));
    }
}

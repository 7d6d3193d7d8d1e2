//! `DEVICE[:fast|:bulk]`: a device, and what is said of it.

use crate::commands::usage::wrong_usage;
use anyhow::Result;
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
            wrong_usage(format!("{}: the word after the colon is neither fast nor bulk", word.display()))
        }
        _ => Ok((word.to_owned(), None)),
    }
}

/// Refuses a device that is given twice, by whatever paths.
pub(crate) fn refuse_twice<'p>(paths: impl Iterator<Item = &'p Path>) -> Result<()> {
    let mut seen = Vec::new();
    for path in paths {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if seen.contains(&real) {
            return wrong_usage(format!("{} is given twice", path.display()));
        }
        seen.push(real);
    }
    Ok(())
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
        fs::write(directory.path().join("y"), "").expect("room");
        let (plain, around) =
            (directory.path().join("y"), directory.path().join("../").join(directory.path()).join("./y"));
        assert!(refuse_twice([Path::new("nowhere"), &plain].into_iter()).is_ok());
        assert!(refuse_twice([plain.as_path(), &around].into_iter()).is_err());
        let slow = directory.path().join("x:fast:slow");
        assert!(split_class(&slow).expect_err("no class").to_string().contains("neither fast nor bulk"));
    }
}

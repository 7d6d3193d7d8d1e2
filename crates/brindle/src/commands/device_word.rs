//! `DEVICE[:CLASS]`: a device, and what is said of it: its side, or by its name a class within that.

use crate::commands::usage::wrong_usage;
use anyhow::Result;
use brindle_policy::class::DeviceClasses;
use brindle_policy::placement::{DataTier, PlacementClass};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Part of a word that says where a device belongs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SaidClass {
    /// Its side.
    pub(crate) side: Option<PlacementClass>,
    /// Name of its class within the side.
    pub(crate) name: Option<String>,
}

/// A path and what is said of it. What exists is a path as a whole, colon or not.
pub(crate) fn split_class(word: &Path) -> Result<(PathBuf, Option<PlacementClass>)> {
    let (path, said) = split_said(word, &DeviceClasses::default())?;
    Ok((path, said.side))
}

/// The same, where a class may be said by a name that is listed.
pub(crate) fn split_said(word: &Path, classes: &DeviceClasses) -> Result<(PathBuf, SaidClass)> {
    let bytes = word.as_os_str().as_bytes();
    let Some(colon) = bytes.iter().rposition(|byte| *byte == b':').filter(|_| !word.exists()) else {
        return Ok((word.to_owned(), SaidClass::default()));
    };
    let (path, class) = (Path::new(OsStr::from_bytes(&bytes[..colon])), &bytes[colon + 1..]);
    match classes.named(class) {
        Some(DataTier { side, rank }) => {
            let name = rank.map(|_| String::from_utf8_lossy(class).into_owned());
            Ok((path.to_owned(), SaidClass { side: Some(side), name }))
        }
        None if path.exists() => {
            let names: Vec<String> = classes.all().into_iter().map(|class| class.name).collect();
            let nor_listed = match classes.is_empty() {
                true => String::new(),
                false => format!(", nor a class that is listed: {}", names.join(", ")),
            };
            wrong_usage(format!(
                "{}: the word after the colon is neither fast nor bulk{nor_listed}",
                word.display()
            ))
        }
        None => Ok((word.to_owned(), SaidClass::default())),
    }
}

/// Devices that a word may name: one of its own name, or that of the word before a class, which may be one that the pool lists.
pub(crate) fn possible_devices(word: &Path) -> Vec<PathBuf> {
    let bytes = word.as_os_str().as_bytes();
    let colon = bytes.iter().rposition(|byte| *byte == b':').filter(|_| !word.exists());
    let before = colon.map(|colon| PathBuf::from(OsStr::from_bytes(&bytes[..colon])));
    before.into_iter().chain([word.to_owned()]).collect()
}

/// Devices that were named as operands, and those of `device=` that are not among them: lines of fstab for the kernel's btrfs name all
/// devices by options, the one before the mount point too.
pub(crate) fn with_those_of_options(operands: &[PathBuf], of_options: &[PathBuf]) -> Vec<PathBuf> {
    let mut all = operands.to_vec();
    for path in of_options {
        if !all.iter().any(|known| real(known) == real(path)) {
            all.push(path.clone());
        }
    }
    all
}

/// The path of a device without links, as far as it is there.
pub(crate) fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Refuses a device that is given twice, by whatever paths.
pub(crate) fn refuse_twice<'p>(paths: impl Iterator<Item = &'p Path>) -> Result<()> {
    let mut seen = Vec::new();
    for path in paths {
        let real = real(path);
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
        assert_eq!(possible_devices(&odd), [odd.as_path()]);
        assert_eq!(split_class(&odd).expect("a path"), (odd, None));
        fs::write(directory.path().join("y"), "").expect("room");
        let (plain, around) =
            (directory.path().join("y"), directory.path().join("../").join(directory.path()).join("./y"));
        assert!(refuse_twice([Path::new("nowhere"), &plain].into_iter()).is_ok());
        assert!(refuse_twice([plain.as_path(), &around].into_iter()).is_err());
        assert_eq!(possible_devices(Path::new("a:b:smr")), [Path::new("a:b"), Path::new("a:b:smr")]);
        let mut classes = DeviceClasses::default();
        classes.list(PlacementClass::Bulk, &["disk", "smr"]).expect("names");
        let named = split_said(Path::new("a.img:smr"), &classes).expect("a listed name");
        let said = SaidClass { side: Some(PlacementClass::Bulk), name: Some("smr".to_owned()) };
        assert_eq!(named, ("a.img".into(), said));
        let slow = directory.path().join("x:fast:slow");
        assert!(split_class(&slow).expect_err("no class").to_string().contains("neither fast nor bulk"));
    }
}

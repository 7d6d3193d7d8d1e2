//! The word of a user for a cache: `cache:SSD:DISK`, or `cache:SSD+MIRROR:DISK`.

use brindle_device::DeviceError;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const PREFIX: &[u8] = b"cache:";

/// The devices of a cache, as a user names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheWord {
    /// The SSD: a path.
    pub flash: PathBuf,
    /// A second SSD that mirrors it: a path.
    pub mirror: Option<PathBuf>,
    /// The disk: a path, or the URI of an export.
    pub disk: PathBuf,
}

impl CacheWord {
    /// Reads `cache:SSD:DISK` or `cache:SSD+MIRROR:DISK`; `None` for another word, or an existing path. If there are several colons,
    /// the SSDs end at the first one before which there is something; a `+` within the path of something that is there divides none.
    ///
    /// # Errors
    /// [`DeviceError::Open`], if a part is missing.
    pub fn parse(word: &Path) -> Result<Option<Self>, DeviceError> {
        let Some(parts) = word.as_os_str().as_bytes().strip_prefix(PREFIX).filter(|_| !word.exists()) else {
            return Ok(None);
        };
        let colons: Vec<usize> = (1..parts.len().saturating_sub(1)).filter(|at| parts[*at] == b':').collect();
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        let is_there = |ssds: &[u8]| match halves(ssds) {
            Some((one, other)) => path(one).exists() || path(other).exists(),
            None => path(ssds).exists(),
        };
        let split = colons.iter().copied().find(|at| is_there(&parts[..*at]));
        let Some(at) = split.or(colons.first().copied()) else {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "must be cache:SSD:DISK");
            return Err(DeviceError::Open { device: word.display().to_string(), source });
        };
        let (ssds, disk) = (&parts[..at], path(&parts[at + 1..]));
        let (flash, mirror) = match halves(ssds) {
            Some((one, other)) => (path(one), Some(path(other))),
            None => (path(ssds), None),
        };
        Ok(Some(Self { flash, mirror, disk }))
    }

    /// The SSDs, for messages and as a word for them.
    fn ssds(&self) -> String {
        let mirror = self.mirror.as_ref().map(|mirror| format!("+{}", mirror.display())).unwrap_or_default();
        format!("{}{mirror}", self.flash.display())
    }

    /// The word itself.
    pub fn name(&self) -> String {
        format!("cache:{}:{}", self.ssds(), self.disk.display())
    }
}

/// The paths of two SSDs: on both sides of the `+` beside which something is there, or of the first one; none if there is no
/// `+`, or the whole is one path.
fn halves(ssds: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_there = |bytes: &[u8]| Path::new(OsStr::from_bytes(bytes)).exists();
    let places: Vec<usize> =
        (1..ssds.len().saturating_sub(1)).filter(|at| ssds[*at] == b'+' && !is_there(ssds)).collect();
    let found = places.iter().copied().find(|at| is_there(&ssds[..*at]) || is_there(&ssds[at + 1..]));
    let at = found.or(places.first().copied())?;
    Some((&ssds[..at], &ssds[at + 1..]))
}

/// Returns true if a word is no path: a URI of a device of another program, or a cache.
pub fn is_no_path(word: &Path) -> bool {
    brindle_device::is_remote(word) || !matches!(CacheWord::parse(word), Ok(None))
}

/// A path that is open as long as the device is: that of the SSD of a cache, or the word itself.
pub fn path_of(word: &Path) -> PathBuf {
    match CacheWord::parse(word) {
        Ok(Some(CacheWord { flash, mirror: Some(mirror), .. })) if !flash.exists() => mirror,
        Ok(Some(cache)) => cache.flash,
        Ok(None) | Err(_) => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_two_devices() {
        let of = |word: &str| CacheWord::parse(Path::new(word)).expect("two parts");
        let parts = |flash: &str, disk: &str| {
            Some(CacheWord { flash: flash.into(), mirror: None, disk: disk.into() })
        };
        assert_eq!(of("cache:/dev/sda2:/dev/sdc"), parts("/dev/sda2", "/dev/sdc"));
        let remote = "nbd+unix:///?socket=/run/one.sock";
        assert_eq!(of(&format!("cache:a:{remote}")), parts("a", remote));
        assert_eq!((of("/dev/sdc"), of("nbd://host/x")), (None, None));
        for wrong in ["cache:", "cache:a", "cache:a:", "cache::b"] {
            let error = CacheWord::parse(Path::new(wrong)).expect_err("a part is missing").to_string();
            assert_eq!(error, format!("cannot open {wrong}: must be cache:SSD:DISK"));
        }
        assert_eq!(path_of(Path::new("cache:a:b")), Path::new("a"));
        let directory = tempfile::tempdir().expect("temporary directory");
        let odd = directory.path().join("a:b");
        std::fs::write(&odd, "").expect("room");
        let odd = odd.to_str().expect("UTF-8");
        assert_eq!(of(&format!("cache:{odd}:c")), parts(odd, "c"));
    }

    #[test]
    fn a_word_may_have_a_mirror() {
        let of = |word: &str| CacheWord::parse(Path::new(word)).expect("the parts").expect("a cache");
        let directory = tempfile::tempdir().expect("temporary directory");
        let at = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_owned();
        for (one, other, there) in
            [("a", "b", "a"), ("a", "b", "b"), ("a+1", "b", "b"), ("a+1", "b", "a+1"), ("a", "b:2", "b:2")]
        {
            std::fs::write(at(there), "").expect("room");
            let word = format!("cache:{}+{}:c", at(one), at(other));
            let found = of(&word);
            assert_eq!(
                found,
                CacheWord { flash: at(one).into(), mirror: Some(at(other).into()), disk: "c".into() }
            );
            assert_eq!((found.name(), path_of(Path::new(&word))), (word, at(there).into()));
            std::fs::remove_file(at(there)).expect("it is there");
        }
        std::fs::write(at("a+b"), "").expect("room");
        let found = of(&format!("cache:{}:c", at("a+b")));
        assert_eq!((found.flash, found.mirror), (at("a+b").into(), None));
    }
}

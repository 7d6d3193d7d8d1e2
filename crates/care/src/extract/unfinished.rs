//! Files that are not whole yet. What lies under a name in the destination must be complete, for it does not show
//! from its size; so a file is filled without a name (`O_TMPFILE`), where the host can do that, and under a name
//! of its own where it can't, and gets its real one when its last byte is there. Whatever stops us before that,
//! be it a full disk, a signal or the loss of power, leaves no file behind that only looks restored.

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, linkat, openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const WRITE: OFlags = OFlags::WRONLY.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);
/// Beginning and end of a temporary name.
const PREFIX: &str = ".brindle-";
const SUFFIX: &str = ".unfinished";
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A file without its name.
pub(super) struct Unfinished {
    pub(super) file: File,
    /// Temporary name, where files need one.
    name: Option<String>,
}

impl Unfinished {
    /// Makes one in `directory`; without any name if `unnamed`, which [`supports_unnamed`] knows.
    pub(super) fn make(directory: impl AsFd, unnamed: bool) -> Result<Self, Errno> {
        if unnamed {
            match openat(&directory, c".", OFlags::WRONLY | OFlags::CLOEXEC | OFlags::TMPFILE, MODE) {
                Ok(file) => return Ok(Self { file: file.into(), name: None }),
                // Another filesystem may be mounted below the destination.
                Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
                Err(error) => return Err(error),
            }
        }
        loop {
            let name = temporary_name();
            match openat(&directory, &*name, WRITE | OFlags::CREATE | OFlags::EXCL, MODE) {
                Ok(file) => return Ok(Self { file: file.into(), name: Some(name) }),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives the file its name in `directory`, in place of what has that name if `overwrite`.
    pub(super) fn publish(
        &mut self,
        directory: impl AsFd,
        name: &[u8],
        overwrite: bool,
    ) -> Result<(), Errno> {
        if let Some(temporary) = &self.name {
            rename(&directory, temporary, name, overwrite)?;
            self.name = None;
            return Ok(());
        }
        match self.link(&directory, name) {
            Err(Errno::EXIST) if overwrite => {
                let temporary = temporary_name();
                self.link(&directory, temporary.as_bytes())?;
                let renamed = renameat(&directory, &*temporary, &directory, name);
                if renamed.is_err() {
                    let _ = unlinkat(&directory, &*temporary, AtFlags::empty());
                }
                renamed
            }
            linked => linked,
        }
    }

    /// Takes away what a file that will never be whole has left.
    pub(super) fn discard(&mut self, directory: impl AsFd) -> Result<(), Errno> {
        self.name.take().map_or(Ok(()), |name| unlinkat(directory, name, AtFlags::empty()))
    }

    fn link(&self, directory: impl AsFd, name: &[u8]) -> Result<(), Errno> {
        let by_descriptor: PathBuf = format!("/proc/self/fd/{}", self.file.as_raw_fd()).into();
        linkat(CWD, &by_descriptor, directory, name, AtFlags::SYMLINK_FOLLOW)
    }
}

/// Returns true if files can be made without a name in `directory`, and get one later.
pub(super) fn supports_unnamed(directory: impl AsFd) -> bool {
    let directory = directory.as_fd();
    if !Path::new("/proc/self/fd").exists() {
        return false;
    }
    let Ok(mut probe) = Unfinished::make(directory, true) else {
        return false;
    };
    if probe.name.is_some() {
        let _ = probe.discard(directory);
        return false;
    }
    let name = temporary_name();
    let is_linked = probe.publish(directory, name.as_bytes(), false).is_ok();
    is_linked && unlinkat(directory, &*name, AtFlags::empty()).is_ok()
}

fn rename(directory: impl AsFd, from: &str, to: &[u8], overwrite: bool) -> Result<(), Errno> {
    let directory = directory.as_fd();
    if !overwrite {
        match renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
            // Not every filesystem knows the flag; then it is the next best thing to look first.
            Err(Errno::INVAL | Errno::NOSYS) => {}
            renamed => return renamed,
        }
        if exists(directory, to) {
            return Err(Errno::EXIST);
        }
    }
    renameat(directory, from, directory, to)
}

/// Returns true if `directory` has an entry of this name.
pub(super) fn exists(directory: impl AsFd, name: &[u8]) -> bool {
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Temporary name that is not in use; if it is, the next one will do.
fn temporary_name() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("{PREFIX}{:x}-{number:x}{SUFFIX}", std::process::id())
}

/// Returns true for names that [`temporary_name`] gives.
pub(super) fn is_temporary_name(name: &[u8]) -> bool {
    let numbers = name.strip_prefix(PREFIX.as_bytes()).and_then(|name| name.strip_suffix(SUFFIX.as_bytes()));
    let is_number =
        |part: &[u8]| !part.is_empty() && part.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    numbers.is_some_and(|numbers| {
        let mut parts = numbers.split(|byte| *byte == b'-');
        parts.next().is_some_and(is_number) && parts.next().is_some_and(is_number) && parts.next().is_none()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).expect("our directory");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("our directory").file_name().into_string().expect("text"))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn temporary_names_are_known_again_and_no_others() {
        assert!(
            is_temporary_name(temporary_name().as_bytes()) && is_temporary_name(b".brindle-a-0.unfinished")
        );
        for name in [
            "brindle-a-0.unfinished",
            ".brindle-a-0",
            ".brindle-a.unfinished",
            ".brindle-a-0-1.unfinished",
            ".brindle-x-0.unfinished",
            ".brindle--0.unfinished",
        ] {
            assert!(!is_temporary_name(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_file_gets_its_name_at_the_end_and_replaces_only_if_told() {
        let place = tempfile::tempdir().expect("temporary directory");
        let directory = File::open(place.path()).expect("our directory");
        for unnamed in [supports_unnamed(&directory), false] {
            let make = |text: &str| {
                let mut file = Unfinished::make(&directory, unnamed).expect("room");
                file.file.write_all(text.as_bytes()).expect("room");
                file
            };
            let mut first = make("first");
            assert!(!names(place.path()).contains(&"name".to_owned()));
            first.publish(&directory, b"name", false).expect("the name is free");
            let mut second = make("second");
            assert_eq!(second.publish(&directory, b"name", false), Err(Errno::EXIST));
            assert_eq!(std::fs::read(place.path().join("name")).expect("there"), b"first");
            second.publish(&directory, b"name", true).expect("it may");
            assert_eq!(std::fs::read(place.path().join("name")).expect("there"), b"second");
            make("third").discard(&directory).expect("our own");
            assert_eq!(names(place.path()), ["name"]);
            std::fs::remove_file(place.path().join("name")).expect("our own");
        }
    }
}

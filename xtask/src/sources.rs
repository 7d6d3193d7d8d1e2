//! Rules that a source keeps: its length, its `unsafe`, its locks, no stubs.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// A module is one noun; longer than this it becomes a folder of smaller nouns.
const MODULE_LINES_MAX: usize = 600;
/// Crates that may use `unsafe`.
const UNSAFE_CRATES: [&str; 3] = ["device", "admin", "transport"];

/// Crates whose locks have ranks: those of `brindle-sync`.
const RANKED_CRATES: [&str; 3] = ["volume", "tree", "fs"];
/// The locks that have none.
const UNRANKED_LOCKS: [&str; 4] = ["Mutex", "RwLock", "Condvar", "PoisonError"];

/// Complaints about sources that break a rule.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for krate in folders(&root.join("crates"))? {
        let library = krate.join("src/lib.rs");
        if library.exists() && !read(&library)?.starts_with("//! ") {
            complaints.push(format!("{}: does not open with its job", relative(root, &library)));
        }
        for source in rust_sources(&krate)? {
            check_source(root, &krate, &source, &mut complaints)?;
        }
    }
    for source in rust_sources(&root.join("xtask/src"))? {
        check_length(root, &source, &read(&source)?, &mut complaints);
    }
    Ok(complaints)
}

fn check_source(root: &Path, krate: &Path, source: &Path, complaints: &mut Vec<String>) -> Result<()> {
    let text = read(source)?;
    let place = relative(root, source);
    let is_test = place.contains("/tests/") || place.ends_with("tests.rs");
    if !is_test {
        check_length(root, source, &text, complaints);
        if krate.file_name().is_some_and(|name| RANKED_CRATES.iter().any(|ranked| name == *ranked)) {
            let lines = unranked_locks(&text).into_iter();
            complaints.extend(lines.map(|number| format!("{place}:{number}: a lock without a rank")));
            let lines = shared_locks(&text).into_iter();
            complaints.extend(
                lines.map(|number| format!("{place}:{number}: a static lock outside `process_wide!`")),
            );
        }
    }
    let may_be_unsafe = krate.file_name().is_some_and(|name| UNSAFE_CRATES.iter().any(|may| name == *may));
    if may_be_unsafe {
        let lines = unargued_unsafe(&text).into_iter();
        complaints.extend(
            lines.map(|number| {
                format!("{place}:{number}: `unsafe` without `SAFETY:` in a comment just above")
            }),
        );
    }
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        let code = line.split("//").next().unwrap_or_default();
        if code.contains("unsafe {") && !may_be_unsafe {
            complaints.push(format!("{place}:{number}: `unsafe` outside {}", UNSAFE_CRATES.join(" and ")));
        }
        if ["todo!(", "unimplemented!("].iter().any(|stub| code.contains(stub)) {
            complaints.push(format!("{place}:{number}: a stub"));
        }
        if code.contains("#[ignore") {
            complaints.push(format!("{place}:{number}: a test that never runs"));
        }
    }
    Ok(())
}

/// The lines with an `unsafe` (a block, a function, an implementation) that no argument stands above.
fn unargued_unsafe(text: &str) -> Vec<usize> {
    let (mut found, mut is_argued) = (Vec::new(), false);
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("//") {
            is_argued |= trimmed.contains("SAFETY:") || trimmed.contains("# Safety");
            continue;
        }
        let code = line.split("//").next().unwrap_or_default();
        let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
        if words.any(|word| word == "unsafe") && !is_argued {
            found.push(number + 1);
        }
        // An attribute may stand between.
        is_argued &= trimmed.starts_with("#[");
    }
    found
}

/// The lines on which a module names locks of the standard library; its tests may.
fn unranked_locks(text: &str) -> Vec<usize> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("std::sync::") {
        let statement = code[at..].split(';').next().unwrap_or_default();
        let mut names = statement.split(|c: char| !c.is_alphanumeric() && c != '_');
        if names.any(|name| UNRANKED_LOCKS.contains(&name)) {
            found.push(code[..at].lines().count());
        }
    }
    found
}

/// The lines on which a module declares a static lock for itself.
fn shared_locks(text: &str) -> Vec<usize> {
    let mut declared_well = false;
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        declared_well |= line.contains("process_wide! {");
        let kind =
            line.split_once("static ").and_then(|(_, rest)| rest.split_once(": ")).map(|(_, kind)| kind);
        let is_lock = kind.is_some_and(|kind| UNRANKED_LOCKS.iter().any(|lock| kind.starts_with(lock)));
        if is_lock && !declared_well {
            found.push(number + 1);
        }
        declared_well &= line != "}";
    }
    found
}

fn check_length(root: &Path, source: &Path, text: &str, complaints: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > MODULE_LINES_MAX {
        let place = relative(root, source);
        complaints.push(format!("{place}: {lines} lines, more than {MODULE_LINES_MAX}"));
    }
}

/// Every Rust source below a folder.
pub(crate) fn rust_sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(rust_sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Folders of crates below a folder.
pub(crate) fn folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.join("Cargo.toml").exists() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

pub(crate) fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::{shared_locks, unargued_unsafe, unranked_locks};

    #[test]
    fn each_unsafe_has_its_argument_just_above() {
        let argued = [
            "// SAFETY: it is null.\nlet a = unsafe { f() };\n",
            "/// # Safety\n/// The caller owns it.\n#[inline]\npub unsafe fn f() {}\n",
            "#![expect(unsafe_code, reason = \"x\")]\n",
        ];
        assert!(argued.iter().all(|text| unargued_unsafe(text).is_empty()));
        let bare =
            "// SAFETY: of the first alone.\nunsafe { f() };\nunsafe { g() };\n\nunsafe impl T for U {}\n";
        assert_eq!(unargued_unsafe(bare), [3, 5]);
    }

    #[test]
    fn a_static_lock_is_seen_unless_each_exploration_has_its_own() {
        let shared = "static COUNT: AtomicU64 = AtomicU64::new(0);\npub static L: Mutex<u8> = Mutex::new(Rank::L, 0);\n";
        assert_eq!(shared_locks(shared), [2]);
        let own = "process_wide! {\n    /// One.\n    static L: Mutex<u8> = Mutex::new(Rank::L, 0);\n}\n";
        assert!(shared_locks(own).is_empty());
        assert_eq!(shared_locks(&format!("{own}static M: RwLock<u8> = f();\n")), [5]);
    }

    #[test]
    fn a_lock_of_the_standard_library_is_seen_but_in_tests() {
        let ranked = "use brindle_sync::{Mutex, Rank};\nuse std::sync::{Arc, OnceLock};\nuse std::sync::atomic::AtomicU64;\n";
        assert!(unranked_locks(ranked).is_empty());
        let unranked =
            "use std::fmt;\nuse std::sync::{\n    Arc, Mutex,\n};\nstruct S(std::sync::RwLock<()>);\n";
        assert_eq!(unranked_locks(unranked), [2, 5]);
        assert!(
            unranked_locks("struct S;\n#[cfg(test)]\nmod tests {\n    use std::sync::Mutex;\n}\n").is_empty()
        );
    }
}

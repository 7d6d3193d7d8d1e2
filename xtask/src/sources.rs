//! What must, and must not, stand in the sources.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// A module is one noun; longer than this it becomes a folder of smaller nouns.
const MODULE_LINES_MAX: usize = 600;
/// Crates that may use `unsafe`.
const UNSAFE_CRATES: [&str; 2] = ["device", "kernel"];

/// What is wrong with the sources.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for krate in folders(&root.join("crates"))? {
        let library = krate.join("src/lib.rs");
        if library.exists() && !read(&library)?.starts_with("//! ") {
            complaints.push(format!("{}: does not open with its job", relative(root, &library)));
        }
        for source in sources(&krate)? {
            check_source(root, &krate, &source, &mut complaints)?;
        }
    }
    for source in sources(&root.join("xtask/src"))? {
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
    }
    let may_be_unsafe = krate.file_name().is_some_and(|name| UNSAFE_CRATES.iter().any(|may| name == *may));
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

fn check_length(root: &Path, source: &Path, text: &str, complaints: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > MODULE_LINES_MAX {
        let place = relative(root, source);
        complaints.push(format!("{place}: {lines} lines, more than {MODULE_LINES_MAX}"));
    }
}

/// Every Rust source below a folder.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn folders(folder: &Path) -> Result<Vec<PathBuf>> {
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

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

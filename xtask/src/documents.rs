//! Documents: links and paths lead somewhere, the prose is in the language of the sources, and pages that name functions or
//! tests name ones that exist.
//!
//! Three forms are checked beside links:
//! - *Walks*: below a heading that begins with "Walk", each item of a numbered list is a hop, `` `crate/src/file.rs`:
//!   `function` ``, whose file lies below `crates/` and has that function, which is called there, in the file of a hop before it,
//!   or in a file that the hop names.
//! - *Promises*: on the pages of [`PROMISES`], each item of a list ends with "Held by" and the names of tests.
//! - *Names*: a code span of four words or more, joined by underscores, is the name of a function; with `*` at its end, the
//!   beginning of one. `BRINDLE_` and capitals are a variable of the environment that a source reads.

mod markdown;
mod sources;

use crate::language;
use crate::sources::{read, relative};
use anyhow::{Context, Result};
use markdown::{Item, Page};
use sources::Functions;
use std::fs;
use std::path::{Path, PathBuf};

/// Pages whose every list item is held by tests.
const PROMISES: [&str; 1] = ["docs/user/semantics.md"];
/// Page with the walks, and their headings; a read takes [`READ_HOPS_MAX`] hops at most.
const WALKS_PAGE: &str = "docs/design/architecture.md";
const WALKS: [&str; 5] =
    ["Walk: a read", "Walk: a write", "Walk: an fsync", "Walk: a commit", "Walk: `tier apply`"];
/// Hops of a read from request to device.
const READ_HOPS_MAX: usize = 10;
/// Folders and files at the root that a code span may name.
const ROOTS: [&str; 5] = ["crates/", "docs/", "contrib/", "fuzz/", "xtask/"];
/// The fewest words of a name that is taken for that of a function.
const NAME_WORDS_MIN: usize = 4;

/// Complaints about README, CHANGELOG, all pages below `docs/`, and those beside golden images and fuzz targets; and about
/// sources that name a page that does not exist.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let functions = Functions::of(root)?;
    let mut complaints = Vec::new();
    for path in pages(root)? {
        let text = read(&path)?;
        let page = Page::new(&text);
        let place = relative(root, &path);
        let mut complain =
            |line: usize, complaint: String| complaints.push(format!("{place}:{line}: {complaint}"));
        check_links(&path, &page, &mut complain)?;
        check_paths(root, &page, &mut complain);
        for (line, word) in language::refused_in(&page.prose()) {
            complain(line, format!("prose says \"{word}\""));
        }
        check_walks(&page, &functions, &mut complain);
        check_names(&page, &functions, &mut complain);
        check_variables(&text, &functions, &mut complain);
        if place == WALKS_PAGE {
            check_presence(&page, &mut complain);
        }
        if PROMISES.contains(&place.as_str()) {
            check_promises(&page, &functions, &mut complain);
        }
    }
    complaints.extend(functions.missing_pages(root));
    let scripts = fs::read_dir(root.join("contrib")).context("contrib")?;
    for script in scripts.map(|entry| entry.map(|entry| entry.path())).chain([Ok(root.join("Makefile"))]) {
        let script = script?;
        complaints.extend(sources::missing_pages(root, &relative(root, &script), &read(&script)?));
    }
    Ok(complaints)
}

/// Every page, in the order of paths.
fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let apart = ["CHANGELOG.md", "README.md", "crates/testing/golden/README.md", "fuzz/README.md"];
    let mut found: Vec<PathBuf> = apart.iter().map(|page| root.join(page)).collect();
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Links within the tree: the file exists, and has the heading.
fn check_links(path: &Path, page: &Page, complain: &mut impl FnMut(usize, String)) -> Result<()> {
    for (line, target) in page.links() {
        if target.contains("://") {
            continue;
        }
        let (file, heading) = target.split_once('#').map_or((target.as_str(), None), |(f, h)| (f, Some(h)));
        let folder = path.parent().unwrap_or(path);
        let file = if file.is_empty() { path.to_owned() } else { folder.join(file) };
        if !file.exists() {
            complain(line, format!("a link to {target}, which does not exist"));
        } else if let Some(heading) = heading {
            if !Page::new(&read(&file)?).has_heading(heading) {
                complain(line, format!("a link to {target}: no such heading"));
            }
        }
    }
    Ok(())
}

/// Code spans that are paths from the root, or from the folder of crates: they exist. Patterns are not looked at.
fn check_paths(root: &Path, page: &Page, complain: &mut impl FnMut(usize, String)) {
    for (line, span) in page.spans() {
        let is_path = span.chars().all(|c| c.is_alphanumeric() || "_-./@".contains(c));
        let has_root = ROOTS.iter().any(|folder| span.starts_with(folder));
        let path = if has_root { root.join(&span) } else { root.join("crates").join(&span) };
        if is_path && (has_root || span.contains("/src/")) && !path.exists() {
            complain(line, format!("`{span}` does not exist"));
        }
    }
}

/// Hops of walks: the file has the function; and its name is in the code of that file, of one of a hop before it, or of one that
/// the text of the hop names.
fn check_walks(page: &Page, functions: &Functions, complain: &mut impl FnMut(usize, String)) {
    let mut walk: (String, Vec<String>) = Default::default();
    for item in page.items().iter().filter(|item| item.is_numbered && item.heading.starts_with("Walk")) {
        if walk.0 != item.heading {
            walk = (item.heading.clone(), Vec::new());
        }
        let files = &mut walk.1;
        let is_first = files.is_empty();
        let found = hop(item).and_then(|(file, name)| {
            files.push(file.clone());
            let named = item.text.split('`').skip(3).step_by(2).filter(|span| span.contains("/src/"));
            files.extend(named.map(|file| format!("crates/{file}")));
            functions.find(&file, &name)?;
            let is_called = is_first || files.iter().any(|file| functions.calls(file, &name));
            if is_called { Ok(()) } else { Err(format!("no hop before `{file}` calls `{name}`")) }
        });
        if let Err(complaint) = found {
            complain(item.line, complaint);
        }
    }
}

/// Walks: all of them are there, and a read is short.
fn check_presence(page: &Page, complain: &mut impl FnMut(usize, String)) {
    for walk in WALKS {
        let hops = page.items().iter().filter(|item| item.is_numbered && item.heading == walk).count();
        if hops == 0 {
            complain(1, format!("no list of hops below \"{walk}\""));
        } else if walk == WALKS[0] && hops > READ_HOPS_MAX {
            complain(1, format!("a read takes {hops} hops, more than {READ_HOPS_MAX}"));
        }
    }
}

/// The file and the function of a hop.
fn hop(item: &Item) -> Result<(String, String), String> {
    let no_hop = || "a hop of a walk is a `file`: `function`".to_owned();
    let rest = item.text.strip_prefix('`').ok_or_else(no_hop)?;
    let (file, rest) = rest.split_once("`: `").ok_or_else(no_hop)?;
    let (function, _) = rest.split_once('`').ok_or_else(no_hop)?;
    Ok((format!("crates/{file}"), function.to_owned()))
}

/// Long names: some function has them.
fn check_names(page: &Page, functions: &Functions, complain: &mut impl FnMut(usize, String)) {
    for (line, span) in page.spans() {
        let name = span.trim_end_matches('*');
        let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        let words = name.split('_').filter(|word| !word.is_empty()).count();
        if is_name && words >= NAME_WORDS_MIN && !functions.has(name, span.ends_with('*')) {
            complain(line, format!("`{span}` is no function"));
        }
    }
}

/// Variables of the environment, in code blocks too: some source reads them.
fn check_variables(text: &str, functions: &Functions, complain: &mut impl FnMut(usize, String)) {
    for (number, line) in text.lines().enumerate() {
        for (at, _) in line.match_indices("BRINDLE_") {
            let end = line[at..].find(|c: char| !(c.is_ascii_uppercase() || c == '_'));
            let name = &line[at..end.map_or(line.len(), |end| at + end)];
            if !functions.mention(name) {
                complain(number + 1, format!("no source reads {name}"));
            }
        }
    }
}

/// Promises: each names tests, and those exist.
fn check_promises(page: &Page, functions: &Functions, complain: &mut impl FnMut(usize, String)) {
    for item in page.items() {
        let Some((_, held)) = item.text.rsplit_once("Held by ") else {
            complain(item.line, "a promise that no test holds".to_owned());
            continue;
        };
        let tests: Vec<&str> = held.split('`').skip(1).step_by(2).collect();
        if tests.is_empty() {
            complain(item.line, "\"Held by\" names no test".to_owned());
        }
        for test in tests.iter().filter(|test| !functions.is_test(test)) {
            complain(item.line, format!("`{test}` is no test"));
        }
    }
}

#[cfg(test)]
mod tests;

//! Functions of the workspace, by name and by file, and the pages that its sources name.

use crate::sources::{read, relative, rust_sources};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// All sources, and the names of their functions.
pub(super) struct Functions {
    texts: BTreeMap<String, String>,
    names: BTreeSet<String>,
    tests: BTreeSet<String>,
}

impl Functions {
    /// Those of the sources of a workspace.
    pub(super) fn of(root: &Path) -> Result<Self> {
        let mut texts = BTreeMap::new();
        for folder in ["crates", "fuzz/fuzz_targets", "xtask/src"] {
            for source in rust_sources(&root.join(folder))? {
                texts.insert(relative(root, &source), read(&source)?);
            }
        }
        Ok(Self::new(texts))
    }

    /// Those of the sources with these paths and texts.
    pub(super) fn new(texts: BTreeMap<String, String>) -> Self {
        let (mut names, mut tests) = (BTreeSet::new(), BTreeSet::new());
        for text in texts.values() {
            let mut is_test = false;
            for line in text.lines().map(str::trim) {
                if let Some(name) = function_name(line) {
                    names.insert(name.to_owned());
                    if is_test {
                        tests.insert(name.to_owned());
                    }
                    is_test = false;
                } else if line == "#[test]" {
                    is_test = true;
                }
            }
        }
        Self { texts, names, tests }
    }

    /// The file has the function, and the type before `::`, if there is one.
    pub(super) fn find(&self, file: &str, function: &str) -> Result<(), String> {
        let text = self.texts.get(file).ok_or_else(|| format!("`{file}` does not exist"))?;
        let (owner, name) =
            function.rsplit_once("::").map_or((None, function), |(owner, name)| (Some(owner), name));
        let has_name = text.lines().any(|line| function_name(line.trim()) == Some(name));
        let has_owner = owner.is_none_or(|owner| has_word(text, owner));
        if has_name && has_owner {
            return Ok(());
        }
        Err(format!("`{file}` has no function `{function}`"))
    }

    /// True if the code of the file names the function, other than to declare it.
    pub(super) fn calls(&self, file: &str, function: &str) -> bool {
        let name = function.rsplit("::").next().unwrap_or(function);
        let mut code = self.texts.get(file).into_iter().flat_map(|text| text.lines());
        code.any(|line| {
            let line = line.split("//").next().unwrap_or_default();
            function_name(line.trim()) != Some(name) && has_word(line, name)
        })
    }

    /// True if a function has this name, or begins with it.
    pub(super) fn has(&self, name: &str, is_beginning: bool) -> bool {
        if is_beginning {
            let next = self.names.range(name.to_owned()..).next();
            return next.is_some_and(|next| next.starts_with(name));
        }
        self.names.contains(name)
    }

    /// True if a test has this name.
    pub(super) fn is_test(&self, name: &str) -> bool {
        self.tests.contains(name)
    }

    /// True if a source has this word.
    pub(super) fn mention(&self, word: &str) -> bool {
        self.texts.values().any(|text| has_word(text, word))
    }

    /// Complaints about pages that sources name and that do not exist.
    pub(super) fn missing_pages(&self, root: &Path) -> Vec<String> {
        let sources = self.texts.iter().filter(|(place, _)| !place.starts_with("xtask/src/documents"));
        sources.flat_map(|(place, text)| missing_pages(root, place, text)).collect()
    }
}

/// Complaints about pages that a text names and that do not exist.
pub(super) fn missing_pages(root: &Path, place: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for (at, _) in line.match_indices("docs/") {
            let rest = &line[at..];
            let end = rest.find(|c: char| !(c.is_alphanumeric() || "_-./".contains(c))).unwrap_or(rest.len());
            let page = rest[..end].trim_end_matches('.');
            if page.ends_with(".md") && !root.join(page).exists() {
                complaints.push(format!("{place}:{}: {page} does not exist", number + 1));
            }
        }
    }
    complaints
}

/// The name of the function that a line declares.
fn function_name(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let is_declaration = before
        .split_whitespace()
        .all(|word| word.starts_with("pub") || ["const", "unsafe", "async", "in"].contains(&word));
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'))?;
    (is_declaration && end > 0).then(|| &rest[..end])
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|other| other == word)
}

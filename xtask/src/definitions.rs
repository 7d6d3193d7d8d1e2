//! Imports inside a crate name the module that defines a thing, not one that passes it on: what a module needs can be read
//! from its imports.

use crate::sources::{read, relative, rust_sources};
use anyhow::Result;
use std::collections::BTreeSet;
use std::path::Path;

/// Crates that keep the rule.
const CRATES: [&str; 3] = ["fs", "fuse", "tree"];

/// A path by its parts, from the crate's root on.
pub(crate) type Parts = Vec<String>;

/// An import.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Import {
    /// Number of its line.
    pub(crate) line: usize,
    /// Nesting of its module below that of the file: the tests at the end of one are 1.
    pub(crate) depth: usize,
    /// True if it is passed on.
    pub(crate) is_public: bool,
    /// The imported paths.
    pub(crate) paths: Vec<Parts>,
}

/// Complaints about imports by way of another module.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for name in CRATES {
        let folder = root.join("crates").join(name).join("src");
        let mut files = Vec::new();
        for source in rust_sources(&folder)? {
            let module = module_of(&relative(&folder, &source));
            files.push((relative(root, &source), module, imports(&read(&source)?)));
        }
        let passed_on: BTreeSet<Parts> =
            files.iter().flat_map(|(_, module, imports)| passed_on(module, imports)).collect();
        for (file, module, imports) in &files {
            complaints.extend(judge(file, module, imports, &passed_on));
        }
    }
    Ok(complaints)
}

/// Module of a file below `src`.
pub(crate) fn module_of(file: &str) -> Parts {
    let path = file.trim_end_matches(".rs");
    let parts = path.split('/').filter(|part| !matches!(*part, "lib" | "mod"));
    parts.map(ToOwned::to_owned).collect()
}

/// Names that a module passes on.
fn passed_on(module: &[String], imports: &[Import]) -> Vec<Parts> {
    let public = imports.iter().filter(|import| import.is_public && import.depth == 0);
    let names = public.flat_map(|import| &import.paths).filter_map(|path| path.last());
    names.map(|name| [module, std::slice::from_ref(name)].concat()).collect()
}

fn judge(file: &str, module: &[String], imports: &[Import], passed_on: &BTreeSet<Parts>) -> Vec<String> {
    let mut complaints = Vec::new();
    for import in imports.iter().filter(|import| !import.is_public) {
        for path in &import.paths {
            let Some(absolute) = absolute(module, import.depth, path) else { continue };
            if passed_on.contains(&absolute) {
                let (line, path) = (import.line, path.join("::"));
                complaints.push(format!(
                    "{file}:{line}: {path} is defined in another module: import it from there"
                ));
            }
        }
    }
    complaints
}

/// A path within the crate from its root on; `None` if it leads to another crate.
pub(crate) fn absolute(module: &[String], depth: usize, path: &[String]) -> Option<Parts> {
    let ups = path.iter().take_while(|part| *part == "super").count();
    let (base, rest) = match path.first().map(String::as_str)? {
        "crate" => (Vec::new(), &path[1..]),
        "self" if depth == 0 => (module.to_vec(), &path[1..]),
        "super" => {
            let above = (module.len() + depth).checked_sub(ups)?;
            (module[..above.min(module.len())].to_vec(), &path[ups..])
        }
        _ => return None,
    };
    Some([&base, rest].concat())
}

/// The imports of a source, and paths of the crate that its code names outside of them.
pub(crate) fn imports(text: &str) -> Vec<Import> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let code = line.trim_start();
        if code.starts_with("//") {
            continue;
        }
        let depth = usize::from(line.len() > code.len());
        let words = code
            .strip_prefix("pub")
            .map_or(code, |rest| rest.trim_start_matches("(crate)").trim_start_matches("(super)"));
        let Some(tree) = words.trim_start().strip_prefix("use ") else {
            let paths = named(code);
            if !paths.is_empty() {
                found.push(Import { line: number + 1, depth, is_public: false, paths });
            }
            continue;
        };
        let mut tree = tree.to_owned();
        while !tree.contains(';') {
            let Some((_, line)) = lines.next() else { break };
            tree.push_str(line.trim());
        }
        let (is_public, mut paths) = (words.len() < code.len(), Vec::new());
        flatten(&[], tree.trim_end_matches(';'), &mut paths);
        found.push(Import { line: number + 1, depth, is_public, paths });
    }
    found
}

/// The paths that begin with `crate` in a line of code.
fn named(code: &str) -> Vec<Parts> {
    let code = code.split("//").next().unwrap_or_default();
    let is_path = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | ':');
    let words = code.split(|letter| !is_path(letter)).filter(|word| word.starts_with("crate::"));
    let whole = words.map(|word| word.split("::").map(ToOwned::to_owned).collect::<Parts>());
    // What is named may be an item of a type: each beginning counts.
    whole.flat_map(|path| (2..=path.len()).map(move |length| path[..length].to_vec())).collect()
}

/// The paths of a tree of imports, which has no blanks but around `as` and behind commas.
fn flatten(before: &[String], tree: &str, paths: &mut Vec<Parts>) {
    let tree = tree.trim();
    let (head, inner) = match tree.split_once('{') {
        Some((head, inner)) => (head, Some(inner.strip_suffix('}').unwrap_or(inner))),
        None => (tree.split(" as ").next().unwrap_or_default(), None),
    };
    let parts = head.split("::").map(str::trim).filter(|part| !part.is_empty());
    let path: Parts = before.iter().cloned().chain(parts.map(ToOwned::to_owned)).collect();
    let Some(inner) = inner else {
        if !head.is_empty() {
            paths.push(path);
        }
        return;
    };
    let (mut depth, mut from) = (0usize, 0);
    for (at, letter) in inner.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                flatten(&path, &inner[from..at], paths);
                from = at + 1;
            }
            _ => {}
        }
    }
    flatten(&path, &inner[from..], paths);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(module: &str, text: &str) -> Vec<String> {
        let hub =
            imports("mod a;\npub use a::{Thing, b::Other};\npub(crate) use x::Third;\nuse a::Private;\n");
        let passed_on = passed_on(&[], &hub).into_iter().collect();
        judge("f.rs", &module_of(module), &imports(text), &passed_on)
    }

    #[test]
    fn things_are_imported_from_where_they_are_defined() {
        assert!(complaints("a.rs", "use crate::a::Thing;\nuse crate::Private;\nuse x::Third;\n").is_empty());
        assert_eq!(complaints("a.rs", "use crate::Thing;\n").len(), 1);
        assert_eq!(complaints("a.rs", "use crate::{\n    Other, a::Thing,\n    Third as T,\n};\n").len(), 2);
        assert_eq!(complaints("a/b.rs", "use super::super::Thing;\n").len(), 1);
    }

    #[test]
    fn tests_and_code_are_looked_at_and_comments_are_not() {
        assert_eq!(complaints("a.rs", "mod tests {\n    use super::super::Thing;\n}\n").len(), 1);
        assert!(complaints("a.rs", "mod tests {\n    use super::Thing;\n}\n").is_empty());
        assert_eq!(complaints("a.rs", "fn f() -> crate::Thing {\n    crate::Other::new()\n}\n").len(), 2);
        assert!(complaints("a.rs", "//! [`Thing`](crate::Thing)\n/// crate::Thing\n").is_empty());
    }
}

//! Floors: of the modules of a folder none imports another that imports it, straight or by way of others. So they have an
//! order, and a reader can begin with the lowest. A folder's own module, which may know all in it, is not on a floor.

use crate::definitions::{Import, Parts, absolute, imports, module_of};
use crate::sources::{folders, read, relative, rust_sources};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Imports of the modules of a folder, each by its name.
type Floor = BTreeMap<String, BTreeSet<String>>;

/// Complaints about modules that import each other.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for krate in folders(&root.join("crates"))? {
        let folder = krate.join("src");
        let mut files = Vec::new();
        for source in rust_sources(&folder)? {
            let place = relative(&folder, &source);
            if !place.ends_with("tests.rs") && !place.contains("tests/") {
                let text = read(&source)?;
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
                files.push((module_of(&place), imports(code)));
            }
        }
        let place = relative(root, &folder);
        for (parent, floor) in floors(&files) {
            let folder = [std::slice::from_ref(&place), parent.as_slice()].concat().join("/");
            let circles = floor.keys().filter(|name| is_in_circle(&floor, name)).map(|name| {
                format!("{folder}: `{name}` imports a module beside it that imports it: one of them is on the wrong floor")
            });
            complaints.extend(circles);
        }
    }
    Ok(complaints)
}

/// Modules of each folder, and which others of that folder they import.
fn floors(files: &[(Parts, Vec<Import>)]) -> BTreeMap<Parts, Floor> {
    let modules: BTreeSet<&[String]> = files.iter().map(|(module, _)| module.as_slice()).collect();
    let mut floors: BTreeMap<Parts, Floor> = BTreeMap::new();
    for (module, imports) in files {
        for path in imports.iter().flat_map(|import| &import.paths) {
            let Some(target) = absolute(module, 0, path) else { continue };
            let length = (0..=target.len()).rev().find(|length| modules.contains(&target[..*length]));
            let target = &target[..length.unwrap_or(0)];
            let shared = module.iter().zip(target).take_while(|(one, other)| one == other).count();
            if let (Some(from), Some(to)) = (module.get(shared), target.get(shared)) {
                let floor = floors.entry(module[..shared].to_vec()).or_default();
                floor.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    floors
}

/// Returns true if a module is reached by what it imports.
fn is_in_circle(floor: &Floor, name: &str) -> bool {
    let (mut seen, mut waiting) = (BTreeSet::new(), vec![name]);
    while let Some(next) = waiting.pop() {
        for other in floor.get(next).into_iter().flatten() {
            if other == name {
                return true;
            }
            if seen.insert(other.as_str()) {
                waiting.push(other);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|(file, text)| (module_of(file), imports(text))).collect();
        let named = |(folder, floor): (Parts, Floor)| {
            let names: Vec<String> = floor
                .keys()
                .filter(|name| is_in_circle(&floor, name))
                .map(|name| [&folder.join("/"), name.as_str()].join(":"))
                .collect();
            names
        };
        floors(&files).into_iter().flat_map(named).collect()
    }

    #[test]
    fn modules_that_import_each_other_are_named_folder_by_folder() {
        let straight =
            [("a.rs", "use crate::b::B;\n"), ("b.rs", "use super::a::A;\n"), ("c.rs", "use crate::a::A;\n")];
        assert_eq!(circles(&straight), [":a", ":b"]);
        let far = [
            ("x/mod.rs", "use crate::y::Y;\n"),
            ("y.rs", "use crate::z::Z;\n"),
            ("z.rs", "use crate::x::w::W;\n"),
        ];
        assert_eq!(circles(&far), [":x", ":y", ":z"]);
        let inner = [("x/a.rs", "use super::b::B;\n"), ("x/b.rs", "use crate::x::a::A;\n"), ("x/mod.rs", "")];
        assert_eq!(circles(&inner), ["x:a", "x:b"]);
    }

    #[test]
    fn a_folder_may_know_its_modules_and_they_it() {
        let files = [
            ("x/mod.rs", "mod a;\nuse a::A;\n"),
            ("x/a.rs", "use super::X;\n"),
            ("lib.rs", "pub use x::X;\n"),
        ];
        assert!(circles(&files).is_empty());
    }
}

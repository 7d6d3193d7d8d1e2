//! Imports by file, where a crate may have a dependency and most of its files may not use it. Each rule lists the files that
//! still do. A list only shrinks: a new file is refused, and one that is mended has to be struck off.

use crate::sources::{read, relative, rust_sources};
use anyhow::Result;
use std::path::Path;

/// Crates that a folder does without, but for some files.
struct Rule {
    folder: &'static str,
    imports: &'static [&'static str],
    why: &'static str,
    /// Files of the folder that import one of the crates, sorted.
    exceptions: &'static [&'static str],
}

const RULES: [Rule; 2] = [
    Rule {
        folder: "crates/fuse/src",
        imports: &["brindle_ondisk", "brindle_policy"],
        why: "a mount knows files, and nothing under them",
        exceptions: &[
            "directory_handles.rs",
            "handles.rs",
            "nameless.rs",
            "operations/append_only.rs",
            "operations/balance.rs",
            "operations/defragment.rs",
            "operations/devices.rs",
            "operations/pool_reports.rs",
            "operations/pool_settings.rs",
            "operations/tree_items.rs",
            "options.rs",
            "recent_writes.rs",
        ],
    },
    Rule {
        folder: "crates/brindle/src",
        imports: &["brindle_ondisk", "brindle_volume", "brindle_tree"],
        why: "the command line knows the parts of a pool by the crates that care for them",
        exceptions: &[
            "commands/cat.rs",
            "commands/check.rs",
            "commands/filesystem/show.rs",
            "commands/health.rs",
            "commands/inspect/dump_super.rs",
            "commands/inspect/dump_tree.rs",
            "commands/mkfs.rs",
            "commands/mount/memory.rs",
            "commands/mount/open.rs",
            "commands/mount_options/mod.rs",
            "commands/mount_options/value.rs",
            "commands/no_pool.rs",
            "commands/pool.rs",
            "commands/tier/facts.rs",
            "commands/tier_warning.rs",
            "dump/extent_items.rs",
            "dump/file_items.rs",
            "dump/item.rs",
            "dump/key.rs",
            "dump/node.rs",
            "dump/pool_items.rs",
            "dump/superblock.rs",
        ],
    },
];

/// Complaints about imports outside of the lists, and about lists that are too long.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for rule in &RULES {
        let folder = root.join(rule.folder);
        let mut found = Vec::new();
        for source in rust_sources(&folder)? {
            if !source.ends_with("tests.rs") && imports_any(&read(&source)?, rule.imports) {
                found.push(relative(&folder, &source));
            }
        }
        complaints.extend(judge(rule, &found));
    }
    Ok(complaints)
}

fn judge(rule: &Rule, found: &[String]) -> Vec<String> {
    let Rule { folder, imports, why, exceptions } = rule;
    let is_listed = |file: &&String| exceptions.contains(&file.as_str());
    let new = found
        .iter()
        .filter(|file| !is_listed(file))
        .map(|file| format!("{folder}/{file}: imports one of {}: {why}", imports.join(", ")));
    let mended = exceptions.iter().filter(|file| !found.iter().any(|other| other == *file)).map(|file| {
        format!(
            "{folder}/{file}: imports none of {} any more: strike it off in xtask/src/imports.rs",
            imports.join(", ")
        )
    });
    new.chain(mended).collect()
}

/// Returns true if the code of a source, its comments and tests aside, names one of the crates.
fn imports_any(text: &str, imports: &[&str]) -> bool {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let mut lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.any(|line| imports.iter().any(|import| line.contains(&format!("{import}::"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_imports() {
        let imports = ["brindle_tree"];
        assert!(imports_any("fn f() {\n    brindle_tree::Pool::open();\n}\n", &imports));
        assert!(!imports_any("// brindle_tree::Pool\nuse brindle_fs::Pool;\n", &imports));
        assert!(!imports_any("const EXAMPLE: &str = \"brindle_tree=debug\";\n", &imports));
        assert!(!imports_any("#[cfg(test)]\nmod tests {\n    use brindle_tree::Pool;\n}\n", &imports));
    }

    #[test]
    fn a_new_file_and_a_mended_one_are_both_named() {
        let rule = Rule { folder: "f", imports: &["i"], why: "reasons", exceptions: &["a.rs", "b.rs"] };
        assert!(judge(&rule, &["a.rs".to_owned(), "b.rs".to_owned()]).is_empty());
        let complaints = judge(&rule, &["b.rs".to_owned(), "c.rs".to_owned()]);
        assert_eq!(complaints.len(), 2);
        assert!(
            complaints[0].starts_with("f/c.rs: imports") && complaints[1].starts_with("f/a.rs: imports none")
        );
    }
}

//! No condition joins a pattern to another condition (`if a && let b = c`): Rust has that since 1.88, the oldest version that
//! the manifest allows has not, and neither a newer compiler nor clippy tells.

use crate::sources::{read, relative, rust_sources};
use anyhow::Result;
use std::path::Path;

/// Complaints about such conditions.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for folder in ["crates", "fuzz/fuzz_targets", "xtask/src"] {
        for source in rust_sources(&root.join(folder))? {
            let file = relative(root, &source);
            for (number, line) in (1..).zip(read(&source)?.lines()) {
                if is_chain(line) {
                    complaints
                        .push(format!("{file}:{number}: a pattern beside another condition needs Rust 1.88"));
                }
            }
        }
    }
    Ok(complaints)
}

/// Returns true for a line of code in which a pattern stands beside another condition.
fn is_chain(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let (join, pattern) = ("&&", "let ");
    if code.contains(&format!("{join} {pattern}")) {
        return true;
    }
    let Some((_, condition)) = code.split_once(&format!("if {pattern}")) else { return false };
    let mut depth = 0usize;
    for (at, byte) in condition.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'&' if depth == 0 && condition[at..].starts_with(&format!("{join} ")) => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::is_chain;

    #[test]
    fn patterns_beside_other_conditions_are_found() {
        let join = "&&";
        for chain in [
            format!("if a {join} let Some(b) = c {{"),
            format!("    {join} let Some(b) = c"),
            format!("if let Some(b) = c {join} b {{"),
        ] {
            assert!(is_chain(&chain), "{chain}");
        }
        for other in [
            "if let Some(b) = c.filter(|b| *b && d) {",
            "let e = a && b;",
            "if let Some(b) = &&c { b && d }",
            "// if let a",
        ] {
            assert!(!is_chain(other), "{other}");
        }
    }
}

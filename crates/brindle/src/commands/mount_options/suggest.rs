//! The option that a misspelt word may be meant to be.

use super::table;

/// The option that a word may be meant to be: one that differs in less than a third of its letters.
pub(super) fn similar(option: &str) -> Option<&'static str> {
    const LETTERS_PER_EDIT: usize = 3;
    let name = super::split(option).0;
    let near = table::all_names().map(|known| (edits(name, known), known));
    // The opposite is not meant.
    let is_opposite =
        |known: &str| name.strip_prefix("no") == Some(known) || known.strip_prefix("no") == Some(name);
    let near = near.filter(|(edits, known)| {
        *edits > 0 && *edits * LETTERS_PER_EDIT < known.len() && !is_opposite(known)
    });
    near.min_by_key(|(edits, _)| *edits).map(|(_, known)| known)
}

/// The number of letters to add, leave out, change or swap with the next that make one word of another.
fn edits(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            table[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let changed = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let least = changed.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
                let is_swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                if is_swapped { least.min(table[i - 2][j - 2] + 1) } else { least }
            };
        }
    }
    table[a.len()][b.len()]
}

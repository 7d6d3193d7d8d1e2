//! Layout of the text of a manual, as `--help` shows it: sections, paragraphs, lists and lines of a shell.
//!
//! A section begins with a line of capitals. What is indented by two columns is text. A gap of two columns within a line parts a
//! term from its meaning, which goes on in lines that begin at its column. In EXAMPLES, below an empty line, and where there is no such
//! gap, what is indented further is for a shell or a file, and is not filled.

/// Section in which there are no terms.
const EXAMPLES: &str = "EXAMPLES";
/// Column from which on the meaning of a term begins that has a line of its own.
const MEANING_COLUMN: usize = 8;

/// A part of a manual.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// Heading.
    Section(String),
    /// Paragraph.
    Text(String),
    /// Term and its meaning, which may be empty.
    Entry(String, String),
    /// Lines that are shown as they are.
    Lines(Vec<String>),
}

/// Takes a text apart.
pub(super) fn blocks(text: &str) -> Vec<Block> {
    let mut layout = Layout::default();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    for (at, line) in lines.iter().enumerate() {
        layout.take(line, lines.get(at + 1).copied().unwrap_or_default());
    }
    layout.blocks
}

#[derive(Default)]
struct Layout {
    blocks: Vec<Block>,
    is_examples: bool,
    /// An empty line, after which a paragraph begins.
    is_parted: bool,
    /// Column of the meaning of the term before.
    meaning: Option<usize>,
}

impl Layout {
    fn take(&mut self, line: &str, next: &str) {
        let indent = indent_of(line);
        let words = line.trim();
        if words.is_empty() {
            self.is_parted = true;
            self.meaning = None;
            return;
        }
        let is_parted = std::mem::take(&mut self.is_parted);
        if indent == 0 && is_heading(words) {
            self.is_examples = words == EXAMPLES;
            self.meaning = None;
            return self.blocks.push(Block::Section(words.to_owned()));
        }
        if self.meaning == Some(indent) {
            if let Some(Block::Entry(_, meaning)) = self.blocks.last_mut() {
                return join(meaning, words);
            }
        }
        let is_for_shell = indent > 2 && (is_parted || matches!(self.blocks.last(), Some(Block::Lines(_))));
        if !self.is_examples && !is_for_shell {
            if let Some((term, meaning)) = entry(words) {
                self.meaning = Some(indent + words.len() - meaning.len());
                return self.blocks.push(Block::Entry(term.to_owned(), meaning.to_owned()));
            }
        }
        self.meaning = None;
        if indent > 2 {
            let line = line.get(4..).unwrap_or(words).to_owned();
            match self.blocks.last_mut() {
                Some(Block::Lines(lines)) if !is_parted => lines.push(line),
                _ => self.blocks.push(Block::Lines(vec![line])),
            }
        } else if !self.is_examples && indent_of(next) >= MEANING_COLUMN {
            self.meaning = Some(indent_of(next));
            self.blocks.push(Block::Entry(words.to_owned(), String::new()));
        } else {
            match self.blocks.last_mut() {
                Some(Block::Text(text)) if !is_parted => join(text, words),
                _ => self.blocks.push(Block::Text(words.to_owned())),
            }
        }
    }
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Returns true for a line of capitals.
fn is_heading(line: &str) -> bool {
    line.chars().any(|c| c.is_ascii_uppercase()) && !line.chars().any(|c| c.is_lowercase() || c == '.')
}

/// Term and meaning, if there is a gap between them.
fn entry(words: &str) -> Option<(&str, &str)> {
    let (term, meaning) = words.split_once("  ")?;
    Some((term, meaning.trim_start()))
}

fn join(text: &mut String, words: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(words);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(words: &str) -> Block {
        Block::Text(words.to_owned())
    }

    fn term(term: &str, meaning: &str) -> Block {
        Block::Entry(term.to_owned(), meaning.to_owned())
    }

    fn section(words: &str) -> Block {
        Block::Section(words.to_owned())
    }

    fn shell(lines: &[&str]) -> Block {
        Block::Lines(lines.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn terms_have_their_meaning_over_several_lines() {
        let found = blocks(
            "MOUNT OPTIONS\n  ro        only read, as\n            by the kernel\n  a_long_name=NUMBER\n            its meaning\n            and more\n  Taken, without effect: acl,\n  barrier\n",
        );
        let expected = [
            section("MOUNT OPTIONS"),
            term("ro", "only read, as by the kernel"),
            term("a_long_name=NUMBER", "its meaning and more"),
            text("Taken, without effect: acl, barrier"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn lines_for_a_shell_stay_as_they_are() {
        let found = blocks(
            "RECORDS\n  A command makes one:\n    brindle x | y\n  It knows.\n\n  More of it.\n\nEXAMPLES\n    brindle a   # one\n    brindle b\n\n  A pool:\n    brindle c\n",
        );
        let expected = [
            section("RECORDS"),
            text("A command makes one:"),
            shell(&["brindle x | y"]),
            text("It knows."),
            text("More of it."),
            section("EXAMPLES"),
            shell(&["brindle a   # one", "brindle b"]),
            text("A pool:"),
            shell(&["brindle c"]),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn lines_for_a_file_stand_below_an_empty_line() {
        let found =
            blocks("FSTAB\n  Lines:\n\n    UUID=5e5e  /srv  fuse\n    LABEL=x    /mnt  fuse\n\n  a  term\n");
        let expected = [
            section("FSTAB"),
            text("Lines:"),
            shell(&["UUID=5e5e  /srv  fuse", "LABEL=x    /mnt  fuse"]),
            term("a", "term"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn terms_can_be_indented_below_a_text() {
        let found = blocks(
            "FILTERS\n  Behind -d:\n    usage=N   its use\n    soft      not if\n\nEXIT STATUS\n  0    good\n  129, 130  by a signal\n",
        );
        let expected = [
            section("FILTERS"),
            text("Behind -d:"),
            term("usage=N", "its use"),
            term("soft", "not if"),
            section("EXIT STATUS"),
            term("0", "good"),
            term("129, 130", "by a signal"),
        ];
        assert_eq!(found, expected);
    }
}

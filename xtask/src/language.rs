//! The language of comments and messages: plain technical English that names the noun first. A doc block does not begin
//! with a question word, and processes and people are named: "the caller", "the writer".

use crate::sources::{read, relative, rust_sources};
use anyhow::Result;
use std::fmt;
use std::path::Path;

/// First words of a doc block that stand in the noun's stead.
const FIRST_WORDS: [&str; 16] = [
    "what", "whatever", "who", "whoever", "whose", "whom", "so", "as", "how", "whether", "where", "which",
    "why", "that", "it", "and",
];
/// Words that neither a comment, nor a message, nor the name of a function holds.
const WORDS: [&str; 9] = ["who", "whoever", "whom", "nobody", "somebody", "anybody", "he", "his", "him"];
/// Phrases of the same kind, by their words.
const PHRASES: [&[&str]; 4] = [&["by", "then"], &["so", "many"], &["so", "much"], &["what", "of", "it"]];
/// Nouns for people and processes, after which "whose" is refused. After the name of a thing it is good English.
const PERSONS: [&str; 11] = [
    "caller",
    "process",
    "processes",
    "reader",
    "readers",
    "user",
    "users",
    "writer",
    "writers",
    "thread",
    "threads",
];

/// This source: its messages are the refused words.
const WORD_LIST: &str = "xtask/src/language.rs";

/// A word or phrase that the language of the sources does without.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    line: usize,
    kind: Kind,
    word: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    FirstWord,
    Comment,
    Message,
    Name,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = &self.word;
        match self.kind {
            Kind::FirstWord => write!(f, "a doc line begins with \"{word}\", not with a noun or a verb"),
            Kind::Comment => write!(f, "a comment says \"{word}\""),
            Kind::Message => write!(f, "a message says \"{word}\""),
            Kind::Name => write!(f, "a function's name says \"{word}\""),
        }
    }
}

/// Complaints about the language of all sources.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let complaint = |(place, finding): (String, Finding)| format!("{place}:{}: {finding}", finding.line);
    Ok(findings(root)?.into_iter().map(complaint).collect())
}

/// Prints each finding whose path begins with `below`.
pub(crate) fn list(root: &Path, below: &str) -> Result<()> {
    let found: Vec<_> = findings(root)?.into_iter().filter(|(place, _)| place.starts_with(below)).collect();
    for (place, finding) in &found {
        println!("{place}:{}: {finding}", finding.line);
    }
    println!("{} findings", found.len());
    Ok(())
}

fn findings(root: &Path) -> Result<Vec<(String, Finding)>> {
    let mut found = Vec::new();
    for folder in ["crates", "fuzz/fuzz_targets", "xtask/src"] {
        for source in rust_sources(&root.join(folder))? {
            let place = relative(root, &source);
            let is_test = place.contains("/tests/") || place.ends_with("tests.rs") || place == WORD_LIST;
            found.extend(
                findings_of(&read(&source)?, is_test).into_iter().map(|finding| (place.clone(), finding)),
            );
        }
    }
    Ok(found)
}

/// Findings of one source, in the order of lines. Messages of tests are not looked at: they may be data.
fn findings_of(text: &str, is_test: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    let pieces = split(text);
    let unit_tests = text.find("#[cfg(test)]\nmod tests").map_or(usize::MAX, |at| text[..at].lines().count());
    for block in comment_blocks(&pieces) {
        check_comment(&block, &mut found);
    }
    for piece in &pieces {
        match piece.kind {
            PieceKind::Literal if !is_test && piece.line <= unit_tests => {
                let words = words(&piece.text, piece.line);
                refused(&words, |line, word| found.push(Finding { line, kind: Kind::Message, word }));
            }
            PieceKind::Code => check_names(piece, &mut found),
            _ => {}
        }
    }
    found.sort_by_key(|finding| finding.line);
    found
}

fn check_comment(block: &Block, found: &mut Vec<Finding>) {
    let words: Vec<_> = block.lines.iter().flat_map(|(line, text)| words(text, *line)).collect();
    if block.is_doc {
        if let Some((line, first)) = words.first() {
            if FIRST_WORDS.contains(&first.as_str()) {
                found.push(Finding { line: *line, kind: Kind::FirstWord, word: first.clone() });
                return refused(&words[1..], |line, word| {
                    found.push(Finding { line, kind: Kind::Comment, word });
                });
            }
        }
    }
    refused(&words, |line, word| found.push(Finding { line, kind: Kind::Comment, word }));
}

/// Refused words in the names of functions, of which tests have the longest, and question words at their beginning.
fn check_names(piece: &Piece, found: &mut Vec<Finding>) {
    const FIRST: [&str; 7] = ["what", "whatever", "how", "where", "whether", "which", "why"];
    for (number, line) in piece.text.lines().enumerate() {
        for (at, _) in line.match_indices("fn ") {
            let name =
                line[at + 3..].split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            let words = words(&name.replace('_', " "), piece.line + number);
            if let Some((line, word)) = words.first().filter(|(_, word)| FIRST.contains(&word.as_str())) {
                found.push(Finding { line: *line, kind: Kind::Name, word: word.clone() });
            }
            refused(&words, |line, word| found.push(Finding { line, kind: Kind::Name, word }));
        }
    }
}

/// Calls `report` with each refused word or phrase among the words, and the line of its first word.
fn refused(words: &[(usize, String)], mut report: impl FnMut(usize, String)) {
    for (index, (line, word)) in words.iter().enumerate() {
        if WORDS.contains(&word.as_str()) {
            report(*line, word.clone());
        }
        let is_person = |before: usize| PERSONS.contains(&words[before].1.as_str());
        if word == "whose" && index.checked_sub(1).is_some_and(is_person) {
            report(*line, word.clone());
        }
        let rest = &words[index..];
        for phrase in PHRASES {
            if rest.len() >= phrase.len() && rest.iter().zip(phrase).all(|((_, word), other)| word == other) {
                report(*line, phrase.join(" "));
            }
        }
    }
}

/// Refused words and phrases of a page of prose, each with its line.
pub(crate) fn refused_in(prose: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    refused(&words(prose, 1), |line, word| found.push((line, word)));
    found
}

/// Words of a text in lower case, each with its line. Punctuation and what stands in backticks part phrases.
fn words(text: &str, first_line: usize) -> Vec<(usize, String)> {
    let mut words = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for (index, plain) in line.split('`').enumerate() {
            if index % 2 == 1 {
                words.push((first_line + number, "`".to_owned()));
                continue;
            }
            let plain = plain.split(|c: char| !c.is_alphanumeric() && c != '_');
            words.extend(
                plain.filter(|word| !word.is_empty()).map(|word| (first_line + number, word.to_lowercase())),
            );
        }
    }
    words
}

/// Comment lines that follow each other and are of one kind.
struct Block {
    is_doc: bool,
    lines: Vec<(usize, String)>,
}

fn comment_blocks(pieces: &[Piece]) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut last_line = 0;
    for piece in pieces {
        let PieceKind::Comment { is_doc } = piece.kind else { continue };
        let lines =
            piece.text.lines().enumerate().map(|(number, text)| (piece.line + number, text.to_owned()));
        match blocks.last_mut() {
            Some(block) if block.is_doc == is_doc && last_line + 1 == piece.line => block.lines.extend(lines),
            _ => blocks.push(Block { is_doc, lines: lines.collect() }),
        }
        last_line = piece.line + piece.text.lines().count().saturating_sub(1);
    }
    blocks
}

/// A stretch of a source: code, a comment without its slashes, or the inside of a string literal.
#[derive(Debug)]
struct Piece {
    kind: PieceKind,
    line: usize,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PieceKind {
    Code,
    Comment { is_doc: bool },
    Literal,
}

/// Splits a source into code, comments and string literals. It knows line and block comments, strings with escapes, raw
/// strings, and characters beside lifetimes, and takes the source to be one that compiles.
fn split(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let (mut at, mut code, mut line) = (0, 0, 1);
    while at < text.len() {
        let Some((kind, inside, end)) = special(text, at) else {
            at += character_length(&text[at..]);
            continue;
        };
        pieces.push(Piece { kind: PieceKind::Code, line, text: text[code..at].to_owned() });
        line += newlines(&text[code..at]);
        pieces.push(Piece { kind, line, text: text[inside.0..inside.1].to_owned() });
        line += newlines(&text[at..end]);
        (at, code) = (end, end);
    }
    pieces.push(Piece { kind: PieceKind::Code, line, text: text[code..].to_owned() });
    pieces
}

/// The comment or string that begins at `at`: its kind, the range of its inside, and its end.
fn special(text: &str, at: usize) -> Option<(PieceKind, (usize, usize), usize)> {
    let rest = &text[at..];
    if rest.starts_with("//") {
        let end = rest.find('\n').map_or(text.len(), |end| at + end);
        let is_doc = rest.starts_with("//!") || rest.starts_with("///") && !rest.starts_with("////");
        return Some((PieceKind::Comment { is_doc }, (at + if is_doc { 3 } else { 2 }, end), end));
    }
    if rest.starts_with("/*") {
        let end = rest.find("*/").map_or(text.len(), |end| at + end + 2);
        let is_doc = rest.starts_with("/**") || rest.starts_with("/*!");
        return Some((PieceKind::Comment { is_doc }, (at + 2, end - 2), end));
    }
    if let Some(quoted) = rest.strip_prefix('"') {
        let length = string_length(quoted);
        return Some((PieceKind::Literal, (at + 1, at + 1 + length), (at + 2 + length).min(text.len())));
    }
    let is_word =
        text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') && !text[..at].ends_with('b');
    let hashes = rest.strip_prefix('r')?.bytes().take_while(|byte| *byte == b'#').count();
    if is_word || !rest[1 + hashes..].starts_with('"') {
        return None;
    }
    let inside = at + 2 + hashes;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = text[inside..].find(&close).map_or(text.len(), |end| inside + end);
    Some((PieceKind::Literal, (inside, end), (end + close.len()).min(text.len())))
}

/// Bytes until the quote that closes a string; a backslash hides the character after it.
fn string_length(quoted: &str) -> usize {
    let mut bytes = quoted.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return at,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
    quoted.len()
}

/// Bytes of the next character of code. A character literal counts as one, for it may be a quote or a slash.
fn character_length(rest: &str) -> usize {
    let mut characters = rest.chars();
    let first = characters.next().map_or(1, char::len_utf8);
    if first != 1 || !rest.starts_with('\'') {
        return first;
    }
    match characters.next() {
        Some('\\') => rest[3..].find('\'').map_or(1, |end| end + 4),
        Some(inner) if characters.next() == Some('\'') => 2 + inner.len_utf8(),
        _ => 1,
    }
}

fn newlines(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<(usize, Kind, String)> {
        findings_of(text, false).into_iter().map(|found| (found.line, found.kind, found.word)).collect()
    }

    #[test]
    fn doc_block_begins_with_noun_or_verb() {
        let found =
            of("/// Bytes allocated.\n/// What follows is fine.\nfn a() {}\n/// What of them.\nfn b() {}\n");
        assert_eq!(found, [(4, Kind::FirstWord, "what".to_owned())]);
        for first in FIRST_WORDS {
            assert_eq!(of(&format!("//! {first} it is.\n")).len(), 1, "{first}");
        }
        assert!(of("// What follows is code.\n/// `What` is a type.\n/// Sorted by key.\n").is_empty());
    }

    #[test]
    fn comment_names_processes() {
        let found =
            of("fn a() {} // it is he\n/** Asked by\n somebody, a caller whose data, a file whose data */\n");
        let expected = [(1, "he"), (3, "somebody"), (3, "whose")];
        assert_eq!(found, expected.map(|(line, word)| (line, Kind::Comment, word.to_owned())));
    }

    #[test]
    fn phrase_spans_lines_of_one_comment() {
        assert_eq!(of("// written so\n// many times\n"), [(1, Kind::Comment, "so many".to_owned())]);
        assert!(of("// written so\n\n// many times\n// also.so `x` much\n").is_empty());
    }

    #[test]
    fn messages_are_checked_outside_of_tests() {
        let text = "fn f() {\n    bail!(\"nobody \\\" owns\");\n    r#\"it \"is\" his\"#;\n}\n";
        let expected = [(2, Kind::Message, "nobody".to_owned()), (3, Kind::Message, "his".to_owned())];
        assert_eq!(of(text), expected);
        assert!(findings_of(text, true).is_empty());
        assert!(of(&format!("#[cfg(test)]\nmod tests {{\n{text}}}\n")).is_empty());
    }

    #[test]
    fn strings_and_characters_hide_comments() {
        let text = "fn f<'a>(x: &'a str) { ('\"', '\\'', '/', \"// as \\\\\"); } // who\n";
        assert_eq!(of(text), [(1, Kind::Comment, "who".to_owned())]);
        assert!(of("const URL: &str = \"https://he.example\".trim();\n").len() == 1);
    }

    #[test]
    fn names_of_functions_state_behaviour() {
        assert_eq!(of("\nfn who_asked_is_told() {}\n"), [(2, Kind::Name, "who".to_owned())]);
        assert_eq!(of("fn what_is_written() {}\n"), [(1, Kind::Name, "what".to_owned())]);
        assert!(of("fn header_of_the_whole() {}\n").is_empty());
    }
}

//! Man pages in the language of roff(7).

use super::layout::Block;

/// Length in bytes at which lines of text are broken.
const LINE_BYTES: usize = 78;
/// A neutral quote, in the output of every device.
const PREAMBLE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";
/// Date of the last change of the manual that matters.
const DATE: &str = "2026-11-25";

/// The head of a page.
pub(super) fn head(name: &str, section: u8) -> String {
    let (title, version) = (name.to_uppercase(), env!("CARGO_PKG_VERSION"));
    format!("{PREAMBLE}.TH {} {section} {DATE} \"brindle {version}\" \"brindle\"\n", escaped(&title))
}

/// Blocks of a page, below its head.
pub(super) fn body(blocks: &[Block]) -> String {
    let mut page = String::new();
    // Right below a heading a paragraph needs no mark.
    let mut is_below_heading = true;
    for block in blocks {
        match block {
            Block::Section(name) => page.push_str(&section(name)),
            Block::Text(words) => {
                page.push_str(if is_below_heading { "" } else { ".PP\n" });
                page.push_str(&format!("{}\n", inline(words)));
            }
            Block::Entry(term, meaning) => {
                page.push_str(&format!(".TP\n\\fB{}\\fR\n{}\n", guarded(term), inline(meaning)));
            }
            Block::Lines(lines) => {
                page.push_str(if is_below_heading { "" } else { ".PP\n" });
                page.push_str(".RS 4\n.nf\n");
                lines.iter().for_each(|line| page.push_str(&format!("{}\n", guarded(line))));
                page.push_str(".fi\n.RE\n");
            }
        }
        is_below_heading = matches!(block, Block::Section(_));
    }
    page
}

/// Heading of a section.
pub(super) fn section(name: &str) -> String {
    format!(".SH \"{}\"\n", escaped(name))
}

/// Names of other pages, each with its section.
pub(super) fn see_also(pages: &[String]) -> String {
    let bold = |page: &String| match page.split_once('(') {
        Some((name, section)) => format!("\\fB{}\\fR({section}", escaped(name)),
        None => escaped(page),
    };
    let pages: Vec<String> = pages.iter().map(bold).collect();
    format!("{}{}\n", section("SEE ALSO"), pages.join(", "))
}

/// Sections that were made elsewhere, in lines of a length that is usual, without the preamble.
pub(super) fn tidied(page: &str) -> String {
    let mut tidied = String::new();
    let mut is_filled = true;
    // A term is one line, or its rest would be taken for its meaning.
    let mut is_term = false;
    for line in page.lines() {
        match line {
            ".nf" => is_filled = false,
            ".fi" => is_filled = true,
            _ => {}
        }
        if PREAMBLE.lines().any(|of_preamble| of_preamble == line) {
            continue;
        }
        match line.trim_end() {
            // An empty line in the meaning of a term.
            "" if is_filled => tidied.push_str(".IP\n"),
            line if is_filled && !is_term && !line.starts_with('.') => fill(&mut tidied, line),
            line => tidied.push_str(&format!("{line}\n")),
        }
        is_term = line == ".TP";
    }
    tidied
}

/// Breaks a line of text between words. No line begins with a character that makes it a request.
fn fill(page: &mut String, text: &str) {
    let mut line = String::new();
    for word in text.split_whitespace() {
        let is_request = word.starts_with(['.', '\'']);
        if !line.is_empty() && line.len() + 1 + word.len() > LINE_BYTES && !is_request {
            page.push_str(&format!("{line}\n"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    page.push_str(&format!("{line}\n"));
}

/// Text with what stands between backquotes in bold.
fn inline(words: &str) -> String {
    let mut text = String::new();
    for (number, part) in words.split('`').enumerate() {
        match number % 2 {
            0 => text.push_str(&escaped(part)),
            _ => text.push_str(&format!("\\fB{}\\fR", escaped(part))),
        }
    }
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

/// Text that does not begin a request.
fn guarded(text: &str) -> String {
    let text = escaped(text);
    if text.starts_with(['.', '\'', '\\']) { format!("\\&{text}") } else { text }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\*(Aq")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::man::layout::blocks;

    #[test]
    fn blocks_are_requests_and_text() {
        let found = body(&blocks(
            "FILES\n  .brindle  a file, by `brindle cp -x`\n  It isn't there.\n\n  More.\n    -c 'x' \\\n",
        ));
        let expected = ".SH \"FILES\"\n.TP\n\\fB\\&.brindle\\fR\na file, by \\fBbrindle cp \\-x\\fR\n.PP\nIt isn\\*(Aqt there.\n\
                        .PP\nMore.\n.PP\n.RS 4\n.nf\n\\&\\-c \\*(Aqx\\*(Aq \\e\n.fi\n.RE\n";
        assert_eq!(found, expected);
    }

    #[test]
    fn lines_are_short_and_no_word_becomes_a_request() {
        let (long, unfilled) = ("x".repeat(77), "y ".repeat(60));
        let page = format!("{long} .word and more \n\n.SH X\n.nf\n{unfilled}\n.fi\n.TP\n{unfilled}\n");
        let found = tidied(&format!("{PREAMBLE}{page}"));
        let unfilled = unfilled.trim_end();
        let expected = format!("{long} .word\nand more\n.IP\n.SH X\n.nf\n{unfilled}\n.fi\n.TP\n{unfilled}\n");
        assert_eq!(found, expected);
    }

    #[test]
    fn other_pages_are_named_with_their_sections() {
        let found = see_also(&["brindle-mount(1)".to_owned(), "fstab(5)".to_owned()]);
        assert_eq!(found, ".SH \"SEE ALSO\"\n\\fBbrindle\\-mount\\fR(1), \\fBfstab\\fR(5)\n");
    }
}

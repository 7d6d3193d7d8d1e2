//! A page of Markdown, as far as its checks need one: prose, links, code spans, headings and list items, each with its line.

/// A page without its code blocks.
pub(super) struct Page {
    /// Lines; those of code blocks are empty.
    lines: Vec<String>,
}

/// An item of a list that is not inside another one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub line: usize,
    pub is_numbered: bool,
    /// The heading above it.
    pub heading: String,
    /// Its lines, joined by spaces.
    pub text: String,
}

impl Page {
    /// The page of this text.
    pub(super) fn new(text: &str) -> Self {
        let mut is_code = false;
        let lines = text.lines().map(|line| {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            if is_code || is_fence { String::new() } else { line.to_owned() }
        });
        Self { lines: lines.collect() }
    }

    /// The text with code spans left out, line by line.
    pub(super) fn prose(&self) -> String {
        let mut is_code = false;
        let mut prose = String::new();
        for line in &self.lines {
            is_code &= !line.trim().is_empty();
            for c in line.chars() {
                is_code ^= c == '`';
                prose.push(if is_code || c == '`' { '.' } else { c });
            }
            prose.push('\n');
        }
        prose
    }

    /// Code spans, those that go on in the next line included.
    pub(super) fn spans(&self) -> Vec<(usize, String)> {
        let mut spans = Vec::new();
        let mut open: Option<(usize, String)> = None;
        for (number, line) in self.lines.iter().enumerate() {
            if line.trim().is_empty() {
                open = None;
            }
            for (index, part) in line.split('`').enumerate() {
                if index > 0 {
                    match open.take() {
                        Some(span) => spans.push(span),
                        None => open = Some((number + 1, String::new())),
                    }
                }
                if let Some((_, text)) = &mut open {
                    text.push_str(part.trim());
                }
            }
            if let Some((_, text)) = &mut open {
                text.push(' ');
            }
        }
        spans
    }

    /// Targets of links and pictures.
    pub(super) fn links(&self) -> Vec<(usize, String)> {
        let mut links = Vec::new();
        for (number, line) in self.lines.iter().enumerate() {
            for (at, _) in line.match_indices("](") {
                let target = line[at + 2..].split(')').next().unwrap_or_default();
                links.push((number + 1, target.to_owned()));
            }
        }
        links
    }

    /// True if a heading has this anchor.
    pub(super) fn has_heading(&self, anchor: &str) -> bool {
        self.lines.iter().filter_map(|line| heading(line)).any(|heading| slug(heading) == anchor)
    }

    /// Items of the outermost lists.
    pub(super) fn items(&self) -> Vec<Item> {
        let mut items: Vec<Item> = Vec::new();
        let mut above = String::new();
        let mut is_open = false;
        for (number, line) in self.lines.iter().enumerate() {
            if let Some(heading) = heading(line) {
                above = heading.to_owned();
            }
            if let Some((is_numbered, text)) = item(line) {
                let text = text.to_owned();
                items.push(Item { line: number + 1, is_numbered, heading: above.clone(), text });
                is_open = true;
            } else if let Some(last) = items.last_mut().filter(|_| is_open && line.starts_with(' ')) {
                last.text.push(' ');
                last.text.push_str(line.trim());
            } else {
                is_open = false;
            }
        }
        items
    }
}

fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    (text.len() < line.len()).then(|| text.trim())
}

/// The anchor that forges give to a heading.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

/// The text of a line that begins an item, and whether it has a number.
fn item(line: &str) -> Option<(bool, &str)> {
    if let Some(text) = line.strip_prefix("- ") {
        return Some((false, text));
    }
    let (number, text) = line.split_once(". ")?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some((true, text))
}

//! Commands that documents show: they exist, with the options that are shown.

use super::support::{brindle, brindle_prints};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Help of commands, by their words; `None` for words that are no command.
#[derive(Default)]
struct Helps(BTreeMap<Vec<String>, Option<String>>);

impl Helps {
    fn get(&mut self, command: &[String]) -> Option<&str> {
        let help = self.0.entry(command.to_vec()).or_insert_with(|| {
            let output = brindle(command.iter().map(String::as_str).chain(["--help"]));
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
        });
        help.as_deref()
    }
}

#[test]
fn commands_in_documents_exist_with_their_options() {
    let mut helps = Helps::default();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a readable page");
        for shown in shown_commands(&text) {
            count += 1;
            if let Some(why) = complaint(&mut helps, &shown) {
                wrong.push(format!("{}: `{shown}`: {why}", page.display()));
            }
        }
    }
    assert!(count > 30, "{count} commands found: are they looked for in the right place?");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn commands_and_options_that_do_not_exist_are_named() {
    let mut helps = Helps::default();
    let text = "Run `brindle bogus x` or\n```\nbrindle tier bogus /mnt && brindle ls --bogus x.img   # brindle no-comment\n```\n";
    let found: Vec<_> =
        shown_commands(text).iter().filter_map(|shown| complaint(&mut helps, shown)).collect();
    assert_eq!(found, ["no command bogus", "no command tier bogus", "no option --bogus"]);
    assert_eq!(complaint(&mut helps, "brindle COMMAND --help"), None);
}

/// README, all pages for users, and the texts of man pages that are not made of help.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let in_folder = |folder: &str| {
        let entries = std::fs::read_dir(root.join(folder)).expect("the folder of pages");
        entries.map(|entry| entry.expect("an entry").path()).collect::<Vec<_>>()
    };
    let texts = in_folder("crates/brindle/src/commands/man");
    let is_text = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "txt");
    let mut pages: Vec<PathBuf> = texts.into_iter().filter(is_text).chain(in_folder("docs/user")).collect();
    pages.push(root.join("README.md"));
    pages.sort();
    pages
}

/// Man pages, each with what a command prints that reads it; `None`, with a message, without mandoc.
fn lint(pages: &[PathBuf]) -> Option<String> {
    match Command::new("mandoc").arg("-Tlint").args(pages).output() {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(error) => {
            println!("skipped: mandoc: {error}");
            None
        }
    }
}

#[test]
fn man_pages_of_all_commands_and_their_overviews_are_sound() {
    let directory = tempfile::tempdir().expect("temporary directory");
    brindle_prints(["man", directory.path().to_str().expect("text")]);
    let entries = std::fs::read_dir(directory.path()).expect("made");
    let mut pages: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    pages.sort();
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).expect(name);
    assert!(pages.len() > 80, "{}", pages.len());
    assert_eq!(read("brindle-cp.1"), ".so man1/brindle-restore.1\n");
    for (page, parts) in [
        ("brindle.7", ["THE FIRST TEN MINUTES", "brindle mkfs", "SEE ALSO"]),
        ("mount.fuse.brindle.8", ["UUID=5e5e", "\\fBcompress[=", "_netdev"]),
        ("brindle-mount.1", [".SH \"MOUNT OPTIONS\"", "mount.fuse.brindle", "EXIT STATUS"]),
    ] {
        for part in parts {
            assert!(read(page).replace("\\-", "-").contains(part), "{page}: {part}");
        }
    }
    let links = |path: &PathBuf| std::fs::read_to_string(path).expect("made").starts_with(".so ");
    pages.retain(|page| !links(page));
    let said = lint(&pages).unwrap_or_default();
    // Pages that are not installed here, and lines for a shell, which stay as long as they are.
    let is_known =
        |line: &&str| line.contains("longer than 80 bytes") || line.contains("referenced manual not found");
    let said: Vec<&str> = said.lines().filter(|line| !is_known(line)).collect();
    assert!(said.is_empty(), "{}", said.join("\n"));
}

/// Commands in code spans and code blocks, from the program's name on; comments are cut off.
fn shown_commands(text: &str) -> Vec<String> {
    let mut is_block = false;
    let mut shown = Vec::new();
    for line in text.lines() {
        if line.starts_with("    brindle ") {
            // Of a man page.
            shown.extend(from_program(line.trim_start()));
        } else if line.starts_with("```") {
            is_block = !is_block;
        } else if is_block {
            let line = line.split('#').next().unwrap_or_default();
            shown.extend(line.split("&&").filter_map(from_program));
        } else {
            shown.extend(line.split('`').skip(1).step_by(2).filter_map(from_program));
        }
    }
    shown
}

fn from_program(text: &str) -> Option<String> {
    let at = text.find("brindle ")?;
    let is_word = text[..at].is_empty() || text[..at].ends_with(' ');
    is_word.then(|| text[at..].trim().to_owned())
}

/// The reason why a command that is shown is none.
fn complaint(helps: &mut Helps, shown: &str) -> Option<String> {
    let words: Vec<&str> = shown.split_whitespace().skip(1).collect();
    let is_name =
        |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-');
    let mut command: Vec<String> =
        words.first().filter(|word| is_name(word)).map(|word| (*word).to_owned()).into_iter().collect();
    if command.is_empty() {
        // A placeholder, as in `brindle COMMAND --help`.
        return None;
    }
    let help = loop {
        let Some(help) = helps.get(&command) else {
            return Some(format!("no command {}", command.join(" ")));
        };
        let next = words.get(command.len()).filter(|word| help.contains("<COMMAND>") && is_name(word));
        let Some(next) = next else { break help.to_owned() };
        command.push((*next).to_owned());
    };
    let options =
        words.iter().filter(|word| word.starts_with("--")).map(|word| word.split('=').next().unwrap_or(word));
    let missing: Vec<&str> = options.filter(|option| !help.contains(*option)).collect();
    (!missing.is_empty()).then(|| format!("no option {}", missing.join(", ")))
}

#[test]
fn help_fits_a_terminal_of_80_columns() {
    let (mut pending, mut wide, mut count) = (vec![Vec::new()], Vec::new(), 0);
    while let Some(command) = pending.pop() {
        let words = command.iter().map(String::as_str).chain(["--help"]);
        let help = Command::new(env!("CARGO_BIN_EXE_brindle"))
            .args(words)
            .env("COLUMNS", "80")
            .output()
            .expect("the program runs");
        assert!(help.status.success(), "{command:?}");
        let help = String::from_utf8(help.stdout).expect("text");
        count += 1;
        let is_wide = |line: &&str| line.chars().count() > 80;
        wide.extend(help.lines().filter(is_wide).map(|line| format!("{}: {line}", command.join(" "))));
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let listed = listed.take_while(|line| line.is_empty() || line.starts_with(' '));
        // Names stand in the third column, and what is said of them further right.
        let name = |line: &str| line.strip_prefix("  ")?.split_whitespace().next().map(str::to_owned);
        let names = listed.filter(|line| !line.starts_with("   ")).filter_map(name);
        pending
            .extend(names.filter(|name| name != "help").map(|name| [command.clone(), vec![name]].concat()));
    }
    assert!(count > 80, "{count} commands found: are they looked for in the right place?");
    assert!(wide.is_empty(), "{}", wide.join("\n"));
}

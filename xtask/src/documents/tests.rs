use super::*;
use std::collections::BTreeMap;

fn functions() -> Functions {
    let source = "impl Reader {\n    pub(crate) fn read(&self) {}\n}\n#[test]\n#[cfg(unix)]\n\
                  fn what_is_written_is_read() {}\nfn no_test_of_any_kind() {}\n// a call of fn other(\n";
    Functions::new(BTreeMap::from([("crates/fs/src/read.rs".to_owned(), source.to_owned())]))
}

fn complaints(check: impl FnOnce(&mut dyn FnMut(usize, String))) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    check(&mut |line, complaint| found.push((line, complaint)));
    found
}

#[test]
fn each_hop_of_a_walk_is_a_function_that_exists() {
    let walk = |hop: &str| {
        let page = Page::new(&format!("## Walk: a read\n\nProse.\n\n1. {hop}: reads\n   it.\n"));
        complaints(|mut complain| check_walks(&page, &functions(), &mut complain))
    };
    assert_eq!(walk("`fs/src/read.rs`: `Reader::read`"), []);
    assert_eq!(walk("`fs/src/read.rs`: `read`"), []);
    let complaint = |text: &str| vec![(5, text.to_owned())];
    let renamed = "`crates/fs/src/read.rs` has no function `read_all`";
    assert_eq!(walk("`fs/src/read.rs`: `read_all`"), complaint(renamed));
    assert_eq!(
        walk("`fs/src/read.rs`: `Writer::read`"),
        complaint("`crates/fs/src/read.rs` has no function `Writer::read`")
    );
    assert_eq!(
        walk("`fs/src/read.rs`: `other`"),
        complaint("`crates/fs/src/read.rs` has no function `other`")
    );
    assert_eq!(walk("`fs/src/gone.rs`: `read`"), complaint("`crates/fs/src/gone.rs` does not exist"));
    assert_eq!(walk("`fs` reads"), complaint("a hop of a walk is a `file`: `function`"));
    let other = Page::new("## Steps\n\n1. Read.\n");
    assert_eq!(complaints(|mut complain| check_walks(&other, &functions(), &mut complain)), []);
}

#[test]
fn each_hop_of_a_walk_is_called_by_what_comes_before() {
    let sources = [
        ("crates/a/src/a.rs", "fn first() {\n    second();\n}\n"),
        ("crates/a/src/b.rs", "// third\nfn second() {}\n"),
        ("crates/a/src/c.rs", "fn third() {}\n"),
        ("crates/a/src/d.rs", "fn by() {\n    third();\n}\n"),
    ];
    let sources = sources.map(|(file, text)| (file.to_owned(), text.to_owned()));
    let functions = Functions::new(sources.into_iter().collect());
    let walk = |third: &str| {
        let hops = "1. `a/src/a.rs`: `first`.\n2. `a/src/b.rs`: `second`.\n3. `a/src/c.rs`: `third`";
        let page = Page::new(&format!("## Walk: a read\n\n{hops}{third}.\n"));
        complaints(|mut complain| check_walks(&page, &functions, &mut complain))
    };
    assert_eq!(walk(""), [(5, "no hop before `crates/a/src/c.rs` calls `third`".to_owned())]);
    assert_eq!(walk(", by way of `a/src/d.rs`"), []);
}

#[test]
fn all_walks_are_there_and_a_read_is_short() {
    let page = |hops: usize| {
        let others: String = WALKS[1..].iter().map(|walk| format!("## {walk}\n\n1. Hop.\n\n")).collect();
        let read: String = (0..hops).map(|_| "1. Hop.\n".to_owned()).collect();
        Page::new(&format!("{others}## {}\n\n{read}", WALKS[0]))
    };
    let found = |hops| complaints(|mut complain| check_presence(&page(hops), &mut complain));
    assert_eq!(found(READ_HOPS_MAX), []);
    assert_eq!(found(READ_HOPS_MAX + 1), [(1, "a read takes 11 hops, more than 10".to_owned())]);
    assert_eq!(found(0), [(1, "no list of hops below \"Walk: a read\"".to_owned())]);
}

#[test]
fn each_promise_names_tests_that_exist() {
    let page = Page::new(
        "- Kept. Held by\n  `what_is_written_is_read`.\n- Bare.\n- Gone. Held by `no_test_of_any_kind`.\n\
         - None. Held by tests.\n",
    );
    let found = complaints(|mut complain| check_promises(&page, &functions(), &mut complain));
    let expected = [
        (3, "a promise that no test holds"),
        (4, "`no_test_of_any_kind` is no test"),
        (5, "\"Held by\" names no test"),
    ];
    assert_eq!(found, expected.map(|(line, complaint)| (line, complaint.to_owned())));
}

#[test]
fn long_names_are_those_of_functions() {
    let page = Page::new(
        "`what_is_written_is_read`, `what_is_written_*`,\n`no_such_function_here`, `a_short_name`\n",
    );
    let found = complaints(|mut complain| check_names(&page, &functions(), &mut complain));
    assert_eq!(found, [(2, "`no_such_function_here` is no function".to_owned())]);
}

#[test]
fn variables_of_the_environment_are_read_by_a_source() {
    let source = "let seed = var(\"BRINDLE_SEED\");";
    let functions = Functions::new(BTreeMap::from([("crates/fs/src/x.rs".to_owned(), source.to_owned())]));
    let text = "```\nBRINDLE_SEED=7 make test\nBRINDLE_SEEDS=7 make test\n```\n`BRINDLE_SEE`\n";
    let found = complaints(|mut complain| check_variables(text, &functions, &mut complain));
    let expected = [(3, "no source reads BRINDLE_SEEDS"), (5, "no source reads BRINDLE_SEE")];
    assert_eq!(found, expected.map(|(line, complaint)| (line, complaint.to_owned())));
}

#[test]
fn links_and_paths_lead_somewhere() {
    let folder = std::env::temp_dir().join(format!("brindle-xtask-links-{}", std::process::id()));
    fs::create_dir_all(folder.join("docs")).expect("a folder for temporary files");
    let path = folder.join("docs/page.md");
    let text = "# One page\n[a](page.md) [b](#one-page) [c](gone.md)\n[d](page.md#two) [e](https://x/y)\n\
                `docs/page.md` `docs/gone.md` `docs/*.md` `fs/src/gone.rs`\n```\n[f](code.md)\n```\n";
    fs::write(&path, text).expect("a file in it");
    let page = Page::new(text);
    let found = complaints(|mut complain| {
        check_links(&path, &page, &mut complain).expect("readable files");
        check_paths(&folder, &page, &mut complain);
    });
    let named = sources::missing_pages(&folder, "Makefile", "see docs/page.md,\ndocs/gone.md.\n");
    fs::remove_dir_all(&folder).expect("the folder made above");
    let expected = [
        (2, "a link to gone.md, which does not exist"),
        (3, "a link to page.md#two: no such heading"),
        (4, "`docs/gone.md` does not exist"),
        (4, "`fs/src/gone.rs` does not exist"),
    ];
    assert_eq!(found, expected.map(|(line, complaint)| (line, complaint.to_owned())));
    assert_eq!(named, ["Makefile:2: docs/gone.md does not exist"]);
}

#[test]
fn prose_leaves_code_out() {
    let page = Page::new("He\nsays `who\nis he` and\n\n```\nhe\n```\n");
    let found = language::refused_in(&page.prose());
    assert_eq!(found, [(1, "he".to_owned())]);
}

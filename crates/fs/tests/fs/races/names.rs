//! Names that change, under the eyes of others.

use super::{Arena, more};
use brindle_fs::{Filesystem, NewInode, RenameMode};
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of times a name is replaced by default.
const REPLACEMENTS: u64 = 2000;

fn make(fs: &Filesystem, name: &[u8]) {
    let new = NewInode { mode: 0o100_600, ..NewInode::default() };
    fs.create(fs.root(), name, &new).expect("room");
}

/// Renames again and again while others look on.
fn watched(rename: impl Fn(&Filesystem) + Sync, look: impl Fn(&Filesystem) -> Result<(), String> + Sync) {
    let arena = Arena::new(0);
    let fs = &arena.filesystem;
    make(fs, b"a");
    make(fs, b"b");
    let is_done = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let (look, is_done) = (&look, &is_done);
        let eyes = [0, 1].map(|_| {
            scope.spawn(move || {
                while !is_done.load(Ordering::Acquire) {
                    look(fs)?;
                }
                Ok(())
            })
        });
        (0..REPLACEMENTS * more()).for_each(|_| rename(fs));
        is_done.store(true, Ordering::Release);
        eyes.map(|eye| eye.join().expect("no panic")).into_iter().collect::<Result<Vec<()>, String>>()
    });
    seen.unwrap_or_else(|what| panic!("{what}"));
    arena.close(&|| "after the renames".to_owned());
}

fn look_up(fs: &Filesystem, name: &str) -> Result<(), String> {
    match fs.lookup(fs.root(), name.as_bytes()) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(format!("{name} is missing")),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn a_name_that_is_replaced_is_never_missing() {
    let rename = |fs: &Filesystem| {
        fs.rename(fs.root(), b"b", fs.root(), b"a", RenameMode::Replace).expect("both are there");
        make(fs, b"b");
    };
    watched(rename, |fs| look_up(fs, "a"));
}

#[test]
fn names_that_change_places_are_never_missing() {
    let exchange = |fs: &Filesystem| {
        fs.rename(fs.root(), b"b", fs.root(), b"a", RenameMode::Exchange).expect("both are there");
    };
    watched(exchange, |fs| {
        look_up(fs, "a")?;
        look_up(fs, "b")?;
        let listed = fs.read_directory(fs.root(), 0, 10).map_err(|error| error.to_string())?;
        let is_listed = |name: &[u8]| listed.iter().any(|entry| entry.name == name);
        if is_listed(b"a") && is_listed(b"b") { Ok(()) } else { Err(format!("{listed:?}")) }
    });
}

#[test]
fn a_listing_has_what_is_renamed_by_one_of_its_names() {
    let rename = |fs: &Filesystem| {
        let (from, to): (&[u8], &[u8]) = match fs.lookup(fs.root(), b"a").expect("readable") {
            Some(_) => (b"a", b"c"),
            None => (b"c", b"a"),
        };
        fs.rename(fs.root(), from, fs.root(), to, RenameMode::NoReplace).expect("one is there");
    };
    watched(rename, |fs| {
        let listed = fs.read_directory(fs.root(), 0, 10).map_err(|error| error.to_string())?;
        if listed.len() == 2 { Ok(()) } else { Err(format!("{listed:?}")) }
    });
}

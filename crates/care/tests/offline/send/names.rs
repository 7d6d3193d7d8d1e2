//! Names in each other's way, one case after the other: sent as the difference from before, and received.

use super::{Pool, difference, dump};
use crate::support::operations::assert_same;
use brindle_care::send::SendOptions;
use brindle_fs::{AttributeChange, XattrMode};

const FILE: u32 = 0o100_644;
const DIRECTORY: u32 = 0o040_755;

/// Sends what `prepare` makes, whole, then what `change` makes of it, as a difference. Returns the dump of the latter.
fn case(prepare: impl FnOnce(&mut Pool), change: impl FnOnce(&mut Pool)) -> String {
    let (mut sender, receiver) = (Pool::with_source(), Pool::new());
    prepare(&mut sender);
    let before = sender.snapshot("before");
    let (stream, _) = sender.send_whole(&SendOptions::whole(before));
    receiver.receive(&stream);
    change(&mut sender);
    let after = sender.snapshot("after");
    let (stream, _) = sender.send_whole(&difference(after, before));
    receiver.receive(&stream);
    for name in ["before", "after"] {
        let sides = [(&sender.filesystem, sender.find(name)), (&receiver.filesystem, receiver.find(name))];
        assert_same(name, sides, false);
    }
    dump(&stream)
}

#[test]
fn names_are_swapped() {
    let said = case(
        |pool| {
            for name in ["a", "b"] {
                pool.make(&format!("source/{name}"), FILE);
                pool.make(&format!("source/{name}.d"), DIRECTORY);
                pool.make(&format!("source/{name}.d/{name}"), FILE);
            }
        },
        |pool| {
            for suffix in ["", ".d"] {
                pool.rename(&format!("source/a{suffix}"), "source/c");
                pool.rename(&format!("source/b{suffix}"), &format!("source/a{suffix}"));
                pool.rename("source/c", &format!("source/b{suffix}"));
            }
        },
    );
    assert!(said.contains("dest=./o2"), "something has to go out of the way:\n{said}");
}

#[test]
fn a_directory_moves_into_one_that_was_in_it() {
    case(
        |pool| {
            pool.make("source/a", DIRECTORY);
            pool.make("source/a/b", DIRECTORY);
            pool.make("source/a/b/c", DIRECTORY);
            pool.make("source/a/b/c/file", FILE);
        },
        |pool| {
            pool.rename("source/a/b/c", "source/c");
            pool.rename("source/a/b", "source/c/b");
            pool.rename("source/a", "source/c/b/a");
            // And a name that was an ancestor's.
            pool.rename("source/c", "source/a");
        },
    );
}

#[test]
fn a_deleted_directory_is_in_the_way_and_what_was_in_it_goes_on() {
    case(
        |pool| {
            pool.make("source/keeper", DIRECTORY);
            pool.make("source/d", DIRECTORY);
            pool.make("source/d/sub", DIRECTORY);
            pool.make("source/d/sub/kept", FILE);
            pool.make("source/d/sub/lost", FILE);
            pool.write("source/d/sub/kept", 0, b"kept");
        },
        |pool| {
            pool.rename("source/d/sub/kept", "source/keeper/kept");
            let root = pool.find("source/d/sub");
            pool.filesystem.unlink(root, b"lost").expect("works");
            pool.filesystem.remove_directory(pool.find("source/d"), b"sub").expect("works");
            pool.filesystem.remove_directory(pool.find("source"), b"d").expect("works");
            pool.make("source/d", DIRECTORY);
            pool.make("source/d/sub", FILE);
            pool.rename("source/keeper/kept", "source/d/kept");
        },
    );
}

#[test]
fn orphan_names_that_are_taken_are_passed_over() {
    let said = case(
        |pool| {
            let (a, b) = (pool.make("source/a", FILE), pool.make("source/b", FILE));
            for id in [a, b] {
                let generation = pool.filesystem.attributes(id).expect("there").generation;
                pool.make(&format!("source/o{}-{generation}-0", id.number), FILE);
            }
        },
        |pool| {
            pool.rename("source/a", "source/c");
            pool.rename("source/b", "source/a");
            pool.rename("source/c", "source/b");
        },
    );
    assert!(said.lines().any(|line| line.ends_with("-1")), "{said}");
}

/// The highest number is used again after the pool was closed: the names of what is in both directories are the same to the byte.
#[test]
fn a_number_that_is_used_again_is_another_inode() {
    let said = case(
        |pool| {
            pool.make("source/file", FILE);
            pool.make("source/d", DIRECTORY);
            pool.rename("source/file", "source/d/file");
        },
        |pool| {
            let number = pool.find("source/d").number;
            pool.rename("source/d/file", "source/file");
            pool.filesystem.remove_directory(pool.find("source"), b"d").expect("works");
            pool.reopen();
            let again = pool.make("source/e", DIRECTORY);
            assert_eq!(again.number, number, "the number is used again");
            pool.rename("source/file", "source/e/file");
        },
    );
    assert!(said.contains("mkdir           ./e") && said.contains("rmdir           ./d"), "{said}");
}

#[test]
fn hard_links_come_and_go() {
    case(
        |pool| {
            pool.make("source/d", DIRECTORY);
            let id = pool.make("source/a", FILE);
            for name in [&b"b"[..], b"c"] {
                pool.filesystem.link(id, pool.find("source/d"), name).expect("works");
            }
            pool.make("source/other", FILE);
        },
        |pool| {
            let id = pool.find("source/a");
            // All old names go, one of them is another's by now, and the directory has moved.
            pool.filesystem.unlink(pool.find("source"), b"a").expect("works");
            pool.rename("source/other", "source/a");
            pool.filesystem.link(id, pool.find("source"), b"new").expect("works");
            for name in [&b"b"[..], b"c"] {
                pool.filesystem.unlink(pool.find("source/d"), name).expect("works");
            }
            pool.rename("source/d", "source/e");
            pool.filesystem.link(id, pool.find("source/e"), b"b").expect("works");
        },
    );
}

#[test]
fn a_capability_that_is_gone_is_removed_first_and_one_that_stays_is_set_last() {
    const CAPABILITY: &[u8] = b"security.capability";
    const FILES: [&str; 4] = ["source/written", "source/given", "source/left", "source/kept"];
    let said = case(
        |pool| {
            for path in FILES {
                let id = pool.make(path, FILE);
                pool.write(path, 0, b"before");
                pool.filesystem.set_xattr(id, CAPABILITY, &[1; 20], XattrMode::Any).expect("room");
            }
        },
        |pool| {
            for path in &FILES[..3] {
                pool.filesystem.remove_xattr(pool.find(path), CAPABILITY).expect("there");
            }
            pool.write("source/written", 0, b"after!");
            pool.write("source/kept", 0, b"after!");
            pool.filesystem
                .set_xattr(pool.find("source/kept"), CAPABILITY, &[1; 20], XattrMode::Any)
                .expect("room");
            let given = AttributeChange { uid: Some(7), ..Default::default() };
            pool.filesystem.set_attributes(pool.find("source/given"), &given).expect("works");
        },
    );
    let at = |part: &str| said.find(part).unwrap_or_else(|| panic!("no {part} in\n{said}"));
    assert!(at("remove_xattr    ./written") < at("write           ./written"), "{said}");
    assert!(at("remove_xattr    ./given") < at("chown           ./given"), "{said}");
    assert!(at("write           ./kept") < at("set_xattr       ./kept"), "{said}");
    assert!(said.contains("remove_xattr    ./left"), "{said}");
}

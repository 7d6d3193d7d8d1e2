use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::{Device, Entry, Kind, Manifest, Time, escape, unescape};

fn times() -> impl Strategy<Value = Time> {
    (any::<i64>(), 0..1_000_000_000_u32).prop_map(|(sec, nsec)| Time { sec, nsec })
}

fn kinds() -> impl Strategy<Value = Kind> {
    let rdev = (any::<u32>(), any::<u32>()).prop_map(|(major, minor)| Device { major, minor });
    prop_oneof![
        Just(Kind::file_of(&[])),
        any::<[u8; 32]>().prop_map(|sha256| Kind::File { sha256 }),
        Just(Kind::Directory),
        vec(any::<u8>(), 0..40).prop_map(|target| Kind::Symlink { target }),
        Just(Kind::Fifo),
        Just(Kind::Socket),
        rdev.clone().prop_map(|rdev| Kind::Char { rdev }),
        rdev.prop_map(|rdev| Kind::Block { rdev }),
    ]
}

fn paths() -> impl Strategy<Value = Vec<u8>> {
    // A path of one dot is how the text writes the root.
    vec(any::<u8>(), 0..20).prop_filter("not a path", |path| path != b".")
}

fn entries() -> impl Strategy<Value = Entry> {
    let numbers = (0..0o10000_u16, any::<u32>(), any::<u32>(), any::<u32>(), any::<u64>());
    let optional =
        (option::of(times()), option::of(times()), option::of(any::<u64>()), option::of(any::<u32>()));
    let xattrs = btree_map(vec(any::<u8>(), 1..10), vec(any::<u8>(), 0..30), 0..3);
    (paths(), kinds(), numbers, times(), optional, option::of(paths()), xattrs).prop_map(
        |(path, kind, (mode, uid, gid, nlink, size), mtime, (ctime, btime, ino, flags), same_as, xattrs)| {
            Entry {
                path,
                kind,
                mode,
                uid,
                gid,
                nlink,
                size,
                mtime,
                ctime,
                btime,
                ino,
                flags,
                same_as,
                xattrs,
            }
        },
    )
}

proptest! {
    #[test]
    fn text_round_trips(entries in vec(entries(), 0..8)) {
        let manifest: Manifest = entries.into_iter().collect();
        let text = manifest.to_string();
        prop_assert_eq!(text.lines().count(), manifest.len());
        prop_assert_eq!(text.parse::<Manifest>().unwrap(), manifest);
    }

    #[test]
    fn escapes_round_trip(bytes in vec(any::<u8>(), 0..300)) {
        let text = escape(&bytes);
        prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
        prop_assert_eq!(unescape(&text).unwrap(), bytes);
    }

    #[test]
    fn runs_round_trip(runs in vec((any::<u8>(), 1_usize..40), 0..10)) {
        let bytes: Vec<u8> = runs.into_iter().flat_map(|(byte, count)| vec![byte; count]).collect();
        prop_assert_eq!(unescape(&escape(&bytes)).unwrap(), bytes);
    }

    #[test]
    fn parsing_never_panics(text in "(file|dir|char) [.a%={}9]{1,6}( (mode|uid|mtime|sha256|rdev|x:a|same)=[-0-9a-f:.%]{0,12}){0,4}") {
        let _ = text.parse::<Manifest>();
    }
}

#[test]
fn long_runs_are_short() {
    assert_eq!(escape(&[b'a'; 300]), "%{300}a");
    assert_eq!(escape(&[0; 16]), "%{16}%00");
    assert_eq!(unescape("%{3}%41b"), Some(b"AAAb".to_vec()));
    for bad in ["%", "%4", "%{3", "%{3}", "%{-1}a", "%{9999999}a", "%zz"] {
        assert_eq!(unescape(bad), None, "{bad}");
    }
}

#[test]
fn a_bad_line_is_named() {
    let error = "dir . mode=0755 mtime=0.000000000\nfile a mode=9\n".parse::<Manifest>().unwrap_err();
    assert_eq!(error.to_string(), "manifest line 2: not a field of this entry: \"mode=9\"");
}

#[test]
fn differences_are_said_in_words() {
    let mut ours = Manifest::default();
    ours.insert(Entry { mode: 0o644, size: 3, ..Entry::new(b"a", Kind::file_of(b"abc")) });
    ours.insert(Entry::new(b"gone", Kind::Fifo));
    let mut theirs = Manifest::default();
    theirs.insert(Entry {
        mode: 0o600,
        size: 3,
        ctime: Some(Time { sec: 1, nsec: 2 }),
        xattrs: BTreeMap::from([(b"user.x".to_vec(), Vec::new())]),
        ..Entry::new(b"a", Kind::file_of(b"abc"))
    });
    theirs.insert(Entry::new(b"new one", Kind::Directory));
    assert_eq!(
        ours.diff(&theirs),
        [
            "a: mode is 0600 instead of 0644",
            "a: unexpected xattr user.x",
            "gone: missing fifo",
            "new%20one: unexpected dir"
        ]
    );
    assert!(ours.diff(&ours).is_empty());
}

#[test]
fn strict_comparison_sees_what_only_the_kernel_sets() {
    let entry = |ino| [Entry { ino, ..Entry::new(b"a", Kind::Fifo) }].into_iter().collect::<Manifest>();
    assert!(entry(Some(1)).diff(&entry(Some(2))).is_empty());
    assert_eq!(entry(Some(1)).diff_strict(&entry(Some(2))), ["a: inode number is 2 instead of 1"]);
    assert!(entry(None).diff_strict(&entry(Some(2))).is_empty());
}

#[test]
fn a_directory_is_walked() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("sub")).unwrap();
    fs::write(root.path().join("sub/file"), b"contents").unwrap();
    fs::set_permissions(root.path().join("sub/file"), fs::Permissions::from_mode(0o4711)).unwrap();
    fs::hard_link(root.path().join("sub/file"), root.path().join("alias")).unwrap();
    symlink("../nowhere", root.path().join("sub/link")).unwrap();

    let manifest = Manifest::of_directory(root.path()).unwrap();
    let paths: Vec<_> = manifest.entries().map(|entry| entry.path.clone()).collect();
    assert_eq!(paths, [&b""[..], b"alias", b"sub", b"sub/file", b"sub/link"]);
    let file = manifest.entry(b"sub/file").unwrap();
    assert_eq!((file.mode, file.nlink, file.size), (0o4711, 2, 8));
    assert_eq!(file.kind, Kind::file_of(b"contents"));
    assert_eq!(file.same_as.as_deref(), Some(&b"alias"[..]));
    let link = manifest.entry(b"sub/link").unwrap();
    assert_eq!(link.kind, Kind::Symlink { target: b"../nowhere".to_vec() });
    assert!(manifest.diff(&manifest.to_string().parse().unwrap()).is_empty());
}

#[test]
fn an_error_names_the_path() {
    let error = Manifest::of_directory("/nonexistent/tree".as_ref()).unwrap_err();
    assert!(error.to_string().starts_with("/nonexistent/tree: "), "{error}");
}

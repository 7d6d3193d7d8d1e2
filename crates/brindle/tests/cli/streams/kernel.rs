//! `send` and `receive` on mounts of the kernel.

use super::super::mount::KernelMount;
use super::super::support::{brindle, brindle_fails, brindle_prints, btrfs_prints, is_root, text};
use super::{fill, start};
use brindle_stream::{Command as Step, Origin, StreamTime, StreamWriter, Uuid};
use brindle_testing::manifest::Manifest;
use rustix::process::Signal;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A mount of the kernel with the subvolume `live` and its snapshots `one` and `two`.
fn mounted(directory: &TempDir) -> Option<KernelMount> {
    if !is_root("mounting a pool by the kernel") {
        return None;
    }
    let mount = empty(directory, "kernel");
    fill(&mount.at);
    Some(mount)
}

/// A mount of the kernel.
fn empty(directory: &TempDir, name: &str) -> KernelMount {
    let image = directory.path().join(format!("{name}.img"));
    File::create(&image).and_then(|file| file.set_len(1 << 30)).expect("sparse");
    brindle_prints(["-q", "mkfs", text(&image)]);
    KernelMount::new(&image, directory.path().join(name))
}

#[test]
fn streams_of_a_mount_of_the_kernel_are_those_of_btrfs_send() {
    let directory = tempfile::tempdir().expect("room");
    let Some(mount) = mounted(&directory) else { return };
    let at = |name: &str| text(&mount.at.join(name)).to_owned();
    let (one, two) = (at("one"), at("two"));
    let cases: [&[&str]; 6] = [
        &[&one],
        &["-p", &one, &two],
        &["-c", &one, "-p", &one, &two],
        &["--no-data", &two],
        &["--proto", "2", &two],
        &["--proto", "2", "--compressed-data", "-p", &one, &two],
    ];
    for words in cases {
        let [ours, theirs] = ["ours", "theirs"].map(|name| directory.path().join(name));
        brindle_prints([&["-q", "send", "-f", text(&ours)], words].concat());
        let asked = [&["send", "-q", "-f", text(&theirs)], words].concat();
        if btrfs_prints(&asked.iter().map(PathBuf::from).collect::<Vec<_>>()).is_none() {
            return;
        }
        let [ours, theirs] = [ours, theirs].map(|path| std::fs::read(path).expect("there"));
        assert!(ours == theirs && ours.len() > 100, "{words:?}: {} and {} bytes", ours.len(), theirs.len());
    }
}

#[test]
fn subvolumes_of_a_mount_of_the_kernel_are_sent_in_one_stream() {
    let directory = tempfile::tempdir().expect("room");
    let Some(mount) = mounted(&directory) else { return };
    let to = directory.path().join("to.img");
    brindle_prints(["mkfs", "-q", "--size", "300M", text(&to)]);
    let [one, two] = ["one", "two"].map(|name| mount.at.join(name));
    let mut send = start(&["send", "-e", text(&one), text(&two)], Stdio::null(), Stdio::piped());
    let stream = send.stdout.take().expect("piped");
    let received = start(&["receive", text(&to)], stream.into(), Stdio::piped());
    let (sent, received) = (send.wait_with_output().expect("ends"), received.wait_with_output());
    let said = String::from_utf8_lossy(&sent.stderr).into_owned();
    assert!(sent.status.success() && received.expect("ends").status.success(), "{said}");
    let (one, two) = (one.display(), two.display());
    assert_eq!(said, format!("At subvol {one}\nAt subvol {two}, the difference from {one}\n"));
    assert_eq!(brindle_prints(["cat", text(&to), "--path", "two/moved/small"]), "small");
    assert!(brindle(["check", "--check-data-csum", text(&to)]).status.success());
}

#[test]
fn refusals_of_a_mount_of_the_kernel_say_what_to_do() {
    let directory = tempfile::tempdir().expect("room");
    let Some(mount) = mounted(&directory) else { return };
    let stream = directory.path().join("stream");
    let at = |name: &str| text(&mount.at.join(name)).to_owned();
    let fails = |words: &[&str]| brindle_fails(1, [&["send", "-f", text(&stream)], words].concat());
    let (one, live) = (at("one"), at("live"));
    let said = fails(&[&live]);
    assert!(said.contains("live is writable, and may change"), "{said}");
    assert!(fails(&["-p", &live, &one]).contains("live is writable"));
    assert!(fails(&[&at("one/a")]).contains("one/a: not a subvolume"));
    brindle_fails(2, ["send", "-f", text(&stream), &one, "--path", "two"]);
    // A subvolume of another pool.
    let second = empty(&directory, "second");
    fill(&second.at);
    let said = fails(&["-p", text(&second.at.join("one")), &one]);
    assert!(said.contains("second/one: send: "), "{said}");
    // The pipe is full when its reader goes: the kernel ends.
    let mut stalled = start(&["-q", "send", &one], Stdio::null(), Stdio::piped());
    let mut first = [0; 17];
    stalled.stdout.as_mut().expect("piped").read_exact(&mut first).expect("a stream begins");
    drop(stalled.stdout.take());
    let sent = stalled.wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&sent.stderr);
    assert_eq!(sent.status.code(), Some(1), "{said}");
    assert_eq!(said, "brindle: the reader of the stream has gone before its end\n");
}

/// Inodes of all kinds, shared contents and attributes that directories pass on, before and after snapshot `three`, in `live`.
const KINDS: &str = r#"
set -e
cd "$1/live"
yes a line that compresses | head -c 900000 > soft
mkdir -p special
mkfifo special/fifo
mknod special/zero c 1 5
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("special/socket")'
ln soft special/hard
cp --reflink=always soft shared
truncate -s 5M sparse
echo end >> sparse
chmod 4711 soft
chown 12:34 special
setfattr -n user.name -v value soft
setfattr -h -n trusted.link -v value link
setfacl -m u:1000:rwx special
setfacl -d -m u:1000:rwx special
echo inherited > special/below
touch -h -d 2001-02-03 link
touch -d 1960-01-01 special/below
btrfs -q subvolume snapshot -r . ../three
dd if=/dev/urandom of=soft bs=4k seek=7 count=3 conv=notrunc status=none
mv special/below below
rm special/fifo
cp --reflink=always soft special/again
setfattr -x user.name soft
truncate -s 100 shared
fallocate -p -o 8192 -l 100000 a/large
btrfs -q subvolume snapshot -r . ../four
"#;

/// Output of `btrfs`; `None` where it is not installed.
fn btrfs(words: &[&str]) -> Option<String> {
    let words: Vec<PathBuf> = words.iter().map(PathBuf::from).collect();
    btrfs_prints(&words).map(|said| String::from_utf8(said).expect("text"))
}

fn make_kinds(mount: &KernelMount) -> bool {
    if btrfs(&["--version"]).is_none() {
        return false;
    }
    let made = Command::new("sh").args(["-c", KINDS, "kinds", text(&mount.at)]).status();
    assert!(made.expect("sh").success());
    true
}

fn assert_received(expected: &Path, found: &Path) {
    let tree = |path: &Path| Manifest::of_directory(path).expect("readable").portable();
    let differences = tree(expected).diff(&tree(found));
    assert!(differences.is_empty(), "{}:\n{}", found.display(), differences.join("\n"));
    let said = btrfs(&["subvolume", "show", text(found)]).expect("installed");
    assert!(said.contains("readonly") && !said.contains("Received UUID: \t\t-"), "{said}");
}

#[test]
fn a_mount_of_the_kernel_receives_as_by_btrfs_receive() {
    let directory = tempfile::tempdir().expect("room");
    let Some(from) = mounted(&directory) else { return };
    if !make_kinds(&from) {
        return;
    }
    let [first, second] = ["first", "second"].map(|name| directory.path().join(name));
    let to = empty(&directory, "to");
    let versions: [(&str, &[&str]); 2] = [("1", &[]), ("2", &["--proto", "2", "--compressed-data"])];
    for (version, words) in versions {
        let send = |stream: &Path, which: &[&str]| {
            let which: Vec<String> =
                which.iter().map(|word| word.replace('@', &format!("{}/", text(&from.at)))).collect();
            let which = which.iter().map(String::as_str);
            let start = ["send", "-q", "-f", text(stream)].into_iter().chain(words.iter().copied());
            btrfs(&start.chain(which).collect::<Vec<_>>()).expect("installed");
        };
        send(&first, &["@three"]);
        send(&second, &["-p", "@three", "@four"]);
        // Each builds also on what the other one has received.
        let receive = |by_us: bool, stream: &Path, place: &Path| {
            let words = ["receive", "-q", "-f", text(stream), text(place)];
            if by_us {
                brindle_prints(words)
            } else {
                btrfs(&words).expect("installed")
            };
        };
        for (number, [one, two]) in [[true, true], [true, false], [false, true]].into_iter().enumerate() {
            let place = to.at.join(format!("{version}.{number}"));
            std::fs::create_dir(&place).expect("new");
            if one && two {
                // A directory passes it on, to a subvolume as well.
                let acl = ["-d", "-m", "u:77:rwx", text(&place)];
                assert!(Command::new("setfacl").args(acl).status().expect("setfacl").success());
            }
            receive(one, &first, &place);
            receive(two, &second, &place);
            assert_received(&from.at.join("three"), &place.join("three"));
            assert_received(&from.at.join("four"), &place.join("four"));
            for name in ["four", "three"] {
                brindle_prints(["subvolume", "delete", text(&place.join(name))]);
            }
        }
    }
}

/// A stream that makes a subvolume `new` by these commands.
fn stream_of(directory: &TempDir, steps: &[Step<'_>]) -> PathBuf {
    let path = directory.path().join("steps");
    let mut writer = StreamWriter::new(File::create(&path).expect("room"), 1).expect("room");
    let origin = Origin { uuid: Uuid([7; 16]), transid: 7 };
    writer.write(&Step::Subvolume { path: b"new", origin }).expect("room");
    for step in steps {
        writer.write(step).expect("room");
    }
    writer.write(&Step::End).expect("room");
    path
}

#[test]
fn a_stream_stays_in_its_subvolume_on_a_mount_of_the_kernel() {
    let directory = tempfile::tempdir().expect("room");
    let Some(to) = mounted(&directory) else { return };
    let outside = directory.path().join("outside");
    std::fs::create_dir(&outside).expect("new");
    std::fs::write(outside.join("file"), b"contents").expect("room");
    let link = Step::Symlink { path: b"link", inode: 9, target: text(&outside).as_bytes() };
    let to_file = Step::Symlink { path: b"link", inode: 9, target: b"../live/moved/small" };
    let time = StreamTime::default();
    let cases: [(&[Step<'_>], &str); 9] = [
        (&[link, Step::MakeFile { path: b"link/made", inode: 10 }], "link is no directory"),
        (&[link, Step::Unlink { path: b"link/file" }], "link is no directory"),
        (&[link, Step::Chmod { path: b"link/file", mode: 0 }], "leads out of the subvolume"),
        (&[to_file, Step::Write { path: b"link", offset: 0, data: b"x" }], "it is no regular file"),
        (&[to_file, Step::Truncate { path: b"link", size: 0 }], "it is no regular file"),
        (&[Step::MakeFile { path: b"../made", inode: 9 }], "has the name . or .."),
        (&[Step::Chmod { path: b"/etc/passwd", mode: 0 }], "is absolute"),
        (&[link, Step::Chmod { path: b"link", mode: 0o777 }], "not supported"),
        (
            &[
                Step::MakeFifo { path: b"fifo", inode: 9, mode: 0o10600, device: 0 },
                Step::Write { path: b"fifo", offset: 0, data: b"x" },
            ],
            "it is no regular file",
        ),
    ];
    for (steps, expected) in cases {
        let stream = stream_of(&directory, steps);
        let said = brindle_fails(1, ["receive", "-f", text(&stream), text(&to.at)]);
        assert!(said.contains(expected), "{steps:?}: {said}");
        assert!(said.contains("; the subvolume new is incomplete: it stays, writable"), "{said}");
        brindle_prints(["subvolume", "delete", text(&to.at.join("new"))]);
    }
    assert_eq!(std::fs::read(outside.join("file")).expect("there"), b"contents");
    assert_eq!(std::fs::read(to.at.join("live/moved/small")).expect("there"), b"small");
    assert_eq!(std::fs::read_dir(&outside).expect("there").count(), 1);
    // Of a link itself, owner and times are set.
    let times = Step::Times { path: b"link", accessed: time, modified: time, changed: time, created: None };
    let stream = stream_of(&directory, &[link, Step::Chown { path: b"link", uid: 7, gid: 8 }, times]);
    brindle_prints(["receive", "-f", text(&stream), text(&to.at)]);
    let attributes = std::fs::symlink_metadata(to.at.join("new/link")).expect("there");
    assert_eq!((attributes.uid(), attributes.gid(), attributes.mtime()), (7, 8, 0));
    assert_ne!(std::fs::metadata(&outside).expect("there").mtime(), 0);
}

#[test]
fn failures_to_receive_on_a_mount_of_the_kernel_say_what_is_left() {
    let directory = tempfile::tempdir().expect("room");
    let Some(to) = mounted(&directory) else { return };
    let steps = [
        Step::MakeFile { path: b"one", inode: 9 },
        Step::Unlink { path: b"none" },
        Step::Unlink { path: b"neither" },
        Step::MakeFile { path: b"two", inode: 10 },
    ];
    let stream = stream_of(&directory, &steps);
    let said = brindle_fails(1, ["receive", "-E", "0", "-f", text(&stream), text(&to.at)]);
    assert!(said.contains("2 commands failed; the subvolume new is incomplete"), "{said}");
    let new = to.at.join("new");
    assert!(new.join("two").exists());
    let shown = brindle_prints(["--format", "json", "subvolume", "show", text(&new)]);
    assert!(shown.contains("\"received_uuid\": null") && shown.contains("\"read_only\": false"), "{shown}");
    let said = brindle_fails(1, ["receive", "-f", text(&stream), text(&to.at)]);
    assert!(said.contains("snapshot new: ") || said.contains("subvol new: "), "{said}");
    assert!(said.contains("File exists"), "{said}");
    let bytes = std::fs::read(&stream).expect("there");
    std::fs::write(&stream, &bytes[..bytes.len() - 10]).expect("room");
    brindle_prints(["subvolume", "delete", text(&new)]);
    let said = brindle_fails(1, ["receive", "-E", "0", "-f", text(&stream), text(&to.at)]);
    assert!(said.contains("it is cut off; the subvolume new is incomplete"), "{said}");
    brindle_fails(2, ["receive", "-f", text(&stream), "-o", "degraded", text(&to.at)]);
    let golden = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../stream/golden").join(name);
    let said = brindle_fails(1, ["receive", "-f", text(&golden("incremental.v1")), text(&to.at)]);
    assert!(said.contains("the pool has no subvolume that was received as"), "{said}");
    // What a stream builds on may be below no mount.
    let (below, part) = (to.at.join("below"), directory.path().join("part"));
    std::fs::create_dir(&below).and_then(|()| std::fs::create_dir(&part)).expect("new");
    let received = brindle_prints(["receive", "--json", "-f", text(&golden("full.v1")), text(&below)]);
    assert!(received.contains("\"name\": \"one\""), "{received}");
    let call =
        |program: &str, words: &[&str]| Command::new(program).args(words).status().expect(program).success();
    assert!(call("mount", &["--bind", text(&to.at.join("live")), text(&part)]));
    assert!(call("umount", &[text(&to.at)]));
    let said = brindle(["receive", "-f", text(&golden("incremental.v1")), text(&part)]);
    assert!(call("umount", &[text(&part)]));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(
        said.contains("the subvolume /below/one that the stream builds on is below no mount of this pool"),
        "{said}"
    );
}

#[test]
fn a_signal_ends_a_receive_that_waits_for_its_stream() {
    let directory = tempfile::tempdir().expect("room");
    let image = directory.path().join("pool.img");
    brindle_prints(["mkfs", "-q", "--size", "300M", text(&image)]);
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stream/golden/full.v1");
    let stream = std::fs::read(golden).expect("there");
    let mut receive = start(&["receive", text(&image)], Stdio::piped(), Stdio::piped());
    let mut input = receive.stdin.take().expect("piped");
    input.write_all(&stream[..stream.len() - 10]).expect("room");
    std::thread::sleep(Duration::from_millis(500));
    let process = rustix::process::Pid::from_child(&receive);
    rustix::process::kill_process(process, Signal::INT).expect("our child");
    let ended = receive.wait_with_output().expect("it ends");
    drop(input);
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(
        said.contains("interrupted: SIGINT") && said.contains("the subvolume one is incomplete"),
        "{said}"
    );
}

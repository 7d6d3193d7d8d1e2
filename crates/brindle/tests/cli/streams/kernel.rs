//! `send` on mounts of the kernel.

use super::super::mount::KernelMount;
use super::super::support::{brindle, brindle_fails, brindle_prints, btrfs_prints, is_root, text};
use super::{fill, start};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;
use tempfile::TempDir;

/// A mount of the kernel with the subvolume `live` and its snapshots `one` and `two`.
fn mounted(directory: &TempDir) -> Option<KernelMount> {
    if !is_root("mounting a pool by the kernel") {
        return None;
    }
    let image = directory.path().join("image");
    File::create(&image).and_then(|file| file.set_len(1 << 30)).expect("sparse");
    brindle_prints(["-q", "mkfs", text(&image)]);
    let mount = KernelMount::new(&image, directory.path().join("kernel"));
    fill(&mount.at);
    Some(mount)
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
    let other = directory.path().join("other");
    File::create(&other).and_then(|file| file.set_len(1 << 30)).expect("sparse");
    brindle_prints(["-q", "mkfs", text(&other)]);
    let second = KernelMount::new(&other, directory.path().join("second"));
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

//! Commands that are carried out together leave what they leave one by one, and fail as they do.

use crate::support::{MadePool, assert_clean, options};
use brindle_care::job::Control;
use brindle_care::receive::{ReceiveEvent, ReceiveOptions, receive};
use brindle_device::WritableDevice;
use brindle_fs::{FileFlags, FileType, Filesystem, InodeId, OpenOptions, Timestamp, WriteOptions};
use brindle_ondisk::{Uuid, to_usize};
use brindle_sim::Random;
use brindle_stream::{Command, Origin, StreamTime, StreamWriter};
use std::fmt::Write;
use std::sync::Arc;

const ORIGIN: Origin = Origin { uuid: Uuid([7; 16]), transid: 9 };
const SEEDS: u64 = 40;
const COMMANDS: usize = 120;
/// A default ACL: what is made in such a directory gets it.
const ACL: &[u8] = &[
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 7, 0, 1, 0, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255, 16,
    0, 7, 0, 255, 255, 255, 255, 32, 0, 5, 0, 255, 255, 255, 255,
];
/// Changes nothing, and has a path: no command is joined over it.
const APART: Command<'static> = Command::Flags { path: b"", flags: 0 };
/// Directories that pass on something: flags, a group, an ACL; and one that does not.
const BEGIN: [Command<'static>; 7] = [
    Command::MakeDirectory { path: b"flags", inode: 0 },
    Command::MakeDirectory { path: b"group", inode: 0 },
    Command::Chown { path: b"group", uid: 0, gid: 77 },
    Command::Chmod { path: b"group", mode: 0o2755 },
    Command::MakeDirectory { path: b"acl", inode: 0 },
    Command::SetXattr { path: b"acl", name: b"system.posix_acl_default", value: ACL },
    Command::MakeDirectory { path: b"plain", inode: 0 },
];

fn path(random: &mut Random) -> Vec<u8> {
    let directory = random.pick(&["", "", "flags/", "group/", "acl/", "plain/", "a/", "absent/"]);
    let name = random.pick(&["a", "b", "c", "d"]);
    format!("{directory}{name}").into_bytes()
}

/// A random command; most are about the path of the one before.
fn command(random: &mut Random, last: &mut Vec<u8>) -> (Vec<u8>, Vec<u8>, u64) {
    if random.below(4) == 0 {
        *last = path(random);
    }
    let other = path(random);
    let kind = random.below(14);
    let made = (last.clone(), other.clone(), kind);
    if kind == 4 || kind == 5 {
        *last = other;
    }
    made
}

fn as_command<'c>((path, other, kind): &'c (Vec<u8>, Vec<u8>, u64), number: u64) -> Command<'c> {
    let stamp = StreamTime { seconds: number as i64, nanoseconds: 5 };
    match kind {
        0 | 1 => Command::MakeFile { path, inode: 0 },
        2 => Command::MakeDirectory { path, inode: 0 },
        3 => Command::Symlink { path, inode: 0, target: b"target" },
        4 | 5 => Command::Rename { path, to: other },
        6 => Command::Chmod { path, mode: [0o644, 0o4755, 0o2755, 0o2711][to_usize(number) % 4] },
        7 => Command::Chown { path, uid: number % 5, gid: number % 7 },
        8 => Command::Times { path, accessed: stamp, modified: stamp, changed: stamp, created: Some(stamp) },
        9 => Command::Write { path, offset: number * 7, data: b"contents" },
        10 => Command::Truncate { path, size: number },
        11 => Command::Unlink { path },
        12 => Command::SetXattr { path, name: b"user.a", value: b"value" },
        _ => Command::Link { path: other, target: path },
    }
}

fn stream_of(commands: &[Command<'_>], apart: bool) -> Vec<u8> {
    let mut writer = StreamWriter::new(Vec::new(), 2).expect("memory takes all");
    let begin = Command::Subvolume { path: b"in", origin: ORIGIN };
    for command in [&[begin], &BEGIN[..], &[APART], commands, &[Command::End]].concat() {
        writer.write(&command).expect("short values");
        if apart && command != begin && command != Command::End {
            writer.write(&APART).expect("short values");
        }
    }
    writer.into_inner()
}

/// Everything of a tree that the stream decides.
fn tree_of(fs: &Filesystem, directory: InodeId, path: &str, told: &mut String) {
    let mut entries = fs.read_directory(directory, 0, 1000).expect("readable");
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    for entry in entries {
        let of = fs.attributes(entry.inode).expect("there");
        let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
        // Times that no command set are those of the clock.
        let set = |time: Timestamp| (time.seconds < 1 << 20).then_some(time.seconds);
        let times = [of.accessed, of.modified, of.changed, of.created].map(set);
        let xattrs = fs.xattrs(entry.inode).expect("readable");
        writeln!(
            told,
            "{path} {:o} {} {} {} {} {:?} {times:?} {xattrs:?}",
            of.mode, of.uid, of.gid, of.nlink, of.size, of.flags
        )
        .expect("memory");
        match entry.kind {
            FileType::Directory => tree_of(fs, entry.inode, &path, told),
            FileType::Regular => {
                let file = fs.open_file(entry.inode).expect("a file");
                let mut contents = vec![0; to_usize(of.size)];
                fs.read(&file, 0, &mut contents).expect("readable");
                writeln!(told, "{contents:?}").expect("memory");
            }
            _ => {}
        }
    }
}

/// Receives a stream, and tells of all that failed and all that is there.
fn outcome(stream: &[u8]) -> (Vec<String>, String) {
    let made = MadePool::make(1, &options()).expect("large enough");
    let writable = |device: &Arc<_>| Arc::clone(device) as Arc<dyn WritableDevice>;
    let devices = made.devices.iter().map(writable).collect();
    let fs = Filesystem::open_writable(devices, &OpenOptions::default(), &WriteOptions::default());
    let fs = fs.expect("sound");
    let mut failed = Vec::new();
    let options = ReceiveOptions { errors_max: 0, ..Default::default() };
    let mut is_begun = false;
    let done = receive(&fs, fs.root(), stream, &options, &mut |event| {
        match event {
            ReceiveEvent::Failed(error) => {
                failed.push(format!("{} {} {}", error.command, error.path.escape_ascii(), error.problem));
            }
            ReceiveEvent::Command(placed) if !is_begun && placed.command == APART => {
                if let Ok(directory) = fs.resolve(fs.root(), b"in/flags") {
                    is_begun = true;
                    fs.set_flags(directory, FileFlags::NOCOW).expect("an empty directory");
                }
            }
            _ => {}
        }
        Control::Continue
    });
    assert_eq!(done.is_err(), !failed.is_empty());
    let mut told = String::new();
    tree_of(&fs, fs.resolve(fs.root(), b"in").expect("made"), "", &mut told);
    fs.shutdown().expect("works");
    drop(fs);
    assert_clean("after receiving", &made.examine());
    (failed, told)
}

#[test]
fn commands_that_are_joined_do_the_same_as_one_by_one() {
    let mut done = 0;
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let mut last = b"a".to_vec();
        let parts: Vec<_> = (0..COMMANDS).map(|_| command(&mut random, &mut last)).collect();
        let commands: Vec<_> = parts.iter().zip(1..).map(|(part, number)| as_command(part, number)).collect();
        let (joined, apart) = (outcome(&stream_of(&commands, false)), outcome(&stream_of(&commands, true)));
        assert_eq!(joined.0, apart.0, "failures of seed {seed}");
        assert_eq!(joined.1, apart.1, "seed {seed}");
        done += COMMANDS - joined.0.len();
    }
    assert!(done > COMMANDS, "some are carried out: {done}");
}

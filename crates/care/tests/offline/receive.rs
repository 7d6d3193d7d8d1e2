//! Streams of the kernel, hostile ones, and ones that end too early.

use crate::support::{MadePool, assert_clean, options};
use brindle_care::job::Control;
use brindle_care::receive::{
    ReceiveError, ReceiveEvent, ReceiveFailure, ReceiveOptions, ReceiveProblem, receive,
};
use brindle_device::WritableDevice;
use brindle_fs::{FileType, Filesystem, FsError, InodeId, OpenOptions, Subvolume, Timestamp, WriteOptions};
use brindle_ondisk::Uuid;
use brindle_stream::{Command, Origin, StreamReader, StreamTime, StreamWriter};
use std::sync::Arc;

const FULL: &[u8] = include_bytes!("../../../stream/golden/full.v1");
const ENCODED: &[u8] = include_bytes!("../../../stream/golden/full.v2");
const INCREMENTAL: &[u8] = include_bytes!("../../../stream/golden/incremental.v1");
const ORIGIN: Origin = Origin { uuid: Uuid([7; 16]), transid: 9 };

/// A pool in memory, open to be written.
struct Pool {
    made: MadePool,
    filesystem: Filesystem,
}

impl Pool {
    fn new() -> Self {
        let made = MadePool::make(1, &options()).expect("large enough");
        let filesystem = Self::open(&made);
        Self { made, filesystem }
    }

    fn open(made: &MadePool) -> Filesystem {
        let writable = |device: &Arc<_>| Arc::clone(device) as Arc<dyn WritableDevice>;
        let devices = made.devices.iter().map(writable).collect();
        Filesystem::open_writable(devices, &OpenOptions::default(), &WriteOptions::default()).expect("sound")
    }

    fn receive(&self, stream: &[u8]) -> Result<u64, ReceiveError> {
        self.receive_with(stream, &ReceiveOptions::default())
    }

    fn receive_with(&self, stream: &[u8], options: &ReceiveOptions) -> Result<u64, ReceiveError> {
        let root = self.filesystem.root();
        receive(&self.filesystem, root, stream, options, &mut |_| Control::Continue)
    }

    fn subvolume(&self, name: &str) -> Option<Subvolume> {
        let all = self.filesystem.subvolumes().expect("readable");
        all.into_iter().find(|one| one.path == name.as_bytes())
    }

    fn find(&self, path: &str) -> InodeId {
        self.filesystem.resolve(self.filesystem.root(), path.as_bytes()).expect("there")
    }

    fn contents(&self, path: &str) -> Vec<u8> {
        let file = self.filesystem.open_file(self.find(path)).expect("a file");
        let mut contents = vec![0; usize::try_from(file.size()).expect("small")];
        assert_eq!(self.filesystem.read(&file, 0, &mut contents).expect("readable"), contents.len());
        contents
    }

    /// Closes the pool, and has it examined.
    fn examine(self) {
        self.filesystem.shutdown().expect("works");
        drop(self.filesystem);
        assert_clean("after receiving", &self.made.examine());
    }
}

fn stream_of(commands: &[Command<'_>]) -> Vec<u8> {
    let mut writer = StreamWriter::new(Vec::new(), 2).expect("memory takes all");
    for command in commands {
        writer.write(command).expect("short values");
    }
    writer.into_inner()
}

/// A stream of one subvolume.
fn subvolume_of(commands: &[Command<'_>]) -> Vec<u8> {
    let begin = Command::Subvolume { path: b"in", origin: ORIGIN };
    stream_of(&[&[begin], commands, &[Command::End]].concat())
}

fn problem(error: ReceiveError) -> ReceiveProblem {
    match error.failure {
        ReceiveFailure::Command(error) => error.problem,
        other => panic!("{other}"),
    }
}

/// Origin that a stream of the kernel begins with.
fn origin_of(stream: &[u8]) -> Origin {
    match StreamReader::new(stream).expect("a stream").next().expect("a command").expect("one").command {
        Command::Subvolume { origin, .. } | Command::Snapshot { origin, .. } => origin,
        other => panic!("{other}"),
    }
}

fn assert_is_full(pool: &Pool, name: &str) {
    let path = |file: &str| format!("{name}/{file}");
    assert_eq!(pool.contents(&path("file")), b"hi\n");
    assert_eq!(pool.find(&path("file")), pool.find(&path("dir/link")));
    assert!(pool.contents(&path("compressed")) == [b'a'; 12288]);
    assert!(pool.contents(&path("dir/clone")) == [b'a'; 12288]);
    let holes = pool.contents(&path("holes"));
    assert!(
        holes.len() == (1 << 20) + 2 && holes.ends_with(b"\0x\n") && holes[..1 << 20] == vec![0; 1 << 20]
    );
    let attributes = |file: &str| pool.filesystem.attributes(pool.find(&path(file))).expect("there");
    assert_eq!(attributes("file").mode, 0o104_755);
    assert_eq!(attributes("file").nlink, 2);
    assert_eq!(
        (attributes("node").kind, attributes("node").device_numbers()),
        (FileType::CharDevice, (1, 3))
    );
    assert_eq!((attributes("fifo").kind, attributes("socket").kind), (FileType::Fifo, FileType::Socket));
    assert!(attributes("holes").disk_bytes < 1 << 20, "the hole is one");
    let comment = pool.filesystem.xattr(pool.find(&path("file")), b"user.comment").expect("readable");
    assert_eq!(comment.as_deref(), Some(&b"value"[..]));
}

#[test]
fn streams_of_the_kernel_become_subvolumes() {
    let pool = Pool::new();
    assert_eq!(pool.receive(FULL).expect("received"), 1);
    assert_is_full(&pool, "one");
    let one = pool.subvolume("one").expect("there");
    let origin = origin_of(FULL);
    assert!(one.is_read_only());
    assert_eq!((one.received_uuid, one.sent_generation), (origin.uuid, origin.transid));
    assert_eq!(pool.receive(INCREMENTAL).expect("received"), 1);
    assert_is_full(&pool, "one");
    assert_eq!(pool.contents("two/file"), b"hi\nmore\n");
    assert!(pool.contents("two/compressed") == [b'a'; 100]);
    let moved = pool.filesystem.attributes(pool.find("two/directory")).expect("there");
    assert_eq!((moved.uid, moved.gid), (5, 6));
    let names = pool.filesystem.read_directory(pool.find("two"), 0, 100).expect("readable");
    let names: Vec<_> = names.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
    assert!(
        !names.iter().any(|name| name == "dir" || name == "holes" || name.starts_with("o2")),
        "{names:?}"
    );
    assert_eq!(pool.filesystem.xattr(pool.find("two/file"), b"user.comment").expect("readable"), None);
    pool.examine();
}

#[test]
fn encoded_writes_are_decoded_and_times_of_creation_kept() {
    let pool = Pool::new();
    pool.receive(ENCODED).expect("received");
    assert_is_full(&pool, "one");
    let mut reader = StreamReader::new(ENCODED).expect("a stream");
    let mut times = None;
    while let Some(placed) = reader.next().expect("a command") {
        if let Command::Times { path: b"file", changed, created, .. } = placed.command {
            times = Some((changed, created.expect("version 2")));
        }
    }
    let time = |time: StreamTime| Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds };
    let (changed, created) = times.expect("the file has times");
    let file = pool.filesystem.attributes(pool.find("one/file")).expect("there");
    assert_eq!((file.changed, file.created), (time(changed), time(created)));
    pool.examine();
}

#[test]
fn a_subvolume_is_durable_with_its_mark() {
    let pool = Pool::new();
    pool.receive(FULL).expect("received");
    // As after a kill: nothing is committed when it is dropped.
    let Pool { made, filesystem } = pool;
    drop(filesystem);
    let again = Pool { filesystem: Pool::open(&made), made };
    assert_is_full(&again, "one");
    assert_eq!(again.subvolume("one").expect("there").received_uuid, origin_of(FULL).uuid);
    again.examine();
}

#[test]
fn a_stream_that_ends_early_marks_nothing() {
    let pool = Pool::new();
    let mut ends = Vec::new();
    let mut reader = StreamReader::new(FULL).expect("a stream");
    while let Some(placed) = reader.next().expect("a command") {
        ends.push(usize::try_from(placed.offset).expect("small"));
    }
    let ends = ends.into_iter().flat_map(|end| [end, end + 5, end + 12]);
    for end in ends.filter(|end| *end < FULL.len()) {
        let error = pool.receive(&FULL[..end]).expect_err("it is cut off");
        assert!(
            matches!(error.failure, ReceiveFailure::NoEnd(_) | ReceiveFailure::Stream(_)),
            "{end}: {error}"
        );
        let left = pool.subvolume("one");
        assert_eq!(left.is_some(), error.incomplete.is_some(), "{end}: {error}");
        if let Some(left) = left {
            assert!(left.received_uuid.is_nil() && !left.is_read_only(), "{end}");
            pool.filesystem.delete_subvolume(pool.filesystem.root(), b"one").expect("it is writable");
        }
    }
    pool.examine();
}

#[test]
fn paths_never_lead_out_of_the_subvolume() {
    let pool = Pool::new();
    let make = Command::MakeDirectory { path: b"inside", inode: 0 };
    let link = Command::Symlink { path: b"way", inode: 0, target: b"/" };
    pool.receive(&stream_of(&[
        Command::Subvolume { path: b"other", origin: Origin { uuid: Uuid([8; 16]), transid: 1 } },
        Command::MakeFile { path: b"victim", inode: 0 },
        Command::End,
    ]))
    .expect("received");
    let paths =
        [&b"../other/victim"[..], b"/etc/passwd", b"way/victim", b"inside/../../other/victim", b".", b"a//b"];
    for path in paths {
        for hostile in [
            Command::MakeFile { path, inode: 0 },
            Command::Write { path, offset: 0, data: b"x" },
            Command::Chmod { path, mode: 0 },
            Command::Unlink { path },
            Command::Rename { path: b"inside", to: path },
            Command::Rename { path, to: b"stolen" },
            Command::Link { path: b"stolen", target: path },
            Command::Clone {
                path: b"stolen",
                offset: 0,
                length: 1,
                source: ORIGIN,
                source_path: path,
                source_offset: 0,
            },
        ] {
            let error = pool.receive(&subvolume_of(&[make, link, hostile])).expect_err("hostile");
            assert_eq!(error.incomplete.as_deref(), Some(&b"in"[..]));
            let text = error.to_string();
            assert!(text.contains("the stream, at offset ") && text.contains("stays, writable"), "{text}");
            let problem = problem(error);
            assert!(matches!(problem, ReceiveProblem::Path { .. }), "{hostile}: {problem}");
            pool.filesystem.delete_subvolume(pool.filesystem.root(), b"in").expect("it is writable");
        }
    }
    for name in [&b"a/b"[..], b"..", b"", b"/x"] {
        let begin = Command::Subvolume { path: name, origin: ORIGIN };
        let problem = problem(pool.receive(&stream_of(&[begin, Command::End])).expect_err("no name"));
        assert!(matches!(problem, ReceiveProblem::Path { .. }), "{problem}");
    }
    assert!(pool.contents("other/victim").is_empty());
    pool.examine();
}

#[test]
fn data_goes_into_regular_files_alone() {
    let pool = Pool::new();
    let link = Command::Symlink { path: b"link", inode: 0, target: b"target" };
    for path in [&b"link"[..], b""] {
        let write = Command::Write { path, offset: 0, data: b"x" };
        let problem = problem(pool.receive(&subvolume_of(&[link, write])).expect_err("no file"));
        assert!(matches!(problem, ReceiveProblem::NotAFile), "{problem}");
        pool.filesystem.delete_subvolume(pool.filesystem.root(), b"in").expect("it is writable");
    }
    pool.examine();
}

#[test]
fn an_incremental_stream_wants_what_it_was_made_against() {
    let pool = Pool::new();
    let missing = problem(pool.receive(INCREMENTAL).expect_err("no parent"));
    assert!(matches!(missing, ReceiveProblem::NoSource(origin) if origin == origin_of(FULL)), "{missing}");
    let snapshot = |parent| {
        let origin = Origin { uuid: Uuid([9; 16]), transid: 3 };
        stream_of(&[Command::Snapshot { path: b"next", origin, parent }, Command::End])
    };
    pool.receive(&subvolume_of(&[])).expect("received");
    let older = Origin { transid: ORIGIN.transid - 1, ..ORIGIN };
    let other = problem(pool.receive(&snapshot(older)).expect_err("another state"));
    assert!(matches!(other, ReceiveProblem::OtherState { found: 9, .. }), "{other}");
    let own = pool.subvolume("in").expect("there");
    let itself = Origin { uuid: own.uuid, transid: own.changed_generation };
    pool.receive(&snapshot(itself)).expect("the sender's own subvolume");
    pool.filesystem.set_subvolume_read_only(own.id, false).expect("works");
    let gone = problem(pool.receive(&snapshot(ORIGIN)).expect_err("it may have changed"));
    assert!(matches!(gone, ReceiveProblem::NoSource(_)), "{gone}");
    let writable = problem(pool.receive(&snapshot(itself)).expect_err("it may have changed"));
    assert!(matches!(writable, ReceiveProblem::Writable(_)), "{writable}");
    pool.examine();
}

#[test]
fn the_id_of_a_subvolume_is_told_before_anything_shows_it() {
    let pool = Pool::new();
    let ids = || pool.filesystem.subvolumes().expect("readable").into_iter().map(|one| one.id);
    let (root, options, mut told) = (pool.filesystem.root(), ReceiveOptions::default(), None);
    for stream in [FULL, INCREMENTAL] {
        let received = receive(&pool.filesystem, root, stream, &options, &mut |event| {
            match event {
                ReceiveEvent::Reserved(id) => {
                    assert!(ids().all(|other| other != *id), "{id}");
                    told = Some(*id);
                }
                ReceiveEvent::Begun(begun) => {
                    assert_eq!(told.take(), Some(begun.id));
                    assert!(ids().any(|other| other == begun.id));
                }
                _ => {}
            }
            Control::Continue
        });
        received.expect("received");
    }
    pool.examine();
}

#[test]
fn the_base_of_a_stream_stays_as_it_is_while_it_is_received() {
    let pool = Pool::new();
    pool.receive(&subvolume_of(&[])).expect("received");
    let own = pool.subvolume("in").expect("there");
    let next = stream_of(&[
        Command::Snapshot {
            path: b"next",
            origin: Origin { uuid: Uuid([9; 16]), transid: 3 },
            parent: ORIGIN,
        },
        Command::MakeFile { path: b"file", inode: 257 },
        Command::End,
    ]);
    let mut is_refused = false;
    let received = receive(
        &pool.filesystem,
        pool.filesystem.root(),
        next.as_slice(),
        &ReceiveOptions::default(),
        &mut |event| {
            if matches!(event, ReceiveEvent::Command(placed) if matches!(placed.command, Command::MakeFile { .. }))
            {
                let writable = pool.filesystem.set_subvolume_read_only(own.id, false);
                is_refused = matches!(writable, Err(FsError::HeldSubvolume(held)) if held == own.id);
            }
            Control::Continue
        },
    );
    assert_eq!((received.expect("received"), is_refused), (1, true));
    pool.filesystem.set_subvolume_read_only(own.id, false).expect("nothing builds on it any more");
    pool.examine();
}

#[test]
fn failures_are_tolerated_up_to_a_number_and_never_marked() {
    let pool = Pool::new();
    let absent = Command::Unlink { path: b"absent" };
    let stream = subvolume_of(&[absent, Command::MakeFile { path: b"file", inode: 0 }, absent]);
    let mut failed = 0;
    let options = ReceiveOptions { errors_max: 0, ..Default::default() };
    let root = pool.filesystem.root();
    let error = receive(&pool.filesystem, root, &stream[..], &options, &mut |event| {
        failed += u32::from(matches!(event, ReceiveEvent::Failed(_)));
        Control::Continue
    });
    let error = error.expect_err("it is not whole");
    assert!(matches!(error.failure, ReceiveFailure::Failures(2)) && failed == 2, "{error}");
    assert!(pool.contents("in/file").is_empty(), "it went on");
    assert!(pool.subvolume("in").expect("there").received_uuid.is_nil());
    pool.filesystem.delete_subvolume(root, b"in").expect("it is writable");
    let options = ReceiveOptions { errors_max: 2, ..Default::default() };
    let second = problem(pool.receive_with(&stream, &options).expect_err("the second one ends it"));
    assert!(matches!(second, ReceiveProblem::Filesystem(FsError::NotFound(_))), "{second}");
    let cancelled = receive(&pool.filesystem, root, FULL, &options, &mut |_| Control::Cancel);
    assert!(matches!(cancelled.expect_err("cancelled").failure, ReceiveFailure::Cancelled));
    pool.examine();
}

#[test]
fn streams_and_subvolumes_follow_each_other() {
    let pool = Pool::new();
    assert_eq!(pool.receive(&[FULL, INCREMENTAL].concat()).expect("received"), 2);
    let second = Origin { uuid: Uuid([8; 16]), transid: 1 };
    let list = stream_of(&[
        Command::Subvolume { path: b"a", origin: ORIGIN },
        Command::Subvolume { path: b"b", origin: second },
        Command::End,
    ]);
    let both = [list.clone(), subvolume_of(&[])].concat();
    let options = ReceiveOptions { one_stream: true, ..Default::default() };
    assert_eq!(pool.receive_with(&both, &options).expect("received"), 2);
    assert_eq!(pool.subvolume("b").expect("there").received_uuid, second.uuid);
    assert!(pool.subvolume("in").is_none(), "one stream was asked for");
    let taken = problem(pool.receive(&list).expect_err("the name is taken"));
    assert!(matches!(taken, ReceiveProblem::Filesystem(FsError::Exists(_))), "{taken}");
    pool.examine();
}

#[test]
fn a_stream_without_data_is_refused() {
    let pool = Pool::new();
    let changed = Command::UpdateExtent { path: b"file", offset: 0, length: 1 };
    let problem = problem(pool.receive(&subvolume_of(&[changed])).expect_err("no data"));
    assert!(matches!(problem, ReceiveProblem::NoData), "{problem}");
    pool.examine();
}

#[test]
fn attributes_that_a_directory_passes_on_are_not_those_of_the_source() {
    let pool = Pool::new();
    let acl: &[u8] = &[
        2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 7, 0, 1, 0, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255,
        16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 5, 0, 255, 255, 255, 255,
    ];
    pool.receive(&subvolume_of(&[
        Command::SetXattr { path: b"", name: b"system.posix_acl_default", value: acl },
        Command::MakeFile { path: b"file", inode: 0 },
        Command::Chmod { path: b"file", mode: 0o640 },
    ]))
    .expect("received");
    assert_eq!(pool.filesystem.xattrs(pool.find("in/file")).expect("readable"), []);
    assert_eq!(pool.filesystem.attributes(pool.find("in/file")).expect("there").mode, 0o100_640);
    pool.examine();
}

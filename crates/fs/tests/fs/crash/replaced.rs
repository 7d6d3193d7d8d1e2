//! Files that programs replace without an fsync: after a crash a name has its old contents or its new ones, whole.

use super::ONE;
use super::subject::LibrarySubject;
use crate::simulated::Pool;
use brindle_device::WritableDevice;
use brindle_fs::{AllocateMode, Filesystem, InodeId, NewInode, OpenFile, RangePair, RenameMode};
use brindle_sim::{LossMode, Random, Recorder};
use brindle_testing::crash::Subject;
use std::ops::Range;
use std::sync::Arc;

/// Way of replacing the contents.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Another file gets the name.
    Rename,
    /// Two files exchange their names.
    Exchange,
    /// The file is cut off to nothing, and written anew.
    Anew,
    /// The file gets the contents of another, which keeps them in its item.
    Clone,
}

/// Sizes: inline, one extent, and more than one.
const SIZES: [usize; 4] = [100, 5000, 700_000, 20_000];
const ROUNDS: usize = 8;

fn contents(way: Way, round: usize) -> Vec<u8> {
    let size = match way {
        // All of them, or else it is a part of the file that gets others.
        Way::Clone => 100 * (1 + round),
        Way::Rename | Way::Exchange | Way::Anew => SIZES[round % SIZES.len()],
    };
    (0..size).map(|at| u8::try_from((at * 7 + round * 31) % 251).expect("small")).collect()
}

/// Writes a file as a program does that opens and closes it.
fn write(fs: &Filesystem, id: InodeId, is_anew: bool, bytes: &[u8]) {
    let inode = fs.acquire(id).expect("it has a name");
    let file = fs.open_file(id).expect("there");
    if is_anew {
        fs.truncate(&file, 0).expect("room");
    }
    assert_eq!(fs.write(&file, 0, bytes).expect("room"), bytes.len());
    drop(file);
    fs.release(inode).expect("closed");
}

fn create(fs: &Filesystem, name: &[u8]) -> InodeId {
    fs.create(fs.root(), name, &NewInode { mode: 0o100_644, ..NewInode::default() }).expect("room").id
}

fn replace(fs: &Filesystem, way: Way, bytes: &[u8]) {
    let root = fs.root();
    let (new, mode) = match way {
        Way::Rename => (create(fs, b"new"), RenameMode::Replace),
        Way::Exchange => (create(fs, b"new"), RenameMode::Exchange),
        Way::Clone => {
            let new = create(fs, b"new");
            write(fs, new, false, bytes);
            let source = fs.open_file(new).expect("there");
            fs.clone_range(&RangePair {
                source: &source,
                source_offset: 0,
                target: &open(fs, b"name"),
                target_offset: 0,
                length: 0,
            })
            .expect("room");
            return fs.unlink(root, b"new").map(drop).expect("there");
        }
        Way::Anew => {
            return write(fs, fs.lookup(root, b"name").expect("read").expect("there").inode, true, bytes);
        }
    };
    write(fs, new, false, bytes);
    fs.rename(root, b"new", root, b"name", mode).expect("room");
    if matches!(way, Way::Exchange) {
        fs.unlink(root, b"new").expect("there");
    }
}

fn open(fs: &Filesystem, name: &[u8]) -> OpenFile {
    let id = fs.lookup(fs.root(), name).expect("read").expect("it never goes").inode;
    fs.open_file(id).expect("there")
}

fn read(fs: &Filesystem) -> Vec<u8> {
    let file = open(fs, b"name");
    let mut bytes = vec![0; usize::try_from(file.size()).expect("small")];
    assert_eq!(fs.read(&file, 0, &mut bytes).expect("read"), bytes.len());
    bytes
}

/// Replaces a file again and again, with a commit of names alone each time, and crashes everywhere.
fn crash_everywhere(way: Way) {
    let subject = LibrarySubject::new(ONE);
    let recorder = Recorder::new();
    let record = |device: brindle_testing::crash::NewDevice| {
        recorder.device(&device.name, device.image, device.class) as Arc<dyn WritableDevice>
    };
    let fs = Pool::on(subject.make().into_iter().map(record).collect(), &ONE).open().expect("a new pool");
    write(&fs, create(&fs, b"name"), false, &contents(way, 0));
    fs.sync().expect("durable");
    let before = 0..recorder.position();
    let mut rounds: Vec<Range<usize>> = vec![before];
    for round in 1..=ROUNDS {
        let start = recorder.position();
        replace(&fs, way, &contents(way, round));
        fs.commit().expect("durable");
        rounds.push(start..recorder.position());
    }
    let recording = recorder.recording().with_sectors_of(512);
    let mut replay = recording.replay();
    let mut random = Random::new(7000);
    for point in recording.crash_points().filter(|point| *point >= rounds[0].end) {
        replay.advance_to(point);
        let mode = *random.pick(&LossMode::ALL);
        let state = replay.state(mode, &mut random);
        let found = read(&Pool::on(state.writable(), &ONE).open().expect("the last commit is whole"));
        let least = match way {
            // They are written when all data is.
            Way::Clone => 0,
            _ => rounds.iter().rposition(|round| round.end <= point).expect("the first is over"),
        };
        let most = rounds.iter().rposition(|round| round.start <= point).expect("the first has begun");
        let is_whole = (least..=most).any(|round| found == contents(way, round));
        assert!(is_whole, "{way:?}, {mode:?} at {point}: {} bytes, in round {least} to {most}", found.len());
    }
}

#[test]
fn a_file_that_takes_anothers_name_brings_its_contents_along() {
    crash_everywhere(Way::Rename);
    crash_everywhere(Way::Exchange);
}

#[test]
fn a_file_that_is_written_anew_has_its_contents_when_it_is_closed() {
    crash_everywhere(Way::Anew);
}

#[test]
fn a_file_that_gets_anothers_small_contents_has_its_own_until_then() {
    crash_everywhere(Way::Clone);
}

#[test]
fn a_commit_takes_all_contents_along_if_it_is_told_to() {
    for is_told in [false, true] {
        let mut pool = Pool::new(&ONE);
        pool.write.flush_on_commit = is_told;
        let fs = pool.open().expect("a new pool");
        write(&fs, create(&fs, b"name"), false, &contents(Way::Rename, 1));
        let other = fs.open_file(create(&fs, b"other")).expect("there");
        fs.sync_file(&other).expect("durable");
        drop((other, fs));
        let found = read(&pool.open().expect("once more"));
        assert_eq!(found, if is_told { contents(Way::Rename, 1) } else { Vec::new() });
    }
}

#[test]
fn bytes_overwritten_in_place_after_the_end_are_never_seen() {
    let mut pool = Pool::new(&ONE);
    pool.write.nodatacow = true;
    for round in 0..3 {
        let fs = pool.open().expect("a pool");
        let name = format!("file {round}");
        let file = fs.open_file(create(&fs, name.as_bytes())).expect("there");
        fs.write(&file, 0, &[7; 4095]).expect("room");
        fs.sync_file(&file).expect("durable");
        fs.write(&file, 4095, &[8]).expect("room");
        fs.write_back(&file).expect("room");
        // The byte is on disk, the size that counts it is not.
        drop((file, fs));
        let fs = pool.open().expect("once more");
        let file = open(&fs, name.as_bytes());
        assert_eq!(file.size(), 4095);
        match round {
            0 => fs.allocate(&file, AllocateMode::Allocate, 0, 8192).expect("room"),
            1 => fs.allocate(&file, AllocateMode::ZeroRange, 4096, 4096).expect("room"),
            _ => fs.truncate(&file, 8192).expect("room"),
        }
        let mut found = [1; 8192];
        assert_eq!(fs.read(&file, 0, &mut found).expect("read"), 8192);
        assert!(found[..4095] == [7; 4095] && found[4095..] == [0; 4097], "round {round}");
    }
}

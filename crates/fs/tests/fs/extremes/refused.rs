//! Contents of files on a full pool: changes of them are refused all the time, and none of these takes anything away.

use super::copied::{LARGE_BLOCKS, delete_until_refused, fill, make};
use super::{clean_up, file, is_no_space};
use crate::model::pool::NEW_SUBVOLUME;
use crate::simulated::{Layout, Pool, seeds};
use brindle_fs::{
    AllocateMode, AttributeChange, Filesystem, FsError, InodeId, NewTime, OpenFile, Timestamp, XattrMode,
};
use brindle_sim::Random;
use std::ops::Range;

const FILES: usize = 40;
const OPERATIONS: usize = 600;
const LONGEST: usize = 24 << 10;

/// A file, and the contents that it may have.
struct Kept {
    file: OpenFile,
    name: Vec<u8>,
    /// Contents of the last sync that succeeded.
    synced: Vec<u8>,
    /// Contents after each change since.
    since: Vec<Vec<u8>>,
    /// Contents of earlier syncs: where zeros behind a former end could not be written back, what was there shows again.
    before: Vec<Vec<u8>>,
}

/// Counts of one run.
#[derive(Debug, Default)]
struct Counts {
    done: usize,
    refused: usize,
    /// Refusals of a truncation or a hole, while something was in memory alone.
    refused_cuts: usize,
    lost: usize,
}

impl Kept {
    fn new(fs: &Filesystem, top: InodeId, number: usize, nodesize: u32, random: &mut Random) -> Self {
        let name = format!("kept{number}").into_bytes();
        let made = fs.create(top, &name, &file()).expect("room");
        // A leaf of its own.
        fs.set_xattr(made.id, b"user.filler", &vec![7; nodesize as usize / 2], XattrMode::Any).expect("room");
        let file = fs.open_file(made.id).expect("there");
        let mut synced = vec![0; 1 + random.index(LONGEST)];
        random.fill(&mut synced);
        fs.write(&file, 0, &synced).expect("room");
        fs.sync_file(&file).expect("room");
        Self { file, name, synced, since: Vec::new(), before: Vec::new() }
    }

    fn last(&self) -> &Vec<u8> {
        self.since.last().unwrap_or(&self.synced)
    }

    fn read(&self, fs: &Filesystem) -> Vec<u8> {
        let mut bytes = vec![0; 4 * LONGEST];
        let mut length = 0;
        loop {
            match fs.read(&self.file, length as u64, &mut bytes[length..]).expect("readable") {
                0 => break,
                count => length += count,
            }
        }
        bytes.truncate(length);
        bytes
    }

    /// Each byte is of one of the contents that the file may have.
    fn check(&self, fs: &Filesystem, when: &str) -> Vec<u8> {
        let found = self.read(fs);
        assert_eq!(found.len(), self.last().len(), "{when}: size");
        let of = |contents: &Vec<u8>, at: usize| contents.get(at).copied().unwrap_or(0);
        for (at, byte) in found.iter().enumerate() {
            let is_known = |contents: &Vec<u8>| of(contents, at) == *byte;
            let mut known = self.since.iter().chain([&self.synced]).chain(&self.before);
            assert!(known.any(is_known), "{when}: byte {at} is {byte}");
        }
        found
    }

    /// A change that may be refused: then nothing has changed, but for zeros in `zeros`.
    fn change(
        &mut self,
        fs: &Filesystem,
        when: &str,
        zeros: &Range<usize>,
        counts: &mut Counts,
        after: Vec<u8>,
        act: impl FnOnce(&OpenFile) -> Result<(), FsError>,
    ) {
        let before = self.read(fs);
        match act(&self.file) {
            Ok(()) => {
                counts.done += 1;
                self.since.push(after);
                self.check(fs, when);
            }
            Err(error) if is_no_space(&error) => {
                counts.refused += 1;
                let found = self.read(fs);
                assert_eq!(found.len(), before.len(), "{when}: {error}");
                let differs =
                    |at: &usize| found[*at] != before[*at] && !(zeros.contains(at) && found[*at] == 0);
                let first = (0..found.len()).find(differs);
                assert!(first.is_none(), "{when}: {error}, and byte {first:?} has changed");
                if found != before {
                    self.since.push(found);
                }
            }
            // Something was written back for it, and lost.
            Err(FsError::WriteBack { .. }) => self.has_lost(fs, when, counts),
            Err(error) => panic!("{when}: {error}"),
        }
    }

    fn has_lost(&mut self, fs: &Filesystem, when: &str, counts: &mut Counts) {
        counts.lost += 1;
        let found = self.check(fs, when);
        self.since.push(found);
    }

    fn sync(&mut self, fs: &Filesystem, when: &str, counts: &mut Counts) {
        match fs.sync_file(&self.file) {
            Ok(()) => {
                let last = self.last().clone();
                assert!(self.read(fs) == last, "{when}: it was synced");
                self.before.append(&mut self.since);
                self.before.push(std::mem::replace(&mut self.synced, last));
            }
            Err(FsError::WriteBack { .. }) => self.has_lost(fs, when, counts),
            Err(error) if is_no_space(&error) => counts.refused += 1,
            Err(error) => panic!("{when}: {error}"),
        }
    }

    /// Does something by chance.
    fn act(&mut self, fs: &Filesystem, when: &str, random: &mut Random, counts: &mut Counts) {
        let (mut after, size) = (self.last().clone(), self.last().len());
        let at = random.index(size + 1);
        match random.index(10) {
            0..=3 => {
                let mut bytes = vec![0; 1 + random.index(6000).min(LONGEST - at.min(LONGEST - 1) - 1)];
                random.fill(&mut bytes);
                after.resize(size.max(at + bytes.len()), 0);
                after[at..at + bytes.len()].copy_from_slice(&bytes);
                self.change(
                    fs,
                    &format!("{when}: {} bytes written at {at}", bytes.len()),
                    &(0..0),
                    counts,
                    after,
                    |file| fs.write(file, at as u64, &bytes).map(|count| assert_eq!(count, bytes.len())),
                );
            }
            4..=6 => {
                after.truncate(at);
                let refused = counts.refused;
                let is_dirty = !self.since.is_empty();
                let with_times = random.chance(1, 2);
                self.change(fs, &format!("{when}: cut off at {at}"), &(0..0), counts, after, |file| {
                    if !with_times {
                        return fs.truncate(file, at as u64);
                    }
                    // As a mount asks for it.
                    let time = Timestamp { seconds: 7, nanoseconds: 7 };
                    let (size, modified) = (Some(at as u64), Some(NewTime::At(time)));
                    let change =
                        AttributeChange { size, modified, changed: Some(time), ..Default::default() };
                    fs.set_attributes(file.id(), &change).map(drop)
                });
                counts.refused_cuts += usize::from(is_dirty && counts.refused > refused);
            }
            7 => {
                let end = at + 1 + random.index(9000);
                let zeros = at..end.min(size);
                after[zeros.clone()].fill(0);
                let refused = counts.refused;
                let is_dirty = !self.since.is_empty();
                self.change(fs, &format!("{when}: a hole of {at}..{end}"), &zeros, counts, after, |file| {
                    fs.allocate(file, AllocateMode::PunchHole, at as u64, (end - at) as u64)
                });
                counts.refused_cuts += usize::from(is_dirty && counts.refused > refused);
            }
            _ => self.sync(fs, &format!("{when}: synced"), counts),
        }
    }
}

fn live(layout: &Layout, seed: u64) -> Counts {
    let mut random = Random::new(seed);
    let pool = Pool::new(layout);
    let fs = pool.open().expect("opens");
    let id = fs.create_subvolume(fs.root(), b"origin", &NEW_SUBVOLUME).expect("room");
    let top = InodeId::root_of(id);
    make(&fs, top, layout.nodesize);
    let mut kept: Vec<Kept> =
        (0..FILES).map(|number| Kept::new(&fs, top, number, layout.nodesize, &mut random)).collect();
    fs.snapshot(id, fs.root(), b"snapshot", true).expect("room");
    fill(&fs, layout.nodesize);
    fs.sync().expect("a full pool can be committed");
    delete_until_refused(&fs, top);
    let mut counts = Counts::default();
    for number in 0..OPERATIONS {
        let index = random.index(FILES);
        let when = format!("seed {seed}, operation {number}, file {index}");
        kept[index].act(&fs, &when, &mut random, &mut counts);
        if random.chance(1, 40) {
            fs.commit().expect("a full pool can be committed");
        }
    }
    assert!(fs.is_writable(), "{:?}", fs.pool().read_only_reason());
    fs.delete_subvolume(fs.root(), b"snapshot").expect("a snapshot of a full pool can be deleted");
    // What is lost meanwhile is told, too.
    while !matches!(fs.sync(), Ok(())) {}
    clean_up(&fs);
    for (index, kept) in kept.iter_mut().enumerate() {
        let when = format!("seed {seed}, file {index}, at the end");
        kept.sync(&fs, &when, &mut counts);
        // A loss is told once.
        kept.sync(&fs, &when, &mut counts);
        assert!(kept.since.is_empty(), "{when}: there is room");
    }
    let kept: Vec<(Vec<u8>, Vec<u8>)> = kept.into_iter().map(|kept| (kept.name, kept.synced)).collect();
    fs.shutdown().expect("closes");
    drop(fs);
    pool.check().unwrap_or_else(|findings| panic!("{layout:?}, seed {seed}: {findings}"));
    let fs = pool.open().expect("opens");
    let top = fs.lookup(fs.root(), b"origin").expect("read").expect("there").inode;
    for (name, synced) in &kept {
        let id = fs.lookup(top, name).expect("read").expect("there").inode;
        let file = fs.open_file(id).expect("there");
        let mut found = vec![0; synced.len() + 1];
        let length = fs.read(&file, 0, &mut found).expect("readable");
        let differs = (0..length.min(synced.len())).find(|at| found[*at] != synced[*at]);
        assert!(
            found[..length] == synced[..],
            "seed {seed}, {}, reopened: {length} of {} bytes, byte {differs:?} differs",
            String::from_utf8_lossy(name),
            synced.len()
        );
    }
    counts
}

/// Regression: contents in memory were gone after a truncation that was refused.
#[test]
fn changes_of_contents_that_a_full_pool_refuses_take_nothing_away() {
    for seed in seeds(1, 2) {
        let counts = live(&LARGE_BLOCKS, seed);
        println!("seed {seed}: {counts:?}");
        assert!(counts.done > 0 && counts.refused_cuts > 0, "seed {seed}: {counts:?}");
    }
}

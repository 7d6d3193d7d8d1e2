//! Parts of a pool that are written in turns, each by the kernel or by brindle, with commits or fsyncs alone: together again, no
//! file is lost in silence.

use super::host::{LoopPool, can_mount, options, run};
use crate::support::MIB;
use brindle_care::device::rejoin;
use brindle_care::job::{Control, Progress};
use brindle_device::{Device, FileDevice, WritableDevice};
use brindle_fs::{Filesystem, NewInode, OpenOptions, WriteOptions};
use brindle_ondisk::{Profile, SUPERBLOCK_OFFSETS};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Place and size of the first superblock, in bytes.
const SUPERBLOCK: (u64, usize) = (64 << 10, 4096);

/// Pools that crash at random.
const SEEDS: u64 = 8;

/// Driver that writes a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    Kernel,
    Ours,
}
use Driver::{Kernel, Ours};

/// A mount of some of the devices, which is cut off if it ends with fsyncs.
#[derive(Clone, Copy, Debug)]
struct Turn {
    driver: Driver,
    which: &'static [usize],
    commits: usize,
    fsyncs: usize,
    /// Of each file, if the kernel writes it.
    attributes: usize,
}

fn turn(driver: Driver, which: &'static [usize], commits: usize, fsyncs: usize) -> Turn {
    Turn { driver, which, commits, fsyncs, attributes: 0 }
}

impl Turn {
    /// The names of its files, in the order in which they are made.
    fn names(&self, number: usize) -> impl Iterator<Item = (String, bool)> {
        let (commits, all) = (self.commits, self.commits + self.fsyncs);
        (0..all).map(move |file| (format!("turn {number} file {file}"), file < commits))
    }

    /// Returns false if the devices are refused.
    fn play(&self, pool: &mut LoopPool, number: usize) -> bool {
        let is_played = match self.driver {
            Kernel => self.play_by_kernel(pool, number),
            Ours => self.play_here(pool, number),
        };
        if !is_played {
            return false;
        }
        if self.fsyncs > 0 {
            for index in self.which {
                std::fs::rename(cut_off(&pool.images[*index]), &pool.images[*index]).expect("it was copied");
            }
        }
        true
    }

    fn play_by_kernel(&self, pool: &mut LoopPool, number: usize) -> bool {
        pool.attach_some(self.which);
        if !pool.try_mount("degraded,commit=300") {
            pool.detach();
            return false;
        }
        for (name, is_committed) in self.names(number) {
            let path = pool.mount_point().join(&name);
            std::fs::write(&path, name).expect("room");
            set_attributes(&path, self.attributes);
            match is_committed {
                true => drop(run(Command::new("sync").arg("-f").arg(&path))),
                false => File::open(&path).and_then(|file| file.sync_all()).expect("synced"),
            }
        }
        self.cut(pool);
        pool.unmount();
        pool.detach();
        true
    }

    fn play_here(&self, pool: &LoopPool, number: usize) -> bool {
        let all = self.which.len() == pool.images.len();
        let Ok(filesystem) = open(&paths(pool, self.which), !all) else { return false };
        for (name, is_committed) in self.names(number) {
            let new = NewInode { mode: 0o100_644, ..NewInode::default() };
            let (_, file) = filesystem.create_open(filesystem.root(), name.as_bytes(), &new).expect("room");
            filesystem.write(&file, 0, name.as_bytes()).expect("room");
            let synced = if is_committed { filesystem.sync() } else { filesystem.sync_file(&file) };
            synced.expect("synced");
        }
        self.cut(pool);
        filesystem.shutdown().expect("works");
        true
    }

    /// The devices as a power cut would leave them now.
    fn cut(&self, pool: &LoopPool) {
        for image in self.which.iter().map(|index| &pool.images[*index]).filter(|_| self.fsyncs > 0) {
            copy(image, &cut_off(image));
        }
    }
}

/// Extended attributes, of which five fill a leaf.
fn set_attributes(path: &Path, count: usize) {
    for number in 0..count {
        let (name, flags) = (format!("user.{number}"), rustix::fs::XattrFlags::empty());
        rustix::fs::setxattr(path, name, &[7; 3000], flags).expect("room");
    }
}

fn copy(from: &Path, to: &Path) {
    run(Command::new("cp").arg("--sparse=always").args([from, to]));
}

fn cut_off(image: &Path) -> PathBuf {
    image.with_extension("cut")
}

fn paths(pool: &LoopPool, which: &[usize]) -> Vec<PathBuf> {
    which.iter().map(|index| pool.images[*index].clone()).collect()
}

fn writable(paths: &[PathBuf]) -> Vec<Arc<dyn WritableDevice>> {
    let open = |path| Arc::new(FileDevice::open_writable(path).expect("nobody has it"));
    paths.iter().map(|path| open(path) as Arc<dyn WritableDevice>).collect()
}

fn degraded(is_degraded: bool) -> OpenOptions {
    let mut options = OpenOptions::default();
    options.pool.volume.degraded = is_degraded;
    options
}

fn open(paths: &[PathBuf], is_degraded: bool) -> Result<Filesystem, String> {
    let opened = Filesystem::open_writable(writable(paths), &degraded(is_degraded), &WriteOptions::default());
    opened.map_err(|error| error.to_string())
}

fn rejoined(filesystem: &Filesystem, away: &Path) -> Result<(), String> {
    let device = writable(&[away.to_owned()]).remove(0);
    let rejoined = rejoin(filesystem, &device, &mut |_: &Progress| Control::Continue);
    rejoined.map(drop).map_err(|error| error.to_string())
}

/// The files of turns that a pool lacks.
fn lacking(filesystem: &Filesystem, turns: &[Turn]) -> Vec<String> {
    let names = turns.iter().enumerate().flat_map(|(number, turn)| turn.names(number));
    let lacks = |name: &String| {
        let found = filesystem.lookup(filesystem.root(), name.as_bytes()).expect("readable");
        found.is_none()
    };
    names.map(|(name, _)| name).filter(lacks).collect()
}

fn make(profile: Profile, count: usize) -> LoopPool {
    make_of(profile, &vec![512 * MIB; count])
}

fn make_of(profile: Profile, sizes: &[u64]) -> LoopPool {
    let mut options = options();
    (options.data, options.metadata) = (Some(profile), Some(profile));
    LoopPool::make(sizes, &options)
}

/// Copies of the images, to be opened and written, in an order.
fn copies(pool: &LoopPool, is_reversed: bool) -> Vec<PathBuf> {
    let each = |image: &PathBuf| {
        let to = image.with_extension("try");
        copy(image, &to);
        to
    };
    let mut copies: Vec<PathBuf> = pool.images.iter().map(each).collect();
    if is_reversed {
        copies.reverse();
    }
    copies
}

/// Opens all devices in every way. What opens has all files, or is without a device that does not rejoin while that has
/// more. Returns what was said.
fn assert_nothing_is_lost_in_silence(what: &str, pool: &LoopPool, turns: &[Turn]) -> Vec<String> {
    let mut said = Vec::new();
    for (is_reversed, is_degraded) in [(false, false), (false, true), (true, false), (true, true)] {
        let what = format!("{what}, reversed: {is_reversed}, degraded: {is_degraded}");
        let paths = copies(pool, is_reversed);
        let read = writable(&paths).into_iter().map(|device| device as Arc<dyn Device>).collect();
        let read = Filesystem::open(read, &degraded(is_degraded)).map(drop);
        let filesystem = match open(&paths, is_degraded) {
            Ok(filesystem) => filesystem,
            Err(error) => {
                let is_stale = error.contains("is stale");
                assert!(is_stale || read.is_err(), "{what}: read, although: {error}");
                said.push(error);
                continue;
            }
        };
        let unused = filesystem.pool().volume().unused_devices();
        let lacks = lacking(&filesystem, turns);
        assert!(lacks.is_empty() || !unused.is_empty(), "{what}: lacks {lacks:?}");
        drop(filesystem);
        let is_left_out = |path: &&PathBuf| unused.iter().any(|it| it.device == path.display().to_string());
        let (left_out, kept): (Vec<&PathBuf>, Vec<&PathBuf>) = paths.iter().partition(is_left_out);
        let kept: Vec<PathBuf> = kept.into_iter().cloned().collect();
        let filesystem = open(&kept, is_degraded).expect("as before");
        for away in left_out {
            let answer = rejoined(&filesystem, away);
            let is_it = |image: &PathBuf| image.with_extension("try") == *away;
            let index = pool.images.iter().position(is_it).expect("one of the pool's");
            let last = turns.iter().rposition(|turn| turn.which.contains(&index));
            let is_own = |name: &&String| last.is_some_and(|last| name.starts_with(&format!("turn {last} ")));
            let lost: Vec<&String> = lacks.iter().filter(is_own).collect();
            assert!(answer.is_err() || lost.is_empty(), "{what}: {lost:?} lost by rejoining");
            said.push(format!("without {}; {answer:?}", away.display()));
        }
        if unused.is_empty() {
            said.push("opened".to_owned());
        }
        filesystem.shutdown().expect("works");
    }
    said
}

#[test]
fn logs_of_parts_are_never_ignored() {
    if !can_mount() {
        return;
    }
    let halves: [(Profile, usize, &'static [usize], &'static [usize]); 4] = [
        (Profile::Raid1, 2, &[0], &[1]),
        (Profile::Raid1, 2, &[1], &[0]),
        (Profile::Raid1c3, 3, &[0], &[1, 2]),
        (Profile::Raid1c3, 3, &[1, 2], &[0]),
    ];
    for (profile, count, one, other) in halves {
        // With the words of the refusal.
        let seconds = [
            (turn(Kernel, other, 0, 1), "written apart"),
            (turn(Kernel, other, 0, 3), "written apart"),
            (turn(Kernel, other, 3, 2), "is stale"),
            (turn(Ours, other, 1, 0), "is stale"),
            (turn(Ours, other, 0, 3), "is stale"),
        ];
        for (second, refusal) in seconds.into_iter().take(if count == 2 { 5 } else { 2 }) {
            let turns = [turn(Kernel, one, 0, 1), second];
            let mut pool = make(profile, count);
            assert!(turns.iter().enumerate().all(|(number, turn)| turn.play(&mut pool, number)));
            let what = format!("{} {turns:?}", profile.attributes().name);
            let said = assert_nothing_is_lost_in_silence(&what, &pool, &turns);
            assert!(said[0].contains(refusal), "{what}: {said:#?}");
            // With degraded, a stale device is left out, and does not rejoin.
            let is_kept = |said: &String| said.contains(refusal) || said.contains("names a log");
            assert!(said.iter().all(is_kept), "{what}: {said:#?}");
        }
    }
}

#[test]
fn a_device_that_has_missed_a_log_rejoins_the_one_with_the_log() {
    if !can_mount() {
        return;
    }
    for (profile, count, which) in
        [(Profile::Raid1, 2, &[0][..]), (Profile::Raid1, 2, &[1]), (Profile::Raid1c3, 3, &[1])]
    {
        let turns = [turn(Kernel, which, 0, 3)];
        let mut pool = make(profile, count);
        assert!(turns[0].play(&mut pool, 0));
        let what = format!("{} {turns:?}", profile.attributes().name);
        for said in assert_nothing_is_lost_in_silence(&what, &pool, &turns) {
            let has = format!("{}", pool.images[which[0]].with_extension("try").display());
            assert!(said.starts_with(&has) && said.contains("written without"), "{what}: {said}");
        }
        // As the message says.
        let filesystem = open(&paths(&pool, which), true).expect("whole");
        for away in pool.images.iter().filter(|image| **image != pool.images[which[0]]) {
            rejoined(&filesystem, away).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        filesystem.shutdown().expect("works");
        drop(filesystem);
        let filesystem = open(&pool.images, false).expect("whole");
        assert!(lacking(&filesystem, &turns).is_empty(), "{what}");
        filesystem.shutdown().expect("works");
    }
}

#[test]
fn a_log_that_lies_on_none_of_the_first_devices_is_never_ignored() {
    if !can_mount() {
        return;
    }
    // All chunks lie on the two large ones. The superblock of the first device leads to no log, or to one that it has no block of.
    let sizes = [512 * MIB, 1024 * MIB, 1024 * MIB];
    let alone: [&[usize]; 4] = [&[1], &[2], &[0, 1], &[0, 2]];
    for (which, fsyncs) in alone.into_iter().flat_map(|which| [(which, 1), (which, 4)]) {
        let turns = [turn(Kernel, which, 0, fsyncs)];
        let mut pool = make_of(Profile::Raid1, &sizes);
        assert!(turns[0].play(&mut pool, 0));
        let said = assert_nothing_is_lost_in_silence(&format!("{turns:?}"), &pool, &turns);
        assert!(said.iter().all(|said| said.contains("was written without")), "{turns:?}: {said:#?}");
    }
    let apart: [(&[usize], usize, &[usize], usize); 4] =
        [(&[1], 1, &[2], 2), (&[2], 1, &[1], 2), (&[0, 1], 4, &[2], 1), (&[0, 2], 4, &[1], 1)];
    for (one, fsyncs, other, later) in apart {
        let turns = [turn(Kernel, one, 0, fsyncs), turn(Kernel, other, 0, later)];
        let mut pool = make_of(Profile::Raid1, &sizes);
        assert!(turns.iter().enumerate().all(|(number, turn)| turn.play(&mut pool, number)));
        let said = assert_nothing_is_lost_in_silence(&format!("{turns:?}"), &pool, &turns);
        assert!(said.iter().all(|said| said.contains("written apart")), "{turns:?}: {said:#?}");
    }
}

#[test]
fn a_part_of_raid10_that_lacks_a_log_or_a_commit_is_refused() {
    if !can_mount() {
        return;
    }
    // A log of more than a strip has blocks on both pairs of devices; only its root tells, where the first device is away.
    let parts: [&[usize]; 4] = [&[1, 2, 3], &[0, 2, 3], &[0, 1, 3], &[0, 1, 2]];
    let part = |turn: Turn| {
        let mut pool = make(Profile::Raid10, 4);
        assert!(turn.play(&mut pool, 0));
        open(&copies(&pool, false), false).map(drop)
    };
    for which in parts {
        let opened = part(Turn { attributes: 60, ..turn(Kernel, which, 0, 1) });
        if which[0] == 0 {
            let error = opened.expect_err("a log has passed it by");
            assert!(error.contains("was written without"), "{which:?}: {error}");
        }
        // A commit is no less missed by a device that has no copy of the root.
        let error = part(turn(Kernel, which, 1, 0)).expect_err("a commit has passed it by");
        assert!(error.contains("is stale"), "{which:?}: {error}");
    }
}

#[test]
fn a_log_that_is_written_over_one_that_was_ignored_is_no_other_history() {
    if !can_mount() {
        return;
    }
    let mut pool = make(Profile::Raid1, 2);
    let keep = |pool: &LoopPool, name: &str| {
        pool.images.iter().for_each(|image| copy(image, &image.with_extension(name)));
    };
    let sync_one = |pool: &mut LoopPool, which: &str| {
        pool.attach_some(&[0, 1]);
        pool.mount("commit=300");
        let files = ["large", "small"].map(|name| {
            let path = pool.mount_point().join(name);
            std::fs::write(&path, name).expect("room");
            set_attributes(&path, if name == "large" { 20 } else { 0 });
            path
        });
        let synced = files.iter().find(|path| path.ends_with(which)).expect("one of them");
        File::open(synced).and_then(|file| file.sync_all()).expect("synced");
        keep(pool, which);
        pool.unmount();
        pool.detach();
    };
    let write_superblock = |image: &Path, from: &Path| {
        let file = File::options().write(true).open(image).expect("there");
        file.write_all_at(&superblock(from), SUPERBLOCK.0).expect("room");
    };
    // A crash has left the first log with a superblock of one device alone.
    keep(&pool, "base");
    sync_one(&mut pool, "small");
    pool.images.iter().for_each(|image| copy(&image.with_extension("small"), image));
    write_superblock(&pool.images[0], &pool.images[0].with_extension("base"));
    keep(&pool, "crashed");
    // The next mount goes by the other one, and is cut off when one device has the blocks of its log, and the other has not.
    sync_one(&mut pool, "large");
    for slow in 0..2 {
        for (index, image) in pool.images.iter().enumerate() {
            let contents = if index == slow { "crashed" } else { "large" };
            copy(&image.with_extension(contents), image);
            write_superblock(image, &image.with_extension("crashed"));
        }
        let filesystem = open(&pool.images, false).unwrap_or_else(|error| panic!("{slow}: {error}"));
        filesystem.shutdown().expect("works");
    }
}

/// First superblock of an image.
fn superblock(image: &Path) -> Vec<u8> {
    let mut bytes = vec![0; SUPERBLOCK.1];
    let file = File::open(image).expect("there");
    file.read_exact_at(&mut bytes, SUPERBLOCK.0).expect("long enough");
    bytes
}

#[test]
fn logs_that_a_crash_has_left_between_superblocks_are_of_one_history() {
    if !can_mount() {
        return;
    }
    for (profile, count) in [(Profile::Raid1, 2), (Profile::Raid1c3, 3), (Profile::Raid1, 3)] {
        let mut pool = make(profile, count);
        let all: Vec<usize> = (0..count).collect();
        pool.attach_some(&all);
        pool.mount("commit=300");
        // The superblocks before the first log, with it, and with the second one.
        let mut states = Vec::new();
        for name in ["before", "first", "second"] {
            let path = pool.mount_point().join(name);
            std::fs::write(&path, name).expect("room");
            match name {
                "before" => drop(run(Command::new("sync").arg("-f").arg(&path))),
                _ => File::open(&path).and_then(|file| file.sync_all()).expect("synced"),
            }
            states.push(pool.images.iter().map(|image| superblock(image)).collect::<Vec<_>>());
        }
        pool.images.iter().for_each(|image| copy(image, &cut_off(image)));
        pool.unmount();
        pool.detach();
        for (older, newer) in [(0, 2), (1, 2), (0, 1)] {
            for mask in 0..1 << count {
                let what = format!("{} {older} {newer} {mask:b}", profile.attributes().name);
                for (index, image) in pool.images.iter().enumerate() {
                    copy(&cut_off(image), image);
                    let state = if mask >> index & 1 == 0 { older } else { newer };
                    let file = File::options().write(true).open(image).expect("there");
                    file.write_all_at(&states[state][index], SUPERBLOCK.0).expect("room");
                }
                let filesystem = open(&pool.images, false).unwrap_or_else(|error| panic!("{what}: {error}"));
                // The mount goes by the first one.
                let state = if mask & 1 == 0 { older } else { newer };
                for (number, name) in ["before", "first", "second"].into_iter().enumerate() {
                    let found = filesystem.lookup(filesystem.root(), name.as_bytes()).expect("readable");
                    assert_eq!(found.is_some(), number <= state, "{what}: {name}");
                }
                filesystem.shutdown().expect("works");
            }
        }
    }
}

/// Numbers that look random, below limits.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A mount of the kernel that fsyncs, and a power cut in the middle of the last one: some devices have its blocks, and none has
/// its superblock; or all have its blocks, and some its superblock.
fn crash(pool: &mut LoopPool, round: usize, numbers: &mut Numbers) {
    let all: Vec<usize> = (0..pool.images.len()).collect();
    let keep = |pool: &LoopPool, name: &str| {
        pool.images.iter().for_each(|image| copy(image, &image.with_extension(name)));
    };
    pool.attach_some(&all);
    pool.mount("commit=300");
    for number in 0..=numbers.below(3) {
        keep(pool, "before");
        let path = pool.mount_point().join(format!("round {round} file {number}"));
        std::fs::write(&path, "contents").expect("room");
        // Now and then a log of several leaves.
        set_attributes(&path, usize::try_from(numbers.below(2) * numbers.below(24)).expect("small"));
        File::open(&path).and_then(|file| file.sync_all()).expect("synced");
    }
    keep(pool, "after");
    pool.unmount();
    pool.detach();
    let has_superblocks = numbers.below(2) == 1;
    for image in &pool.images {
        let is_later = numbers.below(2) == 1;
        let (before, after) = (image.with_extension("before"), image.with_extension("after"));
        copy(if has_superblocks || is_later { &after } else { &before }, image);
        if has_superblocks && is_later {
            continue;
        }
        let (from, to) = (File::open(&before).expect("there"), File::options().write(true).open(image));
        let to = to.expect("there");
        for offset in SUPERBLOCK_OFFSETS.into_iter().take(2) {
            let mut bytes = vec![0; SUPERBLOCK.1];
            from.read_exact_at(&mut bytes, offset).expect("long enough");
            to.write_all_at(&bytes, offset).expect("room");
        }
    }
}

#[test]
fn crashes_after_one_another_leave_one_history() {
    if !can_mount() {
        return;
    }
    let shapes = [
        (Profile::Raid1, vec![512 * MIB; 2]),
        (Profile::Raid1, vec![512 * MIB, 1024 * MIB, 1024 * MIB]),
        (Profile::Raid1c3, vec![512 * MIB; 3]),
        (Profile::Raid10, vec![512 * MIB; 4]),
    ];
    for seed in 0..SEEDS {
        let mut numbers = Numbers(seed);
        let (profile, sizes) = &shapes[usize::try_from(seed).expect("small") % shapes.len()];
        let mut pool = make_of(*profile, sizes);
        for round in 0..4 {
            crash(&mut pool, round, &mut numbers);
            let what = format!("{} seed {seed} round {round}", profile.attributes().name);
            let filesystem = open(&copies(&pool, round % 2 == 1), false);
            filesystem.unwrap_or_else(|error| panic!("{what}: {error}")).shutdown().expect("works");
        }
    }
}

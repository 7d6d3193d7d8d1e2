//! Devices of pools in memory that are replaced.

use super::device::{
    FILE_BYTES, FILES, Members, on_and_on, open, plain, superblock, write_more, write_plain,
};
use crate::support::files::{assert_filled, fill};
use crate::support::told::errors_of;
use crate::support::{MIB, MadePool, devices, options};
use brindle_care::device::{DeviceCareError, Leaving, ReplaceOptions, rejoin, replace};
use brindle_care::job::{Control, Ended, Observer, Progress};
use brindle_care::scrub::{Plan, Scrub};
use brindle_device::{Device, DeviceClass, DeviceError, SparseDevice, WritableDevice};
use brindle_fs::{
    Compression, CompressionChoice, ContentsWish, Filesystem, NewInode, OpenOptions, WriteOptions,
};
use brindle_ondisk::{DevId, Profile};
use brindle_policy::placement::{AllocationHint, PlacementClass};
use brindle_sim::{Fault, FaultyDevice, Random};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};

pub(super) fn target(name: &str, size_bytes: u64) -> Arc<SparseDevice> {
    Arc::new(SparseDevice::new(name, size_bytes, DeviceClass::Unknown))
}

pub(super) fn replace_by(
    filesystem: &Filesystem,
    which: Leaving,
    target: &Arc<SparseDevice>,
    options: &ReplaceOptions,
    observer: Observer<'_>,
) -> Result<Ended, DeviceCareError> {
    let target = Arc::clone(target) as Arc<dyn WritableDevice>;
    replace(filesystem, which, &target, options, observer).map(|(_, ended)| ended)
}

fn first() -> Leaving {
    Leaving::Id(DevId::new(1))
}

/// Replaces the first device by one that is larger.
fn replace_first(pool: &mut Members, options: &ReplaceOptions) -> Progress {
    let new = target("new", 450 * MIB);
    let ended = replace_by(&pool.filesystem, first(), &new, options, &mut on_and_on).expect("it is larger");
    assert_eq!(ended.control, Control::Continue);
    pool.devices.push(new);
    ended.progress
}

/// Number of errors of all copies.
pub(super) fn errors(filesystem: &Filesystem) -> u64 {
    let scrub = Scrub::new(filesystem, &Plan { read_only: true, ..Plan::default() }).expect("a plan");
    scrub.run(filesystem).expect("it runs");
    scrub.report().counts().errors()
}

/// Spoils all that lies on a device but its superblocks, up to some bytes of each device extent.
fn spoil(filesystem: &Filesystem, device: &SparseDevice, devid: u64, bytes: u64) {
    let stripes = filesystem.pool().volume().chunks().into_iter().flat_map(|chunk| chunk.stripes);
    for stripe in stripes.filter(|stripe| stripe.devid == DevId::new(devid)) {
        for at in (0..stripe.length.min(bytes)).step_by(8192) {
            device.write_at(stripe.physical.get() + at + 50, &[0x5a; 300]).expect("memory");
        }
    }
}

#[test]
fn in_every_profile_another_device_takes_the_place_of_one() {
    for row in &Profile::TABLE {
        let count = usize::from(row.devs_min.max(row.nparity * 2 + 1));
        for avoid_source in [false, true] {
            let what = format!("{} {avoid_source}", row.name);
            let mut pool = Members::new(count, row.profile);
            let options = ReplaceOptions { avoid_source, ..ReplaceOptions::default() };
            let progress = replace_first(&mut pool, &options);
            assert_eq!((progress.left, progress.done), (0, progress.expected), "{what}");
            assert_eq!(progress.moved_bytes, progress.expected_bytes, "{what}");
            assert!(superblock(&pool.devices[0]).is_none(), "{what}: it is no member any more");
            write_more(&pool.filesystem);
            let left: Vec<usize> = (1..=count).collect();
            let pool = pool.prove(&what, &left);
            let volume = pool.filesystem.pool().volume();
            let device = volume.devices().into_iter().find(|it| it.name == "new").expect("a member");
            assert_eq!((device.devid.get(), device.total_bytes), (1, 400 * MIB), "{what}");
            assert_eq!(errors(&pool.filesystem), 0, "{what}");
        }
    }
}

#[test]
fn the_place_of_a_missing_device_is_taken() {
    for row in Profile::TABLE.iter().filter(|row| row.ncopies > 1 && row.devs_min > 1 || row.nparity > 0) {
        let count = usize::from(row.devs_min.max(row.nparity * 2 + 1));
        let Members { devices, filesystem } = Members::new(count, row.profile);
        filesystem.shutdown().expect("works");
        drop(filesystem);
        let filesystem = open(&devices[1..], true);
        write_more(&filesystem);
        let new = target("new", 400 * MIB);
        let by = ReplaceOptions::default();
        let ended =
            replace_by(&filesystem, Leaving::Missing, &new, &by, &mut on_and_on).expect("it is as large");
        assert_eq!((ended.control, ended.progress.left), (Control::Continue, 0), "{}", row.name);
        // It takes new chunks too.
        write_more(&filesystem);
        let devices = [&devices[1..], &[new]].concat();
        let all: Vec<usize> = (0..count).collect();
        let pool = Members { devices, filesystem }.prove(row.name, &all);
        assert_eq!(errors(&pool.filesystem), 0, "{}", row.name);
    }
}

/// An SSD and two disks in raid1, with something in it.
fn common() -> Members {
    let of = [
        (400 * MIB, DeviceClass::Solid),
        (400 * MIB, DeviceClass::Rotating),
        (400 * MIB, DeviceClass::Rotating),
    ];
    let mut options = options();
    (options.data, options.metadata) = (Some(Profile::Raid1), Some(Profile::Raid1));
    let made = MadePool::make_of(&of, &options).expect("made");
    let filesystem = open(&made.devices, false);
    fill(&filesystem, FILES, FILE_BYTES);
    Members { devices: made.devices, filesystem }
}

/// Replaces a device of the common pool by one that is gone after that number of calls. Returns whether it was replaced, and the
/// calls that there were.
fn replace_by_failing(devid: u64, calls: u64) -> (bool, u64) {
    let what = format!("devid {devid}, gone after {calls} calls");
    let Members { mut devices, filesystem } = common();
    let new = target("new", 400 * MIB);
    let faulty = FaultyDevice::with(Arc::clone(&new) as _, vec![Fault::VanishAfter { calls }]);
    let faulty = Arc::new(faulty);
    let as_target = Arc::clone(&faulty) as Arc<dyn WritableDevice>;
    let (which, by) = (Leaving::Id(DevId::new(devid)), ReplaceOptions::default());
    let replaced = replace(&filesystem, which, &as_target, &by, &mut on_and_on);
    let counts = faulty.counts();
    let index = usize::try_from(devid - 1).expect("few");
    let is_replaced = superblock(&devices[index]).is_none();
    assert!(replaced.is_err() || is_replaced, "{what}");
    if replaced.is_err() && filesystem.pool().read_only_reason().is_none() {
        // Nothing has come of it: the pool is used as before.
        write_more(&filesystem);
    }
    drop(filesystem);
    if is_replaced {
        devices[index] = new;
    }
    let filesystem = open(&devices, false);
    let pool = Members { devices, filesystem }.prove(&what, &[0, 1, 2]);
    assert!(is_replaced || errors(&pool.filesystem) == 0, "{what}");
    (is_replaced, counts.reads + counts.writes + counts.flushes)
}

#[test]
fn a_target_that_fails_ends_the_replacement_and_nothing_else() {
    for devid in [1, 2] {
        let (is_replaced, all) = replace_by_failing(devid, u64::MAX);
        assert!(is_replaced);
        let places: Vec<u64> = (0..all.saturating_sub(12)).step_by(11).chain(all - 12..all).collect();
        let outcomes: Vec<bool> = places.iter().map(|calls| replace_by_failing(devid, *calls).0).collect();
        assert!(outcomes.contains(&false) && outcomes.is_sorted(), "{outcomes:?}");
    }
}

#[test]
fn rot_on_the_device_is_answered_from_elsewhere() {
    for (profile, count) in
        [(Profile::Raid1, 2), (Profile::Raid10, 4), (Profile::Raid5, 3), (Profile::Raid6, 5)]
    {
        let mut pool = Members::new(count, profile);
        spoil(&pool.filesystem, &pool.devices[0], 1, 4 * MIB);
        let progress = replace_first(&mut pool, &ReplaceOptions::default());
        assert_eq!(progress.left, 0, "{profile}");
        let left: Vec<usize> = (1..=count).collect();
        let pool = pool.prove(profile.attributes().name, &left);
        assert_eq!(errors(&pool.filesystem), 0, "{profile}");
    }
}

#[test]
fn rot_in_all_copies_is_told_and_copied_as_it_is() {
    let mut options = options();
    (options.data, options.metadata) = (Some(Profile::Single), Some(Profile::Raid1));
    let made = MadePool::make_of(&[(400 * MIB, DeviceClass::Unknown); 2], &options).expect("made");
    let mut pool = Members { filesystem: open(&made.devices, false), devices: made.devices };
    fill(&pool.filesystem, FILES, FILE_BYTES);
    let chunks = pool.filesystem.pool().volume().chunks();
    let data = chunks.iter().find(|chunk| chunk.kind.contains(brindle_ondisk::BlockGroupType::DATA));
    let stripe = data.expect("there is data").stripes[0];
    let index = if stripe.devid.get() == 1 { 0 } else { 1 };
    pool.devices[index].write_at(stripe.physical.get() + 4096, &[7; 100]).expect("memory");
    let new = target("new", 400 * MIB);
    let by = ReplaceOptions::default();
    let ended = replace_by(&pool.filesystem, Leaving::Id(stripe.devid), &new, &by, &mut on_and_on);
    assert_eq!(ended.expect("it has checksums").progress.left, 1);
    let mut found = [0; 100];
    new.read_at(stripe.physical.get() + 4096, &mut found).expect("memory");
    assert_eq!(found, [7; 100]);
    pool.devices[index] = new;
    assert_eq!(errors(&pool.filesystem), 1, "it can still be told");
}

#[test]
fn an_attempt_goes_on_where_the_last_one_ended() {
    let Members { devices, filesystem } = Members::new(2, Profile::Raid1);
    filesystem.shutdown().expect("works");
    drop(filesystem);
    write_plain(&devices, true, 1);
    let new = target("new", 400 * MIB);
    let filesystem = open(&devices, false);
    let stop = &mut |progress: &Progress| if progress.done > 1 { Control::Cancel } else { Control::Continue };
    let by = ReplaceOptions::default();
    let ended = replace_by(&filesystem, first(), &new, &by, stop).expect("it is as large");
    assert_eq!(ended.control, Control::Cancel);
    assert!(superblock(&new).is_none() && superblock(&devices[0]).is_some());
    write_more(&filesystem);
    filesystem.shutdown().expect("works");
    drop(filesystem);
    // In place, without checksums.
    write_plain(&devices, false, 2);
    let filesystem = open(&devices, false);
    spoil(&filesystem, &new, 1, MIB);
    let ended = replace_by(&filesystem, first(), &new, &by, &mut on_and_on).expect("it goes on");
    assert_eq!((ended.control, ended.progress.left), (Control::Continue, 0));
    let devices = vec![Arc::clone(&devices[1]), new];
    let Members { devices, filesystem } = Members { devices, filesystem }.prove("gone on", &[0, 1]);
    assert_eq!(errors(&filesystem), 0);
    filesystem.shutdown().expect("works");
    drop(filesystem);
    assert!(plain(&open(&devices[1..], true)) == vec![2; 1 << 20], "it has what was written in place");
}

#[test]
fn files_are_written_meanwhile() {
    for (profile, count, is_missing) in [
        (Profile::Raid1, 2, false),
        (Profile::Raid1, 2, true),
        (Profile::Raid5, 3, false),
        (Profile::Raid6, 4, true),
    ] {
        let what = format!("{profile} {is_missing}");
        let Members { devices, filesystem } = Members::new(count, profile);
        filesystem.shutdown().expect("works");
        drop(filesystem);
        write_plain(&devices, true, 1);
        let there = if is_missing { &devices[1..] } else { &devices[..] };
        let filesystem = open_nodatacow(there);
        let new = target("new", 400 * MIB);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let write = || {
                let id = filesystem.lookup(filesystem.root(), b"plain").expect("readable").expect("there");
                let file = filesystem.open_file(id.inode).expect("opens");
                let mut byte = 2;
                while !is_over.load(Relaxed) {
                    byte = if byte == 250 { 2 } else { byte + 1 };
                    filesystem.write(&file, 0, &vec![byte; 1 << 20]).expect("room");
                    write_more(&filesystem);
                }
                filesystem.write(&file, 0, &vec![251; 1 << 20]).expect("room");
                filesystem.sync().expect("works");
            };
            let writer = scope.spawn(write);
            let by = ReplaceOptions::default();
            let ended = replace_by(&filesystem, first(), &new, &by, &mut on_and_on);
            is_over.store(true, Relaxed);
            writer.join().expect("it ends well");
            assert_eq!(ended.expect("it is as large").progress.left, 0, "{what}");
        });
        let devices = [&[new], &devices[1..]].concat();
        let all: Vec<usize> = (0..count).collect();
        let Members { devices, filesystem } = Members { devices, filesystem }.prove(&what, &all);
        assert_eq!(errors(&filesystem), 0, "{what}");
        filesystem.shutdown().expect("works");
        drop(filesystem);
        // Each device may be lost: what the new one has is what belongs there.
        for lost in 1..count {
            let left: Vec<_> =
                (0..count).filter(|at| *at != lost).map(|at| Arc::clone(&devices[at])).collect();
            let copies: Vec<_> = left.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
            let mut options = OpenOptions::default();
            options.pool.volume.degraded = true;
            let filesystem = Filesystem::open(copies, &options).expect("opens");
            assert!(plain(&filesystem) == vec![251; 1 << 20], "{what} without {lost}");
            assert_filled(&filesystem, FILES, FILE_BYTES);
        }
    }
}

pub(super) fn open_nodatacow(devices: &[Arc<SparseDevice>]) -> Filesystem {
    let writable = devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
    let mut options = OpenOptions::default();
    options.pool.volume.degraded = true;
    let write = WriteOptions { nodatacow: true, ..WriteOptions::default() };
    Filesystem::open_writable(writable, &options, &write).expect("opens")
}

#[test]
fn a_device_that_was_away_comes_back_with_what_it_missed() {
    for (profile, count) in [(Profile::Raid1, 2), (Profile::Raid5, 3), (Profile::Raid6, 4)] {
        let Members { devices, filesystem } = Members::new(count, profile);
        filesystem.shutdown().expect("works");
        drop(filesystem);
        write_plain(&devices, true, 1);
        write_plain(&devices[1..], false, 2);
        let filesystem = open(&devices[1..], true);
        write_more(&filesystem);
        let away = Arc::clone(&devices[0]) as Arc<dyn WritableDevice>;
        let member = Arc::clone(&devices[1]) as Arc<dyn WritableDevice>;
        let refused = rejoin(&filesystem, &member, &mut on_and_on).expect_err("it is there").to_string();
        assert_eq!(refused, "memory1 is none of the pool's missing devices");
        let stop =
            &mut |progress: &Progress| if progress.done > 0 { Control::Cancel } else { Control::Continue };
        let (devid, ended) = rejoin(&filesystem, &away, stop).expect("it was away");
        assert_eq!((devid.get(), ended.control), (1, Control::Cancel), "{profile}");
        assert!(superblock(&devices[0]).is_none(), "it is not whole");
        let (_, ended) = rejoin(&filesystem, &away, &mut on_and_on).expect("it goes on");
        assert_eq!((ended.control, ended.progress.left), (Control::Continue, 0), "{profile}");
        let all: Vec<usize> = (0..count).collect();
        let pool = Members { devices, filesystem }.prove(profile.attributes().name, &all);
        assert_eq!(errors(&pool.filesystem), 0, "{profile}");
        let Members { devices, filesystem } = pool;
        filesystem.shutdown().expect("works");
        drop(filesystem);
        assert!(plain(&open(&devices[..count - 1], true)) == vec![2; 1 << 20], "{profile}: it has caught up");
    }
}

#[test]
fn impossible_replacements_are_refused_and_change_nothing() {
    let pool = Members::new(2, Profile::Raid1);
    let refused = |which, target: &Arc<SparseDevice>| {
        let done = replace_by(&pool.filesystem, which, target, &ReplaceOptions::default(), &mut on_and_on);
        done.expect_err("refused").to_string()
    };
    let error = refused(first(), &target("small", 399 * MIB));
    assert_eq!(
        error,
        "small has 418381824 bytes, and devid 1 is used up to 419430400: make that smaller first"
    );
    assert_eq!(refused(Leaving::Missing, &target("new", 400 * MIB)), "no device of the pool is missing");
    let unknown = Leaving::Id(DevId::new(9));
    assert_eq!(refused(unknown, &target("new", 400 * MIB)), "the pool has no device with the id 9");
    let other = devices(&[(400 * MIB, DeviceClass::Unknown)]).remove(0);
    other.write_at(0, b"XFSB").expect("memory");
    assert_eq!(refused(first(), &other), "memory0 holds an XFS filesystem; use -f to overwrite it");
    let forced = ReplaceOptions { force: true, ..ReplaceOptions::default() };
    replace_by(&pool.filesystem, first(), &other, &forced, &mut on_and_on).expect("forced");
    let Members { devices, filesystem } = pool;
    let devices = vec![other, Arc::clone(&devices[1])];
    Members { devices, filesystem }.prove("forced", &[0, 1]);
}

#[test]
fn the_class_of_a_device_is_that_of_the_hint_or_of_the_new_device() {
    for (hint, expected) in
        [(None, PlacementClass::Bulk), (Some(AllocationHint::MetadataPreferred), PlacementClass::Fast)]
    {
        let of = [(400 * MIB, DeviceClass::Solid), (400 * MIB, DeviceClass::Rotating)];
        let mut options = options();
        options.metadata = Some(Profile::Single);
        let made = MadePool::make_of(&of, &options).expect("made");
        let filesystem = open(&made.devices, false);
        if let Some(hint) = hint {
            filesystem.pool().set_allocation_hint(DevId::new(1), hint).expect("writable");
        }
        let new = Arc::new(SparseDevice::new("new", 400 * MIB, DeviceClass::Rotating));
        replace_by(&filesystem, first(), &new, &ReplaceOptions::default(), &mut on_and_on)
            .expect("it is as large");
        let summary = filesystem.pool().space_summary().expect("writable");
        let device = summary.devices.iter().find(|device| device.devid.get() == 1).expect("a member");
        assert_eq!(device.class, expected);
    }
}

/// Something to be done before each write, with its bytes.
type Deed = Box<dyn Fn(&[u8]) + Send + Sync>;

/// A device that has something done before it takes its next write, or each of its writes.
struct Interrupted {
    inner: Arc<SparseDevice>,
    before: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    before_each: Option<Deed>,
}

impl Interrupted {
    fn of(inner: &Arc<SparseDevice>) -> Self {
        Self { inner: Arc::clone(inner), before: Mutex::default(), before_each: None }
    }

    fn before_next_write(&self, act: impl FnOnce() + Send + 'static) {
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(act));
    }
}

impl fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Device for Interrupted {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read_at(offset, buffer)
    }

    fn class(&self) -> DeviceClass {
        self.inner.class()
    }
}

impl WritableDevice for Interrupted {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(act) = before {
            act();
        }
        self.before_each.iter().for_each(|act| act(bytes));
        self.inner.write_at(offset, bytes)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        self.inner.discard(offset, length)
    }

    fn set_size(&self, size_bytes: u64) -> Result<(), DeviceError> {
        self.inner.set_size(size_bytes)
    }
}

/// Contents that are on their way to the devices when a replacement begins, and that no file has before everything was copied: those
/// of a file that is defragmented.
#[test]
fn contents_that_enter_a_file_after_everything_was_copied_are_not_left_behind() {
    for (profile, count) in [(Profile::Single, 1), (Profile::Raid0, 2), (Profile::Raid5, 3)] {
        let Members { devices, filesystem } = Members::new(count, profile);
        filesystem.shutdown().expect("works");
        drop(filesystem);
        let interrupted = Arc::new(Interrupted::of(&devices[0]));
        let rest = devices[1..].iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>);
        let given = std::iter::once(Arc::clone(&interrupted) as Arc<dyn WritableDevice>).chain(rest);
        let filesystem =
            Filesystem::open_writable(given.collect(), &OpenOptions::default(), &WriteOptions::default());
        let filesystem = Arc::new(filesystem.expect("opens"));
        let new = NewInode { mode: 0o100_644, ..NewInode::default() };
        let id = filesystem.create(filesystem.root(), b"torn", &new).expect("room").id;
        let mut contents = vec![0; 1 << 20];
        Random::new(3).fill(&mut contents);
        let file = filesystem.open_file(id).expect("there");
        filesystem.write(&file, 0, &contents).expect("room");
        filesystem.sync().expect("durable");
        let by = Arc::clone(&filesystem);
        let new = target("new", 400 * MIB);
        let as_target = Arc::clone(&new);
        let ((has_copied, is_copied), (goes_on, may_end)) = (channel(), channel());
        let replacement = move || {
            let mut waits = true;
            let observer = &mut |progress: &Progress| {
                if progress.done == progress.expected && std::mem::take(&mut waits) {
                    has_copied.send(()).expect("waited for");
                    may_end.recv().expect("the file has them");
                }
                Control::Continue
            };
            let ended = replace_by(&by, first(), &as_target, &ReplaceOptions::default(), observer);
            ended.expect("it is as large").progress.left
        };
        let (starts, started) = channel();
        interrupted.before_next_write(move || {
            starts.send(std::thread::spawn(replacement)).expect("waited for");
            is_copied.recv().expect("all that the last commit has is copied");
        });
        let compression = CompressionChoice { algorithm: Compression::Zstd, level: None, force: true };
        let wish = ContentsWish { compression: Some(compression), ..ContentsWish::default() };
        let done = filesystem.defragment_contents(&file, 0, &wish).expect("room");
        assert!(done.moved > 0, "{profile}");
        let is_left = interrupted.before.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        assert!(!is_left, "{profile}: the contents lie on the device that is replaced");
        goes_on.send(()).expect("it waits");
        let left = started.recv().expect("begun").join().expect("it ends well");
        assert_eq!(left, 0, "{profile}");
        filesystem.close_file(file).expect("closes");
        let filesystem = Arc::into_inner(filesystem).expect("nothing else has it");
        let devices = [&[new], &devices[1..]].concat();
        let all: Vec<usize> = (0..count).collect();
        let pool = Members { devices, filesystem }.prove(&profile.to_string(), &all);
        let file = pool.filesystem.open_file(id).expect("there");
        let mut found = vec![0; contents.len()];
        pool.filesystem.read(&file, 0, &mut found).expect("readable");
        assert!(found == contents, "{profile}");
        assert_eq!(errors(&pool.filesystem), 0, "{profile}");
    }
}

/// Contents without checksums that are written in place while their window is under way: between its read and its write to the target.
#[test]
fn places_written_meanwhile_are_not_undone_by_older_reads() {
    const PIECE: usize = 4096;
    let pieces_of = |number: u64| (0..90).map(move |window| window * MIB + number * PIECE as u64);
    let Members { devices, filesystem } = Members::new(1, Profile::Single);
    filesystem.shutdown().expect("works");
    drop(filesystem);
    let filesystem = Arc::new(open_nodatacow(&devices));
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let id = filesystem.create(filesystem.root(), b"image", &new).expect("room").id;
    let file = Arc::new(filesystem.open_file(id).expect("there"));
    for window in 0..90 {
        filesystem.write(&file, window * MIB, &vec![1; 1 << 20]).expect("room");
    }
    filesystem.sync().expect("durable");
    let inner = target("new", 400 * MIB);
    let mut new = Interrupted::of(&inner);
    let (writer, to, writes) = (Arc::downgrade(&filesystem), Arc::clone(&file), AtomicU64::new(0));
    new.before_each = Some(Box::new(move |bytes| {
        // Each piece is written once, before a window is. (All else is written to the target in strips, also with writers locked out.)
        if bytes.len() < 1 << 19 {
            return;
        }
        let number = writes.fetch_add(1, Relaxed);
        if let Some(writer) = writer.upgrade().filter(|_| number < 90) {
            for at in pieces_of(number) {
                writer.write(&to, at, &[9; PIECE]).expect("room");
            }
            writer.write_back(&to).expect("in place");
        }
    }));
    let as_target = Arc::new(new) as Arc<dyn WritableDevice>;
    let replaced = replace(&filesystem, first(), &as_target, &ReplaceOptions::default(), &mut on_and_on);
    assert_eq!(replaced.expect("it is as large").1.progress.left, 0);
    filesystem.shutdown().expect("works");
    drop((filesystem, file, as_target));
    let filesystem = open(&[inner], false);
    let file = filesystem.open_file(id).expect("there");
    let mut found = vec![0; 1 << 20];
    for window in 0..90 {
        filesystem.read(&file, window * MIB, &mut found).expect("readable");
        for (number, piece) in (0u64..).zip(found.chunks(PIECE)) {
            let expected = if number < 90 { 9 } else { 1 };
            assert!(piece.iter().all(|byte| *byte == expected), "MiB {window}, piece {number}");
        }
    }
}

/// A pool that can't be written without a device is given another one in its place, and loses what lay on that alone.
#[test]
fn a_device_that_data_is_lost_with_is_replaced_if_that_is_accepted_or_rejoins_with_it() {
    let mut made = options();
    (made.data, made.metadata) = (Some(Profile::Single), Some(Profile::Raid1));
    for comes_back in [false, true] {
        let pool = MadePool::make_of(&[(400 * MIB, DeviceClass::Unknown); 2], &made).expect("made");
        let filesystem = open(&pool.devices, false);
        // Both devices get a chunk of data.
        for number in 0..FILES {
            let new = NewInode { mode: 0o100_644, ..NewInode::default() };
            let file = filesystem.create(filesystem.root(), format!("{number}").as_bytes(), &new);
            let file = filesystem.open_file(file.expect("room").id).expect("there it is");
            let mut at = 0;
            while at < 16 * MIB {
                at += filesystem.write(&file, at, &[7; 1 << 20]).expect("room") as u64;
            }
            filesystem.sync_file(&file).expect("room");
        }
        filesystem.shutdown().expect("works");
        let on_device = |devid: u64| {
            let chunks = filesystem.pool().volume().chunks().into_iter();
            let data = chunks.filter(|it| it.kind.contains(brindle_ondisk::BlockGroupType::DATA));
            data.filter(|it| it.stripes.iter().any(|stripe| stripe.devid.get() == devid)).count()
        };
        assert!(on_device(1) > 0 && on_device(2) > 0, "{} {}", on_device(1), on_device(2));
        drop(filesystem);
        let open_without = |accepts_loss| {
            let left = vec![Arc::clone(&pool.devices[1]) as Arc<dyn WritableDevice>];
            let mut options = OpenOptions::default();
            (options.pool.volume.degraded, options.pool.volume.accepts_loss) = (true, accepts_loss);
            Filesystem::open_writable(left, &options, &WriteOptions::default())
        };
        let said = open_without(false).expect_err("data is lost").to_string();
        assert!(said.contains("`brindle device replace start -f missing`"), "{said}");
        let filesystem = open_without(true).unwrap_or_else(|error| panic!("{error}"));
        let new = if comes_back { Arc::clone(&pool.devices[0]) } else { target("new", 400 * MIB) };
        let left = if comes_back {
            let device = Arc::clone(&new) as Arc<dyn WritableDevice>;
            rejoin(&filesystem, &device, &mut on_and_on).expect("it lacks nothing").1.progress.left
        } else {
            let force = ReplaceOptions { force: true, ..ReplaceOptions::default() };
            let (ended, told) =
                errors_of(|| replace_by(&filesystem, Leaving::Missing, &new, &force, &mut on_and_on));
            // One line of each file, and not of each sector.
            assert!(!told.is_empty() && told.len() <= FILES + 2, "{} lines: {:?}", told.len(), told.first());
            let is_whole_file = |line: &String| line.contains(" pieces of ") && line.contains("(/");
            assert!(told.iter().all(is_whole_file), "{told:?}");
            ended.expect("the rest is there").progress.left
        };
        assert_eq!(left > 0, !comes_back, "{left}");
        filesystem.shutdown().expect("works");
        drop(filesystem);
        let filesystem = open(&[new, Arc::clone(&pool.devices[1])], false);
        let is_whole = |number: usize| {
            let found = filesystem.lookup(filesystem.root(), format!("{number}").as_bytes());
            let file = filesystem.open_file(found.expect("readable").expect("there").inode).expect("there");
            let mut bytes = vec![0; 1 << 20];
            (0..16).all(|part| {
                let read = filesystem.read(&file, part * MIB, &mut bytes);
                read.is_ok_and(|count| count == bytes.len()) && bytes.iter().all(|byte| *byte == 7)
            })
        };
        let whole = (0..FILES).filter(|number| is_whole(*number)).count();
        assert_eq!(whole == FILES, comes_back, "{whole} files");
        assert!(whole > 0);
        write_more(&filesystem);
        filesystem.shutdown().expect("works");
    }
}

/// Data without checksums that lies on the device alone can be verified by nothing, and nothing else has it: it stays there.
#[test]
fn a_device_that_rejoins_keeps_data_without_checksums_that_lies_on_it_alone() {
    let mut made = options();
    for data in [Profile::Single, Profile::Dup, Profile::Raid0] {
        (made.data, made.metadata) = (Some(data), Some(Profile::Raid1));
        let pool = MadePool::make_of(&[(400 * MIB, DeviceClass::Unknown); 2], &made).expect("made");
        let write = WriteOptions { nodatasum: true, ..WriteOptions::default() };
        let opened = |devices: Vec<Arc<dyn WritableDevice>>, accepts_loss: bool| {
            let mut options = OpenOptions::default();
            (options.pool.volume.degraded, options.pool.volume.accepts_loss) = (accepts_loss, accepts_loss);
            Filesystem::open_writable(devices, &options, &write).expect("opens")
        };
        let all: Vec<_> = pool.devices.iter().map(|it| Arc::clone(it) as Arc<dyn WritableDevice>).collect();
        let filesystem = opened(all.clone(), false);
        let contents = |number: usize| vec![u8::try_from(number).expect("few"); 1 << 20];
        for number in 0..FILES * 8 {
            let new = NewInode { mode: 0o100_644, ..NewInode::default() };
            let file = filesystem.create(filesystem.root(), format!("{number}").as_bytes(), &new);
            let file = filesystem.open_file(file.expect("room").id).expect("there it is");
            filesystem.write(&file, 0, &contents(number)).expect("room");
        }
        filesystem.shutdown().expect("works");
        drop(filesystem);
        let filesystem = opened(vec![Arc::clone(&all[1])], true);
        let (_, ended) =
            rejoin(&filesystem, &all[0], &mut on_and_on).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(ended.progress.left, 0, "{data:?}");
        filesystem.shutdown().expect("works");
        drop(filesystem);
        let filesystem = opened(all, false);
        for number in 0..FILES * 8 {
            let found = filesystem.lookup(filesystem.root(), format!("{number}").as_bytes());
            let file = filesystem.open_file(found.expect("readable").expect("there").inode).expect("there");
            let mut bytes = vec![0; 1 << 20];
            assert_eq!(filesystem.read(&file, 0, &mut bytes).expect("readable"), bytes.len());
            assert!(bytes == contents(number), "{data:?}: {number}");
        }
        filesystem.shutdown().expect("works");
    }
}

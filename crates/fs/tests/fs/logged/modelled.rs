//! A whole pool on modelled drives, in virtual time: how long an fsync takes, and what it asks of the disk. Exact, and
//! of a *modelled* SSD and a *modelled* hard disk.

use crate::contents::patterns::Program;
use crate::simulated::{Layout, Pool, check};
use brindle_device::WritableDevice;
use brindle_fs::{AllocateMode, ContentsWish, Destaged, Filesystem, WriteBackMode, WriteBackWish};
use brindle_ondisk::Profile;
use brindle_policy::writeback::{DestageSettings, WaitingData, destage_reason};
use brindle_sim::{
    Drive, DriveCounts, HardDisk, HardDiskParameters, Image, ModelDevice, Random, VirtualTime,
};
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
/// Fsyncs of a run.
const ROUNDS: u64 = 200;

/// An SSD and a disk, metadata and small files on the SSD.
pub(super) const ONE_OF_EACH: Layout = Layout {
    devices: 2,
    device_mib: 4096,
    data: Profile::Single,
    metadata: Profile::Dup,
    nodesize: 16384,
    features: "",
    compression: None,
    fast: 1,
};

/// A pool on modelled drives.
pub(super) struct Modelled {
    pub(super) time: Arc<VirtualTime>,
    pub(super) devices: Vec<Arc<ModelDevice>>,
    pub(super) filesystem: Filesystem,
}

impl Modelled {
    fn new(layout: &Layout, drives: Vec<Drive>) -> Self {
        Self::writing_back(layout, drives, WriteBackMode::Off, 16 << 10)
    }

    /// With a mode of write-back, and the length up to which files are small.
    pub(super) fn writing_back(
        layout: &Layout,
        drives: Vec<Drive>,
        mode: WriteBackMode,
        small_file_bytes: u64,
    ) -> Self {
        let time = VirtualTime::new();
        let new = |(number, drive): (usize, Drive)| {
            let image = Image::new(layout.device_bytes());
            Arc::new(ModelDevice::new(format!("drive{number}"), image, drive, &time))
        };
        let devices: Vec<_> = drives.into_iter().enumerate().map(new).collect();
        let writable = devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>);
        let writable: Vec<_> = writable.collect();
        layout.mkfs(&writable);
        let mut pool = Pool::on(writable, layout);
        pool.write.tree_log = true;
        pool.write.write_back = WriteBackWish::Told(mode);
        pool.write.small_file_bytes = Some(small_file_bytes);
        let filesystem = pool.open().expect("opens");
        let program = Program::new(&filesystem);
        program.make_directory("mail");
        program.put("first", &[1; 12 << 10]);
        filesystem.sync().expect("commits");
        program.put("second", b"");
        Self { time, devices, filesystem }
    }

    /// Makes small files durable, one a second; returns the longest time that one took, in nanoseconds.
    fn mail(&self) -> u64 {
        let program = Program::new(&self.filesystem);
        let put = |round| {
            self.time.sleep(SECOND);
            let begin = self.time.now_ns();
            program.put(&format!("mail/{round}"), &[7; 3000]);
            self.time.now_ns() - begin
        };
        (0..ROUNDS).map(put).max().expect("some")
    }

    pub(super) fn counts(&self) -> Vec<DriveCounts> {
        self.devices.iter().map(|device| device.counts()).collect()
    }
}

fn sleeper() -> Drive {
    let parameters = HardDiskParameters { spin_down_ns: Some(20 * SECOND), ..HardDiskParameters::default() };
    Drive::HardDisk(Box::new(HardDisk::new(parameters)))
}

/// Fsyncs, then a file that the disk has to take; the longest fsync, the time of all, and the counts.
fn run() -> (u64, u64, Vec<DriveCounts>) {
    let pool = Modelled::new(&ONE_OF_EACH, vec![Drive::sata_ssd(), sleeper()]);
    pool.devices.iter().for_each(|device| device.reset_counts());
    let longest = pool.mail();
    assert_eq!(pool.counts()[1], DriveCounts::default(), "the disk sleeps on");
    assert!(longest < 10_000_000, "{longest} ns on an SSD whose flush takes 1 ms");
    let begin = pool.time.now_ns();
    let bytes: Vec<u8> = (0..64 * MIB).map(|at| (at / 4096 % 251) as u8).collect();
    Program::new(&pool.filesystem).put("film", &bytes);
    pool.filesystem.sync().expect("commits");
    let took = pool.time.now_ns() - begin;
    let counts = pool.counts();
    assert_eq!(counts[1].wake_ups, 1, "the disk is woken once");
    assert!((64 * MIB..66 * MIB).contains(&counts[1].written_bytes), "{:?}", counts[1]);
    assert!((7 * SECOND..8 * SECOND).contains(&took), "{took} ns: 7 s until it turns, then 220 MB/s");
    let file = Program::new(&pool.filesystem).open("film");
    let mut found = vec![0; bytes.len()];
    let read = pool.filesystem.read(&file, 0, &mut found).expect("reads");
    assert!(read == found.len() && found == bytes);
    Program::new(&pool.filesystem).close(file);
    let (end, counts) = (pool.time.now_ns(), pool.counts());
    let devices: Vec<_> =
        pool.devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
    pool.filesystem.sync().expect("commits");
    drop(pool.filesystem);
    check(&devices).expect("whole");
    (longest, end, counts)
}

#[test]
fn fsyncs_on_an_ssd_let_the_disk_sleep_and_a_large_file_wakes_it_once() {
    let first = run();
    println!("longest fsync {} ns; in all {} ns; {:#?}", first.0, first.1, first.2);
    // Large files are written by several threads, in the order that the host gives them.
    assert_eq!(run().0, first.0, "the same in each run");
}

/// A pool of two disks and an SSD, all mirrored: small files have one copy on the SSD.
#[test]
fn small_files_are_read_from_the_only_ssd_while_the_disks_sleep() {
    let layout = Layout { devices: 3, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE_OF_EACH };
    let pool = Modelled::new(&layout, vec![Drive::sata_ssd(), sleeper(), sleeper()]);
    pool.mail();
    Program::new(&pool.filesystem).put("film", &vec![3; 1 << 20]);
    let Modelled { time, devices, filesystem } = pool;
    filesystem.shutdown().expect("closes");
    drop(filesystem);
    let writable = devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>);
    let again = Pool::on(writable.collect(), &layout);
    let pool = Modelled { filesystem: again.open().expect("opens"), time, devices };
    pool.devices.iter().for_each(|device| device.reset_counts());
    let program = Program::new(&pool.filesystem);
    for round in 0..ROUNDS {
        pool.time.sleep(SECOND);
        assert_eq!(program.read(&format!("mail/{round}")).expect("there"), [7; 3000]);
    }
    let counts = pool.counts();
    assert!(counts[0].reads > 0, "{counts:?}");
    assert_eq!(counts[1..], [DriveCounts::default(); 2], "the disks sleep on");
    assert_eq!(program.read("film").expect("there").len(), 1 << 20);
    let woken: u64 = pool.counts()[1..].iter().map(|counts| counts.wake_ups).sum();
    assert!(woken > 0, "{:?}", pool.counts());
}

#[test]
fn fsync_on_a_disk_alone_costs_revolutions() {
    let layout = Layout { devices: 1, fast: 0, ..ONE_OF_EACH };
    let pool = Modelled::new(&layout, vec![Drive::hard_disk()]);
    pool.devices[0].reset_counts();
    let (longest, counts) = (pool.mail(), pool.counts()[0]);
    println!("longest fsync {longest} ns, {counts:#?}");
    assert!((8_000_000..200_000_000).contains(&longest), "{longest}");
    assert!(counts.seeks >= 2 * ROUNDS && counts.flushes >= 2 * ROUNDS, "{counts:?}");
}

/// Packages of an upgrade, and files of each.
const PACKAGES: u64 = 120;
const FILES: u64 = 12;
/// Interval of commits.
const COMMIT_NS: u64 = 30 * SECOND;

/// Length of a file of a package: most are short, few are long.
fn length(package: u64, file: u64) -> usize {
    let word = (package * FILES + file).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let most = [4 << 10, 20 << 10, 60 << 10, 400 << 10][usize::try_from(word % 4).expect("small")];
    1000 + usize::try_from(word / 4).expect("small") % most
}

impl Modelled {
    /// Upgrades packages as dpkg does: each file anew beside the old one, synced, and renamed over it; then the status.
    /// Returns the nanoseconds until the last sync, and those until all data is where it stays.
    fn upgrade(&self) -> (u64, u64) {
        let program = Program::new(&self.filesystem);
        program.make_directory("usr");
        program.put("status", &[0; 100_000]);
        for package in 0..PACKAGES {
            program.make_directory(&format!("usr/{package}"));
            for file in 0..FILES {
                program.create(&format!("usr/{package}/{file}"));
            }
        }
        self.filesystem.sync().expect("commits");
        let begin = self.time.now_ns();
        let mut next_commit = begin + COMMIT_NS;
        for package in 0..PACKAGES {
            for file in 0..FILES {
                let path = format!("usr/{package}/{file}");
                program.put(&format!("{path}.dpkg-new"), &vec![5; length(package, file)]);
                program.rename(&format!("{path}.dpkg-new"), &path);
            }
            program.put("status-new", &[1; 100_000]);
            program.rename("status-new", "status");
            program.sync_directory("");
            if self.time.now_ns() >= next_commit {
                next_commit = self.time.now_ns() + COMMIT_NS;
                self.filesystem.sync().expect("commits");
            }
        }
        let synced = self.time.now_ns() - begin;
        let destaged = self.filesystem.destage(&|| true).expect("room");
        assert!(matches!(destaged, Destaged::All(_)));
        self.filesystem.sync().expect("commits");
        (synced, self.time.now_ns() - begin)
    }
}

/// An upgrade on an SSD and a disk takes as long as on an SSD alone (aim: 1.15 times), for no sync waits for the disk.
#[test]
fn s0_17_a_package_upgrade_on_both_is_as_fast_as_on_an_ssd_alone() {
    let alone = Layout { devices: 1, ..ONE_OF_EACH };
    let upgrade = |layout: &Layout, drives, mode| {
        let pool = Modelled::writing_back(layout, drives, mode, 0);
        pool.devices.iter().for_each(|device| device.reset_counts());
        let times = pool.upgrade();
        println!("{mode}: {times:?} ns, {:#?}", pool.counts());
        (times, pool.counts())
    };
    let both = || vec![Drive::sata_ssd(), Drive::hard_disk()];
    let ((ssd, _), _) = upgrade(&alone, vec![Drive::sata_ssd()], WriteBackMode::Off);
    let ((without, _), _) = upgrade(&ONE_OF_EACH, both(), WriteBackMode::Off);
    let ((with, in_all), counts) = upgrade(&ONE_OF_EACH, both(), WriteBackMode::Sync);
    let percent = |time: u64| time * 100 / ssd;
    println!(
        "percent of an SSD alone: without {}, with {}, and destaged {}",
        percent(without),
        percent(with),
        percent(in_all)
    );
    assert!(percent(with) <= 115, "{} percent of an SSD alone", percent(with));
    assert!(without > 2 * with, "{without} ns without, {with} ns with");
    // The disk is given long runs: few requests, of which a seek is the exception.
    let disk = &counts[1];
    let runs = disk.written_bytes / disk.seeks.max(1);
    assert!(runs > 256 << 10, "{runs} bytes between two seeks: {disk:?}");
}

/// Contents that many syncs wrote, those of two files in turns, become long runs on the disk: few requests, few extents.
#[test]
fn s4_14_what_many_syncs_wrote_is_destaged_as_few_extents_in_few_requests() {
    const SYNCS: u64 = 512;
    const PIECE: u64 = 8 << 10;
    let drives = vec![Drive::sata_ssd(), Drive::hard_disk()];
    let pool = Modelled::writing_back(&ONE_OF_EACH, drives, WriteBackMode::Sync, 0);
    let program = Program::new(&pool.filesystem);
    let files = [program.create("one"), program.create("another")];
    for number in 0..SYNCS {
        for file in &files {
            program.write(file, number * PIECE, &[6; 8 << 10]);
            program.sync(file);
        }
    }
    files.into_iter().for_each(|file| program.close(file));
    pool.filesystem.sync().expect("commits");
    pool.devices.iter().for_each(|device| device.reset_counts());
    let destaged = pool.filesystem.destage(&|| true).expect("room");
    let disk = pool.counts()[1];
    println!("{destaged:?}, {disk:#?}");
    assert!((2 * SYNCS * PIECE..3 * SYNCS * PIECE).contains(&disk.written_bytes), "{disk:?}");
    assert!(disk.writes <= 16 && disk.seeks <= 16, "of {} syncs: {disk:?}", 2 * SYNCS);
    for name in ["one", "another"] {
        let found = program.read(name).expect("there");
        assert!(brindle_ondisk::to_u64(found.len()) == SYNCS * PIECE && found.iter().all(|byte| *byte == 6));
    }
    let before = pool.counts()[1];
    pool.filesystem.destage(&|| true).expect("room");
    assert_eq!(pool.counts()[1], before, "nothing is left to destage");
}

/// Bytes of an object, of a record of the journal, and of the journal.
const OBJECT: u64 = 512 << 10;
const RECORD: u64 = OBJECT + 4096;
const JOURNAL: u64 = 24 << 20;

/// Placement of the journal of an object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Journal {
    /// In the pool, as any file.
    Plain,
    /// In a directory marked for fast devices.
    Marked,
}

impl Modelled {
    /// An object store: records of some clients at a time are made durable in a preallocated journal; then the objects, the
    /// log and the state of their group are written. All is synced every five seconds and when the journal is full. Returns
    /// nanoseconds, those of the syncs of the journal, and their number.
    fn objects(&self, clients: u64, objects: u64, place: Journal) -> (u64, u64, u64) {
        let program = Program::new(&self.filesystem);
        program.make_directory("store");
        program.make_directory("journal");
        if place == Journal::Marked {
            let directory = program.find("journal").expect("there");
            let mark = brindle_fs::XattrMode::Any;
            self.filesystem.set_xattr(directory, b"user.brindle.tier", b"fast", mark).expect("marks");
        }
        let journal = program.create("journal/journal");
        let allocated = self.filesystem.allocate(&journal, AllocateMode::Allocate, 0, JOURNAL);
        allocated.expect("room");
        let (log, state) = (program.create("store/log"), program.create("store/state"));
        self.filesystem.sync().expect("commits");
        self.devices.iter().for_each(|device| device.reset_counts());
        let object: Vec<u8> = (0..OBJECT).map(|at| (at % 251) as u8).collect();
        let record = vec![5; usize::try_from(clients * RECORD).expect("small")];
        let (begin, mut at, mut synced, mut syncs) = (self.time.now_ns(), 0, 0, 0);
        let mut last = begin;
        for number in (0..objects).step_by(usize::try_from(clients).expect("small")) {
            if at + clients * RECORD > JOURNAL || self.time.now_ns() > last + 5 * SECOND {
                self.filesystem.sync().expect("commits");
                last = self.time.now_ns();
                at = if at + clients * RECORD > JOURNAL { 0 } else { at };
            }
            let before = self.time.now_ns();
            program.write(&journal, at, &record);
            program.sync(&journal);
            (synced, syncs, at) = (synced + self.time.now_ns() - before, syncs + 1, at + clients * RECORD);
            for number in number..number + clients {
                let file = program.create(&format!("store/{number}"));
                program.write(&file, 0, &object);
                program.close(file);
                program.write(&log, number * 147, &[1; 147]);
                program.write(&state, 0, &[2; 496]);
            }
        }
        self.filesystem.sync().expect("commits");
        [journal, log, state].into_iter().for_each(|file| program.close(file));
        (self.time.now_ns() - begin, synced, syncs)
    }
}

/// The syncs of an object store wait for no disk: its journal is as fast where it lies by itself as where it is marked for fast
/// devices.
#[test]
fn s4_the_journal_of_an_object_store_is_as_fast_as_on_flash() {
    const OBJECTS: u64 = 64;
    for clients in [1, 4, 16] {
        let run = |place, mode| {
            let drives = vec![Drive::sata_ssd(), Drive::hard_disk()];
            let pool = Modelled::writing_back(&ONE_OF_EACH, drives, mode, 0);
            let (all, synced, syncs) = pool.objects(clients, OBJECTS, place);
            let counts = pool.counts();
            let told = |count: &DriveCounts| {
                format!(
                    "{} writes, {} MiB, {} flushes, {} seeks",
                    count.writes,
                    count.written_bytes / MIB,
                    count.flushes,
                    count.seeks
                )
            };
            println!(
                "{clients} clients, {place:?}, {mode}: {} MB/s, {} us a sync; {}; {}",
                OBJECTS * OBJECT * 1000 / all,
                synced / syncs / 1000,
                told(&counts[0]),
                told(&counts[1])
            );
            (all, synced)
        };
        let marked = run(Journal::Marked, WriteBackMode::Sync);
        let with = run(Journal::Plain, WriteBackMode::Sync);
        assert!(with.1 * 10 <= marked.1 * 11 && with.0 * 10 <= marked.0 * 11, "{with:?} {marked:?}");
        if clients == 1 {
            let without = run(Journal::Plain, WriteBackMode::Off);
            assert!(without.1 > 2 * with.1 && 2 * without.0 > 3 * with.0, "{with:?} {without:?}");
        }
    }
}

/// Time between two acts of a home server, and acts of an hour.
const ACT_NS: u64 = 10 * SECOND;
const ACTS: u64 = 360;

impl Modelled {
    /// An hour of a home server: logs that grow and are synced, mails, documents that are saved over, photos that come
    /// in, recent files that are read; a commit every 30 seconds. Data is destaged when the policy says so.
    fn hour(&self, settings: &DestageSettings) {
        let program = Program::new(&self.filesystem);
        for directory in ["home", "photos"] {
            program.make_directory(directory);
        }
        program.put("home/log", &[0; 8192]);
        self.filesystem.sync().expect("commits");
        let (begin, mut last, mut oldest) = (self.time.now_ns(), None, None);
        for act in 0..ACTS {
            self.time.sleep(ACT_NS);
            let log = program.open("home/log");
            program.write(&log, 8192 + act * 300, &[1; 300]);
            program.sync(&log);
            program.close(log);
            match act % 12 {
                1 => program.put(&format!("mail/hour{act}"), &[2; 30_000]),
                5 => {
                    program.put("home/document.new", &[3; 250_000]);
                    program.rename("home/document.new", "home/document");
                }
                7 => {
                    let photo = program.create(&format!("photos/{act}"));
                    program.write(&photo, 0, &vec![4; 3_000_000]);
                    program.close(photo);
                }
                9 => assert!(program.read(&format!("photos/{}", act - 2)).is_some()),
                _ => {}
            }
            if act % 3 == 2 {
                self.filesystem.sync().expect("commits");
            }
            let now = self.time.now_ns();
            let status = self.filesystem.write_back_status().expect("readable");
            oldest = oldest.filter(|_| status.waiting_bytes > 0).or(Some(now));
            let since = |time: Option<u64>| Duration::from_nanos(now - time.unwrap_or(begin));
            let waiting = WaitingData {
                bytes: status.waiting_bytes,
                capacity_bytes: status.capacity_bytes,
                oldest: since(oldest),
                since_last: since(last),
                ..WaitingData::default()
            };
            if destage_reason(&waiting, settings).is_some() {
                self.filesystem.destage(&|| true).expect("room");
                last = Some(now);
            }
        }
    }
}

/// With everything on flash first, a disk that sleeps after 20 seconds is woken twice an hour at the most.
#[test]
fn s0_23_a_disk_sleeps_through_the_hour_of_a_home_server() {
    let half_an_hour = Duration::from_secs(1800);
    let settings = DestageSettings { age: half_an_hour, interval: half_an_hour };
    let hour = |mode| {
        let drives = vec![Drive::sata_ssd(), sleeper()];
        let pool = Modelled::writing_back(&ONE_OF_EACH, drives, mode, 0);
        pool.devices.iter().for_each(|device| device.reset_counts());
        pool.hour(&settings);
        let counts = pool.counts()[1];
        println!("{mode}: {counts:#?}");
        counts
    };
    let [off, sync, all] = [WriteBackMode::Off, WriteBackMode::Sync, WriteBackMode::All].map(hour);
    assert_eq!(off.wake_ups, 0, "it never comes to sleep");
    assert!(all.wake_ups <= 2 && all.wake_ups < sync.wake_ups, "{sync:?} {all:?}");
    assert!(20 * all.requests() < off.requests(), "{off:?} {all:?}");
}

/// Reads a file in order, in pieces, by nothing but the devices; returns nanoseconds.
fn stream(pool: &Modelled, path: &str) -> u64 {
    let file = Program::new(&pool.filesystem).open(path);
    let (begin, mut at) = (pool.time.now_ns(), 0);
    let mut piece = vec![0; 256 << 10];
    while at < file.size() {
        at += pool.filesystem.read(&file, at, &mut piece).expect("reads") as u64;
    }
    let took = pool.time.now_ns() - begin;
    Program::new(&pool.filesystem).close(file);
    took
}

/// An image of a virtual machine: written in order, then at random for a long time, each write synced.
#[test]
fn s4_14_an_image_that_random_writes_have_torn_is_read_in_order_again_after_defragmentation() {
    const SIZE: u64 = 96 * MIB;
    const WRITES: u64 = 3000;
    let layout = Layout { devices: 1, fast: 0, ..ONE_OF_EACH };
    let pool = Modelled::new(&layout, vec![Drive::hard_disk()]);
    let program = Program::new(&pool.filesystem);
    let image = program.create("image");
    (0..SIZE / MIB).for_each(|number| program.write(&image, number * MIB, &vec![5; 1 << 20]));
    pool.filesystem.sync().expect("commits");
    let new = stream(&pool, "image");
    let mut random = Random::new(14);
    for _ in 0..WRITES {
        program.write(&image, random.below(SIZE / 16384) * 16384, &[6; 16384]);
        program.sync(&image);
    }
    pool.filesystem.sync().expect("commits");
    let torn = stream(&pool, "image");
    let before = program.read("image").expect("there");
    let (mut from, mut moved) = (Some(0), 0);
    while let Some(at) = from {
        let done = pool.filesystem.defragment_contents(&image, at, &ContentsWish::default()).expect("room");
        (from, moved) = (done.next, moved + done.moved);
    }
    let again = stream(&pool, "image");
    let percent = |took: u64| new * 100 / took;
    println!("{new} ns new, {torn} ns torn ({} %), {again} ns again ({} %)", percent(torn), percent(again));
    assert!(moved > WRITES, "{moved} extents");
    assert!(program.read("image").expect("there") == before, "the same contents");
    assert!(percent(torn) < 60 && percent(again) >= 80, "of the speed of the new file");
    program.close(image);
    pool.filesystem.sync().expect("commits");
    let devices: Vec<_> =
        pool.devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
    drop(pool.filesystem);
    check(&devices).expect("whole");
}

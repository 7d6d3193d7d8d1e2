//! Scrubs of pools in memory that have been damaged.

use crate::support::files::{assert_filled, fill};
use crate::support::{MIB, MadePool, assert_clean, examine, options};
use brindle_care::scrub::{DeviceState, Plan, Scrub, ScrubCounts, ScrubError, ScrubRecord, ScrubReport};
use brindle_device::{Device, DeviceClass, DeviceError, SparseDevice, WritableDevice};
use brindle_fs::{Filesystem, NewInode, OpenOptions, WriteOptions};
use brindle_ondisk::{BlockGroupType, Profile, SUPERBLOCK_OFFSETS};
use brindle_sim::{Fault, FaultyDevice};
use std::io::Error;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const FILES: usize = 12;
const FILE_BYTES: usize = 300_000;

fn open(devices: &[Arc<SparseDevice>], degraded: bool) -> Filesystem {
    let devices = devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
    let mut options = OpenOptions::default();
    options.pool.volume.degraded = degraded;
    Filesystem::open_writable(devices, &options, &WriteOptions::default()).expect("opens")
}

fn readable(devices: &[Arc<SparseDevice>]) -> Vec<Arc<dyn Device>> {
    devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect()
}

/// A pool with files in it, closed.
fn filled(profile: Profile, count: usize) -> Vec<Arc<SparseDevice>> {
    let mut options = options();
    (options.data, options.metadata) = (Some(profile), Some(profile));
    let pool = MadePool::make_of(&vec![(400 * MIB, DeviceClass::Unknown); count], &options).expect("made");
    let filesystem = open(&pool.devices, false);
    fill(&filesystem, FILES, FILE_BYTES);
    filesystem.shutdown().expect("works");
    pool.devices
}

fn scrub(filesystem: &Filesystem, plan: &Plan) -> ScrubReport {
    let scrub = Scrub::new(filesystem, plan).expect("a plan");
    scrub.run(filesystem).expect("it runs");
    scrub.report()
}

/// Device extents of a pool: of which device, where, how long, and their kind.
fn extents(filesystem: &Filesystem) -> Vec<(u64, u64, u64, BlockGroupType)> {
    let chunks = filesystem.pool().volume().chunks();
    let of_chunk = |chunk: &brindle_volume::ChunkStatus| {
        let kind = chunk.kind;
        let extent =
            move |it: &brindle_volume::StripeStatus| (it.devid.get(), it.physical.get(), it.length, kind);
        chunk.stripes.iter().map(extent).collect::<Vec<_>>()
    };
    chunks.iter().flat_map(of_chunk).collect()
}

/// Inverts bytes of a device.
fn rot(device: &SparseDevice, offset: u64, length: usize) {
    let mut bytes = vec![0; length];
    device.read_at(offset, &mut bytes).expect("memory");
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
    device.write_at(offset, &bytes).expect("memory");
}

/// Spoils a device from one end of what belongs to chunks to the other.
fn spoil(devices: &[Arc<SparseDevice>], index: usize) {
    let filesystem = Filesystem::open(readable(devices), &OpenOptions::default()).expect("opens");
    let devid = index as u64 + 1;
    for (_, physical, length, _) in extents(&filesystem).iter().filter(|extent| extent.0 == devid) {
        let mut at = 0;
        while at < (*length).min(8 * MIB) {
            rot(&devices[index], physical + at + 100, 3000);
            at += 12 << 10;
        }
    }
}

fn shapes() -> impl Iterator<Item = (Profile, usize)> {
    Profile::TABLE.iter().flat_map(|row| {
        let least = usize::from(row.devs_min);
        let most = if matches!(row.profile, Profile::Dup | Profile::Single) { least } else { least + 1 };
        (least..=most).map(|count| (row.profile, count))
    })
}

#[test]
fn a_whole_pool_is_found_whole() {
    for (profile, count) in shapes() {
        let devices = filled(profile, count);
        let before: Vec<_> = devices.iter().map(|device| device.written()).collect();
        let filesystem = Filesystem::open(readable(&devices), &OpenOptions::default()).expect("opens");
        let report = scrub(&filesystem, &Plan { read_only: true, ..Plan::default() });
        let counts = report.counts();
        assert_eq!((counts.errors(), report.fault_count), (0, 0), "{profile}: {report:?}");
        let copies = u64::from(Profile::attributes(profile).ncopies);
        let copies = if profile.has_parity() { 1 } else { copies };
        let sectors = (FILE_BYTES as u64).div_ceil(4096) * 4096;
        assert_eq!(counts.data_bytes, FILES as u64 * sectors * copies, "{profile}");
        assert!(counts.tree_bytes > 0 && counts.no_csum == 0, "{profile}");
        for device in &report.devices {
            assert_eq!((&device.state, device.done_bytes), (&DeviceState::Finished, device.total_bytes));
        }
        drop(filesystem);
        assert!(before == devices.iter().map(|device| device.written()).collect::<Vec<_>>(), "{profile}");
    }
}

#[test]
fn rot_all_over_any_one_device_is_corrected_where_the_profile_bears_it() {
    for (profile, count) in shapes().filter(|(profile, _)| profile.attributes().tolerated_failures > 0) {
        for index in 0..count {
            let what = format!("{profile} on {count} devices, rot on {index}");
            let devices = filled(profile, count);
            spoil(&devices, index);
            let filesystem = open(&devices, false);
            let report = scrub(&filesystem, &Plan::default());
            let counts = report.counts();
            assert!(counts.csum_errors + counts.parity_errors + counts.verify_errors > 0, "{what}");
            assert_eq!(counts.uncorrectable_errors, 0, "{what}: {report:?}");
            assert_eq!(counts.corrected_errors, counts.errors(), "{what}");
            let again = scrub(&filesystem, &Plan::default()).counts();
            assert_eq!((again.errors(), again.corrected_errors), (0, 0), "{what}, again");
            assert_filled(&filesystem, FILES, FILE_BYTES);
            drop(filesystem);
            assert_clean(&what, &examine(readable(&devices)));
        }
    }
}

#[test]
fn rot_beside_a_missing_device_is_corrected_by_raid6() {
    for count in [3, 4] {
        for (missing, rotten) in (0..count).flat_map(|a| (0..count).map(move |b| (a, b))) {
            if missing == rotten {
                continue;
            }
            let what = format!("{count} devices, {missing} missing, rot on {rotten}");
            let devices = filled(Profile::Raid6, count);
            spoil(&devices, rotten);
            let mut left = devices.clone();
            left.remove(missing);
            let filesystem = open(&left, true);
            let report = scrub(&filesystem, &Plan::default());
            let counts = report.counts();
            assert!(counts.csum_errors > 0, "{what}");
            assert_eq!(counts.uncorrectable_errors, 0, "{what}: {report:?}");
            let lost = report.devices.iter().find(|device| device.state == DeviceState::Missing);
            assert_eq!(lost.map(|device| device.devid.get()), Some(missing as u64 + 1), "{what}");
            assert_filled(&filesystem, FILES, FILE_BYTES);
            let again = scrub(&filesystem, &Plan::default()).counts();
            assert_eq!(again.csum_errors, 0, "{what}, again");
        }
    }
}

#[test]
fn a_scrub_that_only_looks_writes_nothing_and_says_what_could_be_corrected() {
    let devices = filled(Profile::Raid1, 2);
    spoil(&devices, 1);
    let before: Vec<_> = devices.iter().map(|device| device.written()).collect();
    let filesystem = Filesystem::open(readable(&devices), &OpenOptions::default()).expect("opens");
    // Some rot is of blocks that opening the pool has read from elsewhere.
    let counts = scrub(&filesystem, &Plan { read_only: true, ..Plan::default() }).counts();
    assert!(counts.correctable_errors > 0 && counts.correctable_errors == counts.errors(), "{counts:?}");
    assert_eq!((counts.corrected_errors, counts.uncorrectable_errors), (0, 0));
    drop(filesystem);
    assert!(before == devices.iter().map(|device| device.written()).collect::<Vec<_>>());
}

#[test]
fn contents_that_are_lost_are_told_with_the_names_of_their_files() {
    let devices = filled(Profile::Single, 1);
    let filesystem = open(&devices, false);
    let data = extents(&filesystem).into_iter().find(|extent| extent.3.contains(BlockGroupType::DATA));
    let (_, physical, ..) = data.expect("a chunk of data");
    // The files lie one behind the other.
    rot(&devices[0], physical + 20 * 4096 + 5, 1);
    let report = scrub(&filesystem, &Plan::default());
    let counts = report.counts();
    assert_eq!(
        (counts.csum_errors, counts.uncorrectable_errors, report.fault_count),
        (1, 1, 1),
        "{report:?}"
    );
    let fault = &report.faults[0];
    assert_eq!(fault.files, [(b"/file0".to_vec(), 20 * 4096)], "{fault:?}");
    assert!(fault.text.contains("checksum"), "{}", fault.text);
}

/// Regression: the record was full of the sectors of the first file.
#[test]
fn each_damaged_file_is_named_however_much_of_another_one_is_damaged() {
    let devices = filled(Profile::Single, 1);
    let filesystem = open(&devices, false);
    let of = |name: &[u8], bytes: usize| {
        let new = NewInode { mode: 0o100_644, ..NewInode::default() };
        let made = filesystem.create(filesystem.root(), name, &new).expect("room");
        let file = filesystem.open_file(made.id).expect("there");
        filesystem.write(&file, 0, &vec![7; bytes]).expect("room");
        filesystem.sync().expect("works");
    };
    of(b"large", 8 << 20);
    of(b"small", 8192);
    let data = extents(&filesystem).into_iter().filter(|it| it.3.contains(BlockGroupType::DATA));
    for (_, physical, length, _) in data {
        for at in (physical..physical + length).step_by(4096) {
            let mut byte = [0];
            devices[0].read_at(at, &mut byte).expect("memory");
            if byte != [0] {
                rot(&devices[0], at, 1);
            }
        }
    }
    let report = scrub(&filesystem, &Plan::default());
    assert!(report.fault_count > 2048 && report.fault_count == report.counts().errors(), "{report:?}");
    let names =
        |name: &[u8]| report.faults.iter().filter(|it| it.files.iter().any(|it| it.0 == name)).count();
    assert_eq!((report.unlisted, names(b"/small") > 0), (0, true), "{report:?}");
    // One of each window.
    assert!((1..=16).contains(&names(b"/large")), "{report:?}");
}

#[test]
fn copies_of_the_superblock_are_corrected() {
    for (index, copies) in [(0, &[0][..]), (1, &[1]), (2, &[0, 1])] {
        let devices = filled(Profile::Raid1c3, 3);
        let filesystem = open(&devices, false);
        for copy in copies {
            rot(&devices[index], SUPERBLOCK_OFFSETS[*copy] + 200, 10);
        }
        let looked = scrub(&filesystem, &Plan { read_only: true, ..Plan::default() }).counts();
        assert_eq!(
            (looked.super_errors, looked.correctable_errors),
            (copies.len() as u64, copies.len() as u64)
        );
        let counts = scrub(&filesystem, &Plan::default()).counts();
        assert_eq!(
            (counts.super_errors, counts.corrected_errors),
            (copies.len() as u64, copies.len() as u64)
        );
        drop(filesystem);
        assert_clean("superblocks", &examine(readable(&devices)));
    }
}

#[test]
fn a_scrub_goes_on_where_it_was_interrupted() {
    let devices = filled(Profile::Raid1, 2);
    let filesystem = open(&devices, false);
    let whole = scrub(&filesystem, &Plan::default());
    // Within the data: what lies before is not looked at again.
    let mut record = ScrubRecord { report: whole.clone(), ..ScrubRecord::default() };
    let data: Vec<_> =
        extents(&filesystem).into_iter().filter(|it| it.3.contains(BlockGroupType::DATA)).collect();
    for device in &mut record.report.devices {
        let (_, physical, ..) = data.iter().find(|extent| extent.0 == device.devid.get()).expect("data");
        device.last_physical = physical + (1 << 20);
        device.state = DeviceState::Running;
        device.counts = ScrubCounts::default();
    }
    record.interrupt();
    rot(&devices[0], data[0].1 + 5000, 1);
    rot(&devices[0], data[0].1 + (1 << 20) + 5000, 1);
    let plan = Plan { resumed: Some(record.report.clone()), ..Plan::default() };
    let resumed = scrub(&filesystem, &plan);
    assert_eq!(resumed.counts().corrected_errors, 1, "{resumed:?}");
    assert!(resumed.counts().data_bytes < whole.counts().data_bytes);
    assert!(resumed.devices.iter().all(|device| device.done_bytes == device.total_bytes), "{resumed:?}");
    let plan = Plan { resumed: Some(resumed), ..Plan::default() };
    assert!(matches!(Scrub::new(&filesystem, &plan), Err(ScrubError::NothingToResume)));
}

#[test]
fn a_scrub_beside_writers_corrects_rot_and_spoils_nothing() {
    for profile in [Profile::Raid1, Profile::Raid5, Profile::Raid6] {
        let devices = filled(profile, 4);
        let filesystem = open(&devices, false);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let (filesystem, done) = (&filesystem, &done);
                scope.spawn(move || {
                    let mut turn = 0;
                    while !done.load(Relaxed) || turn < 3 {
                        write_and_read(filesystem, writer, turn);
                        turn += 1;
                    }
                });
            }
            let _ends = Ends(&done);
            let mut found = 0;
            for (round, device) in devices.iter().enumerate() {
                // The files of before lie still.
                spoil_data(device, &filesystem, round as u64 + 1);
                let counts = scrub(&filesystem, &Plan::default()).counts();
                assert_eq!(counts.uncorrectable_errors, 0, "{profile}, round {round}: {counts:?}");
                found += counts.csum_errors;
            }
            assert!(found > 0, "{profile}");
        });
        filesystem.sync().expect("works");
        assert_eq!(scrub(&filesystem, &Plan::default()).counts().errors(), 0, "{profile}");
        assert_filled(&filesystem, FILES, FILE_BYTES);
        filesystem.shutdown().expect("works");
        drop(filesystem);
        assert_clean(&profile.to_string(), &examine(readable(&devices)));
    }
}

/// Ends the writers, also after a panic.
struct Ends<'d>(&'d AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Spoils sectors of the first megabyte of a data chunk, on one device.
fn spoil_data(device: &SparseDevice, filesystem: &Filesystem, devid: u64) {
    let all = extents(filesystem).into_iter();
    let is_meant =
        |it: &(u64, u64, u64, BlockGroupType)| it.0 == devid && it.3.contains(BlockGroupType::DATA);
    let Some((_, physical, ..)) = all.filter(is_meant).min_by_key(|it| it.1) else { return };
    (0..8).for_each(|number| rot(device, physical + number * 12288 + 77, 50));
}

/// Writes a file, makes it durable, reads it, and removes the one before.
fn write_and_read(filesystem: &Filesystem, writer: usize, turn: usize) {
    let name = |turn: usize| format!("writer{writer}-{turn}").into_bytes();
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let made = filesystem.create(filesystem.root(), &name(turn), &new).expect("room");
    let file = filesystem.open_file(made.id).expect("there");
    let byte = u8::try_from((writer * 31 + turn) % 251).expect("small");
    let contents = vec![byte; 70_000 + writer * 5000];
    filesystem.write(&file, 0, &contents).expect("room");
    filesystem.sync_file(&file).expect("works");
    let mut found = vec![0; contents.len()];
    filesystem.read(&file, 0, &mut found).expect("readable");
    assert!(found == contents, "{writer}, {turn}");
    filesystem.close_file(file).expect("works");
    if turn > 0 {
        filesystem.unlink(filesystem.root(), &name(turn - 1)).expect("there");
    }
}

/// A device with sectors that can't be read until they are written, as disks remap them.
#[derive(Debug)]
struct Remapping {
    inner: Arc<SparseDevice>,
    bad: Mutex<Vec<u64>>,
}

impl Remapping {
    fn is_bad(&self, offset: u64, length: usize) -> bool {
        let range = offset..offset + length as u64;
        self.bad
            .lock()
            .expect("no panic")
            .iter()
            .any(|sector| range.start < sector + 4096 && *sector < range.end)
    }
}

impl Device for Remapping {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        if self.is_bad(offset, buffer.len()) {
            let (device, length, source) = (self.name().to_owned(), buffer.len(), Error::other("bad sector"));
            return Err(DeviceError::Read { device, offset, length, source });
        }
        self.inner.read_at(offset, buffer)
    }
}

impl WritableDevice for Remapping {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let range = offset..offset + bytes.len() as u64;
        let is_left = |sector: &u64| *sector < range.start || sector + 4096 > range.end;
        self.bad.lock().expect("no panic").retain(is_left);
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

/// A pool with files in it, and one more without checksums.
fn filled_with_plain(profile: Profile, count: usize) -> Vec<Arc<SparseDevice>> {
    let devices = filled(profile, count);
    let all = devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
    let write = WriteOptions { nodatacow: true, ..WriteOptions::default() };
    let filesystem = Filesystem::open_writable(all, &OpenOptions::default(), &write).expect("opens");
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let made = filesystem.create(filesystem.root(), b"plain", &new).expect("room");
    let file = filesystem.open_file(made.id).expect("there");
    filesystem.write(&file, 0, &plain_contents()).expect("room");
    filesystem.close_file(file).expect("works");
    filesystem.shutdown().expect("works");
    devices
}

fn plain_contents() -> Vec<u8> {
    (0..1_000_000u32).map(|at| u8::try_from(at / 11 % 241).expect("small")).collect()
}

fn assert_plain(filesystem: &Filesystem) {
    let entry = filesystem.lookup(filesystem.root(), b"plain").expect("readable").expect("there");
    let file = filesystem.open_file(entry.inode).expect("opens");
    let mut found = vec![0; 1_000_000];
    assert_eq!(filesystem.read(&file, 0, &mut found).expect("readable"), found.len());
    assert!(found == plain_contents());
}

#[test]
fn sectors_that_a_device_cannot_read_are_written_anew_with_and_without_checksums() {
    for (profile, count) in
        [(Profile::Raid1, 2), (Profile::Raid10, 4), (Profile::Raid5, 3), (Profile::Raid6, 4)]
    {
        for index in 0..count {
            let what = format!("{profile}, device {index}");
            let devices = filled_with_plain(profile, count);
            let extents: Vec<_> = {
                let filesystem =
                    Filesystem::open(readable(&devices), &OpenOptions::default()).expect("opens");
                extents(&filesystem).into_iter().filter(|it| it.0 == index as u64 + 1).collect()
            };
            let data = extents.iter().filter(|it| it.3.contains(BlockGroupType::DATA));
            let sectors = |it: &(u64, u64, u64, BlockGroupType)| {
                let (_, physical, length, _) = *it;
                (0..length.min(6 * MIB)).step_by(20480).map(move |at| physical + at).collect::<Vec<_>>()
            };
            let bad: Vec<u64> = data.flat_map(sectors).collect();
            let remapping = Arc::new(Remapping { inner: Arc::clone(&devices[index]), bad: Mutex::new(bad) });
            let mut all: Vec<Arc<dyn WritableDevice>> =
                devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
            all[index] = remapping;
            let opened = Filesystem::open_writable(all, &OpenOptions::default(), &WriteOptions::default());
            let filesystem = opened.expect("opens");
            let counts = scrub(&filesystem, &Plan::default()).counts();
            assert!(counts.read_errors > 20 && counts.no_csum > 20, "{what}: {counts:?}");
            assert_eq!(
                (counts.uncorrectable_errors, counts.corrected_errors),
                (0, counts.errors()),
                "{what}"
            );
            assert_eq!(scrub(&filesystem, &Plan::default()).counts().errors(), 0, "{what}, again");
            assert_filled(&filesystem, FILES, FILE_BYTES);
            assert_plain(&filesystem);
            drop(filesystem);
            assert_clean(&what, &examine(readable(&devices)));
        }
    }
}

#[test]
fn corrections_that_a_device_does_not_take_or_keep_are_told() {
    for fault in
        [Fault::WritesFrom { number: 0 }, Fault::FlushesFrom { number: 0 }, Fault::FullFrom { number: 0 }]
    {
        let devices = filled(Profile::Raid1, 2);
        let faulty = Arc::new(FaultyDevice::new(Arc::clone(&devices[1]) as Arc<dyn WritableDevice>));
        let all: Vec<Arc<dyn WritableDevice>> = vec![Arc::clone(&devices[0]) as _, Arc::clone(&faulty) as _];
        let opened = Filesystem::open_writable(all, &OpenOptions::default(), &WriteOptions::default());
        let filesystem = opened.expect("opens");
        spoil_data(&devices[1], &filesystem, 2);
        let counted = faulty.counts();
        let later = match fault {
            Fault::WritesFrom { .. } => Fault::WritesFrom { number: counted.writes },
            Fault::FlushesFrom { .. } => Fault::FlushesFrom { number: counted.flushes },
            _ => Fault::FullFrom { number: counted.writes },
        };
        faulty.inject(later);
        let report = scrub(&filesystem, &Plan::default());
        let counts = report.counts();
        assert!(counts.csum_errors > 0, "{fault:?}");
        assert_eq!((counts.corrected_errors, counts.uncorrectable_errors), (0, 0), "{fault:?}");
        assert_eq!(counts.correctable_errors, counts.errors(), "the other copy is right: {fault:?}");
        assert_eq!(report.fault_count, counts.errors(), "{fault:?}");
        assert!(report.faults.iter().all(|fault| fault.files.is_empty()), "no file is damaged: {fault:?}");
        assert_filled(&filesystem, FILES, FILE_BYTES);
        drop(filesystem);
        let filesystem = open(&devices, false);
        assert_eq!(scrub(&filesystem, &Plan::default()).counts().uncorrectable_errors, 0, "{fault:?}");
        assert_filled(&filesystem, FILES, FILE_BYTES);
    }
}

#[test]
fn a_mirror_that_fails_is_no_damage_of_files() {
    for profile in [Profile::Raid1, Profile::Raid5] {
        let devices = filled(profile, 3);
        let faulty = Arc::new(FaultyDevice::new(Arc::clone(&devices[1]) as Arc<dyn WritableDevice>));
        let all: Vec<Arc<dyn WritableDevice>> =
            vec![Arc::clone(&devices[0]) as _, Arc::clone(&faulty) as _, Arc::clone(&devices[2]) as _];
        let opened = Filesystem::open_writable(all, &OpenOptions::default(), &WriteOptions::default());
        let filesystem = opened.expect("opens");
        let counted = faulty.counts();
        faulty.inject(Fault::ReadsFrom { number: counted.reads });
        faulty.inject(Fault::WritesFrom { number: counted.writes });
        let report = scrub(&filesystem, &Plan::default());
        let counts = report.counts();
        assert!(counts.read_errors > 0, "{profile}: {counts:?}");
        assert_eq!((counts.corrected_errors, counts.uncorrectable_errors), (0, 0), "{profile}: {counts:?}");
        assert!(report.faults.iter().all(|fault| fault.files.is_empty()), "{profile}: {report:?}");
        assert_filled(&filesystem, FILES, FILE_BYTES);
    }
}

/// Regression: each of its blocks was listed.
#[test]
fn a_device_that_is_gone_is_told_once() {
    for (profile, metadata) in [(Profile::Raid1, Profile::Raid1), (Profile::Single, Profile::Raid1)] {
        let mut options = options();
        (options.data, options.metadata) = (Some(profile), Some(metadata));
        let pool = MadePool::make_of(&[(400 * MIB, DeviceClass::Unknown); 2], &options).expect("made");
        let filesystem = open(&pool.devices, false);
        fill(&filesystem, FILES, FILE_BYTES);
        filesystem.shutdown().expect("works");
        drop(filesystem);
        let faulty = |device: &Arc<SparseDevice>| {
            Arc::new(FaultyDevice::new(Arc::clone(device) as Arc<dyn WritableDevice>))
        };
        let devices: Vec<Arc<FaultyDevice>> = pool.devices.iter().map(faulty).collect();
        let all = devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
        let opened = Filesystem::open_writable(all, &OpenOptions::default(), &WriteOptions::default());
        let filesystem = opened.expect("opens");
        // One place that can't be read is not a device that is gone.
        devices[1].inject(Fault::ReadsWithin(SUPERBLOCK_OFFSETS[0]..SUPERBLOCK_OFFSETS[0] + 4096));
        let report = scrub(&filesystem, &Plan { read_only: true, ..Plan::default() });
        assert!(report.devices.iter().all(|device| device.state == DeviceState::Finished), "{report:?}");
        devices[1].vanish();
        for read_only in [true, false] {
            let report = scrub(&filesystem, &Plan { read_only, ..Plan::default() });
            assert_eq!(report.devices[0].state, DeviceState::Finished);
            let DeviceState::Failed(why) = &report.devices[1].state else { panic!("{report:?}") };
            assert!(why.contains("the device does not answer"), "{why}");
            assert!(report.devices[1].counts.read_errors > 0, "{report:?}");
            assert_eq!((report.fault_count, report.faults.len()), (0, 0), "{report:?}");
            assert!(filesystem.is_writable());
        }
    }
}

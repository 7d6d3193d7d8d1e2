//! Logs on fast devices alone: the disks are left alone by fsyncs, and every mount finds what was synced.

use crate::contents::patterns::Program;
use crate::kernel::pool::{run, try_run};
use crate::kernel::{can_make, patiently};
use crate::simulated::{Layout, Pool};
use brindle_device::WritableDevice;
use brindle_fs::{AllocateMode, Filesystem, WriteBackMode, WriteBackWish};
use brindle_ondisk::{Profile, Uuid};
use brindle_sim::{EventKind, Image, ImageDevice, InterruptedDevice, LossMode, Random, Recorder};
use brindle_testing::referee::btrfs_check;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Fsyncs of each program.
pub(super) const ROUNDS: u32 = 250;

/// An SSD and a disk, metadata on the SSD.
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

/// Two SSDs and two disks.
pub(super) const TWO_OF_EACH: Layout =
    Layout { devices: 4, data: Profile::Raid1, metadata: Profile::Raid1, fast: 2, ..ONE_OF_EACH };

/// An empty pool, recorded from the first write on.
pub(super) fn recorded(layout: &Layout, uuid: u8) -> (Recorder, Filesystem) {
    let new = |number| {
        let name = format!("memory{number}");
        Arc::new(ImageDevice::new(name, Image::new(layout.device_bytes()), layout.class(number)))
    };
    let devices: Vec<Arc<ImageDevice>> = (0..layout.devices).map(new).collect();
    let writable: Vec<_> =
        devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
    // The kernel tells pools by their UUIDs, those that other tests have mounted included.
    layout.mkfs_named(&writable, Uuid([uuid; 16]));
    let recorder = Recorder::new();
    let recorded = (0..).zip(&devices).map(|(number, device)| {
        recorder.device(&format!("memory{number}"), device.image(), layout.class(number))
            as Arc<dyn WritableDevice>
    });
    let mut pool = Pool::on(recorded.collect(), layout);
    pool.write.tree_log = true;
    pool.write.write_back = WriteBackWish::Told(WriteBackMode::Sync);
    (recorder, pool.open().expect("opens"))
}

pub(super) fn mail(program: &Program<'_>, round: u32) {
    program.put(&format!("mail/{round}.tmp"), format!("mail {round}").as_bytes());
    program.rename(&format!("mail/{round}.tmp"), &format!("mail/{round}"));
    program.sync_directory("mail");
}

pub(super) fn package(program: &Program<'_>, round: u32) {
    if round % 20 == 0 {
        program.make_directory(&format!("usr/{}", round / 20));
    }
    let path = format!("usr/{}/{}", round / 20, round % 10);
    program.put(&format!("{path}.new"), &vec![3; 3000 + round as usize]);
    program.rename(&format!("{path}.new"), &path);
}

pub(super) fn journal(program: &Program<'_>, round: u32) {
    program.put("db/journal", &[7; 4096]);
    program.sync_directory("db");
    let table = program.open("db/table");
    program.write(&table, 0, &round.to_le_bytes());
    program.sync(&table);
    program.close(table);
    program.unlink("db/journal");
    program.sync_directory("db");
}

pub(super) fn prepare(filesystem: &Filesystem) {
    let program = Program::new(filesystem);
    ["mail", "usr", "db"].iter().for_each(|path| program.make_directory(path));
    program.put("db/table", &[0; 100]);
    // Data has a block group on the fast devices before the commit.
    program.put("first", &[1; 12 << 10]);
    filesystem.sync().expect("commits");
    // So does a log have its first blocks.
    program.put("second", b"");
}

#[test]
fn s0_fsyncs_ask_nothing_of_a_disk() {
    for (layout, bulk) in [(ONE_OF_EACH, 1..2), (TWO_OF_EACH, 2..4)] {
        let (recorder, filesystem) = recorded(&layout, 0x77);
        prepare(&filesystem);
        let program = Program::new(&filesystem);
        for (name, act) in
            [("mail", mail as fn(&Program<'_>, u32)), ("package", package), ("journal", journal)]
        {
            let statistics = || filesystem.pool().commit_statistics();
            let (before, start) = (statistics(), recorder.position());
            (0..ROUNDS).for_each(|round| act(&program, round));
            let after = statistics();
            let recording = recorder.recording();
            let events = &recording.events()[start..];
            let of_bulk = events.iter().filter(|event| bulk.contains(&event.device)).count();
            let flushes =
                events.iter().filter(|event| event.device == 0 && matches!(event.kind, EventKind::Flush));
            let syncs = usize::try_from(after.log.syncs - before.log.syncs).expect("few");
            assert_eq!(after.log.commits, before.log.commits, "{name}: fsyncs that were commits");
            assert!(syncs >= ROUNDS as usize, "{name}: {syncs} syncs");
            assert_eq!(flushes.count(), 2 * syncs, "{name}: flushes of the first device for {syncs} syncs");
            assert_eq!(of_bulk, 0, "{name}: requests on disks for {syncs} syncs");
            filesystem.sync().expect("commits");
            program.put(&format!("behind {name}"), b"");
        }
    }
}

#[test]
fn s0_fsyncs_of_large_files_ask_nothing_of_a_disk_where_they_are_written_back() {
    for (layout, bulk) in [(ONE_OF_EACH, 1..2), (TWO_OF_EACH, 2..4)] {
        let (recorder, filesystem) = recorded(&layout, 0x7a);
        prepare(&filesystem);
        let program = Program::new(&filesystem);
        program.make_directory("large");
        // The tier gets its first chunk.
        program.put("large/first", &[1; 100 << 10]);
        filesystem.sync().expect("commits");
        let statistics = || filesystem.pool().commit_statistics();
        let (before, start) = (statistics(), recorder.position());
        for round in 0..ROUNDS {
            program.put(&format!("large/{round}"), &vec![9; (100 << 10) + round as usize]);
        }
        let after = statistics();
        assert_eq!(after.log.commits, before.log.commits, "fsyncs that were commits");
        let recording = recorder.recording();
        let of_bulk = recording.events()[start..].iter().filter(|event| bulk.contains(&event.device)).count();
        assert_eq!(of_bulk, 0, "requests on disks");
        assert!(
            filesystem.write_back_status().expect("readable").waiting_bytes
                >= u64::from(ROUNDS) * (100 << 10)
        );
    }
}

/// A journal in preallocated space, as object stores and databases have it.
#[test]
fn s4_syncs_of_a_preallocated_journal_ask_nothing_of_a_disk() {
    const RECORD: u64 = 68 << 10;
    for (layout, bulk) in [(ONE_OF_EACH, 1..2), (TWO_OF_EACH, 2..4)] {
        let (recorder, filesystem) = recorded(&layout, 0x7b);
        prepare(&filesystem);
        let program = Program::new(&filesystem);
        let journal = program.create("journal");
        let allocated = filesystem.allocate(&journal, AllocateMode::Allocate, 0, 16 << 20);
        allocated.expect("room");
        // The tier gets its first chunk.
        program.put("first large", &[1; 100 << 10]);
        filesystem.sync().expect("commits");
        let statistics = || filesystem.pool().commit_statistics();
        let (before, start) = (statistics(), recorder.position());
        // Round it goes, so that some is written over what was there and some over nothing.
        for round in 0..u64::from(ROUNDS) {
            program.write(&journal, round * RECORD % (12 << 20) / 4096 * 4096, &vec![8; 68 << 10]);
            program.sync(&journal);
        }
        let after = statistics();
        assert_eq!(after.log.commits, before.log.commits, "fsyncs that were commits");
        let recording = recorder.recording();
        let of_bulk = recording.events()[start..].iter().filter(|event| bulk.contains(&event.device)).count();
        assert_eq!(of_bulk, 0, "requests on disks");
        program.close(journal);
    }
}

/// An object store: a journal that is synced, and objects that are not and go to the disks meanwhile.
#[test]
fn s4_syncs_do_not_wait_for_disks_that_are_written_for_other_files() {
    for (layout, bulk) in [(ONE_OF_EACH, 1..2), (TWO_OF_EACH, 2..4)] {
        let (recorder, filesystem) = recorded(&layout, 0x7c);
        prepare(&filesystem);
        let program = Program::new(&filesystem);
        let journal = program.create("journal");
        program.put("first large", &[1; 100 << 10]);
        filesystem.sync().expect("commits");
        let of_bulk = |since: usize| {
            let recording = recorder.recording();
            let events = recording.events()[since..].iter().filter(|event| bulk.contains(&event.device));
            let flushes = events.clone().filter(|event| matches!(event.kind, EventKind::Flush));
            (events.count(), flushes.count())
        };
        for round in 0..20_u32 {
            let object = program.create(&format!("object {round}"));
            program.write(&object, 0, &vec![9; 300 << 10]);
            let start = recorder.position();
            filesystem.write_back(&object).expect("there is room");
            let (written, _) = of_bulk(start);
            assert!(written > 0, "the object lies on disks");
            let start = recorder.position();
            program.write(&journal, u64::from(round) * 8192, &[8; 8192]);
            program.sync(&journal);
            assert_eq!(of_bulk(start), (0, 0), "requests on disks for a sync of the journal");
            if round % 5 == 0 {
                program.sync(&object);
                assert!(of_bulk(start).1 > 0, "an object that is synced is flushed where it lies");
            }
            program.close(object);
        }
        program.close(journal);
    }
}

/// An SSD, and a disk whose writes can be held, as a disk is slow that has much to write. Several threads write to it, or it
/// writes out what it took before a commit.
#[test]
fn syncs_go_on_while_a_disk_takes_no_writes() {
    let layout = ONE_OF_EACH;
    let new = |number| {
        let name = format!("memory{number}");
        Arc::new(ImageDevice::new(name, Image::new(layout.device_bytes()), layout.class(number)))
    };
    let disk = Arc::new(InterruptedDevice::new(new(1)));
    let devices: Vec<Arc<dyn WritableDevice>> = vec![new(0), Arc::<InterruptedDevice>::clone(&disk)];
    layout.mkfs_named(&devices, Uuid([0x7f; 16]));
    let mut pool = Pool::on(devices, &layout);
    pool.write.tree_log = true;
    pool.write.write_back = WriteBackWish::Told(WriteBackMode::Sync);
    let filesystem = pool.open().expect("opens");
    prepare(&filesystem);
    let program = Program::new(&filesystem);
    let large = program.create("large");
    filesystem.sync().expect("commits");
    program.write(&large, 0, &vec![8; 32 << 20]);
    syncs_go_on_beside(&disk, &program, "beside a write", || {
        filesystem.write_back(&large).expect("there is room");
    });
    syncs_go_on_beside(&disk, &program, "beside a commit", || filesystem.sync().expect("commits"));
    program.close(large);
}

/// Does something that waits for a disk whose writes are held, and fsyncs files beside it.
fn syncs_go_on_beside(
    disk: &InterruptedDevice,
    program: &Program<'_>,
    name: &str,
    act: impl FnOnce() + Send,
) {
    disk.hold_writes();
    let (done, answer) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(act);
        // All threads that write have come to the disk.
        let mut before = 0;
        while disk.waiting_writes() == 0 || disk.waiting_writes() != before {
            before = disk.waiting_writes();
            std::thread::sleep(Duration::from_millis(100));
        }
        scope.spawn(|| {
            (0..20).for_each(|number| program.put(&format!("{number} {name}"), &[7; 3000]));
            done.send(()).expect("it is waited for");
        });
        let answer = answer.recv_timeout(Duration::from_secs(240));
        disk.let_go();
        answer.expect("fsyncs wait for nothing but the SSD");
    });
}

/// Devices of a crashed pool, attached as loop devices.
pub(super) struct Attached {
    pub(super) loops: Vec<PathBuf>,
    _scratch: tempfile::TempDir,
    pub(super) mount_point: PathBuf,
}

impl Attached {
    pub(super) fn new(images: &[Image]) -> Self {
        let scratch = tempfile::Builder::new().prefix("brindle-tiers-").tempdir().expect("room");
        let mount_point = scratch.path().join("mount");
        std::fs::create_dir(&mount_point).expect("room");
        let loops = (0..).zip(images).map(|(number, image): (u32, _)| {
            let path = scratch.path().join(number.to_string());
            write_sparse(image, &path);
            PathBuf::from(
                patiently(|| try_run("losetup", ["--find", "--show"], [&path])).expect("a loop device"),
            )
        });
        Self { loops: loops.collect(), mount_point, _scratch: scratch }
    }

    /// Mounts the pool by one device, after all were told to the kernel in an order; the names in a directory.
    pub(super) fn names(&self, order: &[usize], by: usize, directory: &str) -> Vec<String> {
        self.names_with("rw", order, by, directory)
    }

    /// The same with mount options.
    pub(super) fn names_with(
        &self,
        options: &str,
        order: &[usize],
        by: usize,
        directory: &str,
    ) -> Vec<String> {
        for number in order {
            run("btrfs", ["device", "scan"], [&self.loops[*number]]);
        }
        run("mount", ["-t", "btrfs", "-o", options], [&self.loops[by], &self.mount_point]);
        let entries = std::fs::read_dir(self.mount_point.join(directory)).expect("a directory");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
        names.sort();
        patiently(|| try_run("umount", [""; 0], [&self.mount_point])).expect("unmounts");
        names
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // The kernel must not take devices of another pool of this UUID for these.
        run("btrfs", ["device", "scan", "--forget"], &self.loops);
        run("losetup", ["--detach"], &self.loops);
    }
}

fn write_sparse(image: &Image, path: &Path) {
    const PIECE_BYTES: usize = 64 << 10;
    let file = File::create(path).expect("room");
    file.set_len(image.size_bytes()).expect("room");
    let mut piece = vec![0; PIECE_BYTES];
    for offset in (0..image.size_bytes()).step_by(PIECE_BYTES) {
        image.read(offset, &mut piece);
        if piece.iter().any(|byte| *byte != 0) {
            file.write_all_at(&piece, offset).expect("room");
        }
    }
}

#[test]
fn the_kernel_finds_a_log_on_fast_devices_by_whatever_device_in_whatever_order() {
    if !can_make() {
        return;
    }
    for (layout, uuid) in [(ONE_OF_EACH, 0x78), (TWO_OF_EACH, 0x79)] {
        let layout = Layout { device_mib: 256, ..layout };
        let (recorder, filesystem) = recorded(&layout, uuid);
        prepare(&filesystem);
        let program = Program::new(&filesystem);
        (0..20).for_each(|round| mail(&program, round));
        assert!(filesystem.pool().log_placement().expect("written").is_ok(), "the log is on all devices");
        let mut expected = program.names("mail");
        expected.sort();
        let recording = recorder.recording();
        let end = recording.crash_points().len() - 1;
        let images = recording.state_at(end, LossMode::Everything, &mut Random::new(1)).images();
        let superblocks: Vec<Vec<u8>> = images
            .iter()
            .map(|image| {
                let mut log_root = vec![0; 8];
                // `log_root` of the first superblock.
                image.read((64 << 10) + 0x60, &mut log_root);
                log_root
            })
            .collect();
        assert!(superblocks[0] != [0; 8] && superblocks[layout.devices - 1] == [0; 8], "{superblocks:?}");
        drop(filesystem);
        let forward: Vec<usize> = (0..layout.devices).collect();
        let backward: Vec<usize> = forward.iter().rev().copied().collect();
        for order in [forward, backward] {
            for by in [0, layout.devices - 1] {
                let attached = Attached::new(&images);
                assert_eq!(attached.names(&order, by, "mail"), expected, "told {order:?}, mounted by {by}");
                btrfs_check(&attached.loops[0]).expect("btrfs-progs").unwrap_or_else(|said| panic!("{said}"));
            }
        }
    }
}

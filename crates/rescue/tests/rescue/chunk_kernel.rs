//! Pools that the kernel made and wrote, without their chunk tree: what is recovered is clean to btrfs-progs, and mounted by the kernel
//! with the files that were there.

use brindle_check::NoProgress;
use brindle_device::{Device, FileDevice, WritableDevice};
use brindle_ondisk::{NodeHeader, RootId, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, to_usize};
use brindle_rescue::Patient;
use brindle_rescue::chunks::search;
use brindle_testing::manifest::Manifest;
use brindle_testing::referee::btrfs_check;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::FromBytes;

const DEVICE_BYTES: u64 = 512 << 20;

fn run<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> String {
    try_run(program, arguments).unwrap_or_else(|said| panic!("{said}"))
}

fn try_run<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().expect("it is installed");
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match output.status.success() {
        true => Ok(said),
        false => Err(format!("{program}: {said} {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Images attached to loop devices, of which the kernel knows, as long as this lives.
pub(crate) struct Loops(Vec<String>);

impl Loops {
    pub(crate) fn of(images: &[PathBuf]) -> Self {
        let attach =
            |image: &PathBuf| run("losetup", [OsStr::new("-f"), OsStr::new("--show"), image.as_os_str()]);
        let loops = Self(images.iter().map(attach).collect());
        run("btrfs", ["device", "scan"].into_iter().chain(loops.0.iter().map(String::as_str)));
        loops
    }

    pub(crate) fn mount(&self, place: &Path, act: impl FnOnce(&Path)) {
        run("mount", [OsStr::new("-t"), OsStr::new("btrfs"), OsStr::new(&self.0[0]), place.as_os_str()]);
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| act(place)));
        // A child that another test starts has our files open, for a moment.
        let begun = Instant::now();
        while let Err(said) = try_run("umount", [place]) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{said}");
            std::thread::sleep(Duration::from_millis(20));
        }
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for device in &self.0 {
            Command::new("btrfs").args(["device", "scan", "--forget", device]).output().ok();
            Command::new("losetup").args(["-d", device]).output().ok();
        }
    }
}

/// Files of many sizes, a snapshot, and chunks that have moved.
fn fill(place: &Path) {
    run("btrfs", [OsStr::new("subvolume"), OsStr::new("create"), place.join("volume").as_os_str()]);
    for (number, size) in [0, 1, 4097, 70_000, 3_000_000, 9_000_000].into_iter().enumerate() {
        let bytes: Vec<u8> =
            (0..size).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]).collect();
        fs::write(place.join("volume").join(format!("file{number}")), bytes).expect("room");
    }
    let volume = place.join("volume");
    let words = ["subvolume", "snapshot"].map(OsStr::new);
    run("btrfs", words.into_iter().chain([volume.as_os_str(), place.join("snapshot").as_os_str()]));
    fs::remove_file(place.join("volume/file3")).expect("there");
    run(
        "btrfs",
        ["balance", "start", "--full-balance"].map(OsStr::new).into_iter().chain([place.as_os_str()]),
    );
    fs::write(place.join("later"), [7; 50_000]).expect("room");
}

/// Overwrites the chunk tree's root, or every block of it, also old ones.
fn wipe(images: &[PathBuf], is_root_alone: bool) {
    for image in images {
        let device = FileDevice::open_writable(image).expect("ours");
        let mut bytes = [0; SUPERBLOCK_SIZE];
        device.read_at(SUPERBLOCK_OFFSETS[0], &mut bytes).expect("within");
        let superblock = Superblock::parse(&bytes, SUPERBLOCK_OFFSETS[0]).expect("good");
        let nodesize = to_usize(superblock.nodesize.get().into());
        let algorithm = superblock.checksum_type();
        let (mut at, mut wiped) = (1 << 20, 0);
        while at + u64::from(superblock.nodesize.get()) <= device.size_bytes() {
            let extent = device.extent_at(at, device.size_bytes() - at).expect("within");
            if extent.is_hole {
                at += extent.length.next_multiple_of(4096);
                continue;
            }
            let mut block = vec![0; nodesize];
            device.read_at(at, &mut block).expect("within");
            let (header, _) = NodeHeader::ref_from_prefix(&block).expect("as long as a header");
            let is_wanted = !is_root_alone || header.bytenr == superblock.chunk_root;
            if header.fsid == superblock.fsid
                && header.owner == RootId::CHUNK_TREE
                && is_wanted
                && algorithm.matches(&block[header.csum.len()..], &header.csum[..algorithm.size()])
            {
                device.write_at(at, &vec![0x5c; nodesize]).expect("within");
                wiped += 1;
            }
            at += 4096;
        }
        device.flush().expect("durable");
        println!("{}: {wiped} blocks", image.display());
    }
}

#[test]
fn a_pool_of_the_kernel_is_recovered_and_mounted() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        assert!(std::env::var_os("CI").is_none(), "a skip is a failure");
        return;
    }
    let pools: [(&str, &str, usize); 7] = [
        ("raid1", "raid1", 2),
        ("raid1", "raid1", 3),
        ("single", "dup", 1),
        ("raid0", "raid0", 2),
        ("raid10", "raid10", 4),
        ("raid5", "raid5", 3),
        ("raid6", "raid6", 4),
    ];
    for (number, (data, metadata, devices)) in pools.into_iter().enumerate() {
        for is_root_alone in [true, false] {
            let what = format!("{data}, {metadata} on {devices}, root alone: {is_root_alone}");
            let directory = tempfile::tempdir().expect("temporary directory");
            let place = directory.path().join("mount");
            fs::create_dir(&place).expect("new");
            let images: Vec<PathBuf> =
                (1..=devices).map(|device| directory.path().join(format!("dev{device}"))).collect();
            for image in &images {
                File::create(image).and_then(|file| file.set_len(DEVICE_BYTES)).expect("a sparse file");
            }
            let words = ["-q", "-f", "-K", "-d", data, "-m", metadata].map(OsStr::new).into_iter();
            run("mkfs.btrfs", words.chain(images.iter().map(|image| image.as_os_str())));
            let mut before = None;
            Loops::of(&images).mount(&place, |place| {
                fill(place);
                before = Some(Manifest::of_directory(place).expect("readable"));
            });
            wipe(&images, is_root_alone);
            let open = |image: &PathBuf| {
                Arc::new(FileDevice::open_writable(image).expect("ours")) as Arc<dyn WritableDevice>
            };
            {
                let patient = Patient::new(images.iter().map(open).collect()).expect("no lease");
                let recovery = search(patient.readable(), &NoProgress).expect("enough is left");
                let steps = recovery.put(&patient.writable());
                let steps = steps.unwrap_or_else(|error| panic!("{what}: {error}, {:?}", recovery.left()));
                println!("{what}: {:?}, {steps:?}", recovery.summary());
                patient.carry_out(&directory.path().join(format!("undo{number}"))).expect("works");
            }
            let loops = Loops::of(&images);
            let checked = btrfs_check(Path::new(&loops.0[0])).expect("btrfs-progs are installed");
            checked.unwrap_or_else(|said| panic!("{what}: {said}"));
            run("btrfs", ["check", "--readonly", "--mode=lowmem", &loops.0[0]]);
            loops.mount(&place, |place| {
                let after = Manifest::of_directory(place).expect("readable");
                let different = before.as_ref().map(|before| before.diff(&after));
                assert_eq!(different, Some(Vec::new()), "{what}");
                fs::write(place.join("written"), [9; 100_000]).expect("room");
                run(
                    "btrfs",
                    ["balance", "start", "--full-balance"]
                        .map(OsStr::new)
                        .into_iter()
                        .chain([place.as_os_str()]),
                );
            });
            let checked = btrfs_check(Path::new(&loops.0[0])).expect("btrfs-progs are installed");
            checked.unwrap_or_else(|said| panic!("{what}, written by the kernel: {said}"));
        }
    }
}

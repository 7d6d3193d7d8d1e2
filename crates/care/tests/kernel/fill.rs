//! Pools filled while they are made: the kernel mounts them, finds what the source has, and goes on writing; then we do.

use super::host::{LoopPool, assert_btrfs_check, can_mount, options};
use super::source::{Amounts, Description, describe, make};
use super::{MIB, open, scrub, use_pool};
use crate::support::{assert_clean, examine};
use brindle_care::job::Control;
use brindle_care::mkfs::{Features, MkfsOptions, NewDevice, mkfs};
use brindle_care::populate::{
    InodeFlagRule, PopulateOptions, Source, SubvolumeKind, SubvolumeRule, Veiled, populate,
};
use brindle_device::{DeviceError, FileDevice, WritableDevice};
use brindle_fs::{Compression, CompressionChoice, Filesystem, NewInode, OpenOptions, WriteOptions};
use brindle_ondisk::{ChecksumType, Profile};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A way to make a pool.
#[derive(Clone, Debug)]
struct Setting {
    data: Profile,
    metadata: Profile,
    devices: usize,
    features: &'static str,
    nodesize: u32,
    checksum: ChecksumType,
    compression: Option<Compression>,
    shrink: bool,
    /// `deep` and a directory below it become subvolumes.
    subvolumes: bool,
    /// Loop devices are filled, rather than images.
    on_blocks: bool,
}

impl Setting {
    fn new(profile: Profile, devices: usize) -> Self {
        Self {
            data: profile,
            metadata: profile,
            devices,
            features: "",
            nodesize: 16384,
            checksum: ChecksumType::Crc32c,
            compression: None,
            shrink: false,
            subvolumes: false,
            on_blocks: false,
        }
    }

    fn mkfs(&self) -> MkfsOptions {
        let features = Features::default();
        MkfsOptions {
            data: Some(self.data),
            metadata: Some(self.metadata),
            features: if self.features.is_empty() {
                features
            } else {
                features.with_list(self.features).expect("known words")
            },
            nodesize: Some(self.nodesize),
            checksum: self.checksum,
            ..options()
        }
    }

    fn populate(&self) -> PopulateOptions {
        let kind = |is_read_only, is_default| SubvolumeKind { is_read_only, is_default };
        let rule = |kind, path: &str| SubvolumeRule { kind, path: PathBuf::from(path) };
        let choice = |algorithm| CompressionChoice { algorithm, level: None, force: false };
        PopulateOptions {
            compression: self.compression.map(choice),
            shrink: self.shrink,
            subvolumes: match self.subvolumes {
                true => vec![rule(kind(false, false), "deep"), rule(kind(true, false), "deep/0/1")],
                false => Vec::new(),
            },
            inode_flags: vec![
                InodeFlagRule { nodatacow: true, nodatasum: false, path: "mixed".into() },
                InodeFlagRule { nodatacow: false, nodatasum: true, path: "holes/between".into() },
            ],
            ..PopulateOptions::default()
        }
    }
}

/// Fills what lies at these paths, as the command does.
fn fill(paths: &[PathBuf], source: &Path, setting: &Setting) {
    let veil = |path: &PathBuf| -> Result<Arc<Veiled>, DeviceError> {
        Ok(Arc::new(Veiled::new(Arc::new(FileDevice::open_writable(path)?))))
    };
    let veils: Vec<Arc<Veiled>> = paths.iter().map(veil).collect::<Result<_, _>>().expect("nobody has them");
    let devices: Vec<Arc<dyn WritableDevice>> =
        veils.iter().map(|veiled| Arc::clone(veiled) as Arc<dyn WritableDevice>).collect();
    let new: Vec<NewDevice> = devices.iter().cloned().map(NewDevice::new).collect();
    let source = Source::scan(source).expect("readable");
    mkfs(&new, &setting.mkfs()).expect("large enough");
    populate(devices, &source, &setting.populate(), &mut |_| Control::Continue).expect("it fits");
    veils.iter().try_for_each(|veiled| veiled.lift()).expect("superblocks are written");
}

fn check(what: &str, pool: &LoopPool) {
    assert_clean(what, &examine(pool.images.iter().map(|path| open(path)).collect()));
    assert_btrfs_check(&pool.loops[0], what);
}

fn compare(what: &str, expected: &Description, found: &Description) {
    for (path, text) in expected {
        assert_eq!(found.get(path), Some(text), "{what}: {}", path.display());
    }
    assert_eq!(found.len(), expected.len(), "{what}");
}

/// Fills a pool, and has it checked, compared, written by the kernel and by us, and checked again.
fn prove(setting: &Setting, source: &Path) {
    let what = format!("{setting:?}");
    println!("{what}");
    let mut pool = LoopPool::files(&vec![1100 * MIB; setting.devices]);
    if setting.on_blocks {
        pool.attach();
        fill(&pool.loops, source, setting);
    } else {
        fill(&pool.images, source, setting);
        pool.attach();
    }
    let expected = describe(source);
    check(&what, &pool);
    pool.mount("ro,noatime");
    let found = describe(&pool.mount_point());
    pool.unmount();
    compare(&what, &expected, &found);
    pool.mount("rw,noatime");
    scrub(&pool.mount_point());
    std::fs::remove_dir_all(pool.mount_point().join("sizes")).expect("writable");
    if !setting.shrink {
        use_pool(&pool.mount_point());
    }
    pool.unmount();
    check(&what, &pool);
    write_here(&pool.loops);
    check(&what, &pool);
}

/// Writes a file ourselves.
fn write_here(paths: &[PathBuf]) {
    let open = |path: &PathBuf| -> Arc<dyn WritableDevice> {
        Arc::new(FileDevice::open_writable(path).expect("nobody has it"))
    };
    let devices = paths.iter().map(open).collect();
    let filesystem = Filesystem::open_writable(devices, &OpenOptions::default(), &WriteOptions::default());
    let filesystem = filesystem.expect("a sound pool");
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let made = filesystem.create(filesystem.root(), b"ours", &new).expect("room");
    let file = filesystem.open_file(made.id).expect("it is there");
    filesystem.write(&file, 0, &[5; 30_000]).expect("room");
    filesystem.shutdown().expect("it becomes durable");
    drop(filesystem);
    // Further copies of the superblock may be on their way yet, and the images are looked at, not the loop devices.
    for path in paths {
        File::open(path).and_then(|device| device.sync_all()).expect("there it is");
    }
}

/// Share of all combinations, only with this in the environment: all of them, which takes hours, or (23) one in 23.
fn share_asked_for() -> Option<usize> {
    let asked = std::env::var("BRINDLE_ROOTDIR_ALL").ok()?;
    Some(asked.parse().unwrap_or(1).max(1))
}

fn representative() -> Vec<Setting> {
    let lone = Setting::new(Profile::Single, 1);
    vec![
        Setting { metadata: Profile::Dup, subvolumes: true, on_blocks: true, ..lone.clone() },
        Setting {
            metadata: Profile::Dup,
            shrink: true,
            nodesize: 65536,
            checksum: ChecksumType::Xxhash64,
            compression: Some(Compression::Zstd),
            ..lone.clone()
        },
        Setting {
            features: "mixed-bg,^no-holes,^block-group-tree,^free-space-tree",
            nodesize: 4096,
            compression: Some(Compression::Zlib),
            ..lone
        },
        Setting {
            metadata: Profile::Raid1c3,
            checksum: ChecksumType::Sha256,
            compression: Some(Compression::Lzo),
            ..Setting::new(Profile::Raid5, 3)
        },
        Setting { features: "^block-group-tree", subvolumes: true, ..Setting::new(Profile::Raid10, 4) },
    ]
}

fn all() -> Vec<Setting> {
    use Profile::{Raid0, Raid1, Raid1c3, Raid5, Raid6, Raid10, Single};
    let mut settings = Vec::new();
    for (profile, devices) in
        [(Single, 1), (Raid0, 2), (Raid1, 2), (Raid10, 4), (Raid5, 3), (Raid6, 4), (Raid1c3, 3)]
    {
        for features in ["", "^no-holes,^block-group-tree", "^block-group-tree,^free-space-tree", "mixed-bg"]
        {
            for compression in
                [None, Some(Compression::Zlib), Some(Compression::Lzo), Some(Compression::Zstd)]
            {
                for (nodesize, checksum) in [4096, 16384, 32768, 65536].into_iter().zip(ChecksumType::ALL) {
                    let is_mixed = features == "mixed-bg";
                    let setting = Setting {
                        features,
                        compression,
                        nodesize: if is_mixed { 4096 } else { nodesize },
                        checksum,
                        shrink: nodesize == 32768,
                        subvolumes: nodesize != 4096,
                        on_blocks: nodesize == 65536,
                        ..Setting::new(profile, devices)
                    };
                    settings.push(setting);
                }
            }
        }
    }
    settings
}

#[test]
fn the_kernel_finds_what_the_source_has() {
    if !can_mount() {
        return;
    }
    let amounts = match share_asked_for().is_some() {
        true => Amounts { entries: 10_000, links: 1000, large: 150 << 20, has_long_targets: true },
        false => Amounts { entries: 2000, links: 300, large: 5 << 20, has_long_targets: true },
    };
    let directory = tempfile::tempdir().expect("temporary directory");
    let (long, short) = (directory.path().join("long"), directory.path().join("short"));
    make(&long, amounts);
    make(&short, Amounts { has_long_targets: false, ..amounts });
    // The first reading changes times of access, the following ones do not (`relatime`).
    drop((describe(&long), describe(&short)));
    let settings = match share_asked_for() {
        Some(share) => all().into_iter().step_by(share).collect(),
        None => representative(),
    };
    for setting in settings {
        // A link whose target fits no leaf can't be had there.
        prove(&setting, if setting.nodesize == 4096 { &short } else { &long });
    }
}

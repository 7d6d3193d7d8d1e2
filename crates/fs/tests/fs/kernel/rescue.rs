//! Damage beyond redundancy: whatever files the kernel can read of a pool, with devices missing, blocks rotten and any of its
//! `rescue=` words, are read here too with the same words, and have the same bytes.
//!
//! `BRINDLE_RESCUE_POOLS=1000` damages more pools, `BRINDLE_RESCUE_SEED=7` one.

use super::pool::{KernelPool, run, try_run};
use super::{can_make, devices, patiently};
use crate::golden::degraded;
use brindle_fs::{Filesystem, OpenOptions};
use brindle_ondisk::{Logical, RootId, to_u64, to_usize};
use brindle_tree::Readahead;
use brindle_volume::Rescue;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions as FileOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Pools that are damaged unless told otherwise.
const POOLS: u64 = 10;
/// Commits that change something, so that there are older ones to go back to.
const COMMITS: usize = 4;

/// The words, and what they are here.
const WORDS: [(&str, Rescue); 5] = [
    ("nologreplay", NOTHING),
    ("usebackuproot", Rescue { backup_roots: true, ..NOTHING }),
    ("idatacsums", Rescue { data_checksums: true, ..NOTHING }),
    ("imetacsums", Rescue { tree_checksums: true, ..NOTHING }),
    ("all", Rescue::ALL),
];
const NOTHING: Rescue =
    Rescue { backup_roots: false, bad_roots: false, data_checksums: false, tree_checksums: false };

/// Copies of blocks: index of the image, and the byte there.
type Places = Vec<Vec<(usize, u64)>>;
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Numbers that look random.
struct Random(u64);

impl Random {
    /// The index of one of `count` things.
    fn index(&mut self, count: usize) -> usize {
        to_usize(self.below(to_u64(count)))
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound.max(1)
    }
}

/// A sound pool, and the files of it that no later commit changes.
struct Sound {
    pool: KernelPool,
    files: Files,
    /// Places of tree blocks and of data, all copies of each.
    blocks: Places,
    data: Places,
    nodesize: usize,
}

impl Sound {
    fn make(metadata: &str, data: &str, count: usize) -> Self {
        let profiles = ["-d", data, "-m", metadata];
        let mut pool = KernelPool::make_with("single", count, "4096", "commit=1000", &profiles);
        let top = pool.mount_point().to_owned();
        for folder in 0..3 {
            fs::create_dir(top.join(format!("folder {folder}"))).expect("room");
            for file in 0..60_usize {
                let bytes = vec![u8::try_from(file).expect("small") | 0x80; 700 * (file % 12 + 1)];
                fs::write(top.join(format!("folder {folder}/file {file}")), bytes).expect("room");
            }
        }
        for commit in 0..COMMITS {
            fs::write(top.join("changing"), vec![b'0'; 9000 + commit]).expect("room");
            run("btrfs", ["filesystem", "sync"], [&top]);
        }
        let mut files = read_all(&top);
        files.remove(Path::new("changing"));
        pool.unmount();
        let filesystem = Filesystem::open(devices(pool.images(), &[]), &degraded()).expect("sound");
        let nodesize = to_usize(filesystem.pool().nodesize().into());
        let (blocks, data) = places(&filesystem, pool.images());
        Self { pool, files, blocks, data, nodesize }
    }

    /// Copies of the images, some lost and some rotten.
    fn damaged(&self, directory: &Path, random: &mut Random) -> Vec<PathBuf> {
        let mut images = Vec::new();
        for image in self.pool.images() {
            let copy = directory.join(image.file_name().expect("a name"));
            run("cp", ["--sparse=always", "--reflink=auto"], [image, &copy]);
            images.push(copy);
        }
        let rot = |places: &[(usize, u64)], length: usize, is_zeroed: bool| {
            for (device, offset) in places {
                let file =
                    FileOptions::new().read(true).write(true).open(&images[*device]).expect("an image");
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, *offset).expect("within");
                // A bit of a time, a name or contents; or everything.
                let at = length * 2 / 3;
                if is_zeroed {
                    bytes.fill(0);
                } else {
                    bytes[at] ^= 4;
                }
                file.write_all_at(&bytes, *offset).expect("within");
            }
        };
        for _ in 0..random.below(4) {
            let index = random.index(self.blocks.len());
            rot(&self.blocks[index], self.nodesize, random.below(2) == 0);
        }
        if random.below(3) == 0 {
            // The tree of roots: its first block is the first place.
            rot(&self.blocks[0], self.nodesize, true);
        }
        for _ in 0..random.below(6) {
            let index = random.index(self.data.len());
            rot(&self.data[index], 4096, random.below(2) == 0);
        }
        if images.len() > 1 && random.below(2) == 0 {
            images.remove(random.index(images.len()));
        }
        images
    }
}

/// Places of all tree blocks, those of the tree of roots first, and of all data: each with its copies.
fn places(filesystem: &Filesystem, images: &[PathBuf]) -> (Places, Places) {
    let (pool, volume) = (filesystem.pool(), filesystem.pool().volume());
    let copies = |at: Logical| {
        let mirrors = 0..volume.copies(at).expect("mapped");
        let places = mirrors.filter_map(|mirror| volume.mirror_place(at, mirror));
        let place = |(device, byte): (String, brindle_ondisk::Physical)| {
            (images.iter().position(|image| image.to_string_lossy() == device).expect("ours"), byte.get())
        };
        places.map(place).collect::<Vec<_>>()
    };
    let (mut blocks, mut data) = (vec![copies(pool.superblock().root)], Vec::new());
    for id in [RootId::ROOT_TREE, RootId::FS_TREE, RootId::CSUM_TREE, RootId::EXTENT_TREE, RootId::DEV_TREE] {
        let tree = pool.tree(id).expect("a root");
        blocks.push(copies(tree.root().bytenr));
        let mut cursor = pool.cursor(&tree, Readahead::None);
        cursor.seek(&brindle_ondisk::Key::MIN).expect("sound");
        let mut last = Logical::new(0);
        while let Some((leaf, slot)) = cursor.leaf() {
            let at = leaf.header().bytenr;
            if at != last {
                blocks.push(copies(at));
                last = at;
            }
            if let Some((key, item)) = leaf.item(slot) {
                use brindle_ondisk::Item;
                use brindle_ondisk::item::FileExtent;
                if let Ok(Item::FileExtent(FileExtent::OnDisk { extent, .. })) = Item::parse(&key, item) {
                    if extent.disk_bytenr.get() != 0 {
                        data.push(copies(extent.disk_bytenr));
                    }
                }
            }
            cursor.next().expect("sound");
        }
    }
    (blocks, data)
}

/// Files below a folder of the host that can be read whole.
fn read_all(top: &Path) -> Files {
    let (mut files, mut folders) = (Files::new(), vec![top.to_owned()]);
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.map_while(Result::ok) {
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            if kind.is_dir() {
                folders.push(path);
            } else if let Ok(bytes) = fs::read(&path) {
                files.insert(path.strip_prefix(top).expect("below").to_owned(), bytes);
            }
        }
    }
    files
}

/// Files that the kernel reads with these options; `None` if it refuses to mount.
fn read_by_kernel(images: &[PathBuf], options: &str) -> Option<Files> {
    let place = tempfile::tempdir().expect("temporary directory");
    let loops: Vec<String> =
        images.iter().map(|image| run("losetup", ["-f", "--show", "-r"], [image])).collect();
    let mut options = options.to_owned();
    loops.iter().for_each(|device| options.extend([",device=", device]));
    let target = [Path::new(&loops[0]), place.path()];
    let mounted = try_run("mount", ["-t", "btrfs", "-o", &options], target).is_ok();
    let files = mounted.then(|| read_all(place.path()));
    if mounted {
        patiently(|| try_run("umount", [""; 0], [place.path()])).expect("unmounted");
    }
    // Or it would take the next copies for the same pool. Those of other tests are about to be mounted.
    try_run("btrfs", ["device", "scan", "--forget"], &loops).ok();
    run("losetup", ["-d"], &loops);
    files
}

fn options(rescue: Rescue) -> OpenOptions {
    let mut options = degraded();
    options.pool.volume.rescue = rescue;
    options
}

/// Reads a file; what can't be is said.
fn read(filesystem: &Filesystem, path: &Path) -> Result<Vec<u8>, String> {
    use std::os::unix::ffi::OsStrExt;
    let inode = filesystem.resolve(filesystem.root(), path.as_os_str().as_bytes());
    let file = filesystem.open_file(inode.map_err(|error| error.to_string())?);
    let file = file.map_err(|error| error.to_string())?;
    let mut bytes = vec![0; usize::try_from(file.size()).expect("small")];
    let length = filesystem.read(&file, 0, &mut bytes).map_err(|error| error.to_string())?;
    bytes.truncate(length);
    Ok(bytes)
}

/// Damages a pool, and compares; returns the number of files that the kernel could read.
fn compare(sound: &Sound, seed: u64) -> usize {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    random.below(2);
    let directory = tempfile::tempdir().expect("temporary directory");
    let images = sound.damaged(directory.path(), &mut random);
    let mut compared = 0;
    for (word, rescue) in WORDS {
        let Some(theirs) = read_by_kernel(&images, &format!("ro,degraded,rescue={word}")) else {
            // Ours may open all the same, or say why not.
            Filesystem::open(devices(&images, &[]), &options(rescue))
                .map(drop)
                .map_err(|e| e.to_string())
                .ok();
            continue;
        };
        let ours = Filesystem::open(devices(&images, &[]), &options(rescue));
        let ours = ours.unwrap_or_else(|error| panic!("seed {seed}, {word}: the kernel mounts it: {error}"));
        for (path, bytes) in theirs.iter().filter(|(path, _)| *path != Path::new("changing")) {
            let found =
                read(&ours, path).unwrap_or_else(|error| panic!("seed {seed}, {word}, {path:?}: {error}"));
            // A copy that matches its checksum is preferred to the one that the kernel happens to take.
            let is_right = sound.files.get(path) == Some(&found);
            assert!(is_right || found == *bytes, "seed {seed}, {word}, {path:?}: other bytes");
            compared += 1;
        }
    }
    compared
}

#[test]
fn files_that_the_kernel_can_read_of_a_damaged_pool_are_read() {
    if !can_make() {
        return;
    }
    let given = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let sounds = [
        Sound::make("dup", "single", 1),
        Sound::make("raid1", "single", 2),
        Sound::make("single", "single", 2),
        Sound::make("raid1", "raid1", 3),
    ];
    let seeds = match given("BRINDLE_RESCUE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..given("BRINDLE_RESCUE_POOLS").unwrap_or(POOLS),
    };
    let is_one = seeds.end - seeds.start == 1;
    let compared: usize = seeds.map(|seed| compare(&sounds[to_usize(seed % 4)], seed)).sum();
    assert!(compared > 0 || is_one, "the kernel could read nothing");
}

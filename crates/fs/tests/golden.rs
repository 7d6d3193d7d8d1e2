//! Every golden image of the kernel's, read back path by path and byte by byte.

use brindle_device::Device;
use brindle_fs::{Attributes, FileType, Filesystem, InodeId, OpenOptions, SubvolumeChoice, Timestamp};
use brindle_ondisk::RootId;
use brindle_testing::golden::{self, Golden};
use brindle_testing::manifest::{self, Entry, Kind, Manifest, Time};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::Arc;

fn devices(golden: &Golden) -> Vec<Arc<dyn Device>> {
    golden.devices.iter().map(|device| Arc::new(device.clone()) as Arc<dyn Device>).collect()
}

/// The top level, as the manifests have it, whatever the default subvolume is.
fn top_level() -> OpenOptions {
    OpenOptions { subvolume: SubvolumeChoice::Id(RootId::FS_TREE), ..OpenOptions::default() }
}

fn open(golden: &Golden) -> Filesystem {
    Filesystem::open(devices(golden), &top_level()).unwrap_or_else(|error| panic!("{}: {error}", golden.name))
}

/// The manifest of all that lies below `directory`, read in pieces of `piece` bytes.
struct Walk<'a> {
    filesystem: &'a Filesystem,
    piece: usize,
    manifest: Manifest,
    first_paths: HashMap<InodeId, Vec<u8>>,
}

impl Walk<'_> {
    fn of(filesystem: &Filesystem, piece: usize) -> Manifest {
        let mut walk = Walk { filesystem, piece, manifest: Manifest::default(), first_paths: HashMap::new() };
        walk.add(filesystem.root(), Vec::new());
        walk.link_names();
        walk.manifest
    }

    fn add(&mut self, id: InodeId, path: Vec<u8>) {
        let fs = self.filesystem;
        let attributes = fs.attributes(id).expect("attributes");
        let xattrs = fs.xattrs(id).expect("xattrs");
        for xattr in &xattrs {
            assert_eq!(fs.xattr(id, &xattr.name).expect("xattr").as_ref(), Some(&xattr.value));
        }
        let mut entry = Entry::new(&path, self.kind(&attributes));
        entry.mode = u16::try_from(attributes.mode & 0o7777).expect("twelve bits");
        entry.uid = attributes.uid;
        entry.gid = attributes.gid;
        entry.nlink = attributes.nlink;
        entry.size = attributes.size;
        entry.mtime = time(attributes.modified);
        entry.ctime = Some(time(attributes.changed));
        entry.btime = Some(time(attributes.created));
        entry.ino = Some(id.number.get());
        entry.xattrs = xattrs.into_iter().map(|xattr| (xattr.name, xattr.value)).collect();
        self.manifest.insert(entry);
        if attributes.kind == FileType::Directory {
            self.add_entries(id, &path);
        }
    }

    fn add_entries(&mut self, directory: InodeId, path: &[u8]) {
        let mut after = 0;
        loop {
            // A small limit, so that a listing is continued often.
            let entries = self.filesystem.read_directory(directory, after, 7).expect("listing");
            let Some(last) = entries.last() else {
                return;
            };
            after = last.index;
            for entry in entries {
                let found =
                    self.filesystem.lookup(directory, &entry.name).expect("lookup").expect("is there");
                assert_eq!((found.inode, found.kind), (entry.inode, entry.kind));
                let separator: &[u8] = if path.is_empty() { b"" } else { b"/" };
                self.add(entry.inode, [path, separator, &entry.name].concat());
            }
        }
    }

    fn kind(&self, attributes: &Attributes) -> Kind {
        let fs = self.filesystem;
        let (major, minor) = attributes.device_numbers();
        let rdev = manifest::Device { major, minor };
        match attributes.kind {
            FileType::Regular => {
                let file = fs.open_file(attributes.id).expect("open");
                let mut hash = Sha256::new();
                let mut buffer = vec![0xa5; self.piece];
                let mut offset = 0;
                loop {
                    let length =
                        fs.read(&file, offset, &mut buffer).unwrap_or_else(|error| panic!("{error}"));
                    if length == 0 {
                        break;
                    }
                    hash.update(&buffer[..length]);
                    offset += length as u64;
                }
                assert_eq!(offset, attributes.size);
                Kind::File { sha256: hash.finalize().into() }
            }
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink { target: fs.read_link(attributes.id).expect("target") },
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharDevice => Kind::Char { rdev },
            FileType::BlockDevice => Kind::Block { rdev },
            FileType::Xattr => panic!("an inode is no xattr"),
        }
    }

    /// Names the first path of an inode at its others, in the order of paths.
    fn link_names(&mut self) {
        let mut entries: Vec<Entry> = self.manifest.entries().cloned().collect();
        for entry in &mut entries {
            if entry.nlink < 2 || entry.kind == Kind::Directory {
                continue;
            }
            let id = self.filesystem.resolve(self.filesystem.root(), &entry.path).expect("was listed");
            match self.first_paths.get(&id) {
                Some(first) => entry.same_as = Some(first.clone()),
                None => drop(self.first_paths.insert(id, entry.path.clone())),
            }
        }
        self.manifest = entries.into_iter().collect();
    }
}

fn time(time: Timestamp) -> Time {
    Time { sec: time.seconds, nsec: time.nanoseconds }
}

fn assert_same(golden: &Golden, walked: &Manifest) {
    let mut expected: Vec<Entry> = golden.manifest.entries().cloned().collect();
    for entry in &mut expected {
        entry.flags = None;
    }
    let differences = expected.into_iter().collect::<Manifest>().diff_strict(walked);
    assert!(differences.is_empty(), "{}:\n{}", golden.name, differences.join("\n"));
}

#[test]
fn every_image_reads_back_as_the_kernel_read_it() {
    for name in golden::names() {
        let golden = Golden::load(&name);
        assert_same(&golden, &Walk::of(&open(&golden), 1 << 20));
    }
}

#[test]
fn odd_pieces_and_a_tiny_node_cache_read_the_same() {
    for name in ["single", "raid5", "zstd-levels", "deep-tree"] {
        let golden = Golden::load(name);
        let mut options = top_level();
        options.pool.cache_bytes = 0;
        let filesystem = Filesystem::open(devices(&golden), &options).expect("open");
        assert_same(&golden, &Walk::of(&filesystem, 5003));
    }
}

#[test]
fn devices_in_any_order_make_the_same_pool() {
    for name in ["raid10", "raid6-wide", "seed", "removed-device"] {
        let golden = Golden::load(name);
        let mut devices = devices(&golden);
        devices.reverse();
        let filesystem =
            Filesystem::open(devices, &top_level()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_same(&golden, &Walk::of(&filesystem, 1 << 20));
    }
}

#[test]
fn space_is_what_the_kernel_says() {
    let mut wrong = Vec::new();
    for name in golden::names() {
        let golden = Golden::load(&name);
        let space = open(&golden).space().expect("space");
        let block = u64::from(space.block_size);
        let ours =
            [block, space.total_bytes / block, space.free_bytes / block, space.available_bytes / block];
        let theirs =
            ["f_bsize", "f_blocks", "f_bfree", "f_bavail"].map(|name| golden.about.number(name).unwrap_or(0));
        if ours != theirs {
            wrong.push(format!("{name}: ours {ours:?}, the kernel's {theirs:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_default_subvolume_is_entered_unless_told_otherwise() {
    let golden = Golden::load("default-subvolume");
    let filesystem = Filesystem::open(devices(&golden), &OpenOptions::default()).expect("open");
    let expected = golden.about.number("default-subvolume").expect("is recorded");
    assert_eq!(filesystem.root().tree.get(), expected);
}

/// Every set of `count` of the numbers below `of`.
fn subsets(of: usize, count: usize) -> Vec<Vec<usize>> {
    let all = 0u32..1 << of;
    all.filter(|set| set.count_ones() as usize == count)
        .map(|set| (0..of).filter(|bit| set >> bit & 1 != 0).collect())
        .collect()
}

fn degraded() -> OpenOptions {
    let mut options = top_level();
    options.pool.volume.degraded = true;
    options
}

#[test]
fn every_tolerated_loss_of_devices_reads_the_same() {
    let pools = [
        ("raid1", 1),
        ("raid1c3", 2),
        ("raid1c4", 3),
        ("raid10", 1),
        ("raid5", 1),
        ("raid5-wide", 1),
        ("raid6", 2),
        ("raid6-wide", 2),
        ("removed-device", 1),
    ];
    for (name, tolerated) in pools {
        let golden = Golden::load(name);
        let all = devices(&golden);
        for lost in (1..=tolerated).flat_map(|count| subsets(all.len(), count)) {
            let mut left = all.clone();
            let mut index = 0;
            left.retain(|_| (index += 1, !lost.contains(&(index - 1))).1);
            let refusal =
                Filesystem::open(left.clone(), &top_level()).expect_err("something is missing").to_string();
            assert!(refusal.contains("-o degraded"), "{name} without {lost:?}: {refusal}");
            let filesystem = Filesystem::open(left, &degraded())
                .unwrap_or_else(|error| panic!("{name} without {lost:?}: {error}"));
            assert_same(&golden, &Walk::of(&filesystem, 1 << 20));
        }
    }
}

#[test]
fn a_loss_that_is_too_much_is_refused_by_the_missing_devids() {
    for (name, lost) in
        [("raid0", 1), ("raid1", 2), ("raid5", 2), ("raid6", 3), ("raid1-metadata-raid0-data", 1)]
    {
        let golden = Golden::load(name);
        let left = devices(&golden).split_off(lost);
        if left.is_empty() {
            continue;
        }
        let refusal = Filesystem::open(left, &degraded()).expect_err("too much is missing").to_string();
        for device in &golden.devices[..lost] {
            assert!(refusal.contains(&format!("devid {}", device.devid())), "{name}: {refusal}");
        }
    }
}

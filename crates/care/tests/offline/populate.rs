//! A pool filled with a directory is what the directory is.

use crate::support::{MIB, assert_clean, devices, examine, given, options};
use brindle_care::job::Control;
use brindle_care::mkfs::{Features, NewDevice, mkfs};
use brindle_care::populate::{
    InodeFlagRule, PopulateError, PopulateOptions, PopulateReport, Source, SubvolumeKind, SubvolumeRule,
    Veiled, populate,
};
use brindle_device::{Device, DeviceClass, SparseDevice, WritableDevice};
use brindle_fs::{
    Compression, CompressionChoice, FileType, Filesystem, InodeFlags, InodeId, OpenOptions, RootId,
};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

/// A tree with something of each kind that needs no root.
pub(super) fn make_source(at: &Path) {
    fs::create_dir_all(at.join("sub/deep")).expect("room");
    for number in 0..300usize {
        let contents: Vec<u8> = (0..number * 37).map(|at| (at * number % 251).to_le_bytes()[0]).collect();
        fs::write(at.join(format!("sub/file{number}")), contents).expect("room");
    }
    fs::write(at.join("text"), "the same line again and again\n".repeat(20_000)).expect("room");
    let sparse = File::create(at.join("sparse")).expect("room");
    sparse.set_len(20 << 20).expect("room");
    sparse.write_all_at(b"in the middle", 10 << 20).expect("room");
    fs::hard_link(at.join("text"), at.join("sub/link")).expect("room");
    symlink("../text", at.join("sub/symbolic")).expect("room");
    fs::write(at.join("sub/deep/last"), "x").expect("room");
    fs::set_permissions(at.join("sub/file7"), fs::Permissions::from_mode(0o4750)).expect("own file");
}

pub(super) fn fill(
    source: &Path,
    how: &PopulateOptions,
    size_bytes: u64,
) -> (Arc<SparseDevice>, Result<PopulateReport, PopulateError>) {
    let devices = devices(&[(size_bytes, DeviceClass::Solid)]);
    mkfs(&given(&devices), &options()).expect("the device is large enough");
    let source = Source::scan(source).expect("it can be read");
    let writable = vec![Arc::clone(&devices[0]) as Arc<dyn WritableDevice>];
    let report = populate(writable, &source, how, &mut |_| Control::Continue);
    (Arc::clone(&devices[0]), report)
}

pub(super) fn open(device: &Arc<SparseDevice>) -> Filesystem {
    let devices = vec![Arc::clone(device) as Arc<dyn Device>];
    Filesystem::open(devices, &OpenOptions::default()).expect("a pool")
}

/// Compares what a directory holds with what the pool has of it.
fn assert_same(filesystem: &Filesystem, directory: InodeId, at: &Path) {
    let mut names: Vec<Vec<u8>> = fs::read_dir(at)
        .expect("a directory")
        .map(|child| child.expect("readable").file_name().into_encoded_bytes())
        .collect();
    names.sort();
    let found = filesystem.read_directory(directory, 0, usize::MAX).expect("readable");
    let found: Vec<Vec<u8>> = found.into_iter().map(|entry| entry.name).collect();
    assert_eq!(found, names, "{}", at.display());
    for name in names {
        let path = at.join(String::from_utf8(name.clone()).expect("plain names"));
        let metadata = fs::symlink_metadata(&path).expect("readable");
        let inode = filesystem.lookup(directory, &name).expect("readable").expect("the name is there").inode;
        let attributes = filesystem.attributes(inode).expect("readable");
        let is_directory = metadata.is_dir();
        assert_eq!(
            (attributes.mode, attributes.uid, attributes.gid, attributes.modified.seconds),
            (metadata.mode(), metadata.uid(), metadata.gid(), metadata.mtime()),
            "{}",
            path.display()
        );
        if is_directory {
            assert_same(filesystem, inode, &path);
            continue;
        }
        assert_eq!(u64::from(attributes.nlink), metadata.nlink(), "{}", path.display());
        if attributes.kind == FileType::Symlink {
            let target = filesystem.read_link(inode).expect("readable");
            assert_eq!(target, fs::read_link(&path).expect("readable").into_os_string().into_encoded_bytes());
        } else {
            let file = filesystem.open_file(inode).expect("a file");
            let mut contents = vec![0; usize::try_from(attributes.size).expect("small")];
            let mut filled = 0;
            while filled < contents.len() {
                let count = filesystem.read(&file, filled as u64, &mut contents[filled..]).expect("readable");
                assert!(count > 0, "{}", path.display());
                filled += count;
            }
            assert!(contents == fs::read(&path).expect("readable"), "{}", path.display());
        }
    }
}

#[test]
fn a_filled_pool_is_sound_and_holds_what_the_directory_does() {
    let source = tempfile::tempdir().expect("temporary directory");
    make_source(source.path());
    let choice = |algorithm| Some(CompressionChoice { algorithm, level: None, force: false });
    for compression in [None, choice(Compression::Zlib), choice(Compression::Lzo), choice(Compression::Zstd)]
    {
        let what = format!("{compression:?}");
        let options = PopulateOptions { compression, ..PopulateOptions::default() };
        let (device, report) = fill(source.path(), &options, 300 * MIB);
        let report = report.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!((report.files, report.directories, report.hard_links, report.symlinks), (303, 3, 1, 1));
        assert_clean(&what, &examine(vec![Arc::clone(&device) as Arc<dyn Device>]));
        let filesystem = open(&device);
        assert_same(&filesystem, filesystem.root(), source.path());
    }
}

#[test]
fn a_pool_that_is_stopped_half_filled_is_none() {
    let source = tempfile::tempdir().expect("temporary directory");
    make_source(source.path());
    let devices = devices(&[(300 * MIB, DeviceClass::Solid)]);
    let veiled = Arc::new(Veiled::new(Arc::clone(&devices[0]) as Arc<dyn WritableDevice>));
    let writable = || Arc::clone(&veiled) as Arc<dyn WritableDevice>;
    mkfs(&[NewDevice::new(writable())], &options()).expect("the device is large enough");
    let source = Source::scan(source.path()).expect("it can be read");
    let (mut told, mut before) = (0, 0);
    let stopped = populate(vec![writable()], &source, &PopulateOptions::default(), &mut |progress| {
        assert_eq!(progress.expected_bytes, source.units());
        assert!(progress.moved_bytes > before, "each step is one more");
        before = progress.moved_bytes;
        told += 1;
        if told == 100 { Control::Cancel } else { Control::Continue }
    });
    assert!(matches!(stopped, Err(PopulateError::Stopped)), "{stopped:?}");
    assert_eq!(told, 100, "it ends at once");
    let left = vec![Arc::clone(&devices[0]) as Arc<dyn Device>];
    assert!(Filesystem::open(left, &OpenOptions::default()).is_err(), "the device holds no filesystem");
}

#[test]
fn the_same_directory_gives_the_same_bytes() {
    let source = tempfile::tempdir().expect("temporary directory");
    make_source(source.path());
    let bytes = |threads| {
        let options =
            PopulateOptions { is_reproducible: true, time_sec: 7, threads, ..PopulateOptions::default() };
        let (device, report) = fill(source.path(), &options, 200 * MIB);
        report.expect("there is room");
        let mut bytes = vec![0; usize::try_from(200 * MIB).expect("small")];
        device.read_at(0, &mut bytes).expect("readable");
        bytes
    };
    let expected = bytes(None);
    assert!([Some(1), Some(7)].into_iter().all(|threads| bytes(threads) == expected));
}

#[test]
fn subvolumes_flags_and_shrinking_are_as_told() {
    let source = tempfile::tempdir().expect("temporary directory");
    make_source(source.path());
    let kind = |is_read_only, is_default| SubvolumeKind { is_read_only, is_default };
    let options = PopulateOptions {
        subvolumes: vec![
            SubvolumeRule { kind: kind(false, true), path: "sub".into() },
            SubvolumeRule { kind: kind(true, false), path: "sub/deep".into() },
        ],
        inode_flags: vec![InodeFlagRule { nodatacow: true, nodatasum: false, path: "text".into() }],
        shrink: true,
        ..PopulateOptions::default()
    };
    let (device, report) = fill(source.path(), &options, 1000 * MIB);
    let report = report.expect("there is room");
    assert_eq!(report.subvolumes, 2);
    let size_bytes = report.device_sizes[0].1;
    assert!(size_bytes < 500 * MIB, "{size_bytes}");
    device.set_size(size_bytes).expect("smaller");
    assert_clean("shrunk", &examine(vec![Arc::clone(&device) as Arc<dyn Device>]));
    let filesystem = open(&device);
    assert_ne!(filesystem.root().tree, RootId::FS_TREE);
    let subvolumes = filesystem.subvolumes().expect("readable");
    let paths: Vec<&[u8]> = subvolumes.iter().map(|subvolume| &subvolume.path[..]).collect();
    assert_eq!(paths, [&b""[..], b"sub", b"sub/deep"]);
    let top = InodeId::root_of(RootId::FS_TREE);
    let text = filesystem.lookup(top, b"text").expect("readable").expect("there").inode;
    let flags = filesystem.attributes(text).expect("readable").flags;
    assert!(flags.contains(InodeFlags::NODATACOW | InodeFlags::NODATASUM));
    assert_eq!(filesystem.attributes(text).expect("readable").nlink, 1, "the other link is in a subvolume");
}

#[test]
fn simple_quotas_of_a_pool_count_what_it_is_filled_with() {
    let scratch = tempfile::tempdir().expect("room");
    make_source(scratch.path());
    let devices = devices(&[(256 * MIB, DeviceClass::Solid)]);
    let mut making = options();
    making.features |= Features::SIMPLE_QUOTA;
    mkfs(&given(&devices), &making).expect("the device is large enough");
    let kind = SubvolumeKind { is_read_only: false, is_default: false };
    let options = PopulateOptions {
        subvolumes: vec![SubvolumeRule { kind, path: "sub".into() }],
        ..PopulateOptions::default()
    };
    let source = Source::scan(scratch.path()).expect("it can be read");
    let writable = vec![Arc::clone(&devices[0]) as Arc<dyn WritableDevice>];
    populate(writable, &source, &options, &mut |_| Control::Continue).expect("it fits");
    assert_clean("filled", &examine(vec![Arc::clone(&devices[0]) as Arc<dyn Device>]));
    let quotas = open(&devices[0]).pool().quotas().expect("readable").expect("they are on");
    let bytes = |id: u64| {
        let group = quotas.groups.iter().find(|group| group.id.get() == id).expect("each subvolume has one");
        group.info.rfer.get()
    };
    // 300 files of up to 11 KiB, and a text and a part of a sparse file at the top.
    assert!(bytes(256) > MIB, "{}", bytes(256));
    assert!((512 << 10..MIB).contains(&bytes(5)), "{}", bytes(5));
}

#[test]
fn too_little_space_says_where_and_how_much() {
    let source = tempfile::tempdir().expect("temporary directory");
    let mut noise = vec![0u8; 300 << 20];
    for (at, byte) in noise.iter_mut().enumerate() {
        *byte = (at >> 12).to_le_bytes()[0];
    }
    fs::write(source.path().join("large"), noise).expect("room");
    let (device, report) = fill(source.path(), &PopulateOptions::default(), 200 * MIB);
    let error = report.expect_err("it does not fit");
    assert!(
        matches!(error, PopulateError::NoSpace { missing_bytes, .. } if missing_bytes > 50 * MIB),
        "{error}"
    );
    assert!(error.to_string().contains("large: no space left"), "{error}");
    // Parts have been committed; the pool has to be made anew.
    let again = brindle_care::mkfs::MkfsOptions { force: true, ..options() };
    mkfs(&given(&[Arc::clone(&device)]), &again).expect("the device is large enough");
    assert_clean("made anew", &examine(vec![Arc::clone(&device) as Arc<dyn Device>]));
    let options = PopulateOptions {
        subvolumes: vec![SubvolumeRule { kind: SubvolumeKind::default(), path: "none".into() }],
        ..PopulateOptions::default()
    };
    let (_, report) = fill(source.path(), &options, 200 * MIB);
    assert!(matches!(report, Err(PopulateError::Rule { .. })));
}

//! Random operations carried out on a directory of an open pool, as the VFS would have them.

use brindle_fs::{
    AllocateMode, AttributeChange, FileType, Filesystem, FsError, InodeId, NewInode, NewTime, RangePair,
    RenameMode, Timestamp, XattrMode,
};
use brindle_testing::model::{Node, RenameRule, TreePath};
use brindle_testing::operations::Operation;

/// Carries out an operation, one that the model has taken, below a directory.
pub(crate) fn apply(fs: &Filesystem, top: InodeId, operation: &Operation) -> Result<(), FsError> {
    let find = |path: &TreePath| fs.resolve(top, path.bytes());
    let place = |path: &TreePath| {
        let (parent, name) = path.split().expect("not the top");
        Ok::<_, FsError>((find(&parent)?, name.to_vec()))
    };
    let make = |path: &TreePath, mode: u32, rdev: u64, target: Option<&[u8]>| {
        let (directory, name) = place(path)?;
        fs.create(directory, &name, &NewInode { mode, rdev, target, ..NewInode::default() }).map(|_| ())
    };
    let change =
        |path: &TreePath, change: AttributeChange| fs.set_attributes(find(path)?, &change).map(|_| ());
    let nothing = AttributeChange::default();
    match operation {
        Operation::Create { path, mode } => make(path, 0o100_000 | u32::from(*mode), 0, None),
        Operation::MakeDirectory { path, mode } => make(path, 0o040_000 | u32::from(*mode), 0, None),
        Operation::Symlink { path, target } => make(path, 0o120_777, 0, Some(target.as_bytes())),
        Operation::MakeNode { path, node, mode } => {
            let (kind, rdev) = match node {
                Node::Fifo => (0o010_000, 0),
                Node::Socket => (0o140_000, 0),
                Node::Char(rdev) => (0o020_000, u64::from(rdev.major) << 20 | u64::from(rdev.minor)),
                Node::Block(rdev) => (0o060_000, u64::from(rdev.major) << 20 | u64::from(rdev.minor)),
            };
            make(path, kind | u32::from(*mode), rdev, None)
        }
        Operation::Link { existing, path } => {
            let (directory, name) = place(path)?;
            fs.link(find(existing)?, directory, &name).map(|_| ())
        }
        Operation::Unlink { path } => place(path).and_then(|(directory, name)| fs.unlink(directory, &name)),
        Operation::RemoveDirectory { path } => {
            place(path).and_then(|(directory, name)| fs.remove_directory(directory, &name))
        }
        Operation::Rename { from, to, rule } => {
            let ((from_directory, from_name), (to_directory, to_name)) = (place(from)?, place(to)?);
            if fs
                .lookup(to_directory, &to_name)?
                .is_some_and(|there| Ok(there.inode) == find(from).map_err(|_| ()))
            {
                return Ok(());
            }
            let mode = match rule {
                RenameRule::Replace => RenameMode::Replace,
                RenameRule::NoReplace => RenameMode::NoReplace,
                RenameRule::Exchange => RenameMode::Exchange,
                RenameRule::Whiteout => RenameMode::Whiteout { replaces: true, uid: 0, gid: 0 },
            };
            fs.rename(from_directory, &from_name, to_directory, &to_name, mode)
        }
        Operation::SetMode { path, mode } => {
            change(path, AttributeChange { mode: Some((*mode).into()), ..nothing })
        }
        Operation::SetOwner { path, uid, gid } => {
            change(path, AttributeChange { uid: Some(*uid), gid: Some(*gid), ..nothing })
        }
        Operation::SetTimes { path, mtime } => {
            let time = NewTime::At(Timestamp { seconds: mtime.sec, nanoseconds: mtime.nsec });
            change(path, AttributeChange { accessed: Some(time), modified: Some(time), ..nothing })
        }
        Operation::SetXattr { path, name, value, .. } => {
            fs.set_xattr(find(path)?, name.as_bytes(), &value.bytes(), XattrMode::Any)
        }
        Operation::RemoveXattr { path, name } => fs.remove_xattr(find(path)?, name.as_bytes()),
        _ => contents(fs, top, operation),
    }
}

fn contents(fs: &Filesystem, top: InodeId, operation: &Operation) -> Result<(), FsError> {
    let open = |path: &TreePath| fs.open_file(fs.resolve(top, path.bytes())?);
    let allocate = |path: &TreePath, mode, offset: u64, length: u64| {
        let file = open(path)?;
        fs.allocate(&file, mode, offset, length)?;
        fs.close_file(file)
    };
    match operation {
        Operation::Write { path, offset, data } => {
            let (file, bytes) = (open(path)?, data.bytes());
            let mut at = 0;
            while at < bytes.len() {
                at += fs.write(&file, offset + at as u64, &bytes[at..])?;
            }
            fs.close_file(file)
        }
        Operation::Truncate { path, size } => {
            let change = AttributeChange { size: Some(*size), ..AttributeChange::default() };
            fs.set_attributes(fs.resolve(top, path.bytes())?, &change).map(|_| ())
        }
        Operation::Allocate { path, offset, length, keeps_size: true } => {
            allocate(path, AllocateMode::AllocateKeepSize, *offset, *length)
        }
        Operation::Allocate { path, offset, length, .. } => {
            allocate(path, AllocateMode::Allocate, *offset, *length)
        }
        Operation::PunchHole { path, offset, length } => {
            allocate(path, AllocateMode::PunchHole, *offset, *length)
        }
        Operation::ZeroRange { path, offset, length, keeps_size: true } => {
            allocate(path, AllocateMode::ZeroRangeKeepSize, *offset, *length)
        }
        Operation::ZeroRange { path, offset, length, .. } => {
            allocate(path, AllocateMode::ZeroRange, *offset, *length)
        }
        Operation::CloneRange { from, from_offset, to, to_offset, length } => {
            let (source, target) = (open(from)?, open(to)?);
            let pair = RangePair {
                source: &source,
                source_offset: *from_offset,
                target: &target,
                target_offset: *to_offset,
                length: *length,
            };
            fs.clone_range(&pair)?;
            fs.close_file(source)?;
            fs.close_file(target)
        }
        _ => Ok(()),
    }
}

/// Panics with the first difference between two directories and all below them: names, hard links, contents, attributes and times.
pub(crate) fn assert_same(what: &str, sides: [(&Filesystem, InodeId); 2], has_creation: bool) {
    let mut seen = std::collections::HashMap::new();
    let mut queue = vec![(sides[0].1, sides[1].1, String::new())];
    while let Some((expected, found, path)) = queue.pop() {
        let ids = [(sides[0].0, expected), (sides[1].0, found)];
        let at = format!("{what}: /{path}");
        let [before, after] = ids.map(|(fs, id)| fs.attributes(id).expect("there"));
        if before.kind != FileType::Directory {
            assert_eq!(
                *seen.entry(expected.number).or_insert(found.number),
                found.number,
                "{at}: a hard link"
            );
            assert_eq!((before.nlink, before.size), (after.nlink, after.size), "{at}");
        }
        assert_eq!(
            (before.mode, before.uid, before.gid, before.rdev),
            (after.mode, after.uid, after.gid, after.rdev),
            "{at}"
        );
        let times = |it: &brindle_fs::Attributes| (it.accessed, it.modified, it.changed);
        assert_eq!(times(&before), times(&after), "{at}");
        assert!(!has_creation || before.created == after.created, "{at}: creation");
        let [before_xattrs, after_xattrs] = ids.map(|(fs, id)| fs.xattrs(id).expect("there"));
        assert_eq!(before_xattrs, after_xattrs, "{at}");
        match before.kind {
            FileType::Regular => {
                let [before, after] = ids.map(|(fs, id)| contents_of(fs, id));
                assert!(before == after, "{at}: {} bytes", before.len());
            }
            FileType::Symlink => {
                let [before, after] = ids.map(|(fs, id)| fs.read_link(id).expect("readable"));
                assert_eq!(before, after, "{at}");
            }
            FileType::Directory => {
                let [before, after] = ids.map(|(fs, id)| {
                    let mut entries = fs.read_directory(id, 0, usize::MAX).expect("readable");
                    entries.sort_by(|a, b| a.name.cmp(&b.name));
                    entries
                });
                let names = |entries: &[brindle_fs::DirectoryEntry]| -> Vec<String> {
                    entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect()
                };
                assert_eq!(names(&before), names(&after), "{at}");
                for (before, after) in before.iter().zip(&after) {
                    let below = format!("{path}/{}", String::from_utf8_lossy(&before.name));
                    queue.push((before.inode, after.inode, below));
                }
            }
            _ => {}
        }
    }
}

/// Contents of a file.
pub(crate) fn contents_of(fs: &Filesystem, id: InodeId) -> Vec<u8> {
    let file = fs.open_file(id).expect("a file");
    let mut contents = vec![0; usize::try_from(file.size()).expect("small")];
    let mut at = 0;
    while at < contents.len() {
        let read = fs.read(&file, at as u64, &mut contents[at..]).expect("readable");
        assert!(read > 0, "it is as long as it says");
        at += read;
    }
    fs.close_file(file).expect("closes");
    contents
}

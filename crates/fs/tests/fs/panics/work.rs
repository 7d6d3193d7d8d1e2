//! Work that takes locks of every rank, done by one thread.

use super::ground::{Ground, plain};
use brindle_fs::{
    AttributeChange, DefragmentScope, Filesystem, FsError, InodeId, NewInode, RangePair, Remaining,
    RenameMode, XattrMode,
};
use brindle_ondisk::BlockGroupType;
use std::ops::ControlFlow;

/// Files of the directory that is filled and emptied.
const MANY: u16 = 40;

/// Length of a file that is worth reading ahead, in bytes.
const LONG_BYTES: usize = 4 << 20;

/// The inode of a name in the root directory.
pub(super) fn of(fs: &Filesystem, name: &str) -> Result<InodeId, FsError> {
    let entry = fs.lookup(fs.root(), name.as_bytes())?;
    entry.map(|entry| entry.inode).ok_or_else(|| FsError::NotFound(name.as_bytes().to_vec()))
}

/// Changes a new filesystem in all kinds of ways, and makes parts of it durable.
pub(super) fn work(fs: &Filesystem, ground: &mut Ground) -> Result<(), FsError> {
    files(fs, ground)?;
    names(fs, ground)?;
    subvolumes(fs, ground)?;
    places(fs, ground)?;
    ground.sync(fs)
}

/// Writes, fsyncs, and what is read between them.
fn files(fs: &Filesystem, ground: &mut Ground) -> Result<(), FsError> {
    let top = fs.root();
    let kept = ground.create(fs, top, "kept", 1)?;
    ground.sync(fs)?;
    ground.write(fs, &kept, 1)?;
    ground.sync_file(fs, &kept, 1)?;
    let other = ground.create(fs, top, "other", 2)?;
    ground.sync_file(fs, &other, 2)?;
    ground.write(fs, &kept, 1)?;
    let mut bytes = vec![0; 4096];
    for offset in [0, 4096, 8192] {
        fs.read(&kept, offset, &mut bytes)?;
    }
    ground.sync_file(fs, &kept, 1)?;
    fs.set_xattr(kept.id(), b"user.word", &[7; 300], XattrMode::Any)?;
    fs.set_attributes(kept.id(), &AttributeChange { mode: Some(0o600), ..AttributeChange::default() })?;
    ground.sync_file(fs, &kept, 1)?;
    fs.close_file(other)?;
    fs.close_file(kept)?;
    ground.sync(fs)?;
    read(fs)
}

/// Reads what is on the devices from one file after the other, a long one among them.
fn read(fs: &Filesystem) -> Result<(), FsError> {
    let (_, long) = fs.create_open(fs.root(), b"snap-long", &plain())?;
    fs.write(&long, 0, &[1; LONG_BYTES])?;
    fs.sync_file(&long)?;
    fs.close_file(long)?;
    for name in ["kept", "other", "snap-long"] {
        let file = fs.open_file(of(fs, name)?)?;
        let mut bytes = vec![0; 64 << 10];
        for offset in (0..file.size()).step_by(bytes.len()) {
            fs.read(&file, offset, &mut bytes)?;
        }
        fs.close_file(file)?;
    }
    Ok(())
}

/// Names that come, move and go, also of files that are open.
fn names(fs: &Filesystem, ground: &mut Ground) -> Result<(), FsError> {
    let directory = NewInode { mode: 0o040_755, ..plain() };
    let top = fs.root();
    let (from, to) = (fs.create(top, b"from", &directory)?.id, fs.create(top, b"to", &directory)?.id);
    for number in 100..100 + MANY {
        let file = ground.create(fs, from, &format!("{number:0>60}"), number)?;
        fs.close_file(file)?;
    }
    ground.sync(fs)?;
    for number in 100..100 + MANY {
        let name = format!("{number:0>60}");
        if number % 2 == 0 {
            fs.rename(from, name.as_bytes(), to, name.as_bytes(), RenameMode::NoReplace)?;
        } else {
            ground.loses(number);
            fs.unlink(from, name.as_bytes())?;
        }
    }
    let replaced = ground.create(fs, to, "new", 3)?;
    ground.sync_file(fs, &replaced, 3)?;
    ground.loses(2);
    fs.rename(to, b"new", top, b"other", RenameMode::Replace)?;
    ground.write(fs, &replaced, 3)?;
    ground.sync_file(fs, &replaced, 3)?;
    let unnamed = ground.create(fs, to, "unnamed", 4)?;
    ground.loses(4);
    fs.unlink(to, b"unnamed")?;
    fs.close_file(unnamed)?;
    fs.commit()?;
    fs.close_file(replaced)
}

/// Subvolumes and snapshots, made, changed and deleted.
fn subvolumes(fs: &Filesystem, ground: &mut Ground) -> Result<(), FsError> {
    let top = fs.root();
    let directory = NewInode { mode: 0o040_755, ..plain() };
    fs.create_subvolume(top, b"snap-empty", &directory)?;
    let copy = InodeId::root_of(fs.snapshot(top.tree, top, b"snap", false)?);
    ground.sync(fs)?;
    fs.unlink(copy, b"kept")?;
    fs.create(copy, b"inside", &plain())?;
    let kept = fs.open_file(of(fs, "kept")?)?;
    ground.write(fs, &kept, 1)?;
    ground.sync_file(fs, &kept, 1)?;
    fs.close_file(kept)?;
    ground.sync(fs)?;
    fs.delete_subvolume(top, b"snap")?;
    ground.sync(fs)?;
    while fs.background_step()? == Remaining::More {}
    ground.sync(fs)
}

/// Blocks that move, and what belongs to the pool.
fn places(fs: &Filesystem, ground: &mut Ground) -> Result<(), FsError> {
    let pool = fs.pool();
    let file = fs.open_file(of(fs, "kept")?)?;
    for kind in [BlockGroupType::DATA, BlockGroupType::METADATA] {
        ground.write(fs, &file, 1)?;
        let alone = pool.begin_exclusive("a move")?;
        let groups = pool.block_groups()?;
        let group = groups.iter().find(|group| group.kind.contains(kind) && group.used_bytes > 0);
        if let Some(group) = group {
            pool.relocate(&alone, group.start, &mut |_| ControlFlow::Continue(()))?;
        }
        ground.sync_file(fs, &file, 1)?;
    }
    let mut place = None;
    loop {
        place = fs.defragment(DefragmentScope::Pool, place, 16)?.next;
        if place.is_none() {
            break;
        }
    }
    pool.set_label(&[b'x'; 256])?;
    pool.reset_device_statistics(brindle_ondisk::DevId::new(1))?;
    ground.sync(fs)?;
    let (_, target) = fs.create_open(fs.root(), b"snap-clone", &plain())?;
    fs.clone_range(&RangePair {
        source: &file,
        source_offset: 0,
        target: &target,
        target_offset: 8192,
        length: 4096,
    })?;
    fs.unlink(fs.root(), b"snap-clone")?;
    fs.close_file(target)?;
    fs.close_file(file)?;
    while fs.background_step()? == Remaining::More {}
    Ok(())
}

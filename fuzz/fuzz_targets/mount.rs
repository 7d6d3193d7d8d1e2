//! A pool of the kernel's, damaged as the input says with every checksum right: opened, walked, and asked
//! everything a filesystem can be asked. Anything may fail; nothing may panic, loop or allocate without bound.
//!
//! An input is: one byte that chooses the pool, then a script of `brindle_testing::damage`.

#![no_main]

use brindle_fs::{FileType, Filesystem, InodeId, OpenOptions, RootId, SubvolumeChoice, Whence};
use brindle_testing::damage::Victim;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

#[path = "../../crates/fs/tests/fs/walk.rs"]
#[allow(dead_code, reason = "shared with tests, which use more of it than a target does")]
mod walk;

/// Small ones, and between them every way to store a file or a block.
const POOLS: [&str; 8] =
    ["node-4k", "lzo", "snapshots", "log-tree", "converted", "old-features", "many-links", "raid1"];

const LIMITS: walk::Limits =
    walk::Limits { piece: 24 << 10, entries: 250, file_bytes: 64 << 10, bytes: 1 << 20, depth: 20 };

fuzz_target!(|data: &[u8]| {
    let Some((pool, script)) = data.split_first() else { return };
    let mut victim = healthy(usize::from(*pool) % POOLS.len()).clone();
    victim.run_script(script);
    let mut options = OpenOptions::default();
    options.pool.cache_bytes = 1 << 20;
    options.pool.volume.degraded = true;
    if let Err(error) = Filesystem::open(victim.devices(), &options) {
        let _ = error.to_string();
    }
    options.subvolume = SubvolumeChoice::Id(RootId::FS_TREE);
    let Ok(filesystem) = Filesystem::open(victim.devices(), &options) else { return };
    let walk = walk::Walk::of(&filesystem, LIMITS);
    walk.troubles.iter().for_each(|trouble| drop(trouble.to_string()));
    ask(&filesystem, &walk);
});

fn healthy(pool: usize) -> &'static Victim {
    static HEALTHY: [OnceLock<Victim>; POOLS.len()] = [const { OnceLock::new() }; POOLS.len()];
    HEALTHY[pool].get_or_init(|| Victim::load(POOLS[pool]))
}

/// Calls queries that a walk leaves out.
fn ask(filesystem: &Filesystem, walk: &walk::Walk) {
    let _ = (filesystem.space(), filesystem.subvolumes(), filesystem.default_subvolume());
    let _ =
        (filesystem.warnings(), filesystem.pool().volume().devices(), filesystem.pool().volume().chunks());
    let mut ids = Vec::new();
    for entry in walk.manifest.entries().take(200) {
        let Ok(id) = filesystem.resolve(filesystem.root(), &entry.path) else { continue };
        let _ = (filesystem.parent_directory(id), filesystem.first_name(id), filesystem.read_link(id));
        ids.push(id);
    }
    for attributes in filesystem.attributes_of(&ids).into_iter().flatten() {
        if attributes.kind == FileType::Regular {
            ask_file(filesystem, attributes.id);
        }
    }
}

fn ask_file(filesystem: &Filesystem, id: InodeId) {
    let Ok(file) = filesystem.open_file(id) else { return };
    let mut buffer = [0; 5000];
    for offset in [file.size() / 2, file.size().saturating_sub(4999), file.size(), u64::MAX] {
        let _ = filesystem.read(&file, offset, &mut buffer);
        let _ = (filesystem.seek(&file, offset, Whence::Data), filesystem.seek(&file, offset, Whence::Hole));
    }
}

//! Defragmentation of metadata while nothing else happens; `policy` decides when.

use crate::defragment::{DefragmentPlace, DefragmentScope};
use crate::error::FsError;
use crate::filesystem::Filesystem;
use brindle_ondisk::BlockGroupType;
use brindle_policy::defragment::idle::{AutoDefragment, IdleFacts, is_due};
use brindle_tree::TreeError;
use std::time::Instant;

/// A disk reads them within a second or two, however they lie.
const LEAVES_PER_PIECE: usize = 128;

/// State of the defragmentation.
#[derive(Debug)]
pub(super) struct IdleDefragment {
    mode: AutoDefragment,
    /// Start of the next piece.
    from: Option<DefragmentPlace>,
    pass_ended: Option<Instant>,
    /// Number of commits at that time.
    commits: u64,
    /// Number of lookups in trees at the last look.
    seen: u64,
    quiet_since: Instant,
}

impl IdleDefragment {
    pub(super) fn new(mode: AutoDefragment, now: Instant) -> Self {
        Self { mode, from: None, pass_ended: None, commits: 0, seen: 0, quiet_since: now }
    }

    /// Notes a request since [`remember`](Self::remember), if there was one.
    pub(super) fn look(&mut self, filesystem: &Filesystem, now: Instant) {
        if asked(filesystem) != self.seen {
            self.quiet_since = now;
        }
    }

    /// Takes all lookups until now for those of the defragmentation itself.
    pub(super) fn remember(&mut self, filesystem: &Filesystem) {
        self.seen = asked(filesystem);
    }

    /// Defragments a piece if one is due; whether it was.
    pub(super) fn step(&mut self, filesystem: &Filesystem, now: Instant) -> Result<bool, FsError> {
        if self.mode == AutoDefragment::Off || !self.is_due(filesystem, now)? {
            return Ok(false);
        }
        match filesystem.defragment(DefragmentScope::Pool, self.from, LEAVES_PER_PIECE) {
            Ok(done) => self.from = done.next,
            // The next pass may find more room.
            Err(FsError::Tree(TreeError::NoSpace(_))) => self.from = None,
            Err(error) => return Err(error),
        }
        if self.from.is_none() {
            self.pass_ended = Some(now);
            self.commits = filesystem.pool().commit_statistics().commits;
        }
        Ok(true)
    }

    fn is_due(&self, filesystem: &Filesystem, now: Instant) -> Result<bool, FsError> {
        let facts = IdleFacts {
            rotates: rotates(filesystem)?,
            quiet: now.saturating_duration_since(self.quiet_since),
            is_under_way: self.from.is_some(),
            since_pass: self.pass_ended.map(|ended| now.saturating_duration_since(ended)),
            has_changed: filesystem.pool().commit_statistics().commits != self.commits,
        };
        Ok(is_due(self.mode, &facts))
    }
}

/// Number of lookups of tree blocks: every request looks for something in a tree.
fn asked(filesystem: &Filesystem) -> u64 {
    let found = filesystem.pool().cache_statistics();
    found.hits + found.misses
}

/// Returns true if metadata lies on a device that rotates.
fn rotates(filesystem: &Filesystem) -> Result<bool, FsError> {
    let pool = filesystem.pool();
    let devices = pool.volume().devices();
    let groups = pool.block_groups()?;
    let metadata = groups.iter().filter(|group| group.kind.contains(BlockGroupType::METADATA));
    let mut stripes = metadata.flat_map(|group| &group.stripes);
    Ok(stripes.any(|(devid, _)| devices.iter().any(|device| device.devid == *devid && device.is_rotating)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::OpenOptions;
    use crate::new_inode::NewInode;
    use crate::write_options::WriteOptions;
    use brindle_care::mkfs::{MkfsOptions, NewDevice, mkfs};
    use brindle_device::{DeviceClass, SparseDevice, WritableDevice};
    use brindle_ondisk::RootId;
    use brindle_ondisk::Uuid;
    use brindle_policy::defragment::idle::QUIET;
    use std::sync::Arc;
    use std::time::Duration;

    const FILES: usize = 2000;

    /// A pool whose files were changed here and there.
    fn used(class: DeviceClass) -> Filesystem {
        let device =
            Arc::new(SparseDevice::new("memory".to_owned(), 1 << 30, class)) as Arc<dyn WritableDevice>;
        let mut options = MkfsOptions::new(Uuid([0x5e; 16]), [9; 16], 1_700_000_000);
        options.nodesize = Some(4096);
        mkfs(&[NewDevice::new(Arc::clone(&device))], &options).expect("a pool");
        let fs = Filesystem::open_writable(vec![device], &OpenOptions::default(), &WriteOptions::default());
        let fs = fs.expect("opens");
        let new = NewInode { mode: 0o100_644, ..NewInode::default() };
        let create = |name: String| fs.create(fs.root(), name.as_bytes(), &new).expect("room");
        for number in 0..FILES {
            create(format!("a name of some length {number}"));
        }
        for round in 0..10 {
            fs.sync().expect("commits");
            for number in (round..FILES).step_by(31) {
                fs.unlink(fs.root(), format!("a name of some length {number}").as_bytes()).expect("there");
                create(format!("a name of some length {number}"));
            }
        }
        fs.sync().expect("commits");
        fs
    }

    fn adjacent_percent(fs: &Filesystem) -> u64 {
        let tree = fs.pool().tree(RootId::FS_TREE).expect("there");
        fs.pool().scatter(&tree).expect("readable").adjacent_percent()
    }

    /// Runs upkeep without other requests for `time`; returns the number of pieces done.
    fn idle(defragment: &mut IdleDefragment, fs: &Filesystem, now: &mut Instant, time: Duration) -> usize {
        let (end, mut pieces) = (*now + time, 0);
        while *now < end {
            *now += Duration::from_secs(5);
            defragment.look(fs, *now);
            pieces += usize::from(defragment.step(fs, *now).expect("writable"));
            defragment.remember(fs);
        }
        pieces
    }

    #[test]
    fn an_idle_mount_is_defragmented_once() {
        let fs = used(DeviceClass::Rotating);
        let mut now = Instant::now();
        let mut defragment = IdleDefragment::new(AutoDefragment::Rotating, now);
        let before = adjacent_percent(&fs);
        assert!(before < 70, "{before}");
        for _ in 0..5 {
            assert_eq!(idle(&mut defragment, &fs, &mut now, QUIET / 2), 0, "somebody is there");
            fs.lookup(fs.root(), b"anything").expect("readable");
        }
        let pieces = idle(&mut defragment, &fs, &mut now, QUIET * 20);
        let after = adjacent_percent(&fs);
        assert!(pieces > 5 && after > 90, "{pieces} pieces, {before} %, then {after} %");
        assert_eq!(idle(&mut defragment, &fs, &mut now, QUIET * 20), 0, "it is through");
    }

    #[test]
    fn flash_and_mounts_without_the_option_are_left_alone() {
        let mut now = Instant::now();
        for (class, mode) in
            [(DeviceClass::Solid, AutoDefragment::Rotating), (DeviceClass::Rotating, AutoDefragment::Off)]
        {
            let (fs, mut defragment) = (used(class), IdleDefragment::new(mode, now));
            assert_eq!(idle(&mut defragment, &fs, &mut now, QUIET * 4), 0);
        }
    }
}

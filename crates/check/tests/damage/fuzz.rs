//! Random damage, with checksums made right: whatever it says, the examination comes to an end.

use super::pool::Pool;
use brindle_check::CheckOptions;
use brindle_ondisk::{Logical, RootId, to_usize};

/// A generator of numbers that are random enough (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }
}

/// Every tree block of the pool's own trees and of the top level.
pub(crate) fn blocks(pool: &Pool) -> Vec<Logical> {
    const TREES: [RootId; 8] = [
        RootId::ROOT_TREE,
        RootId::CHUNK_TREE,
        RootId::EXTENT_TREE,
        RootId::DEV_TREE,
        RootId::FS_TREE,
        RootId::CSUM_TREE,
        RootId::FREE_SPACE_TREE,
        RootId::UUID_TREE,
    ];
    let mut blocks = Vec::new();
    for root in TREES.into_iter().filter_map(|tree| pool.find_root(tree)) {
        pool.each_block(root, &mut |node| blocks.push(node.header().bytenr));
    }
    blocks
}

/// Changes some bytes of a random block, more often where headers and keys are.
pub(crate) fn damage(pool: &mut Pool, blocks: &[Logical], random: &mut Random) {
    let at = blocks[to_usize(random.below(blocks.len() as u64))];
    let nodesize = u64::from(pool.superblock().nodesize.get());
    let mut edits = Vec::new();
    for _ in 0..=random.below(3) {
        let bound = [nodesize, 101, 1024, nodesize][to_usize(random.below(4))];
        let value = [0, 1, 0xff, random.below(256)][to_usize(random.below(4))];
        edits.push((to_usize(32 + random.below(bound - 32)), value.to_le_bytes()[0]));
    }
    pool.edit_block(at, |block| {
        for (offset, value) in &edits {
            block[*offset] = *value;
        }
    });
}

#[test]
fn random_damage_neither_panics_nor_hangs() {
    for image in ["single", "snapshots"] {
        let clean = Pool::load(image);
        let blocks = blocks(&clean);
        for seed in 1..=150 {
            let mut random = Random(seed * 0x9e37_79b9);
            let mut pool = Pool::load(image);
            damage(&mut pool, &blocks, &mut random);
            let options = CheckOptions { check_data_csum: seed % 4 == 0, ..CheckOptions::default() };
            // What can't even be opened is refused with a reason; the rest has a report.
            if let Ok(report) = pool.try_check(&options) {
                assert!(report.passes.iter().all(|pass| pass.errors.list.len() <= 200), "seed {seed}");
            }
        }
    }
}

/// Holds us against `btrfs check`, where it is installed; `ROUNDS=200` in the environment looks harder.
#[test]
fn errors_that_btrfs_check_finds_are_found() {
    if std::process::Command::new("btrfs").arg("version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "btrfs-progs is not installed");
        println!("skipped: btrfs-progs is not installed");
        return;
    }
    let count = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(8);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("image");
    let mut missed = Vec::new();
    let (mut both, mut neither, mut ours) = (0, 0, 0);
    for image in ["single", "snapshots", "old-features", "quota"] {
        let clean = Pool::load(image);
        let blocks = blocks(&clean);
        for seed in 1..=count {
            let mut random = Random(seed * 0x9e37_79b9);
            let mut pool = Pool::load(image);
            damage(&mut pool, &blocks, &mut random);
            let is_clean = pool.try_check(&CheckOptions::default()).is_ok_and(|report| report.is_clean());
            pool.devices[0].write_to(&path).expect("room for an image");
            let mut command = std::process::Command::new("btrfs");
            let output = command.args(["check", "--readonly"]).arg(&path).output().expect("btrfs-progs");
            match (is_clean, output.status.success()) {
                (true, true) => neither += 1,
                (false, false) => both += 1,
                (false, true) => ours += 1,
                (true, false) => {
                    let text = String::from_utf8_lossy(&output.stderr).into_owned();
                    missed.push(format!("{image} seed {seed}:\n{text}"));
                }
            }
        }
    }
    println!("found by both {both}, by neither {neither}, by us alone {ours}, missed {}", missed.len());
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

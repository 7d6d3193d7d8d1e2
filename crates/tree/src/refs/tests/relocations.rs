//! Relocation trees that the kernel left, dropped in steps of any size.

use super::verify::verify;
use super::world::{devices_of, open};
use crate::error::TreeError;
use crate::options::OpenOptions;
use crate::options::WriterOptions;
use crate::pool::Pool;
use crate::transaction::Need;
use brindle_check::{CheckOptions, NoProgress, check};
use brindle_device::{Device, WritableDevice};
use std::sync::Arc;

const IMAGES: [&str; 2] = ["interrupted-metadata-balance", "interrupted-data-balance"];

fn assert_clean(devices: &[Arc<dyn WritableDevice>], when: &str) {
    let options = CheckOptions { all_copies: true, check_data_csum: true, ..CheckOptions::default() };
    let devices = devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
    let report = check(devices, &options, &NoProgress).expect("the pool opens");
    let findings: Vec<String> =
        report.findings().take(20).map(|(pass, finding)| format!("{pass}: {finding}")).collect();
    assert!(findings.is_empty(), "{when}: {findings:#?}");
}

/// Drops some blocks of the first relocation tree, in a transaction of its own; returns false if there is none.
fn drop_some(pool: &Pool, budget: usize) -> bool {
    let Some(tree) = pool.next_relocation_tree().expect("reads") else { return false };
    let transaction = pool.join(Need::freeing(budget)).expect("there is room");
    crate::dropping::TreeDropper::of(&transaction).drop_part_of_relocation(tree, budget).expect("drops");
    drop(transaction);
    pool.commit().expect("commits");
    true
}

#[test]
fn every_commit_on_the_way_to_a_pool_without_relocation_trees_is_whole() {
    for (image, budget) in IMAGES.into_iter().flat_map(|image| [1, 7, 1000].map(|budget| (image, budget))) {
        let devices = devices_of(image);
        assert_clean(&devices, image);
        let mut steps = 0;
        loop {
            let pool = open(&devices);
            verify(&pool);
            if !drop_some(&pool, budget) {
                break;
            }
            steps += 1;
            drop(pool);
            if steps % 16 == 0 {
                assert_clean(&devices, &format!("{image}, {budget} blocks a step, after {steps}"));
            }
        }
        assert!(steps >= 4 && (budget > 1 || steps > 20), "{image}: {steps} steps of {budget}");
        assert_clean(&devices, &format!("{image}, {budget} blocks a step"));
    }
}

#[test]
fn a_pool_with_relocation_trees_is_refused_unless_they_are_to_be_dropped() {
    for image in IMAGES {
        let opened =
            Pool::open_writable(devices_of(image), &OpenOptions::default(), &WriterOptions::default());
        assert!(matches!(opened, Err(TreeError::UnderWay(_))), "{image}");
    }
}

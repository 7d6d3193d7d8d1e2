//! The tables of `docs/dev/benchmarks.md`: `BRINDLE_MODELS=all cargo test -p brindle-volume models::table -- --nocapture`.

use super::*;
use brindle_policy::read::Knob;

pub(super) const POOLS: [(&str, Drives); 6] = [
    ("3 HDD", THREE_DISKS),
    ("2 HDD + SSD", TWO_DISKS_AND_FLASH),
    ("HDD + NVMe", DISK_AND_NVME),
    ("HDD + old HDD", NEW_AND_OLD_DISK),
    ("SSD + NVMe", FLASH_AND_NVME),
    ("2 NVMe", TWO_NVME),
];

pub(super) const WORKS: [(&str, Work, usize); 7] = [
    ("stream, 1 job", Work::SameFile, 1),
    ("same file, 8 jobs", Work::SameFile, 8),
    ("own files, 8 jobs", Work::OwnFiles, 8),
    ("random, 1 job", Work::Random, 1),
    ("random, 8 jobs", Work::Random, 8),
    ("random, 32 jobs", Work::Random, 32),
    ("random, 96 jobs", Work::Random, 96),
];

/// Prints the tables: `all`, or one pool by its name; a quick one otherwise.
#[test]
fn table() {
    let wanted = std::env::var("BRINDLE_MODELS").unwrap_or_default();
    let names = ReadPolicy::NAMED.map(ReadPolicy::name).join(" | ");
    for (pool, drives) in POOLS.into_iter().filter(|(pool, _)| wanted == "all" || wanted == *pool) {
        println!("\n| {pool}, modelled | alone, summed | {names} |");
        println!("|---|---|{}", "---|".repeat(ReadPolicy::NAMED.len()));
        for (name, work, jobs) in WORKS {
            print!("| {name} | {:.0} |", sum_alone(drives, work, jobs));
            for policy in ReadPolicy::NAMED {
                print!(" {:.0} |", reach(drives, of(policy), work, jobs));
            }
            println!();
        }
    }
    let penalties = if wanted.is_empty() { 0..1 } else { 0..10 };
    for (name, drives) in &POOLS[..2] {
        print!("| {name}, penalty 0 to 9 |");
        for penalty in penalties.clone() {
            print!(" {:.0} |", with_penalty(drives, Knob::Rotating, penalty));
        }
        println!();
    }
}

/// Throughput of one stream under `roundrobin` if a device that would have to seek has this added to its load.
pub(super) fn with_penalty(drives: Drives, knob: Knob, penalty: u32) -> f64 {
    let mut settings = of(ReadPolicy::LoadRoundRobin);
    settings.set_knob(Knob::MixedOnly, "0").expect("a number");
    settings.set_knob(knob, &penalty.to_string()).expect("a number");
    reach(drives, settings, Work::SameFile, 1)
}

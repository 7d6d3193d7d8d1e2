//! Aims of `auto`, and known properties of the other policies.

use super::table::{POOLS, WORKS, with_penalty};
use super::*;
use brindle_policy::read::Knob;

/// The four cells of the table that was published for raid1c3 with the policies `pid` and `roundrobin`.
const PUBLISHED: [(Drives, usize); 4] =
    [(THREE_DISKS, 1), (TWO_DISKS_AND_FLASH, 1), (THREE_DISKS, 8), (TWO_DISKS_AND_FLASH, 8)];

#[test]
fn auto_streams_nine_tenths_of_what_the_disks_can_together() {
    for (drives, jobs) in PUBLISHED {
        let (sum, auto) = (
            sum_alone(drives, Work::SameFile, jobs),
            reach(drives, of(ReadPolicy::Auto), Work::SameFile, jobs),
        );
        assert!(auto >= 0.9 * sum, "{jobs} jobs: {auto:.0} of {sum:.0} MiB/s");
    }
}

#[test]
fn auto_seeks_nine_tenths_of_what_the_disks_can_together() {
    for drives in [THREE_DISKS, TWO_DISKS_AND_FLASH] {
        for jobs in [8, 32, 96] {
            let sum = sum_alone(drives, Work::Random, jobs);
            let auto = reach(drives, of(ReadPolicy::Auto), Work::Random, jobs);
            assert!(auto >= 0.9 * sum, "{jobs} jobs: {auto:.0} of {sum:.0} reads/s");
        }
    }
}

#[track_caller]
fn nothing_is_a_twentieth_better_than_auto(drives: Drives, works: &[(&str, Work, usize)]) {
    for (name, work, jobs) in works.iter().copied() {
        let auto = reach(drives, of(ReadPolicy::Auto), work, jobs);
        for policy in ReadPolicy::NAMED {
            let other = reach(drives, of(policy), work, jobs);
            assert!(auto >= 0.95 * other, "{name}: auto {auto:.0}, {} {other:.0}", policy.name());
        }
    }
}

#[test]
fn nothing_is_a_twentieth_better_than_auto_on_three_disks() {
    nothing_is_a_twentieth_better_than_auto(POOLS[0].1, &WORKS);
}

#[test]
fn nothing_is_a_twentieth_better_than_auto_on_disks_and_flash() {
    nothing_is_a_twentieth_better_than_auto(POOLS[1].1, &WORKS);
}

#[test]
fn nothing_is_a_twentieth_better_than_auto_elsewhere() {
    let works = [WORKS[0], WORKS[2], WORKS[4]];
    for (_, drives) in &POOLS[2..] {
        nothing_is_a_twentieth_better_than_auto(drives, &works);
    }
}

#[test]
fn roundrobin_streams_from_several_disks_and_pid_from_one() {
    let stream = |drives, policy, pid| reach_from(drives, of(policy), Work::SameFile, 1, pid);
    let pid: Vec<f64> = (0..3).map(|pid| stream(TWO_DISKS_AND_FLASH, ReadPolicy::Pid, pid)).collect();
    // Published: 220 at the worst, 513 at the best.
    assert!((200.0..220.0).contains(&pid[0]) && (490.0..513.0).contains(&pid[2]), "{pid:?}");
    // Published: 217 to 409, 1.88 times as much.
    let gain = stream(THREE_DISKS, ReadPolicy::LoadRoundRobin, 0) / stream(THREE_DISKS, ReadPolicy::Pid, 0);
    assert!((1.6..2.0).contains(&gain), "{gain:.2}");
}

#[test]
fn a_penalty_is_no_gain_on_equal_disks() {
    let sweep: Vec<f64> =
        [0, 1, 5, 9].map(|penalty| with_penalty(THREE_DISKS, Knob::Rotating, penalty)).to_vec();
    assert!(sweep.iter().all(|reached| *reached <= sweep[0] * 1.02), "{sweep:.0?}");
}

#[test]
fn the_same_run_has_the_same_figure() {
    let once = || reach(TWO_DISKS_AND_FLASH, of(ReadPolicy::Auto), Work::OwnFiles, 3).to_bits();
    assert_eq!(once(), once());
}

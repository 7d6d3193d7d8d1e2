//! Counters of the devices, and the times at which they count.

use super::*;
use crate::ReadStatistics;
use crate::read_state::BYTES_MAX;
use crate::tests::support::{SHAPES, START, TestPool, rng};
use brindle_ondisk::Profile;
use std::sync::atomic::Ordering::Relaxed;

fn statistics(pool: &Modelled) -> Vec<ReadStatistics> {
    pool.volume.read_statistics().0.into_iter().map(|(_, statistics)| statistics).collect()
}

#[test]
fn under_pid_nothing_is_counted_unless_asked_for() {
    let pool = Modelled::new(THREE_DISKS);
    let mut buffer = [0; BLOCK_BYTES];
    for policy in [ReadPolicy::Pid, ReadPolicy::Devid, ReadPolicy::Runs] {
        pool.volume.set_read_settings(of(policy));
        pool.volume.prefetch(Logical::new(GIB), 1 << 20);
        pool.read(1 << 30, &mut buffer);
        assert_eq!(statistics(&pool), vec![ReadStatistics::default(); 3]);
        assert!(!pool.volume.read_statistics().1);
    }
    pool.volume.set_read_settings(of(ReadPolicy::Devid));
    pool.volume.set_read_statistics(true);
    pool.read(5 * GIB, &mut buffer);
    pool.read(5 * GIB + BLOCK_BYTES as u64, &mut buffer);
    let counted = statistics(&pool);
    assert_eq!(counted[1..], [ReadStatistics::default(); 2]);
    assert_eq!((counted[0].reads, counted[0].bytes, counted[0].in_flight), (2, 8192, 0));
    assert_eq!((counted[0].requests, counted[0].local_requests), (2, 1));
    assert_eq!(counted[0].end, 6 * GIB + 8192);
    assert!(counted[0].latency_ns > 100_000 && pool.volume.read_statistics().1);
}

#[test]
fn prefetched_ranges_are_forgotten_once_read() {
    let pool = Modelled::new(THREE_DISKS);
    pool.volume.set_read_settings(of(ReadPolicy::Auto));
    pool.read_in_order(0, 256 << 20, 1, 0);
    let counted = statistics(&pool);
    assert!(counted.iter().all(|device| (device.expected, device.in_flight) == (0, 0)), "{counted:?}");
    assert_eq!(counted.iter().map(|device| device.bytes).sum::<u64>(), 256 << 20);
    assert!(counted.iter().all(|device| device.bytes >= 32 << 20), "each disk does its part: {counted:?}");
}

#[test]
fn memory_for_prefetched_data_is_bounded_and_freed_by_readers() {
    for policy in ReadPolicy::NAMED {
        let pool = Modelled::new(THREE_DISKS);
        pool.volume.set_read_settings(of(policy));
        let fetched = pool.volume.prefetch(Logical::new(GIB), GIB);
        assert_eq!(fetched, BYTES_MAX, "{policy:?}");
        assert_eq!(
            pool.volume.prefetch(Logical::new(GIB + fetched), 1 << 20),
            0,
            "{policy:?}: there is no room"
        );
        let mut buffer = vec![0; 64 << 20];
        pool.read(0, &mut buffer);
        assert_eq!(pool.volume.prefetch(Logical::new(GIB + fetched), GIB), 64 << 20, "{policy:?}");
        assert_eq!(pool.volume.snapshot().choosing.prefetched().bytes(), BYTES_MAX);
    }
}

#[test]
fn the_last_mirror_is_that_of_the_thread() {
    let pool = Modelled::new(THREE_DISKS);
    pool.volume.set_read_settings(of(ReadPolicy::Queue));
    let order = |reads: u64| {
        let mut buffer = [0; BLOCK_BYTES];
        let before = statistics(&pool);
        (0..reads).for_each(|read| pool.read(read << 21, &mut buffer));
        let after = statistics(&pool);
        before.iter().zip(&after).map(|(before, after)| after.reads - before.reads).collect::<Vec<_>>()
    };
    // Each thread begins behind mirror 0, wherever the others are.
    for _ in 0..2 {
        let reads = std::thread::scope(|scope| scope.spawn(|| order(2)).join().expect("no panic"));
        assert_eq!(reads, [0, 1, 1]);
    }
}

#[test]
fn the_policy_changes_while_it_is_read() {
    let pool = Modelled::new(TWO_DISKS_AND_FLASH);
    pool.time.run(4, |job| {
        let mut buffer = [0; BLOCK_BYTES];
        for (index, policy) in ReadPolicy::NAMED.into_iter().cycle().take(70).enumerate() {
            if index % 4 == job {
                pool.volume.set_read_settings(of(policy));
            }
            pool.volume.prefetch(Logical::new(GIB + ((index as u64) << 24)), 1 << 20);
            pool.read((index as u64) << 24, &mut buffer);
        }
    });
    assert!(statistics(&pool).iter().all(|device| device.in_flight == 0));
    assert_eq!(pool.volume.read_settings().active, ReadPolicy::NAMED[69 % 7]);
}

#[test]
fn every_policy_reads_every_profile() {
    for (profile, stripes) in SHAPES {
        let made = TestPool::new(profile, stripes, 40, &mut rng(3));
        for policy in ReadPolicy::NAMED {
            let missing: &[usize] = if profile == Profile::Raid1c3 { &[1] } else { &[] };
            let volume = made.open(missing);
            volume.set_read_settings(of(policy));
            let mut found = vec![0; made.contents.len()];
            volume.prefetch(START, made.contents.len() as u64);
            volume.read_data(START, &mut found, &DataChecksums::all(&made.checksums)).expect("all there");
            assert!(found == made.contents, "{profile:?} of {stripes}, {policy:?}");
        }
    }
}

#[test]
fn prefetches_of_partial_sectors_read_whole_ones() {
    for (profile, stripes) in SHAPES {
        let made = TestPool::new(profile, stripes, 40, &mut rng(3));
        for policy in ReadPolicy::NAMED {
            let volume = made.open(&[]);
            volume.set_read_settings(of(policy));
            for (offset, length) in [(0, 3120), (5000, 100), (20_000, 4096), (30_000, 60_001)] {
                volume.prefetch(START + offset, length);
            }
            let mut found = vec![0; made.contents.len()];
            volume.read_data(START, &mut found, &DataChecksums::all(&made.checksums)).expect("all there");
            assert!(found == made.contents, "{profile:?} of {stripes}, {policy:?}");
            let errors: u64 = volume.devices().iter().map(|device| device.counters.checksum_errors).sum();
            assert_eq!(errors, 0, "{profile:?} of {stripes}, {policy:?}");
        }
    }
}

#[test]
fn settings_have_names() {
    let pool = Modelled::new(THREE_DISKS);
    let volume = &pool.volume;
    let get = |name: &str| volume.read_setting(name).expect("a setting");
    assert!(get("read_policy").starts_with("pid round-robin:262144 devid:"));
    volume.set_read_setting("read_policy", "round-robin:5000").expect("a setting").expect("a value");
    assert!(get("read_policy").contains("[round-robin:8192]"));
    volume.set_read_setting("read_policy", "devid:4").expect("a setting").expect_err("no such device");
    let defaults = [("read_statistics", "0"), ("roundrobin_nonlocal_inc_mixed_only", "1")];
    let increments = [("roundrobin_rot_nonlocal_inc", "1"), ("roundrobin_nonrot_nonlocal_inc", "0")];
    for (name, value) in defaults.into_iter().chain(increments) {
        assert_eq!(get(name), value);
        let other = if value == "0" { "1" } else { "0" };
        volume.set_read_setting(name, other).expect("a setting").expect("a value");
        assert_eq!(get(name), other);
        volume.set_read_setting(name, "many").expect("a setting").expect_err("no value");
    }
    assert!(volume.read_setting("label").is_none() && volume.set_read_setting("label", "1").is_none());
}

#[test]
fn foreign_load_of_a_device_counts_if_enabled_and_costs_nothing_otherwise() {
    for policy in ReadPolicy::NAMED {
        let pool = TestPool::new(Profile::Raid1, 2, 8, &mut rng(41));
        let (volume, devices) = pool.open_writable(&[]);
        volume.set_read_settings(of(policy));
        volume.set_read_statistics(true);
        devices[0].in_flight.store(100_000, Relaxed);
        let read = |count: u64| {
            let before = volume.read_statistics().0;
            let mut buffer = [0; BLOCK_BYTES];
            for _ in 0..count {
                let sums = DataChecksums::all(&pool.checksums[..4]);
                volume.read_data(START, &mut buffer, &sums).expect("readable");
            }
            let after = volume.read_statistics().0;
            before.iter().zip(&after).map(|((_, from), (_, to))| to.reads - from.reads).collect::<Vec<_>>()
        };
        let asked = || devices.iter().map(|one| one.asked.load(Relaxed)).sum::<usize>();
        read(8);
        assert_eq!(asked(), 0, "{policy:?}");
        volume.set_read_setting("read_host_stats", "1").expect("there is one").expect("a value");
        let reads = read(8);
        assert_eq!(asked() > 0, policy.needs_load(), "{policy:?}");
        if [ReadPolicy::Queue, ReadPolicy::LoadRoundRobin, ReadPolicy::Auto].contains(&policy) {
            assert_eq!(reads, [0, 8], "{policy:?}");
        }
    }
}

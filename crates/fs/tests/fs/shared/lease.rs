//! Two machines, and one pool.

use super::machine::World;
use super::{PAIRS, put, superblocks};
use crate::contents::patterns::Program;
use crate::simulated::Pool;
use brindle_device::WritableDevice;
use brindle_fs::{Filesystem, FsError, TreeError};
use brindle_sim::{CrashDevice, Image, LossMode, Random, Recorder};
use brindle_volume::{LEASE_INTERVAL, LeaseMode, VolumeError};
use std::sync::Arc;

/// The pool as a machine opens it.
fn of_machine(pool: &Pool, world: &Arc<World>, number: u8) -> Pool {
    let mut pool = pool.clone();
    pool.open.pool.volume.lease = world.machine(number);
    pool.write.tree_log = true;
    pool
}

fn is_held(error: &FsError) -> bool {
    matches!(error, FsError::Tree(TreeError::Volume(VolumeError::Held { .. })))
}

/// A file, synced by the log; returns false if the pool can't be written.
fn try_sync(filesystem: &Filesystem, name: &str) -> bool {
    let new = brindle_fs::NewInode { mode: 0o100_644, ..Default::default() };
    let Ok((_, file)) = filesystem.create_open(filesystem.root(), name.as_bytes(), &new) else {
        return false;
    };
    let synced = filesystem.write(&file, 0, name.as_bytes()).and_then(|_| filesystem.sync_file(&file));
    let closed = filesystem.close_file(file);
    synced.is_ok() && closed.is_ok()
}

#[test]
fn a_paused_holder_loses_the_pool_and_publishes_nothing_after_it() {
    let (world, pool) = (Arc::new(World::default()), Pool::new(&PAIRS));
    let first = of_machine(&pool, &world, 1).open().expect("free");
    assert!(try_sync(&first, "by the first"));
    // What it had in mind when it stopped.
    put(&first, "in memory");
    let second = of_machine(&pool, &world, 2).open().expect("the holder renews nothing");
    assert!(second.lookup(second.root(), b"by the first").expect("readable").is_some(), "it was fsynced");
    assert!(try_sync(&second, "by the second"));
    let theirs = superblocks(&pool.devices);
    assert!(!try_sync(&first, "too late"));
    first.sync().expect_err("read-only");
    let reason = first.pool().read_only_reason().expect("a reason");
    assert!(reason.contains("machine2, process 2 has taken the lease of the pool"), "{reason}");
    assert!(superblocks(&pool.devices) == theirs);
    first.shutdown().expect_err("read-only");
    drop(first);
    assert!(superblocks(&pool.devices) == theirs);
    assert!(try_sync(&second, "goes on"));
    second.shutdown().expect("its own");
    drop(second);
    pool.check().expect("whole");
    // It was given up: nothing is watched.
    let third = of_machine(&pool, &world, 3).open().expect("free");
    for name in ["by the first", "by the second", "goes on"] {
        assert!(third.lookup(third.root(), name.as_bytes()).expect("readable").is_some(), "{name}");
    }
    assert!(third.lookup(third.root(), b"in memory").expect("readable").is_none());
}

/// The host of a server opens an image straight, which is not shared as far as it can see.
#[test]
fn a_system_that_shares_no_device_takes_or_breaks_a_lease_that_it_outlives() {
    for (mode, lost) in
        [(LeaseMode::Shared, "machine2, process 2 has taken"), (LeaseMode::Never, "was broken")]
    {
        let (world, pool) = (Arc::new(World::default()), Pool::new(&PAIRS));
        let first = of_machine(&pool, &world, 1).open().expect("free");
        assert!(try_sync(&first, "by the first"));
        let mut straight = of_machine(&pool, &world, 2);
        straight.open.pool.volume.lease.mode = mode;
        let second = straight.open().expect("it is outlived");
        assert_eq!(second.pool().volume().has_lease(), mode == LeaseMode::Shared);
        // Nothing is written by the second so far: superblocks tell nothing.
        assert!(!try_sync(&first, "too late"));
        let reason = first.pool().read_only_reason().expect("a reason");
        assert!(reason.contains(lost), "{reason}");
        assert!(try_sync(&second, "by the second"));
        second.shutdown().expect("its own");
        drop((first, second));
        pool.check().expect("whole");
    }
}

/// Machines open, write, sync, renew, pause and close at random. At each moment at most one can make anything durable.
#[test]
fn of_machines_in_any_order_one_at_most_publishes_and_loses_nothing() {
    const SEEDS: u64 = 40;
    const STEPS: usize = 60;
    let mut taken_over = 0;
    for seed in 0..SEEDS {
        let (world, pool, mut random) = (Arc::new(World::default()), Pool::new(&PAIRS), Random::new(seed));
        let mut machines: [Option<Filesystem>; 3] = [const { None }; 3];
        let (mut owner, mut synced): (Option<usize>, Vec<String>) = (None, Vec::new());
        for step in 0..STEPS {
            let number = random.index(machines.len());
            let Some(filesystem) = &machines[number] else {
                let opened = of_machine(&pool, &world, u8::try_from(number + 1).expect("few")).open();
                match opened {
                    Ok(filesystem) => {
                        let has = |name: &String| filesystem.lookup(filesystem.root(), name.as_bytes());
                        let lost = synced.iter().find(|name| has(name).expect("readable").is_none());
                        assert!(lost.is_none(), "{lost:?}, seed {seed}, step {step}");
                        taken_over += usize::from(owner.is_some());
                        (owner, machines[number]) = (Some(number), Some(filesystem));
                    }
                    Err(error) => assert!(is_held(&error), "{error}, seed {seed}, step {step}"),
                }
                continue;
            };
            let before = superblocks(&pool.devices);
            match random.below(8) {
                0..=2 => {
                    let name = format!("{step}");
                    if try_sync(filesystem, &name) {
                        assert_eq!(owner, Some(number), "seed {seed}, step {step}");
                        synced.push(name);
                    }
                }
                3 => {
                    let done = filesystem.sync();
                    assert!(done.is_ok() || owner != Some(number), "{done:?}, seed {seed}, step {step}");
                }
                4..=5 => {
                    let _ = filesystem.pool().volume().renew_lease();
                    world.pass(LEASE_INTERVAL / 2);
                }
                6 => world.pass(LEASE_INTERVAL),
                _ => {
                    let ended = machines[number].take().expect("it is open");
                    let done = ended.shutdown();
                    assert!(done.is_ok() || owner != Some(number), "{done:?}, seed {seed}, step {step}");
                    if owner == Some(number) {
                        owner = None;
                        continue;
                    }
                }
            }
            let is_same = superblocks(&pool.devices) == before;
            assert!(is_same || owner == Some(number), "another one published, seed {seed}, step {step}");
        }
        drop(machines);
        pool.check().unwrap_or_else(|why| panic!("{why}, seed {seed}"));
    }
    assert!(taken_over > 20, "{taken_over}");
}

/// A power cut of the holder, at each write of a few syncs and commits: another machine outlives the lease, and finds all.
#[test]
fn a_machine_that_lost_power_is_outlived_whatever_it_was_at() {
    let (world, recorder, fresh) = (Arc::new(World::default()), Recorder::new(), Pool::new(&PAIRS));
    let copy = |device: &Arc<dyn WritableDevice>| {
        let mut image = Image::new(device.size_bytes());
        let mut piece = vec![0; 1 << 20];
        for at in (0..device.size_bytes()).step_by(1 << 20) {
            device.read_at(at, &mut piece).expect("in memory");
            if piece.iter().any(|byte| *byte != 0) {
                image.write(at, &piece);
            }
        }
        recorder.device(device.name(), image, device.class())
    };
    let recorded: Vec<Arc<CrashDevice>> = fresh.devices.iter().map(copy).collect();
    let devices = recorded.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
    let holder = of_machine(&Pool { devices, ..fresh.clone() }, &world, 1).open().expect("free");
    let mut synced: Vec<(usize, String)> = Vec::new();
    for round in 0..4 {
        let name = format!("{round}");
        assert!(try_sync(&holder, &name));
        synced.push((recorder.position(), name));
        holder.pool().volume().renew_lease().expect("its own");
        if round % 2 == 1 {
            holder.sync().expect("its own");
        }
    }
    let (recording, mut random) = (recorder.recording(), Random::new(5));
    let points: Vec<usize> = recording.crash_points().collect();
    for point in points.into_iter().step_by(3) {
        let state = recording.state_at(point, LossMode::Scattered, &mut random);
        let devices = state.devices.into_iter().map(|device| device as Arc<dyn WritableDevice>).collect();
        let pool = Pool { devices, ..fresh.clone() };
        let next = of_machine(&pool, &world, 2).open().unwrap_or_else(|error| panic!("{error}, at {point}"));
        let program = Program::new(&next);
        for (_, name) in synced.iter().filter(|(position, _)| *position <= point) {
            assert!(program.find(name).is_some(), "{name}, at {point}");
        }
        assert!(try_sync(&next, "goes on"), "at {point}");
        next.shutdown().expect("its own");
        drop(next);
        pool.check().unwrap_or_else(|why| panic!("{why}, at {point}"));
    }
}

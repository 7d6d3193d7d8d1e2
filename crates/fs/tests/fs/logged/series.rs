//! Files that a program syncs one after the other: few syncs write for all of them.

use super::modelled::{Modelled, ONE_OF_EACH};
use super::open;
use super::tiers::{prepare, recorded};
use crate::contents::patterns::Program;
use crate::simulated::{Layout, check};
use brindle_device::WritableDevice;
use brindle_fs::WriteBackMode;
use brindle_sim::{Drive, DriveCounts, LossMode, Random, Recorder};
use std::sync::Arc;

/// Files of a round, and rounds.
const FILES: u64 = 100;
const ROUNDS: u64 = 5;

const DISK: Layout = Layout { devices: 1, fast: 0, ..ONE_OF_EACH };

fn contents(number: u64, round: u64) -> Vec<u8> {
    (0..16 << 10).map(|at: u64| ((at / 512 + number + 7 * round) % 251) as u8).collect()
}

fn name(number: u64) -> String {
    format!("files/{number}")
}

/// Files that the last commit has.
fn with_files(layout: &Layout, drives: Vec<Drive>, mode: WriteBackMode) -> Modelled {
    let pool = Modelled::writing_back(layout, drives, mode, 0);
    let program = Program::new(&pool.filesystem);
    program.make_directory("files");
    for number in 0..FILES {
        let file = program.create(&name(number));
        program.write(&file, 0, &contents(number, 0));
        program.close(file);
    }
    pool.filesystem.sync().expect("commits");
    pool.devices.iter().for_each(|device| device.reset_counts());
    pool
}

/// Changes a block of each file, and syncs all, in another order.
fn change_and_sync(program: &Program<'_>, round: u64) {
    let files: Vec<_> = (0..FILES).map(|number| program.open(&name(number))).collect();
    for (number, file) in (0..).zip(&files) {
        program.write(file, 4096, &contents(number, round)[4096..8192]);
    }
    (0..FILES).map(|at| at * 37 % FILES).for_each(|at| program.sync(&files[brindle_ondisk::to_usize(at)]));
    files.into_iter().for_each(|file| program.close(file));
}

fn verify(program: &Program<'_>, round: u64) {
    for number in 0..FILES {
        let (first, last) = (contents(number, 0), contents(number, round));
        let expected = [&first[..4096], &last[4096..8192], &first[8192..]].concat();
        assert!(program.read(&name(number)).expect("there") == expected, "file {number}");
    }
}

fn counts(pool: &Modelled, act: impl Fn(&Program<'_>)) -> Vec<DriveCounts> {
    let logged = || pool.filesystem.pool().commit_statistics().log;
    let before = logged();
    act(&Program::new(&pool.filesystem));
    assert_eq!(logged().commits, before.commits, "no sync was a commit");
    pool.counts()
}

fn end(pool: Modelled) {
    pool.filesystem.shutdown().expect("closes");
    drop(pool.filesystem);
    let devices = pool.devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>);
    check(&devices.collect::<Vec<_>>()).expect("whole");
}

#[test]
fn files_that_are_synced_one_after_the_other_take_few_seeks() {
    let pool = with_files(&DISK, vec![Drive::hard_disk()], WriteBackMode::Off);
    let counts = counts(&pool, |program| (1..=ROUNDS).for_each(|round| change_and_sync(program, round)))[0];
    println!("{counts:#?}");
    assert!(counts.flushes <= 12 * ROUNDS && counts.seeks <= 24 * ROUNDS, "{counts:?}");
    verify(&Program::new(&pool.filesystem), ROUNDS);
    end(pool);
}

#[test]
fn new_files_that_are_synced_and_renamed_take_few_seeks() {
    let pool = with_files(&DISK, vec![Drive::hard_disk()], WriteBackMode::Off);
    let counts = counts(&pool, |program| {
        for round in 1..=ROUNDS {
            let new = |number| format!("files/{number}.new");
            let files: Vec<_> = (0..FILES).map(|number| program.create(&new(number))).collect();
            for (number, file) in (0..).zip(&files) {
                program.write(file, 0, &contents(number, round));
            }
            files.iter().for_each(|file| program.sync(file));
            files.into_iter().for_each(|file| program.close(file));
            (0..FILES).for_each(|number| program.rename(&new(number), &name(number)));
        }
    })[0];
    println!("{counts:#?}");
    assert!(counts.flushes <= 20 * ROUNDS && counts.seeks <= 40 * ROUNDS, "{counts:?}");
    let program = Program::new(&pool.filesystem);
    for number in 0..FILES {
        assert!(program.read(&name(number)).expect("there") == contents(number, ROUNDS), "file {number}");
    }
    end(pool);
}

#[test]
fn a_series_of_syncs_in_the_write_back_tier_asks_nothing_of_the_disk() {
    let pool = with_files(&ONE_OF_EACH, vec![Drive::sata_ssd(), Drive::hard_disk()], WriteBackMode::Sync);
    let counts = counts(&pool, |program| {
        // Of a large file that is not synced, nothing goes along.
        let film = program.create("film");
        program.write(&film, 0, &[7; 4 << 20]);
        (1..=ROUNDS).for_each(|round| change_and_sync(program, round));
        program.close(film);
    });
    println!("{counts:#?}");
    assert!(counts[0].flushes <= 12 * ROUNDS, "{counts:?}");
    assert_eq!((counts[1].writes, counts[1].flushes), (0, 0), "{counts:?}");
    verify(&Program::new(&pool.filesystem), ROUNDS);
    end(pool);
}

#[test]
fn a_file_that_is_synced_alone_takes_no_other_along() {
    let pool = with_files(&DISK, vec![Drive::hard_disk()], WriteBackMode::Off);
    let counts = counts(&pool, |program| {
        let others: Vec<_> = (1..FILES).map(|number| program.open(&name(number))).collect();
        others.iter().for_each(|file| program.write(file, 0, &[5; 16 << 10]));
        let file = program.open(&name(0));
        for _ in 0..20 {
            program.write(&file, 0, &[5; 4096]);
            program.sync(&file);
        }
        others.into_iter().chain([file]).for_each(|file| program.close(file));
    })[0];
    // Data, two copies of two blocks of the log, and a superblock each time.
    assert!(counts.written_bytes < 20 * (96 << 10), "{counts:?}");
    end(pool);
}

/// Files as a crash leaves them that takes what was not flushed: names below `mail`, and contents.
fn after_a_crash(recorder: &Recorder) -> Vec<(String, Vec<u8>)> {
    let recording = recorder.recording();
    let end = recording.crash_points().len() - 1;
    let state = recording.state_at(end, LossMode::Everything, &mut Random::new(1));
    let filesystem = open(state.writable()).expect("opens");
    let program = Program::new(&filesystem);
    let names = program.names("mail");
    let contents = |name: &String| program.read(&format!("mail/{name}")).expect("there");
    let mut found: Vec<_> = names.iter().map(|name| (name.clone(), contents(name))).collect();
    found.sort();
    found
}

/// The sync of a file that went along before has nothing to write of its own, and makes the new names of those before it durable.
#[test]
fn a_file_that_went_along_brings_the_names_that_are_due() {
    const NEW: u64 = 60;
    let (recorder, filesystem) = recorded(&ONE_OF_EACH, 0x7f);
    prepare(&filesystem);
    let program = Program::new(&filesystem);
    let new = |number| format!("{number}.new");
    let files: Vec<_> = (0..NEW).map(|number| program.create(&format!("mail/{}", new(number)))).collect();
    (0..).zip(&files).for_each(|(number, file)| program.write(file, 0, &contents(number, 1)[..5000]));
    let mut unasked = 0;
    for (number, file) in (0..).zip(&files) {
        program.sync(file);
        if number % 5 == 0 {
            let found = after_a_crash(&recorder);
            let has = |name: &str, number: u64| {
                found.iter().any(|(found, bytes)| found == name && *bytes == contents(number, 1)[..5000])
            };
            for before in 0..number {
                assert!(has(&before.to_string(), before), "{before} after the sync of {number}");
                assert!(found.iter().all(|(name, _)| *name != new(before)), "{before} has its old name");
            }
            assert!(has(&new(number), number), "{number} was synced");
            unasked += (number + 1..NEW).filter(|later| has(&new(*later), *later)).count();
        }
        program.rename(&format!("mail/{}", new(number)), &format!("mail/{number}"));
    }
    assert!(unasked > 0, "nothing went along");
    files.into_iter().for_each(|file| program.close(file));
}

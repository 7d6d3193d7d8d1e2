//! `kill -9` at moments that a seed spreads over a run, and what `tier recover` and the next run make of it.
//! `BRINDLE_TIER_KILLS` asks for more moments than a few, `BRINDLE_SEED` for others.

use super::host::{TierPool, can_mount, run};
use super::{FENCED_FOR_EVER, assert_all_in_place, wrong_bytes};
use crate::mount::unmount;
use crate::support::{brindle_prints, moments, number, text};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Begins a run with everything to do, and kills it after `moment`; returns false if it had ended before.
fn is_killed_after(pool: &TierPool, moment: Duration) -> bool {
    // The kernel moves metadata to where the most space is, or into what a killed run has left half empty.
    let is_wrong = (0..5).any(|_| {
        run("btrfs", &["balance", "start", "-f", "-m", text(&pool.at())]);
        wrong_bytes(pool) > 0
    });
    assert!(is_wrong, "there is something to do");
    let mut child = pool.tier_starts(&["apply"]);
    std::thread::sleep(moment);
    child.kill().expect("a child of ours");
    child.wait().expect("it ends").code().is_none()
}

#[test]
fn a_killed_run_is_recovered_from_at_any_moment() {
    if !can_mount() {
        return;
    }
    let (kills, seed) = (number("BRINDLE_TIER_KILLS", 6), number("BRINDLE_SEED", 1));
    let mut pool = TierPool::filled();
    let (sizes, contents) = (pool.sizes(), pool.contents());
    let begin = Instant::now();
    pool.tier_prints(&["apply"]);
    let whole = begin.elapsed();
    let mut fenced = 0;
    // A run that was slower than those to come has all kills come too early: then there are more.
    let more = moments(whole, 20, seed + 1);
    for (round, moment) in (1..).zip(moments(whole, kills, seed).into_iter().chain(more)) {
        if round > kills && fenced > 0 {
            break;
        }
        let when = format!("kill {round} of seed {seed}, {moment:?} of {whole:?} into the run");
        // A run that has ended before was quicker than the first.
        let is_killed = (0..6).any(|tries| is_killed_after(&pool, moment.mul_f64(0.6_f64.powi(tries))));
        assert!(is_killed, "{when}");
        fenced += u32::from(pool.sizes() != sizes);
        pool.tier_prints(&["recover"]);
        assert_eq!(pool.sizes(), sizes, "{when}");
        assert_eq!(pool.json("status")["fenced"], false, "{when}");
        assert_eq!(pool.exclusive_operation(), "none", "{when}");
        assert!(pool.tier_prints(&["recover"]).contains("nothing is fenced"), "{when}");
    }
    println!("{fenced} kills left a fence behind");
    assert_ne!(fenced, 0, "nothing was shown");
    pool.tier_prints(&["apply"]);
    assert_all_in_place(&pool);
    pool.check();
    // As the devices have it, not the kernel's memory.
    pool.mount();
    assert_eq!((pool.sizes(), pool.contents()), (sizes, contents));
}

#[test]
fn classes_that_are_reversed_under_kills_are_put_right_all_the_same() {
    const REVERSED: [&str; 8] = ["--fast", "1", "--fast", "2", "--bulk", "3", "--bulk", "4"];
    if !can_mount() {
        return;
    }
    let (rounds, seed) = (number("BRINDLE_TIER_KILLS", 6) / 3, number("BRINDLE_SEED", 1));
    let pool = TierPool::filled();
    let (sizes, contents) = (pool.sizes(), pool.contents());
    for round in 0..rounds {
        for classes in [&REVERSED[..], &[]] {
            for moment in moments(Duration::from_millis(1500), 2, seed + round) {
                let mut child = pool.tier_starts(&[&["apply"], classes].concat());
                std::thread::sleep(moment);
                child.kill().expect("a child of ours");
                child.wait().expect("it ends");
                pool.tier_prints(&["recover"]);
            }
            // What the kernel has put into holes meanwhile goes where it belongs, too.
            pool.tier_prints(&[&["apply"], classes].concat());
        }
        assert_all_in_place(&pool);
    }
    assert_eq!((pool.sizes(), pool.contents()), (sizes, contents));
}

#[test]
fn recover_ends_the_balance_that_a_crash_has_left_paused() {
    if !can_mount() {
        return;
    }
    let mut pool = TierPool::filled();
    let sizes = pool.sizes();
    pool.tier_prints(&["apply"]);
    let mut child = pool.tier_starts(&FENCED_FOR_EVER);
    // That there is to be one is written down before it stands.
    pool.wait_until("the pool is fenced", |_| pool.sizes() != sizes);
    child.kill().expect("a child of ours");
    child.wait().expect("it ends");
    assert_eq!(pool.json("status")["fenced"], true);
    // What `apply` asks the kernel for: a balance of one chunk. A crash in its midst leaves it paused.
    let is_paused = (0..50).any(|_| pool.pause_a_balance_of(pool.first_chunk("DATA")));
    assert!(is_paused, "never in its midst");
    pool.unmount();
    pool.mount_with("skip_balance");
    assert_eq!(pool.exclusive_operation(), "balance paused");
    let said = pool.tier_prints(&["recover"]);
    assert!(said.contains("device 1: "), "{said}");
    assert_eq!((pool.sizes(), pool.exclusive_operation().as_str()), (sizes, "none"));
    // A balance of another process is left alone.
    if pool.pause_a_balance() {
        pool.tier_prints(&["recover"]);
        assert_eq!(pool.exclusive_operation(), "balance paused");
        run("btrfs", &["balance", "cancel", text(&pool.at())]);
    }
    pool.tier_prints(&["apply"]);
    assert_all_in_place(&pool);
    pool.check();
}

/// The command with its state in that of a pool, in a directory.
fn recover_from(pool: &TierPool, directory: &Path, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
    command.args(["tier", "recover"]).args(words).current_dir(directory);
    let output = command.env("BRINDLE_STATE_DIR", pool.state()).output().expect("the binary was built");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn recover_finds_a_pool_by_its_uuid_from_anywhere() {
    if !can_mount() {
        return;
    }
    let mut pool = TierPool::filled();
    let sizes = pool.sizes();
    let uuid = run("findmnt", &["-n", "-o", "UUID", text(&pool.at())]).trim().to_owned();
    pool.tier_prints(&["apply"]);
    let fence = |pool: &TierPool| {
        let (above, name) = (pool.at(), pool.at());
        let (above, name) =
            (above.parent().expect("a directory"), name.file_name().expect("a name").to_owned());
        let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
        command.arg("tier").args(FENCED_FOR_EVER).arg(name).current_dir(above);
        let mut child = command.env("BRINDLE_STATE_DIR", pool.state()).spawn().expect("the binary was built");
        pool.wait_until("the pool is fenced", |_| pool.sizes() != sizes);
        child.kill().expect("a child of ours");
        child.wait().expect("it ends");
    };
    fence(&pool);
    let (code, said) = recover_from(&pool, Path::new("/"), &[]);
    assert_eq!((code, pool.sizes()), (Some(0), sizes.clone()), "{said}");
    // Mounted elsewhere by now, and named by its UUID.
    fence(&pool);
    pool.unmount();
    let (code, said) = recover_from(&pool, Path::new("/"), &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains(&format!("pool {uuid} is not mounted, last seen at {}", text(&pool.at()))),
        "{said}"
    );
    let elsewhere = pool.state().join("else where");
    std::fs::create_dir(&elsewhere).expect("room");
    run("mount", &[&pool.loops()[0], text(&elsewhere)]);
    let (code, said) = recover_from(&pool, Path::new("/"), &[&uuid]);
    run("umount", &[text(&elsewhere)]);
    assert_eq!(code, Some(0), "{said}");
    pool.mount();
    assert_eq!(pool.sizes(), sizes);
    // A journal of a version that kept the path as it was typed.
    fence(&pool);
    let journal = pool.state().join(format!("tier-{uuid}.json"));
    let old = std::fs::read_to_string(&journal).expect("it is there").replace(text(&pool.at()), "mnt");
    std::fs::write(&journal, old).expect("room");
    let (code, said) = recover_from(&pool, Path::new("/"), &[]);
    assert_eq!((code, pool.sizes()), (Some(0), sizes), "{said}");
    let (code, said) = recover_from(&pool, Path::new("/"), &[&uuid]);
    assert!(code == Some(0) && said.contains("nothing is fenced"), "{said}");
}

/// Fences the pool, kills what does it, and unmounts the pool.
fn leave_fenced(pool: &mut TierPool, sizes: &str) {
    let mut child = pool.tier_starts(&FENCED_FOR_EVER);
    pool.wait_until("the pool is fenced", |_| pool.sizes() != sizes);
    child.kill().expect("a child of ours");
    child.wait().expect("it ends");
    pool.unmount();
}

#[test]
fn fences_of_a_killed_run_come_down_on_a_mount_of_brindle_and_without_a_mount() {
    if !can_mount() {
        return;
    }
    let mut pool = TierPool::filled_with_one_fast_device();
    pool.tier_prints(&["apply"]);
    let (sizes, loops) = (pool.sizes(), pool.loops().to_vec());
    let devices: Vec<&str> = loops.iter().map(String::as_str).collect();
    let at = pool.at();
    for (word, is_mounted) in [("recover", true), ("recover", false), ("apply", true), ("apply", false)] {
        let when = format!("{word}, mounted: {is_mounted}");
        leave_fenced(&mut pool, &sizes);
        let operands = if is_mounted { vec![text(&at)] } else { devices.clone() };
        if is_mounted {
            brindle_prints([&["-q", "mount"][..], &devices, &[text(&at)]].concat());
        }
        let tier = |word: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
            command.args(["tier", word]).args(&operands).env("BRINDLE_STATE_DIR", pool.state());
            let output = command.output().expect("the binary was built");
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            assert!(output.status.success(), "{when}: {said}");
            said
        };
        let (warned, done, after) = (tier("status"), tier(word), tier("status"));
        let again = tier("recover");
        if is_mounted {
            unmount(&at);
        }
        let way_out = format!("`brindle tier recover {}`", operands.join(" "));
        assert!(warned.contains(&way_out), "{when}: {warned}");
        let says = if word == "recover" { "device 1: " } else { "restored sizes" };
        assert!(done.contains(says) && !after.contains("fenced"), "{when}: {done}{after}");
        assert!(again.contains("nothing is fenced"), "{when}: {again}");
        pool.mount();
        assert_eq!(pool.sizes(), sizes, "{when}");
    }
    pool.check();
}

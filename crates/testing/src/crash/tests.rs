//! The harness passes what is right, and catches each thing that is wrong.

use super::toy::{Flaw, ToyBehaviour, ToySubject};
use super::{CrashGuarantees, CrashTest, FaultTest};
use crate::operations::Mix;

fn small() -> CrashTest {
    let mix = Mix { file_bytes_max: 9000, names_max: 15, ..Mix::crash() };
    CrashTest::new("cargo test -p brindle-testing crash", 1).mixed(mix)
}

/// Verdict of the harness on a toy with this flaw.
fn found(flaw: Flaw) -> String {
    let outcome = small().of(4, 60, 400).outcome(&ToySubject::new(flaw));
    outcome.expect_err("a flaw was not seen")
}

#[test]
fn a_toy_without_flaws_passes() {
    let summary = small().of(4, 80, 1000).run(&ToySubject::new(Flaw::None));
    assert_eq!(summary.rounds, 4);
    assert!(summary.points > 200 && summary.states > 3900, "{summary:?}");
    assert!(summary.distinct > 200 && summary.distinct < summary.states, "{summary:?}");
    assert!(summary.count("renames over another file") > 0 && summary.count("writes") > 0, "{summary:?}");
}

#[test]
fn a_missing_flush_is_seen() {
    let text = found(Flaw::NoFlushBetween);
    assert!(text.contains("the words are not those of the header"), "{text}");
    // The commit is lost, or the header before it is found after its words were overwritten.
    let text = found(Flaw::NoFlushAfter);
    let symptoms = ["held against the commit of step", "the words are not those of the header"];
    assert!(symptoms.iter().any(|symptom| text.contains(symptom)), "{text}");
}

#[test]
fn the_first_failure_does_not_depend_on_the_number_of_threads() {
    for flaw in [Flaw::NoFlushBetween, Flaw::NoFlushAfter, Flaw::ForgetsSync] {
        let mut messages = [1, 2, 3, 8].map(|threads| {
            let mut test = small().of(4, 60, 400);
            test.threads = threads;
            test.outcome(&ToySubject::new(flaw)).expect_err("a flaw was not seen")
        });
        messages.sort();
        assert_eq!(messages[0], messages[3]);
    }
}

#[test]
fn overwriting_in_place_is_seen() {
    let text = found(Flaw::InPlace);
    assert!(text.contains("the words are not those of the header"), "{text}");
}

#[test]
fn a_sync_that_returns_too_early_is_seen() {
    assert!(found(Flaw::LateSync).contains("held against the commit of step"));
    assert!(found(Flaw::ForgetsSync).contains("held against the commit of step"));
}

#[test]
fn a_second_crash_during_the_mount_is_seen() {
    let text = found(Flaw::CarelessMount);
    assert!(text.contains("after a crash"), "{text}");
}

#[test]
fn a_wrong_answer_is_seen_before_any_crash() {
    let text = found(Flaw::WrongAnswer);
    assert!(text.contains("before any crash"), "{text}");
}

#[test]
fn a_failure_is_seen_again_by_its_state_alone() {
    let text = found(Flaw::NoFlushBetween);
    let (_, again) = text.split_once("again by: ").expect("a command");
    let value = |name: &str| {
        let words = again.split(' ').find_map(|word| word.strip_prefix(name));
        words.unwrap_or_else(|| panic!("{name} in {again}")).to_owned()
    };
    let (point, number) = value("BRINDLE_CRASH_STATE=")
        .split_once(':')
        .map(|(point, number)| (point.parse().expect("a number"), number.parse().expect("a number")))
        .expect("two numbers");
    let seed = value("BRINDLE_CRASH_SEED=").parse().expect("a number");
    let mut alone = small().of(1, 60, 400).only(point, number);
    alone.seed = seed;
    let text_again = alone.outcome(&ToySubject::new(Flaw::NoFlushBetween)).expect_err("the same failure");
    let first_line = |text: &str| text.lines().next().map(str::to_owned);
    assert_eq!(first_line(&text_again), first_line(&text));
}

fn habits(flaw: Flaw, fsync_commits: bool, commits_only_when_asked: bool) -> ToyBehaviour {
    ToyBehaviour {
        flaw,
        commits_after: (!commits_only_when_asked).then_some(7),
        syncs_files: !fsync_commits,
        guarantees: CrashGuarantees { fsync_commits, commits_only_when_asked, ..CrashGuarantees::default() },
    }
}

#[test]
fn unrequested_commits_are_allowed_if_declared() {
    let honest = habits(Flaw::None, true, false);
    small().of(3, 80, 500).run(&ToySubject::with(honest));
    let liar = ToyBehaviour { guarantees: CrashGuarantees::default(), ..honest };
    assert!(small().of(3, 80, 500).outcome(&ToySubject::with(liar)).is_err());
    let flawed = habits(Flaw::NoFlushBetween, true, false);
    assert!(small().of(3, 80, 500).outcome(&ToySubject::with(flawed)).is_err());
}

#[test]
fn a_file_that_was_synced_alone_is_found_as_it_was() {
    let mix = Mix { sync_file: 40, sync: 3, contents: 80, invalid_percent: 0, ..small().mix };
    let test = small().mixed(mix).of(3, 120, 500);
    test.run(&ToySubject::with(habits(Flaw::None, false, true)));
    let text = test.outcome(&ToySubject::with(habits(Flaw::ForgetsSync, false, true)));
    assert!(text.expect_err("a lost fsync").contains("since its last fsync"));
}

#[test]
fn failing_devices_leave_the_last_commit() {
    let mut test = FaultTest::new("cargo test -p brindle-testing crash", 1, 60);
    test.mix = small().mix;
    let met = test.run(&ToySubject::new(Flaw::None));
    assert!(met > 20, "{met} of 60 runs met their fault");
    let text = test.outcome(&ToySubject::new(Flaw::IgnoresErrors)).expect_err("errors nobody looked at");
    assert!(text.contains("on device"), "{text}");
}

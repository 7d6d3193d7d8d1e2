//! Every suite on a directory of the host.

use super::*;

pub(super) fn options(directory: &Path) -> RunOptions {
    let sizes = RunOptions::of(Suite::Fsync, directory.to_owned());
    RunOptions { count: 25, jobs: 3, file_bytes: 3 << 20, ..sizes }
}

#[test]
fn suites_do_all_that_is_asked_and_leave_nothing() {
    let scratch = tempfile::tempdir().expect("room");
    let of = |suite| {
        let phases = run(suite, &options(scratch.path())).expect("room");
        let left = fs::read_dir(scratch.path()).expect("ours").count();
        assert_eq!(left, 0, "{suite}");
        let told = |phase: &Phase| {
            assert!(phase.rate() > 0.0 && phase.latencies.is_sorted(), "{phase:?}");
            let name: &'static str = phase.name.clone().leak();
            (name, phase.operations, phase.bytes, phase.latencies.len())
        };
        phases.iter().map(told).collect::<Vec<_>>()
    };
    assert_eq!(of(Suite::Fsync), [("put", 75, 75 * 4096, 75)]);
    assert_eq!(of(Suite::Files), [("create", 75, 0, 0), ("remove", 75, 0, 0)]);
    let pieces = (3 << 20) / (64 << 10);
    let expected = [
        ("write", pieces, 3 << 20, 0),
        ("sequential", 3 * pieces, 9 << 20, 0),
        ("random", 75, 75 * 4096, 75),
    ];
    assert_eq!(of(Suite::Reads), expected);
    assert_eq!(of(Suite::Objects), [("put", 75, 75 * (512 << 10), 75)]);
    let length = usize::try_from(pieces).expect("few");
    let expected = [
        ("write", pieces, 3 << 20, length),
        ("read new", pieces, 3 << 20, length),
        ("overwrite", 25, 25 * 4096, 25),
        ("read overwritten", pieces, 3 << 20, length),
    ];
    assert_eq!(of(Suite::Overwrites), expected);
    // Any program will do here; one that fails ends the run with what it said.
    let defragmented = |program: &str| {
        let options = RunOptions { defragmenter: Some(program.into()), ..options(scratch.path()) };
        let result = run(Suite::Overwrites, &options);
        assert_eq!(fs::read_dir(scratch.path()).expect("ours").count(), 0);
        result
    };
    let phases = defragmented("true").expect("room");
    let told = phases.iter().skip(4).map(|phase| (phase.name.as_str(), phase.operations, phase.bytes));
    let last = [("defragment", 1, 3 << 20), ("read defragmented", pieces, 3 << 20)];
    assert_eq!(told.collect::<Vec<_>>(), last);
    let error = defragmented("false").expect_err("it fails").to_string();
    assert!(error.contains("defragment --flush"), "{error}");
    let [(name, 25, bytes, 25)] = of(Suite::Untar)[..] else { panic!("one phase") };
    assert!(name == "unpack" && bytes > 25 * 512);
    assert_eq!(of(Suite::Walk), [("walk", 3 * (25 + 1), 0, 3 * (25 + 1))], "files and a directory");
    for (suite, name) in [(Suite::Mail, "mail"), (Suite::Threads, "write+fsync")] {
        let [(found, 75, bytes, 75)] = of(suite)[..] else { panic!("one phase") };
        assert!(found == name && bytes > 75 * 1024);
    }
    let [("upgrade", 25, _, 25)] = of(Suite::Upgrade)[..] else { panic!("one phase") };
}

#[test]
fn all_cases_run_and_each_has_its_requests() {
    let scratch = tempfile::tempdir().expect("room");
    let options = RunOptions { file_bytes: 1 << 20, count: 120, ..options(scratch.path()) };
    let phases = run(Suite::Cases, &options).expect("room");
    let names: Vec<_> = phases.iter().map(|phase| phase.name.clone()).collect();
    let cases = Case::all();
    let expected = cases.iter().map(ToString::to_string).chain([EMPTY_FILES.to_owned()]);
    assert_eq!(names, expected.collect::<Vec<_>>());
    for phase in &phases {
        if phase.name == EMPTY_FILES {
            assert_eq!(phase.operations, 240);
        } else if !phase.name.contains("direct") || phase.operations > 0 {
            // A filesystem in memory may refuse direct I/O.
            assert_eq!((phase.operations, phase.latencies.len()), (120, 120), "{}", phase.name);
        }
    }
    // Any program will do for a defragmentation here.
    let options = RunOptions { defragmenter: Some("true".into()), count: 20, ..options };
    let more = run(Suite::Cases, &options).expect("room");
    let added: Vec<_> =
        more.iter().map(|phase| phase.name.clone()).filter(|name| !names.contains(name)).collect();
    assert_eq!((added.len(), more.len()), (8 + 1 + 8, names.len() + 17));
    assert!(
        added[..8]
            .iter()
            .all(|name| name.starts_with("small sequential read ") && name.ends_with(", written"))
    );
    assert_eq!(added[8], "defragment");
    assert!(added[9..].iter().all(|name| name.ends_with(", defragmented")), "{added:?}");
    assert_eq!(fs::read_dir(scratch.path()).expect("ours").count(), 0);
}

#[test]
fn reads_are_made_cold_while_nothing_is_open_and_files_are_kept_when_asked() {
    let scratch = tempfile::tempdir().expect("room");
    let root = scratch.path().to_owned();
    let remounts = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counter = Arc::clone(&remounts);
    let remount = move || {
        let links = fs::read_dir("/proc/self/fd")?.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        let open = links.filter(|path| path.starts_with(&root)).count();
        assert_eq!(open, 0, "a mount would be busy");
        counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    };
    let options = RunOptions { remount: Some(Remount(Arc::new(remount))), ..options(scratch.path()) };
    let mut before = 0;
    for (suite, times) in
        [(Suite::Reads, 2), (Suite::Overwrites, 2), (Suite::Walk, 1), (Suite::Upgrade, 1), (Suite::Cases, 24)]
    {
        run(suite, &options).expect("room");
        let after = remounts.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(after - before, times, "{suite}");
        before = after;
    }
    run(Suite::Untar, &RunOptions { keeps_files: true, ..options }).expect("room");
    assert!(scratch.path().join(DIRECTORY).join("tree/f0").exists());
}

#[test]
fn record_is_read_as_it_was_written_and_compares_its_phases() {
    let scratch = tempfile::tempdir().expect("room");
    let options = options(scratch.path());
    let mut phases = run(Suite::Files, &options).expect("room");
    // Rates that JSON keeps to the last digit.
    phases.iter_mut().for_each(|phase| phase.elapsed = Duration::from_secs(2));
    let mut record = RunRecord::new(Suite::Files, "any", &options, &phases, &[]);
    let text = serde_json::to_string(&record).expect("JSON");
    assert_eq!(serde_json::from_str::<RunRecord>(&text).expect("ours"), record);
    let mut faster = record.clone();
    faster.phases[0].operations_per_second *= 1.3;
    faster.phases[1].operations_per_second *= 1.2;
    record.compare(&faster);
    assert_eq!(record.phases.iter().map(|phase| phase.poor).collect::<Vec<_>>(), [Some(true), Some(false)]);
    faster.phases.clear();
    let mut alone = RunRecord::new(Suite::Files, "any", &options, &phases, &[]);
    alone.compare(&faster);
    assert_eq!(alone.phases[0].poor, None);
}

#[test]
fn a_journal_may_lie_elsewhere_and_is_removed() {
    let (scratch, other) = (tempfile::tempdir().expect("room"), tempfile::tempdir().expect("room"));
    let options = RunOptions { journal: Some(other.path().to_owned()), count: 2, ..options(scratch.path()) };
    run(Suite::Objects, &options).expect("room");
    for directory in [&scratch, &other] {
        assert_eq!(fs::read_dir(directory.path()).expect("ours").count(), 0);
    }
    let missing = other.path().join("missing");
    let error = run(Suite::Objects, &RunOptions { journal: Some(missing.clone()), ..options });
    assert!(error.expect_err("no directory").to_string().contains("missing"));
    assert_eq!(fs::read_dir(scratch.path()).expect("ours").count(), 0);
}

#[test]
fn a_run_touches_nothing_of_another_one() {
    let scratch = tempfile::tempdir().expect("room");
    let theirs = scratch.path().join(DIRECTORY);
    fs::create_dir(&theirs).expect("new");
    fs::write(theirs.join("file"), "theirs").expect("room");
    let error = run(Suite::Files, &options(scratch.path())).expect_err("it is in use");
    assert!(matches!(&error, LabError::Run { source, .. } if source.kind() == io::ErrorKind::AlreadyExists));
    assert!(error.to_string().contains(DIRECTORY), "{error}");
    assert_eq!(fs::read_to_string(theirs.join("file")).expect("theirs"), "theirs");
    run(Suite::Files, &options(&scratch.path().join("missing"))).expect_err("no directory");
}

#[test]
fn latencies_are_told_by_their_rank() {
    let latencies: Vec<_> = (1..=200).map(Duration::from_millis).collect();
    let elapsed = Duration::from_secs(2);
    let disks = Vec::new();
    let phase = Phase {
        name: "any".to_owned(),
        operations: 200,
        bytes: 4000,
        elapsed,
        latencies,
        disks,
        activity: Vec::new(),
    };
    let told = [1, 50, 99, 100].map(|percent| phase.latency(percent).expect("some").as_millis());
    assert_eq!(told, [2, 100, 198, 200]);
    assert_eq!((phase.rate(), phase.byte_rate()), (100.0, 2000.0));
    assert_eq!(Phase { latencies: Vec::new(), ..phase }.latency(50), None);
}

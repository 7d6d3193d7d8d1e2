use super::*;
use brindle_care::scrub::{DeviceProgress, DeviceState, ScrubCounts, ScrubReport};
use brindle_ondisk::Profile;

const NOW: u64 = 1_000_000;
const GIB: u64 = 1 << 30;

fn device(devid: u64) -> DeviceHealth {
    DeviceHealth {
        devid: DevId::new(devid),
        uuid: Uuid([7; 16]),
        path: format!("/dev/sd{devid}"),
        total_bytes: 100 * GIB,
        allocated_bytes: 10 * GIB,
        class: None,
        is_missing: false,
        is_stale: false,
        is_behind: false,
        errors: Some([0; 5]),
    }
}

fn scrubbed(counts: ScrubCounts, state: DeviceState) -> Option<(ScrubRecord, bool)> {
    let device =
        DeviceProgress { counts, state, total_bytes: 200, done_bytes: 50, ..DeviceProgress::default() };
    let report = ScrubReport { devices: vec![device], ..ScrubReport::default() };
    Some((ScrubRecord { started: NOW - 60, report, ..ScrubRecord::default() }, false))
}

fn sound() -> PoolHealth {
    let room = RoomHealth { used_bytes: GIB, room_bytes: 90 * GIB, preferred_bytes: Some(GIB) };
    PoolHealth {
        fsid: Uuid([1; 16]),
        label: String::new(),
        server: PoolServer::Brindle,
        mountpoints: vec!["/mnt".into()],
        writing: Writing::Allowed,
        devices: vec![device(1), device(2)],
        space: SpaceHealth { data: room, metadata: room, has_tiers: true, ..SpaceHealth::default() },
        damaged_trees: Vec::new(),
        bad_superblocks: Vec::new(),
        begun_returns: Vec::new(),
        fenced: Vec::new(),
        replacement: None,
        has_wrong_quotas: false,
        jobs: Vec::new(),
        scrub: scrubbed(ScrubCounts::default(), DeviceState::Finished),
        write_back: None,
        commits: None,
        caches: Vec::new(),
        autodefrag: Vec::new(),
        activity: None,
    }
}

fn judged(change: impl FnOnce(&mut PoolHealth)) -> (State, Severity, Vec<Finding>) {
    let mut pool = sound();
    change(&mut pool);
    let found = findings(&pool, NOW);
    (state_of(&found), severity_of(&found), found)
}

#[test]
fn a_sound_pool_is_ok_and_tells_of_its_scrub() {
    let (state, severity, found) = judged(|_| {});
    assert_eq!((state, severity), (State::Ok, Severity::Note));
    assert_eq!(found, [Finding::Scrubbed(60, 0)]);
    let (state, _, found) = judged(|pool| pool.scrub = None);
    assert_eq!((state, found), (State::Ok, vec![Finding::NeverScrubbed]));
}

#[test]
fn devices_in_trouble_make_a_pool_degraded_or_erroneous() {
    let (state, severity, found) = judged(|pool| pool.devices[1].is_missing = true);
    assert_eq!((state, severity), (State::Degraded, Severity::Risk));
    assert_eq!(found[0], Finding::Missing(DevId::new(2), Uuid([7; 16])));
    let (state, ..) = judged(|pool| pool.devices[0].is_stale = true);
    assert_eq!(state, State::Degraded);
    let (state, severity, found) = judged(|pool| {
        pool.devices[0].is_behind = true;
        pool.devices[1].errors = Some([0, 0, 0, 3, 0]);
    });
    assert_eq!((state, severity), (State::Degraded, Severity::Risk));
    assert_eq!(
        found.iter().map(Finding::name).collect::<Vec<_>>(),
        ["device_behind", "device_errors", "scrubbed"]
    );
    let (state, severity, _) = judged(|pool| pool.devices[1].errors = Some([1, 0, 0, 0, 0]));
    assert_eq!((state, severity), (State::Errors, Severity::Attention));
    let (state, ..) = judged(|pool| pool.devices[1].errors = None);
    assert_eq!(state, State::Ok, "counters that can't be had are no errors");
}

#[test]
fn caches_whose_devices_fail_are_told_of() {
    let with = |lines: &[(&str, &str)]| {
        let lines = lines.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        judged(|pool| pool.caches = vec![(2, lines)])
    };
    let devid = DevId::new(2);
    let (state, ..) = with(&[("mirror", "in sync"), ("ssd_read_errors", "0"), ("reads", "5")]);
    assert_eq!(state, State::Ok);
    let (state, severity, found) = with(&[("mirror", "degraded: one SSD is away")]);
    assert_eq!((state, severity), (State::Degraded, Severity::Risk));
    assert_eq!(found[0], Finding::CacheDegraded(devid, "degraded: one SSD is away".to_owned()));
    let (state, severity, found) =
        with(&[("given_up", "/dev/sda2"), ("ssd_write_errors", "8"), ("disk_flush_errors", "1")]);
    assert_eq!((state, severity), (State::Errors, Severity::Attention));
    assert_eq!(
        found[..2],
        [
            Finding::CacheWithoutSsd(devid, "/dev/sda2".to_owned()),
            Finding::CacheErrors(devid, vec![("disk_flush_errors", 1), ("ssd_write_errors", 8)]),
        ]
    );
    let (_, _, found) = with(&[("mirror", "degraded: /dev/sda2 failed"), ("given_up", "/dev/sda2")]);
    assert_eq!(found.iter().map(Finding::name).collect::<Vec<_>>(), ["cache_degraded", "scrubbed"]);
}

#[test]
fn a_pool_that_has_become_read_only_is_at_risk_and_one_that_was_mounted_so_is_not() {
    let (state, severity, found) = judged(|pool| {
        pool.writing = Writing::Refused("the flush failed".to_owned());
        pool.space = SpaceHealth::default();
    });
    assert_eq!((state, severity), (State::ReadOnly, Severity::Risk));
    assert_eq!(found[0], Finding::ReadOnly("the flush failed".to_owned()));
    assert_eq!(judged(|pool| pool.writing = Writing::Declined).0, State::Ok);
}

#[test]
fn a_pool_is_full_below_a_twentieth_or_ten_gib() {
    let room = |used, room| RoomHealth { used_bytes: used, room_bytes: room, preferred_bytes: None };
    let state = |data: RoomHealth| judged(|pool| pool.space.data = data).0;
    assert_eq!(state(room(95 * GIB, 5 * GIB)), State::Ok);
    assert_eq!(state(room(96 * GIB, 4 * GIB)), State::Full);
    assert_eq!(state(room(9990 * GIB, 10 * GIB)), State::Ok);
    assert_eq!(state(room(9991 * GIB, 9 * GIB)), State::Full);
    assert_eq!(state(room(0, 0)), State::Ok, "there is no data yet");
    let (state, _, found) = judged(|pool| pool.space.metadata = room(GIB, 0));
    assert_eq!(state, State::Full);
    assert!(matches!(found[0], Finding::Full(Content::Metadata, _)));
    let (state, _, found) = judged(|pool| pool.space.metadata.preferred_bytes = Some(0));
    assert_eq!((state, &found[0]), (State::Ok, &Finding::MetadataSpills));
}

#[test]
fn the_result_of_a_scrub_counts_by_its_consequence() {
    let counts = |uncorrectable_errors, correctable_errors, corrected_errors| ScrubCounts {
        uncorrectable_errors,
        correctable_errors,
        corrected_errors,
        ..ScrubCounts::default()
    };
    let finished = |counts| judged(|pool| pool.scrub = scrubbed(counts, DeviceState::Finished));
    assert_eq!(finished(counts(1, 0, 5)).1, Severity::Risk);
    let (state, severity, _) = finished(counts(0, 2, 0));
    assert_eq!((state, severity), (State::Errors, Severity::Attention));
    assert_eq!(finished(counts(0, 0, 5)).2, [Finding::Scrubbed(60, 5)]);
    let ended = |state| judged(|pool| pool.scrub = scrubbed(ScrubCounts::default(), state));
    let (state, _, found) = ended(DeviceState::Cancelled);
    assert_eq!((state, found), (State::Ok, vec![Finding::ScrubStopped(Some(25))]));
    let (state, _, found) = ended(DeviceState::Asleep);
    assert_eq!((state, found), (State::Ok, vec![Finding::ScrubLeft(1)]));
    let (state, severity, _) = ended(DeviceState::Failed("EIO".to_owned()));
    assert_eq!((state, severity), (State::Attention, Severity::Attention));
    let (_, _, found) = judged(|pool| pool.scrub.as_mut().expect("there is one").1 = true);
    assert_eq!(found, [Finding::ScrubRuns(Some(25))]);
}

#[test]
fn waiting_data_and_jobs_are_notes_until_they_stay_too_long() {
    let tier = |obstacle: Option<&str>, since| WriteBack {
        mode: brindle_policy::writeback::WriteBackMode::default(),
        profile: Profile::Single,
        stored_profile: None,
        obstacle: obstacle.map(str::to_owned),
        waiting_bytes: 4096,
        capacity_bytes: GIB,
        since: Some(since),
        destaged: None,
    };
    let state = |tier| judged(|pool| pool.write_back = Some(tier)).0;
    assert_eq!(state(tier(None, NOW - 86_400)), State::Ok);
    assert_eq!(state(tier(None, NOW - 86_401)), State::Attention);
    assert_eq!(state(tier(Some("no bulk device"), NOW)), State::Attention);
    assert_eq!(state(WriteBack { waiting_bytes: 0, ..tier(Some("one class"), NOW) }), State::Ok);
    let job = Job { name: "balance".to_owned(), is_running: true, progress: Some((1, 3)) };
    assert_eq!(job.percent(), Some(33));
    let (state, _, found) = judged(|pool| pool.jobs.push(job.clone()));
    assert_eq!((state, &found[0]), (State::Ok, &Finding::Job(job)));
}

#[test]
fn the_share_that_is_used_is_rounded_up() {
    let percent =
        |used_bytes, room_bytes| RoomHealth { used_bytes, room_bytes, preferred_bytes: None }.percent();
    assert_eq!([percent(0, 0), percent(0, 5), percent(1, 999), percent(5, 0)], [0, 0, 1, 100]);
    assert_eq!(percent(u64::MAX, u64::MAX), 50);
}

#[test]
fn lost_trees_and_wrong_quotas_are_told() {
    let lost = (RootId::CSUM_TREE, "damaged".to_owned());
    let (state, severity, found) = judged(|pool| pool.damaged_trees = vec![lost.clone()]);
    assert_eq!((state, severity), (State::Errors, Severity::Risk));
    assert_eq!(found[0], Finding::DamagedTree(lost.0, lost.1));
    let (state, severity, found) = judged(|pool| pool.has_wrong_quotas = true);
    assert_eq!((state, severity), (State::Attention, Severity::Attention));
    assert_eq!(found[0], Finding::WrongQuotas);
}

fn group(kind: BlockGroupType, used_bytes: u64) -> GroupHealth {
    GroupHealth { kind, class: None, total_bytes: GIB, used_bytes }
}

#[test]
fn contents_with_fewer_copies_than_the_profile_are_at_risk() {
    let (data, raid1) = (BlockGroupType::DATA, BlockGroupType::RAID1);
    let of = |groups: &[GroupHealth]| judged(|pool| pool.space.groups = groups.to_vec());
    let found = |profile, promised, used_bytes| {
        let content = Content::Data;
        Finding::LessRedundant(LessRedundant { content, profile, promised, used_bytes })
    };
    let (state, severity, findings) = of(&[group(data | raid1, 9), group(data, 5)]);
    assert_eq!((state, severity), (State::Degraded, Severity::Risk));
    assert_eq!(findings[0], found(Profile::Single, Profile::Raid1, 5));
    assert_eq!(findings[0].name(), "less_redundant");
    let (state, severity, findings) = of(&[group(data | BlockGroupType::RAID1C3, 0), group(data | raid1, 5)]);
    assert_eq!((state, severity), (State::Attention, Severity::Attention), "one loss more is survived");
    assert_eq!(findings[0], found(Profile::Raid1, Profile::Raid1c3, 5));
    let (_, severity, findings) = of(&[group(data | BlockGroupType::DUP, 1), group(data, 5)]);
    assert_eq!((severity, &findings[0]), (Severity::Attention, &found(Profile::Single, Profile::Dup, 5)));
    for fine in [
        [group(data | raid1, 9), group(data, 0)],
        [group(data | raid1, 9), group(BlockGroupType::METADATA | BlockGroupType::DUP, 5)],
        [group(data | raid1, 9), group(data | BlockGroupType::RAID5, 5)],
        [group(data | BlockGroupType::RAID0, 9), group(data, 5)],
    ] {
        assert_eq!(of(&fine).0, State::Ok, "{fine:?}");
    }
}

#[test]
fn write_back_and_a_conversion_under_way_are_not_taken_for_lost_copies() {
    let (data, raid1) = (BlockGroupType::DATA, BlockGroupType::RAID1);
    let fast = GroupHealth { class: Some(PlacementClass::Fast), ..group(data, 5) };
    let tier = WriteBack {
        mode: brindle_policy::writeback::WriteBackMode::default(),
        profile: Profile::Single,
        stored_profile: None,
        obstacle: None,
        waiting_bytes: 0,
        capacity_bytes: GIB,
        since: None,
        destaged: None,
    };
    let with = |tier: Option<WriteBack>, group_of_tier: GroupHealth| {
        judged(|pool| {
            pool.write_back = tier;
            pool.space.groups = vec![group(data | raid1, 9), group_of_tier];
        })
        .0
    };
    assert_eq!(with(Some(tier.clone()), fast), State::Ok);
    assert_eq!(with(None, fast), State::Ok, "a mount that is only read does not tell of its tier");
    assert_eq!(with(Some(tier), group(data, 5)), State::Degraded);
    let balancing = |is_running| {
        judged(|pool| {
            pool.space.groups = vec![group(data | raid1, 9), group(data, 5)];
            pool.jobs = vec![Job { name: "balance".to_owned(), is_running, progress: None }];
        })
        .0
    };
    assert_eq!([balancing(true), balancing(false)], [State::Ok, State::Degraded]);
}

#[test]
fn bad_superblocks_and_returns_that_were_interrupted_are_told() {
    let bad = BadSuperblock { path: "/dev/sda".to_owned(), offset: 1 << 26, problem: "no magic".to_owned() };
    let (state, severity, found) = judged(|pool| pool.bad_superblocks = vec![bad.clone()]);
    assert_eq!((state, severity), (State::Errors, Severity::Attention));
    assert_eq!((found[0].name(), &found[0]), ("superblock_bad", &Finding::BadSuperblock(bad)));
    let (devid, path) = (DevId::new(2), PathBuf::from("/dev/sdb"));
    let (state, severity, found) = judged(|pool| pool.begun_returns = vec![(devid, path.clone())]);
    assert_eq!((state, severity), (State::Attention, Severity::Attention));
    assert_eq!((found[0].name(), &found[0]), ("rejoin_interrupted", &Finding::ReturnStopped(devid, path)));
}

#[test]
fn devices_that_an_interrupted_run_has_left_smaller_are_told() {
    let place = std::env::temp_dir().join(format!("brindle-fences-{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("new");
    let directory = StateDirectory::new(place.clone());
    let mut pool = sound();
    let fsid = pool.fsid;
    let mut journal = crate::tier::Journal::new(&fsid, "/mnt".as_ref());
    let fenced = |devid, total_bytes, fences: &[u64]| FencedDevice {
        devid,
        uuid: String::new(),
        total_bytes,
        fences: fences.to_vec(),
    };
    journal.devices = vec![fenced(1, 200 * GIB, &[50 * GIB, 100 * GIB]), fenced(2, 100 * GIB, &[50 * GIB])];
    directory.write(&journal).expect("room");
    let lock = directory.lock(&fsid, std::time::Duration::ZERO).expect("free");
    pool.look_for_fences(&directory);
    assert!(pool.fenced.is_empty(), "a run is at work");
    drop(lock);
    pool.look_for_fences(&directory);
    std::fs::remove_dir_all(&place).expect("ours");
    assert_eq!(pool.fenced, [DevId::new(1)], "the other one has its size");
    let found = findings(&pool, NOW);
    assert_eq!((found[0].name(), state_of(&found)), ("tier_fenced", State::Attention));
}

use super::*;
use proptest::prelude::*;

const GOOD: MirrorFacts = MirrorFacts {
    present: true,
    stale: false,
    rebuilt: false,
    errors: 0,
    rotating: false,
    devid: 1,
    load: MirrorLoad {
        in_flight: 0,
        expected: 0,
        queue_depth: 32,
        distance: 0,
        size_bytes: 1 << 40,
        backlog_ns: 0,
        latency_ns: 0,
        age_ns: 0,
        service_ns: 0,
        bytes_per_second: 0,
    },
};
const ALL: [ReadPolicy; 8] = [
    ReadPolicy::Runs,
    ReadPolicy::Pid,
    ReadPolicy::RoundRobin,
    ReadPolicy::Devid,
    ReadPolicy::LoadRoundRobin,
    ReadPolicy::Latency,
    ReadPolicy::Queue,
    ReadPolicy::Auto,
];
const POOL: SettingFacts<'_> = SettingFacts { sectorsize: 4096, devids: &[1, 2, 7], latest_devid: 2 };

fn at(logical: u64) -> ReadRequestFacts {
    ReadRequestFacts { logical, length: 4096, ..ReadRequestFacts::default() }
}

fn after(last_mirror: usize) -> ReadRequestFacts {
    ReadRequestFacts { last_mirror, ..at(0) }
}

/// A mirror with `in_flight` requests in its queue, the next one at a distance from the last.
fn loaded(in_flight: u32, distance: u64) -> MirrorFacts {
    MirrorFacts { load: MirrorLoad { in_flight, distance, ..GOOD.load }, ..GOOD }
}

fn disk(mirror: MirrorFacts) -> MirrorFacts {
    MirrorFacts { rotating: true, ..mirror }
}

fn by(policy: ReadPolicy, mirrors: &[MirrorFacts], request: &ReadRequestFacts) -> usize {
    choose_mirror(&ReadSettings::of(policy), mirrors, request)
}

fn facts() -> impl Strategy<Value = MirrorFacts> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let load = (0..40u32, prop_oneof![Just(0), any::<u64>()], any::<u64>(), any::<u64>(), any::<u64>());
    (flags, prop_oneof![Just(0), 0..10u64, any::<u64>()], 1..9u64, load).prop_map(
        |(
            (present, stale, rebuilt, rotating),
            errors,
            devid,
            (in_flight, distance, backlog, latency, age),
        )| {
            let load = MirrorLoad {
                in_flight,
                distance,
                backlog_ns: backlog,
                latency_ns: latency,
                service_ns: latency / 2,
                age_ns: age,
                ..GOOD.load
            };
            MirrorFacts { present, stale, rebuilt, errors, rotating, devid, load }
        },
    )
}

#[test]
fn each_fact_outweighs_those_after_it() {
    let ladder = [
        GOOD,
        MirrorFacts { rotating: true, ..GOOD },
        MirrorFacts { errors: 1, ..GOOD },
        MirrorFacts { rebuilt: true, ..GOOD },
        MirrorFacts { stale: true, ..GOOD },
        MirrorFacts { present: false, ..GOOD },
    ];
    assert_eq!(order_mirrors(&ladder), [0, 1, 2, 3, 4, 5]);
    let reversed: Vec<_> = ladder.into_iter().rev().collect();
    assert_eq!(order_mirrors(&reversed), [5, 4, 3, 2, 1, 0]);
}

#[test]
fn missing_stale_or_erring_mirrors_are_avoided_under_every_policy() {
    let bad = [
        MirrorFacts { present: false, ..GOOD },
        MirrorFacts { stale: true, ..GOOD },
        MirrorFacts { errors: 3, ..GOOD },
    ];
    for policy in ALL {
        for bad in bad {
            for pid in 0..6 {
                let request =
                    ReadRequestFacts { pid, bytes_read: u64::from(pid) << 18, last_mirror: 0, ..at(0) };
                let busy = disk(loaded(1000, 1 << 30));
                let settings = ReadSettings { devid: 1, ..ReadSettings::of(policy) };
                let chosen =
                    choose_mirror(&settings, &[bad, MirrorFacts { devid: 2, ..busy }, bad], &request);
                assert_eq!(chosen, 1, "{policy:?}");
            }
        }
    }
}

#[test]
fn runs_of_equals_take_turns() {
    let mirrors = [GOOD; 3];
    let chosen = |logical| by(ReadPolicy::Runs, &mirrors, &at(logical));
    assert_eq!([chosen(0), chosen(RUN_BYTES - 4096)], [0, 0]);
    assert_eq!([chosen(RUN_BYTES), chosen(2 * RUN_BYTES), chosen(3 * RUN_BYTES)], [1, 2, 0]);
    assert_eq!(by(ReadPolicy::Runs, &[disk(GOOD), GOOD], &at(0)), 1, "flash comes before a disk");
}

#[test]
fn pid_is_the_first_mirror_plus_the_process_modulo_their_number() {
    for (count, pid) in [(2, 7), (3, 7), (4, 7), (3, 0), (1, 99)] {
        let mirrors = vec![GOOD; count];
        let request = ReadRequestFacts { pid, ..at(1 << 30) };
        assert_eq!(by(ReadPolicy::Pid, &mirrors, &request), pid as usize % count);
    }
}

#[test]
fn round_robin_turns_over_mirrors_by_devid_after_its_bytes() {
    let mirrors = [3, 1, 2].map(|devid| MirrorFacts { devid, ..GOOD });
    let chosen = |bytes_read| {
        let request = ReadRequestFacts { bytes_read, ..at(0) };
        mirrors[by(ReadPolicy::RoundRobin, &mirrors, &request)].devid
    };
    assert_eq!([0, (256 << 10) - 4096, 256 << 10, 512 << 10, 768 << 10].map(chosen), [1, 1, 2, 3, 1]);
}

#[test]
fn devid_is_that_device_and_the_first_mirror_where_it_has_none() {
    let mirrors = [3, 1, 2].map(|devid| MirrorFacts { devid, ..GOOD });
    let chosen = |devid| {
        let settings = ReadSettings { devid, ..ReadSettings::of(ReadPolicy::Devid) };
        choose_mirror(&settings, &mirrors, &at(0))
    };
    assert_eq!([3, 1, 2, 9].map(chosen), [0, 1, 2, 0]);
}

#[test]
fn roundrobin_takes_the_first_mirror_from_the_last_used_one_with_load_below_depth() {
    let mirrors = [loaded(31, 0), loaded(32, 0), loaded(0, 0)];
    let chosen = |last| by(ReadPolicy::LoadRoundRobin, &mirrors, &after(last));
    assert_eq!([chosen(0), chosen(1), chosen(2)], [0, 2, 2]);
    let full_behind = [loaded(3, 0), loaded(40, 0), loaded(32, 0)];
    assert_eq!(by(ReadPolicy::LoadRoundRobin, &full_behind, &after(1)), 0, "round the end");
}

#[test]
fn roundrobin_adds_the_penalty_to_a_load_that_is_not_local() {
    let mut settings = ReadSettings::of(ReadPolicy::LoadRoundRobin);
    settings.set_knob(Knob::Rotating, "5").expect("a number");
    let request = ReadRequestFacts { is_mixed: true, ..after(0) };
    let chosen = |mirrors: [MirrorFacts; 2]| choose_mirror(&settings, &mirrors, &request);
    assert_eq!(chosen([disk(loaded(27, 0)), disk(loaded(0, 0))]), 0, "local: 27 requests");
    assert_eq!(chosen([disk(loaded(27, 1)), disk(loaded(0, 0))]), 1, "not local: 27 and 5");
    assert_eq!(chosen([loaded(27, 1), disk(loaded(0, 0))]), 0, "flash has no penalty by default");
}

#[test]
fn roundrobin_has_the_penalty_only_on_mixed_pools_unless_told_otherwise() {
    let mut settings = ReadSettings::of(ReadPolicy::LoadRoundRobin);
    assert_eq!((settings.penalty(true, false), settings.penalty(true, true)), (0, 1));
    assert_eq!(settings.penalty(false, true), 0);
    settings.set_knob(Knob::MixedOnly, "0").expect("a number");
    assert_eq!((settings.penalty(true, false), settings.penalty(true, true)), (1, 1));
}

#[test]
fn roundrobin_has_three_knobs_with_their_defaults() {
    let mut settings = ReadSettings::default();
    assert_eq!(Knob::ALL.map(|knob| settings.knob(knob)), [1, 1, 0]);
    for knob in Knob::ALL {
        settings.set_knob(knob, "0").expect("a number");
        assert_eq!(settings.knob(knob), 0);
        settings.set_knob(knob, "1\n").expect("a number");
        assert_eq!(settings.knob(knob), 1);
        settings.set_knob(knob, "-1").expect_err("not a number");
    }
    settings.set_knob(Knob::Rotating, "9").expect("a number");
    settings.set_knob(Knob::MixedOnly, "2").expect_err("yes or no");
}

#[test]
fn roundrobin_takes_the_lowest_load_if_all_queues_are_full() {
    let mirrors = [loaded(40, 0), loaded(33, 0), loaded(60, 0)];
    for last in 0..3 {
        assert_eq!(by(ReadPolicy::LoadRoundRobin, &mirrors, &after(last)), 1);
    }
}

#[test]
fn queue_takes_the_shortest_and_turns_among_equals() {
    let chosen = |mirrors: &[MirrorFacts], last| by(ReadPolicy::Queue, mirrors, &after(last));
    assert_eq!(chosen(&[loaded(3, 0), loaded(1, 0), loaded(2, 0)], 0), 1);
    let expecting = MirrorFacts { load: MirrorLoad { expected: 4, ..GOOD.load }, ..GOOD };
    assert_eq!(chosen(&[expecting, loaded(3, 0)], 1), 1, "what is expected counts too");
    assert_eq!([0, 1, 2].map(|last| chosen(&[GOOD; 3], last)), [1, 2, 0]);
}

#[test]
fn latency_takes_the_fastest_and_asks_again_what_it_has_not_asked_for_long() {
    let of = |latency_ns, age_ns| {
        let load = MirrorLoad { latency_ns, age_ns, ..GOOD.load };
        MirrorFacts { load, ..GOOD }
    };
    let chosen = |mirrors: &[MirrorFacts]| by(ReadPolicy::Latency, mirrors, &after(0));
    assert_eq!(chosen(&[of(9, 0), of(5, 0), of(7, 0)]), 1);
    assert_eq!(chosen(&[of(9, 0), of(5, 0), of(0, 0)]), 2, "one that nobody knows");
    assert_eq!(chosen(&[of(9, 11_000_000_000), of(5, 0), of(7, 0)]), 0, "one that may have changed");
}

#[test]
fn auto_stays_where_it_need_not_seek() {
    let mirrors = [disk(loaded(0, 1 << 20)), disk(loaded(0, 0)), disk(loaded(0, 1 << 30))];
    assert_eq!(by(ReadPolicy::Auto, &mirrors, &after(1)), 1);
}

#[test]
fn auto_goes_to_the_nearest_of_idle_disks_and_away_from_busy_ones() {
    let near = [disk(loaded(0, 1 << 39)), disk(loaded(0, 1 << 30)), disk(loaded(0, 1 << 35))];
    assert_eq!(by(ReadPolicy::Auto, &near, &after(0)), 1);
    let busy = [disk(loaded(0, 1 << 39)), disk(loaded(2, 1 << 30)), disk(loaded(1, 1 << 35))];
    assert_eq!(by(ReadPolicy::Auto, &busy, &after(0)), 0);
}

#[test]
fn auto_prefers_flash_until_its_queue_takes_longer_than_a_seek() {
    let of = |in_flight| [disk(loaded(0, 1 << 30)), loaded(in_flight, 1 << 30)];
    assert_eq!(by(ReadPolicy::Auto, &of(0), &after(1)), 1);
    assert_eq!(by(ReadPolicy::Auto, &of(30), &after(1)), 1);
    assert_eq!(by(ReadPolicy::Auto, &of(300), &after(1)), 0);
}

#[test]
fn auto_deals_a_stream_by_how_fast_mirrors_are() {
    let segment = ReadRequestFacts { length: SEGMENT_BYTES, ..after(0) };
    let of = |backlog_ns, rate: u64| {
        let load = MirrorLoad { backlog_ns, bytes_per_second: rate << 20, distance: 1, ..GOOD.load };
        disk(MirrorFacts { load, ..GOOD })
    };
    assert_eq!(by(ReadPolicy::Auto, &[of(0, 100), of(0, 200)], &segment), 1);
    assert_eq!(by(ReadPolicy::Auto, &[of(0, 100), of(60_000_000, 200)], &segment), 1);
    assert_eq!(by(ReadPolicy::Auto, &[of(0, 100), of(100_000_000, 200)], &segment), 0);
}

#[test]
fn measurements_of_auto_fade() {
    let of = |service_ns, age_ns| {
        let load = MirrorLoad { service_ns, age_ns, distance: 1, ..GOOD.load };
        expected_ns(&MirrorFacts { load, ..GOOD }, 0)
    };
    assert_eq!([of(0, 0), of(900_000, 0), of(50_000, 0)], [100_000, 900_000, 50_000]);
    assert_eq!([of(900_000, 4_000_000_000), of(900_000, u64::MAX)], [500_000, 100_000]);
}

#[test]
fn settings_are_shown_as_the_kernel_does() {
    let mut settings = ReadSettings { devid: 1, ..ReadSettings::of(ReadPolicy::Pid) };
    assert_eq!(settings.to_string(), "[pid] round-robin:262144 devid:1 roundrobin latency queue auto");
    settings.choose("round-robin:1m\n", &POOL).expect("a policy");
    assert_eq!(settings.to_string(), "pid [round-robin:1048576] devid:1 roundrobin latency queue auto");
    settings.choose("auto", &POOL).expect("a policy");
    assert_eq!(settings.to_string(), "pid round-robin:1048576 devid:1 roundrobin latency queue [auto]");
}

#[test]
fn settings_are_taken_as_the_kernel_does() {
    let set = |text: &str| {
        let mut settings = ReadSettings::default();
        settings.choose(text, &POOL).map(|rounded| (settings, rounded))
    };
    let contig = |text| set(text).map(|(settings, rounded)| (settings.min_contig_bytes, rounded));
    assert_eq!(contig("round-robin"), Ok((256 << 10, None)));
    assert_eq!(contig("round-robin:512K"), Ok((512 << 10, None)));
    assert_eq!(contig("round-robin:0x10000"), Ok((64 << 10, None)));
    assert_eq!(contig("round-robin:0100000"), Ok((32 << 10, None)));
    assert_eq!(contig("round-robin:5000"), Ok((8192, Some(RoundedUp(8192)))), "rounded up to a sector");
    assert_eq!(set("devid").expect("a policy").0.devid, 2, "the latest device");
    assert_eq!(set("devid:7").expect("a policy").0.devid, 7);
    assert_eq!(set("devid:3"), Err(SettingError::NoDevice(3)));
    for wrong in ["round-robin:0", "round-robin:", "round-robin:-1", "round-robin:4x", "devid:0", "devid:1 2"]
    {
        assert!(matches!(set(wrong), Err(SettingError::Value(_))), "{wrong}");
    }
    for wrong in ["round-robin:+5", "round-robin:99999999999E", "round-robin:0xg", "round-robin:K"] {
        assert!(matches!(set(wrong), Err(SettingError::Value(_))), "{wrong}");
    }
    assert_eq!(set("pid:3"), Err(SettingError::NeedsNone(ReadPolicy::Pid)));
    for unknown in ["", "PID", "runs", "fastest", "pid auto"] {
        assert!(matches!(set(unknown), Err(SettingError::Unknown(_))), "{unknown}");
    }
}

#[test]
fn refused_settings_change_nothing() {
    let mut settings = ReadSettings::of(ReadPolicy::Queue);
    settings.choose("devid:9", &POOL).expect_err("no such device");
    settings.choose("round-robin:0", &POOL).expect_err("no such value");
    assert_eq!(settings, ReadSettings::of(ReadPolicy::Queue));
}

#[test]
fn counters_are_needed_by_those_alone_that_look_at_the_devices() {
    let needing: Vec<_> = ALL.into_iter().filter(|policy| policy.needs_load()).collect();
    let expected = [ReadPolicy::LoadRoundRobin, ReadPolicy::Latency, ReadPolicy::Queue, ReadPolicy::Auto];
    assert_eq!(needing, expected);
}

#[test]
fn nothing_to_choose_from() {
    for policy in ALL {
        assert_eq!(by(policy, &[], &at(0)), 0);
    }
    assert!(order_mirrors(&[]).is_empty());
}

proptest! {
    #[test]
    fn the_order_is_a_permutation_by_rank(mirrors in prop::collection::vec(facts(), 1..20)) {
        let order = order_mirrors(&mirrors);
        prop_assert!(order.iter().map(|index| rank(&mirrors[*index])).is_sorted());
        let mut seen = order.clone();
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..mirrors.len()).collect::<Vec<_>>());
    }

    #[test]
    fn no_policy_chooses_one_less_fit_than_another(
        mirrors in prop::collection::vec(facts(), 1..5),
        logical: u64,
        pid: u32,
        last_mirror in 0..9usize,
        length: u64,
    ) {
        for policy in ALL {
            let request = ReadRequestFacts { logical, length, pid, last_mirror, bytes_read: logical, is_mixed: pid % 2 == 0 };
            let chosen = by(policy, &mirrors, &request);
            let best = mirrors.iter().map(rank).min();
            prop_assert_eq!(Some(rank(&mirrors[chosen])), best, "{:?}", policy);
        }
    }

    #[test]
    fn equals_share_the_load_evenly(count in 1..5usize, start in 0..1u64 << 40) {
        for policy in [ReadPolicy::Runs, ReadPolicy::RoundRobin, ReadPolicy::Queue, ReadPolicy::Auto] {
            let mirrors = vec![GOOD; count];
            let mut load = vec![0; count];
            let mut last_mirror = 0;
            for run in 0..count as u64 * 10 {
                let request = ReadRequestFacts {
                    last_mirror,
                    bytes_read: run << 18,
                    ..at(start + run * RUN_BYTES)
                };
                last_mirror = by(policy, &mirrors, &request);
                load[last_mirror] += 1;
            }
            prop_assert!(load.iter().all(|runs| *runs == 10), "{:?} {:?}", policy, load);
        }
    }
}

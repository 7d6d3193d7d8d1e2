use super::*;
use crate::placement::PlacementClass;
use crate::tier::{TierDevice, TierStripe};
use brindle_ondisk::{Logical, Physical};
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

fn chunk(number: u64, kind: BlockGroupType, used_bytes: u64, devids: &[u64]) -> TierChunk {
    let stripe =
        |devid: &u64| TierStripe { devid: DevId::new(*devid), physical: Physical::new(number * GIB) };
    TierChunk {
        logical: Logical::new(number * GIB),
        length_bytes: GIB,
        used_bytes,
        kind,
        stripes: devids.iter().map(stripe).collect(),
        is_write_back: false,
    }
}

/// Devices 1 and 2 are bulk, 3 and 4 fast; data on bulk, metadata once wrong and once right.
fn pool() -> TierPool {
    let device = |devid| TierDevice {
        devid: DevId::new(devid),
        class: if devid < 3 { PlacementClass::Bulk } else { PlacementClass::Fast },
        rank: 0,
        total_bytes: 100 * GIB,
    };
    let (data, metadata) = (BlockGroupType::DATA, BlockGroupType::METADATA | BlockGroupType::RAID1);
    TierPool {
        devices: (1..=4).map(device).collect(),
        chunks: vec![
            chunk(1, data, 0, &[1]),
            chunk(2, data, GIB / 2, &[2]),
            chunk(3, data, GIB, &[2]),
            chunk(4, metadata, GIB / 10, &[1, 2]),
            chunk(5, metadata, GIB / 10, &[3, 4]),
            chunk(6, BlockGroupType::SYSTEM | BlockGroupType::RAID1, 16384, &[2, 3]),
        ],
        is_ours: true,
        ..TierPool::default()
    }
}

fn chosen(data: &str) -> Vec<u64> {
    let balance = Balance { data: Some(data.parse().expect("a filter")), ..Balance::default() };
    balance.chosen(&pool()).iter().map(|chunk| chunk.logical.get() / GIB).collect()
}

#[test]
fn filters_choose_as_btrfs_progs_documents_them() {
    assert_eq!(chosen(""), [3, 2, 1]);
    assert_eq!(chosen("usage=0"), [1]);
    assert_eq!(chosen("usage=50"), [1]);
    assert_eq!(chosen("usage=51"), [2, 1]);
    assert_eq!(chosen("usage=50.."), [3, 2]);
    assert_eq!(chosen("usage=10..60"), [2]);
    assert_eq!(chosen("devid=1"), [1]);
    assert_eq!(chosen("devid=2,drange=0..2147483649"), [2]);
    assert_eq!(chosen("vrange=1073741824..2147483648"), [1]);
    assert_eq!(chosen("limit=2"), [3, 2]);
    assert_eq!(chosen("limit=4..9"), [0; 0]);
    assert_eq!(chosen("stripes=2.."), [0; 0]);
    assert_eq!(chosen("profiles=raid1|dup"), [0; 0]);
    assert_eq!(chosen("convert=single,soft"), [0; 0]);
    assert_eq!(chosen("convert=single"), [3, 2, 1]);
}

#[test]
fn misplaced_is_what_lies_on_devices_of_the_other_class() {
    let found: Vec<u64> =
        Balance::of_misplaced().chosen(&pool()).iter().map(|chunk| chunk.logical.get() / GIB).collect();
    assert_eq!(found, [4, 6]);
}

#[test]
fn nonsense_is_refused_by_name() {
    for (text, why) in [
        ("usages=1", "no such filter: there are usage=, devid="),
        ("usage=x", "not a number"),
        ("usage=60..10", "not a range of percents"),
        ("soft", "soft goes with convert"),
        ("drange=1..2", "drange goes with devid"),
        ("convert=raid7", "no such profile"),
        ("vrange=5..5", "the range is empty"),
        ("devid", "devid=NUMBER"),
    ] {
        let error = text.parse::<Filter>().expect_err(text).to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn impossible_balances_are_refused() {
    let of =
        |filter: &str| Balance { metadata: Some(filter.parse().expect("a filter")), ..Balance::default() };
    assert_eq!(of("convert=raid1c4").refusal(&pool(), false), None);
    assert_eq!(
        of("convert=single").refusal(&pool(), false),
        Some(BalanceRefusal::LessRedundancy(Profile::Single))
    );
    assert_eq!(of("convert=single").refusal(&pool(), true), None);
    let mut small = pool();
    small.devices.truncate(2);
    assert_eq!(
        of("convert=raid1c3").refusal(&small, true),
        Some(BalanceRefusal::TooFewDevices(Profile::Raid1c3, 3))
    );
    small.chunks.push(chunk(9, BlockGroupType::DATA | BlockGroupType::METADATA, 0, &[1]));
    assert_eq!(of("").refusal(&small, false), Some(BalanceRefusal::MixedNeedsBoth));
}

fn filter() -> impl Strategy<Value = Filter> {
    let profile = || (0..Profile::TABLE.len()).prop_map(|row| Profile::TABLE[row].profile);
    let range = || (0..1000u64, 1..1000u64).prop_map(|(start, length)| start..start + length);
    let numbers = || (0..1000u32, 0..1000u32).prop_map(|(from, more)| from..=from + more);
    (
        proptest::option::of(profile()),
        proptest::option::of((0..100u32, 0..100u32).prop_map(|(from, more)| from..(from + more).min(101))),
        proptest::option::of((1..9u64).prop_map(DevId::new)),
        proptest::option::of(range()),
        proptest::option::of(range()),
        proptest::option::of(numbers()),
        proptest::option::of(numbers()),
        proptest::option::of(profile()),
        any::<(bool, bool)>(),
    )
        .prop_map(|(profiles, usage, devid, physical, logical, stripes, limit, convert, flags)| Filter {
            profiles: profiles.map(|profile| vec![profile]),
            usage,
            devid,
            physical,
            logical,
            stripes,
            limit,
            convert,
            soft: flags.0,
            misplaced: flags.1,
            groups_alone: flags.0 && flags.1,
        })
}

proptest! {
    #[test]
    fn a_balance_kept_in_the_pool_is_read_back(
        data in proptest::option::of(filter()),
        metadata in proptest::option::of(filter()),
        system in proptest::option::of(filter()),
    ) {
        let balance = Balance { data, metadata, system };
        prop_assert_eq!(Balance::from_item(&balance.to_item()), balance);
    }
}

//! Pools of random devices, profiles and options.

use crate::support::{MIB, MadePool, assert_clean, options};
use brindle_care::mkfs::{Features, MkfsError};
use brindle_device::DeviceClass;
use brindle_ondisk::{ChecksumType, Profile};
use proptest::prelude::*;

fn any_device() -> impl Strategy<Value = (u64, DeviceClass)> {
    let size = prop_oneof![20 * MIB..200 * MIB, 200 * MIB..(3 << 40)];
    let classes = vec![DeviceClass::Solid, DeviceClass::Rotating, DeviceClass::Unknown];
    (size, prop::sample::select(classes))
}

fn any_profile() -> impl Strategy<Value = Option<Profile>> {
    prop::option::of((0..Profile::TABLE.len()).prop_map(|row| Profile::TABLE[row].profile))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_pool_is_sound_or_refused_for_a_reason(
        devices in prop::collection::vec(any_device(), 1..=8),
        (data, metadata) in (any_profile(), any_profile()),
        nodesize in prop::option::of((12..=16u32).prop_map(|power| 1 << power)),
        checksum in prop::sample::select(ChecksumType::ALL.to_vec()),
        features in (0..=Features::all().bits()).prop_map(Features::from_bits_retain),
    ) {
        let mut options = options();
        (options.data, options.metadata, options.nodesize) = (data, metadata, nodesize);
        (options.checksum, options.features) = (checksum, features);
        let what = format!("{devices:?} {options:?}");
        match MadePool::make_of(&devices, &options) {
            Ok(pool) => {
                assert_clean(&what, &pool.examine());
                // Fast devices first, and every chunk on as many devices as its profile asks for.
                let ranks: Vec<bool> = pool.report.devices.iter().map(|device| {
                    let given = devices.iter().enumerate().find(|(index, _)| device.name == format!("memory{index}"));
                    given.expect("one of those given").1.1 != DeviceClass::Solid
                }).collect();
                prop_assert!(ranks.is_sorted(), "{}", what);
                for group in &pool.report.block_groups {
                    let mut devids = group.devices.clone();
                    devids.sort_unstable();
                    devids.dedup();
                    let attributes = group.profile.attributes();
                    prop_assert_eq!(devids.len() * usize::from(attributes.dev_stripes), group.devices.len());
                }
            }
            Err(MkfsError::TooSmall { size_bytes, minimum_bytes, .. }) => {
                let smallest = devices.iter().map(|(size, _)| *size).min();
                prop_assert_eq!(Some(size_bytes), smallest);
                prop_assert!(size_bytes < minimum_bytes, "{}", what);
            }
            Err(
                MkfsError::Profile { .. }
                | MkfsError::Feature { .. }
                | MkfsError::MixedProfiles { .. }
                | MkfsError::MixedNodeSize(_),
            ) => {}
            Err(error) => prop_assert!(false, "{}: {}", what, error),
        }
    }
}

//! Missing devices: nothing is planned with them, and once they are back another plan may be right.

use super::files::no_tiers_reason;
use super::shortage::copies_on;
use super::{Content, TierChunk, TierDevice, TierPool};
use crate::placement::{Fit, PlacementClass};
use brindle_ondisk::{BlockGroupType, Profile};
use std::collections::BTreeMap;
use std::fmt;

/// Missing devices of a pool, and the changes once they are back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absence {
    /// The devices, with their classes.
    pub devices: Vec<TierDevice>,
    /// The number of fast and of bulk devices that are there.
    pub there: (usize, usize),
    /// Changes of where chunks and files belong.
    pub changes: Vec<PlacementChange>,
    /// The number of misplaced chunks, now and then.
    pub misplaced: (usize, usize),
}

/// A change of where something belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementChange {
    /// The thing, in words.
    pub what: String,
    /// Its place without the missing devices.
    pub now: String,
    /// Its place once they are back.
    pub then: String,
}

/// Missing devices of a pool, and the changes once they are back; `None` if all are there.
pub fn absence(pool: &TierPool) -> Option<Absence> {
    let is_there = |device: &TierDevice| pool.devices.iter().any(|there| there.devid == device.devid);
    let devices: Vec<TierDevice> = pool.members.iter().filter(|device| !is_there(device)).copied().collect();
    if devices.is_empty() {
        return None;
    }
    let whole = pool.clone().whole();
    let (now, then) = (places(pool), places(&whole));
    let changes = now.into_iter().zip(then).filter(|((_, now), (_, then))| now != then);
    let changes = changes.map(|((what, now), (_, then))| PlacementChange { what, now, then });
    let misplaced = |pool: &TierPool| pool.chunks.iter().filter(|chunk| pool.is_misplaced(chunk)).count();
    Some(Absence {
        devices,
        there: (pool.count(PlacementClass::Fast), pool.count(PlacementClass::Bulk)),
        changes: changes.collect(),
        misplaced: (misplaced(pool), misplaced(&whole)),
    })
}

impl TierPool {
    /// The pool as it is once no device is missing.
    fn whole(self) -> Self {
        Self { devices: self.members, members: Vec::new(), is_by_side: false, ..self }.settled()
    }
}

/// The place of each content and profile of a pool, and of data of small and marked files, in words. The same things in the same order
/// whatever the devices.
fn places(pool: &TierPool) -> Vec<(String, String)> {
    let kinds: BTreeMap<(Content, Profile), BlockGroupType> =
        pool.chunks.iter().map(|chunk| ((chunk.content(), chunk.profile()), chunk.kind)).collect();
    // One word is enough for metadata and system chunks of one profile.
    let is_said = |(content, profile): &(Content, Profile)| {
        *content == Content::System && kinds.contains_key(&(Content::Metadata, *profile))
    };
    let chunks = kinds.iter().filter(|(key, _)| !is_said(key)).map(|((content, profile), kind)| {
        let class = content.class().unwrap_or(PlacementClass::Bulk);
        let place = match pool.fit(*content, *profile) {
            Fit::Whole => format!("on {} devices", pool.target_name(*kind)),
            fit => place_of(fit, class, *profile),
        };
        (format!("{content} of profile {profile}"), place)
    });
    let data = |chunk: &&TierChunk| pool.is_ours && chunk.content() == Content::Data && !chunk.is_write_back;
    let of_files: BTreeMap<Profile, Fit> = pool
        .chunks
        .iter()
        .filter(data)
        .map(|chunk| (chunk.profile(), fit_of_files(pool, chunk.profile())))
        .collect();
    let files = of_files.into_iter().map(|(profile, fit)| {
        let what = format!("data of small and marked files, profile {profile},");
        (what, place_of(fit, PlacementClass::Fast, profile))
    });
    chunks.chain(files).collect()
}

/// The part of data of small and marked files that belongs on fast devices.
fn fit_of_files(pool: &TierPool, profile: Profile) -> Fit {
    let (fast, bulk) = (pool.count(PlacementClass::Fast), pool.count(PlacementClass::Bulk));
    match pool.copies_on_fast(profile) {
        Some(copies) => Fit::Copies(copies),
        None if no_tiers_reason([profile], fast, bulk).is_some() => Fit::Nothing,
        None => Fit::Whole,
    }
}

fn place_of(fit: Fit, class: PlacementClass, profile: Profile) -> String {
    let of_copies = |found| copies_on(class, profile, found).map(|copies| format!("with {copies}"));
    match fit {
        Fit::Whole => format!("on {class} devices"),
        Fit::Copies(copies) => of_copies(copies).unwrap_or_else(|| format!("on {class} devices")),
        Fit::Nothing => "on any devices".to_owned(),
    }
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named: Vec<String> =
            self.devices.iter().map(|device| format!("{} ({})", device.devid, device.class)).collect();
        let (fast, bulk) = self.there;
        let (s, verbs, it) = match named.len() {
            1 => ("", ["is", "counts"], "it is"),
            _ => ("s", ["are", "count"], "they are"),
        };
        write!(
            f,
            "device{s} {} {} missing, and {} for nothing: {fast} fast and {bulk} bulk devices are there. Once {it} back, ",
            named.join(", "),
            verbs[0],
            verbs[1]
        )?;
        let changed = |change: &PlacementChange| {
            format!("{} belongs {} (now {})", change.what, change.then, change.now)
        };
        let mut told: Vec<String> = self.changes.iter().map(changed).collect();
        if self.misplaced.0 != self.misplaced.1 {
            told.push(format!("{} chunks are misplaced (now {})", self.misplaced.1, self.misplaced.0));
        }
        match told.is_empty() {
            true => f.write_str("everything belongs where it belongs now"),
            false => f.write_str(&told.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Wanted, plan};
    use super::super::{TierStripe, distribution::distributions};
    use super::*;
    use PlacementClass::{Bulk, Fast};
    use brindle_ondisk::{DevId, Logical, Physical};

    const GIB: u64 = 1 << 30;

    /// Two disks and two fast devices, mirrored metadata on these, and mirrored data on a disk and the first fast device.
    fn pool(missing: &[u64]) -> TierPool {
        let device = |devid| TierDevice {
            devid: DevId::new(devid),
            class: if devid > 2 { Fast } else { Bulk },
            rank: 0,
            total_bytes: 100 * GIB,
        };
        let chunk = |at: u64, kind, devids: [u64; 2]| TierChunk {
            logical: Logical::new(at * GIB),
            length_bytes: GIB,
            used_bytes: 1 << 20,
            kind: kind | BlockGroupType::RAID1,
            stripes: devids
                .map(|devid| TierStripe { devid: DevId::new(devid), physical: Physical::new(at * GIB) })
                .to_vec(),
            is_write_back: false,
        };
        let members: Vec<TierDevice> = (1..=4).map(device).collect();
        TierPool {
            devices: members
                .iter()
                .filter(|device| !missing.contains(&device.devid.get()))
                .copied()
                .collect(),
            members: if missing.is_empty() { Vec::new() } else { members },
            chunks: vec![
                chunk(1, BlockGroupType::METADATA, [3, 4]),
                chunk(2, BlockGroupType::METADATA, [1, 2]),
                chunk(3, BlockGroupType::DATA, [1, 3]),
            ],
            is_ours: true,
            ..TierPool::default()
        }
    }

    #[test]
    fn a_pool_without_missing_devices_has_no_absence() {
        assert_eq!(absence(&pool(&[])), None);
    }

    #[test]
    fn a_missing_fast_device_holds_no_copy_in_a_plan_and_is_told_of() {
        let degraded = pool(&[4]);
        let made = plan(&degraded, Wanted { metadata: true, data: true });
        let moved: Vec<u64> =
            made.passes.iter().flat_map(|pass| &pass.moves).map(|moved| moved.logical.get() / GIB).collect();
        assert_eq!(moved, [2], "one copy on the fast device that is there is right");
        let told = absence(&degraded).expect("one is missing");
        assert_eq!((told.there, told.misplaced), ((1, 2), (1, 2)));
        assert_eq!(
            told.to_string(),
            "device 4 (fast) is missing, and counts for nothing: 1 fast and 2 bulk devices are there. Once it is back, metadata \
             of profile raid1 belongs on fast devices (now with one copy of two on fast devices); data of small and marked \
             files, profile raid1, belongs on fast devices (now with one copy of two on fast devices); 2 chunks are misplaced \
             (now 1)"
        );
        // What lies on it is still shown as on a fast device.
        let metadata = &distributions(&degraded)[0];
        assert_eq!((metadata.fast_bytes, metadata.bulk_bytes), (2 * GIB, 2 * GIB));
        assert_eq!(degraded.class_name(DevId::new(4)), "fast");
    }

    #[test]
    fn a_disk_whose_absence_makes_no_difference_is_told_of_all_the_same() {
        let mut degraded = pool(&[2]);
        degraded.chunks.truncate(1);
        let told = absence(&degraded).expect("one is missing").to_string();
        assert!(told.ends_with("Once it is back, everything belongs where it belongs now"), "{told}");
    }

    #[test]
    fn chunks_of_more_copies_than_devices_are_there_have_no_room() {
        let mut degraded = pool(&[2, 4]);
        degraded.chunks[1].kind = BlockGroupType::METADATA | BlockGroupType::RAID1C3;
        let made = plan(&degraded, Wanted { metadata: true, data: false });
        assert_eq!((made.passes.len(), made.refusals.len()), (0, 1), "{made:?}");
        let told = absence(&degraded).expect("two are missing").to_string();
        assert!(told.starts_with("devices 2 (bulk), 4 (fast) are missing, and count for nothing"), "{told}");
    }
}

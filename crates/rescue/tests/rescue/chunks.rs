//! Pools of every profile without their chunk tree: the map is proved, read by, and written.

use crate::support::{assert_contents, devices, findings, images, options, writable};
use brindle_check::{NoProgress, check};
use brindle_device::{Device, WritableDevice};
use brindle_ondisk::item::{ChunkHeader, Stripe};
use brindle_ondisk::{
    BlockGroupType, Generation, KeyType, Logical, NodeHeader, Physical, Profile, RootId, SUPERBLOCK_OFFSETS,
    to_usize,
};
use brindle_rescue::chunks::{ChunkRecovery, overlaid, search};
use brindle_rescue::undo::UndoFile;
use brindle_rescue::{Patient, RescueError};
use brindle_sim::{Image, LossMode, Random, Recorder};
use brindle_testing::damage::Victim;
use brindle_testing::golden;
use brindle_volume::{OpenOptions, Volume};
use std::sync::Arc;
use zerocopy::FromBytes;

/// Images whose chunk map is not recovered: the seed's lies in two pools.
const REFUSED: [&str; 1] = ["seed"];

/// Overwrites every block of the chunk tree, also old ones, by its own header.
fn wipe_chunk_trees(victim: &mut Victim) -> usize {
    let nodesize = to_usize(victim.superblock().nodesize.get().into());
    let (fsid, algorithm) = (victim.superblock().tree_uuid(), victim.superblock().checksum_type());
    let mut wiped = 0;
    for image in victim.images_mut() {
        let places: Vec<u64> = image.blocks().map(|(offset, _)| offset).collect();
        for at in places.into_iter().flat_map(|offset| (offset..offset + (64 << 10)).step_by(4096)) {
            let mut header = [0; size_of::<NodeHeader>()];
            if SUPERBLOCK_OFFSETS.contains(&at) || image.read_at(at, &mut header).is_err() {
                continue;
            }
            let header = NodeHeader::read_from_bytes(&header).expect("as long as a header");
            if header.owner != RootId::CHUNK_TREE || header.fsid != fsid {
                continue;
            }
            // Parity may look like one.
            let mut block = vec![0; nodesize];
            let is_read = image.read_at(at, &mut block).is_ok();
            if is_read && algorithm.matches(&block[header.csum.len()..], &header.csum[..algorithm.size()]) {
                image.write_at(at, &vec![0xee; nodesize]).expect("within");
                wiped += 1;
            }
        }
    }
    wiped
}

/// Chunks of a healthy pool.
fn chunks_of(victim: &Victim) -> Vec<(Logical, u64, Vec<Stripe>, BlockGroupType)> {
    let chunks = victim.leaves(RootId::CHUNK_TREE).flat_map(|leaf| victim.leaf_items(leaf.at));
    let chunk =
        |item: brindle_testing::damage::LeafItem| match brindle_ondisk::Item::parse(&item.key, &item.data) {
            Ok(brindle_ondisk::Item::Chunk(chunk)) => Some((
                Logical::new(item.key.offset()),
                chunk.header.length.get(),
                chunk.stripes.to_vec(),
                chunk.block_group_type(),
            )),
            _ => None,
        };
    chunks.filter_map(chunk).collect()
}

/// Stripes in an order that is one for all that mean the same.
fn canonical(stripes: &[Stripe], kind: BlockGroupType) -> Vec<Vec<(u64, u64)>> {
    let width = match kind.profile() {
        Some(Profile::Raid0 | Profile::Raid5 | Profile::Raid6) => 1,
        Some(Profile::Raid10) => 2,
        _ => stripes.len(),
    };
    let place = |stripe: &Stripe| (stripe.devid.get(), stripe.offset.get());
    let group = |group: &[Stripe]| {
        let mut places: Vec<_> = group.iter().map(place).collect();
        places.sort_unstable();
        places
    };
    stripes.chunks(width).map(group).collect()
}

fn readable(devices: &[Arc<dyn WritableDevice>]) -> Vec<Arc<dyn Device>> {
    devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect()
}

fn searched(devices: &[Arc<dyn WritableDevice>]) -> ChunkRecovery {
    search(readable(devices), &NoProgress).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns true if no other chunk is another one than that of the chunk tree, which may have its stripes in any order.
fn is_of_system_alone(recovery: &ChunkRecovery, healthy: &Victim) -> bool {
    let all = chunks_of(healthy);
    recovery.left().is_empty()
        && recovery.chunks().count() == all.len()
        && recovery.chunks().zip(&all).all(|((start, chunk), (at, length, stripes, kind))| {
            let is_same = canonical(chunk.stripes(), chunk.kind()) == canonical(stripes, *kind);
            (start, chunk.length(), chunk.kind()) == (*at, *length, *kind)
                && (is_same || kind.contains(BlockGroupType::SYSTEM))
        })
}

/// Recovers a pool, and panics unless it is as sound as it was; what is wrong with the recovery.
fn recovered(name: &str, victim: &Victim, healthy: &Victim) -> Result<(), String> {
    let directory = tempfile::tempdir().expect("temporary directory");
    let before = images(victim);
    let held = devices(&before);
    let devices = writable(&held);
    let patient = Patient::new(devices.clone()).expect("no lease");
    let recovery = search(patient.readable(), &NoProgress).map_err(|error| error.to_string())?;
    let found: Vec<_> = recovery
        .chunks()
        .map(|(start, chunk)| (start, chunk.length(), canonical(chunk.stripes(), chunk.kind())))
        .collect();
    let expected: Vec<_> = chunks_of(healthy)
        .into_iter()
        .map(|(start, length, stripes, kind)| (start, length, canonical(&stripes, kind)))
        .collect();
    if found != expected && !is_of_system_alone(&recovery, healthy) {
        return Err(format!("{:?}: {found:?} instead of {expected:?}", recovery.left()));
    }
    let steps = recovery.put(&patient.writable()).map_err(|error| error.to_string())?;
    if steps.is_empty() {
        return Err("nothing is to be done".to_owned());
    }
    assert_contents(&held, &before, name);
    let file = directory.path().join("undo");
    patient.carry_out(&file).expect("works");
    let left = findings(&crate::support::examine(&devices));
    if !left.is_empty() {
        let sound = findings(&check(healthy.devices(), &options(), &NoProgress).expect("the pool opens"));
        if left != sound {
            return Err(format!("left {left:#?}, of a healthy pool {sound:#?}"));
        }
    }
    let again = searched(&devices).put(&Patient::new(devices.clone()).expect("no lease").writable());
    assert_eq!(again.expect("works"), [], "{name}: once more");
    UndoFile::read(&file).expect("whole").undo(&devices).expect("works");
    assert_contents(&held, &before, name);
    Ok(())
}

#[test]
fn a_chunk_tree_is_made_anew_of_every_profile() {
    let mut wrong = Vec::new();
    for name in golden::names() {
        let healthy = Victim::load(&name);
        let mut victim = Victim::load(&name);
        assert!(wipe_chunk_trees(&mut victim) > 0, "{name}");
        match recovered(&name, &victim, &healthy) {
            Ok(()) => assert!(!REFUSED.contains(&&name[..]), "{name}"),
            Err(why) if REFUSED.contains(&&name[..]) => println!("{name}: {why}"),
            Err(why) => wrong.push(format!("{name}: {why}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn system_chunks_that_are_wrong_are_made_anew_too() {
    for name in ["raid1", "raid10", "metadata-uuid"] {
        let healthy = Victim::load(name);
        let mut victim = Victim::load(name);
        victim.edit_superblocks(|superblock| superblock.sys_chunk_array.fill(0xa5));
        recovered(name, &victim, &healthy).unwrap_or_else(|why| panic!("{name}: {why}"));
        wipe_chunk_trees(&mut victim);
        recovered(name, &victim, &healthy).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}

#[test]
fn a_sound_pool_is_left_alone_and_read_as_it_is() {
    for name in ["raid1", "raid5", "block-group-tree"] {
        let devices = writable(&devices(&images(&Victim::load(name))));
        let patient = Patient::new(devices.clone()).expect("no lease");
        assert_eq!(searched(&devices).put(&patient.writable()).expect("works"), [], "{name}");
        assert!(patient.patches().expect("readable").is_empty(), "{name}");
        let (overlays, recovery) = overlaid(readable(&devices), &NoProgress).expect("works");
        assert!(recovery.left().is_empty(), "{name}");
        assert_eq!(findings(&check(overlays, &options(), &NoProgress).expect("opens")), [""; 0], "{name}");
    }
}

#[test]
fn a_pool_is_read_in_memory_with_a_device_missing() {
    let mut degraded = options();
    degraded.volume.degraded = true;
    for name in ["raid1", "raid10", "raid1c3"] {
        let mut victim = Victim::load(name);
        wipe_chunk_trees(&mut victim);
        for gone in 0..victim.images().len() {
            let mut held = devices(&images(&victim));
            held.remove(gone);
            let devices = writable(&held);
            let recovery = searched(&devices);
            let refused = recovery.put(&Patient::new(devices.clone()).expect("no lease").writable());
            let Err(RescueError::Refused(why)) = refused else { panic!("{name}: {refused:?}") };
            assert!(why.contains("is missing"), "{why}");
            let (overlays, _) = overlaid(readable(&devices), &NoProgress).expect("works");
            let volume = OpenOptions { degraded: true, ..OpenOptions::default() };
            let report =
                check(overlays, &brindle_check::CheckOptions { volume, ..degraded.clone() }, &NoProgress);
            let report = report.unwrap_or_else(|error| panic!("{name} without {gone}: {error}"));
            let mut expected = Victim::load(name).devices();
            expected.remove(gone);
            let expected = check(expected, &degraded, &NoProgress).expect("opens");
            // The chunk tree lies elsewhere, perhaps, and mirrors may have other numbers.
            let is_other =
                |finding: &String| !finding.starts_with("tree 3:") && !finding.contains("device is missing");
            let of_others = |report: &brindle_check::Report| -> Vec<String> {
                findings(report).into_iter().filter(is_other).collect()
            };
            let (found, expected) = (of_others(&report), of_others(&expected));
            let more: Vec<_> = found.iter().filter(|finding| !expected.contains(finding)).collect();
            assert!(more.is_empty(), "{name} without {gone}: {more:#?}");
        }
    }
}

#[test]
fn metadata_on_parity_without_a_device_is_read_as_far_as_it_goes_or_refused_by_name() {
    for name in ["raid5", "raid6"] {
        let mut victim = Victim::load(name);
        wipe_chunk_trees(&mut victim);
        for gone in 0..victim.images().len() {
            let mut held = devices(&images(&victim));
            held.remove(gone);
            match overlaid(readable(&writable(&held)), &NoProgress) {
                Ok((_, recovery)) => assert!(!recovery.left().is_empty(), "{name} without {gone}"),
                Err(error) => {
                    assert!(matches!(error, RescueError::Refused(_)), "{name} without {gone}: {error}");
                }
            }
        }
    }
}

#[test]
fn blocks_of_another_pool_and_old_ones_prove_nothing() {
    let healthy = Victim::load("raid0");
    let mut victim = Victim::load("raid0");
    // Blocks of this pool at places where no chunk has them, and whole chunk trees of others.
    let mut strays = Vec::new();
    for block in healthy.blocks() {
        strays.push(healthy.block(block.at));
    }
    for other in ["raid1", "raid10"] {
        let other = Victim::load(other);
        strays.extend(other.leaves(RootId::CHUNK_TREE).map(|leaf| other.block(leaf.at)));
    }
    wipe_chunk_trees(&mut victim);
    let used: Vec<(u64, u64)> = chunks_of(&healthy)
        .iter()
        .flat_map(|(_, length, stripes, _)| stripes.iter().map(move |stripe| (stripe.offset.get(), *length)))
        .collect();
    for image in victim.images_mut() {
        let end = used.iter().map(|(offset, length)| offset + length).max().expect("there are chunks");
        let mut at = end.min(image.size_bytes());
        for stray in &strays {
            if at + (64 << 10) < image.size_bytes() {
                image.write_at(at, stray).expect("within");
                at += 64 << 10;
            }
        }
    }
    recovered("raid0", &victim, &healthy).unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn a_cut_leaves_the_old_tree_or_the_new_one_and_both_are_gone_on_from() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let mut victim = Victim::load("raid1");
    wipe_chunk_trees(&mut victim);
    let before = images(&victim);
    let recorder = Recorder::new();
    let device = |(number, image): (usize, &Image)| {
        recorder.device(&format!("memory{number}"), image.clone(), brindle_device::DeviceClass::Unknown)
            as Arc<dyn WritableDevice>
    };
    let devices: Vec<_> = before.iter().enumerate().map(device).collect();
    let patient = Patient::new(devices.clone()).expect("no lease");
    searched(&devices).put(&patient.writable()).expect("works");
    let file = directory.path().join("undo");
    patient.carry_out(&file).expect("works");
    let undo = UndoFile::read(&file).expect("whole");
    let recording = recorder.recording().with_sectors_of(4096);
    let mut replay = recording.replay();
    let (mut old, mut new) = (0, 0);
    for point in recording.crash_points() {
        replay.advance_to(point);
        for mode in LossMode::ALL {
            let state = replay.state(mode, &mut Random::new(7).fork(point as u64));
            let devices = state.writable();
            let what = format!("point {point}, {mode:?}");
            match check(readable(&devices), &options(), &NoProgress) {
                Ok(report) if findings(&report).is_empty() => new += 1,
                _ => old += 1,
            }
            let patient = Patient::new(devices.clone()).expect("no lease");
            searched(&devices).put(&patient.writable()).unwrap_or_else(|error| panic!("{what}: {error}"));
            let report = check(patient.readable(), &options(), &NoProgress).expect("opens");
            // A copy that was not written yet is the business of a scrub.
            let found = findings(&report);
            let is_bad = |finding: &&String| !finding.contains("tree 3: bad copy, another one is good");
            assert_eq!(found.iter().find(is_bad), None, "{what}");
            undo.undo(&devices).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_contents(&state.devices, &before, &what);
        }
    }
    assert!(old > 0 && new > 0, "{old} old and {new} new states");
}

#[test]
fn damaged_blocks_are_refused_or_named_and_nothing_panics() {
    let rounds: u64 =
        std::env::var("BRINDLE_CHUNK_DAMAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let names = ["dup", "raid0", "raid10", "raid6", "block-group-tree"];
    for round in 0..rounds {
        let mut random = Random::new(round);
        let name = *random.pick(&names);
        let mut victim = Victim::load(name);
        let blocks: Vec<_> = victim.blocks().to_vec();
        for _ in 0..random.below(6) {
            let block = random.pick(&blocks);
            let is_sealed = random.chance(3, 4) && name != "raid6";
            let (mut at, mut value) = (random.index(4096), [0; 8]);
            random.fill(&mut value);
            at = at.min(4088);
            if is_sealed {
                victim.edit_block(block.at, |bytes| bytes[at..at + 8].copy_from_slice(&value));
            } else {
                let mut bytes = victim.block(block.at);
                bytes[at..at + 8].copy_from_slice(&value);
                victim.write(block.at, &bytes);
            }
        }
        if random.chance(2, 3) {
            wipe_chunk_trees(&mut victim);
        }
        let devices = writable(&devices(&images(&victim)));
        let Ok(recovery) = search(readable(&devices), &NoProgress) else { continue };
        let patient = Patient::new(devices.clone()).expect("no lease");
        recovery.put(&patient.writable()).ok();
        if let Ok((overlays, _)) = overlaid(readable(&devices), &NoProgress) {
            Volume::open(overlays, &OpenOptions::default()).ok();
        }
    }
}

#[test]
fn a_tree_over_old_blocks_has_a_generation_of_its_own() {
    let key = |victim: &Victim| {
        let chunk = victim.find_item(RootId::CHUNK_TREE, |item| item.key.item_type == KeyType::CHUNK_ITEM);
        chunk.expect("there are chunks").1.key
    };
    let healthy = Victim::load("dup");
    let old = healthy.superblock().chunk_root_generation;
    for is_lost in [false, true] {
        let mut victim = Victim::load("dup");
        if is_lost {
            wipe_chunk_trees(&mut victim);
        } else {
            let key = key(&victim);
            // The first stripe of the first chunk is elsewhere.
            let offset = size_of::<ChunkHeader>();
            victim.edit_item_at(RootId::CHUNK_TREE, &key, offset, |stripe: &mut Stripe| {
                stripe.offset = Physical::new(stripe.offset.get() + (1 << 20));
            });
        }
        let devices = writable(&devices(&images(&victim)));
        let patient = Patient::new(devices.clone()).expect("no lease");
        searched(&devices).put(&patient.writable()).expect("works");
        let volume = Volume::open(patient.readable(), &OpenOptions::default()).expect("opens");
        let new = volume.superblock().chunk_root_generation;
        assert_eq!(new == old, is_lost, "{new} after {old}");
        assert!(new > Generation::new(0) && new <= volume.superblock().generation);
        patient
            .carry_out(&tempfile::tempdir().expect("temporary directory").path().join("undo"))
            .expect("works");
        assert_eq!(findings(&crate::support::examine(&devices)), [""; 0]);
    }
}

//! Old copies of devices, made while the pool was mounted and given back later: they have superblocks of the same series as the
//! others, and lack what was written since.

use super::asleep::writable;
use super::tiers::{ONE_OF_EACH, TWO_OF_EACH};
use crate::contents::patterns::Program;
use crate::golden::top_level;
use crate::simulated::{Layout, Pool, seeds};
use brindle_device::{Device, WritableDevice};
use brindle_fs::Filesystem;
use brindle_ondisk::{Profile, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, Uuid, to_u64};
use brindle_sim::{CrashDevice, Image, ImageDevice, LossMode, Random, Recorder};
use std::sync::Arc;

/// Steps of a history.
const STEPS: u64 = 14;

/// Moment of a history at which a call has returned that makes things durable.
struct Moment {
    what: &'static str,
    is_committed: bool,
    /// Event of the recording.
    position: usize,
    images: Vec<Image>,
}

/// A pool that is used, and its devices as they were on the way.
struct History {
    layout: Layout,
    recorder: Recorder,
    devices: Vec<Arc<CrashDevice>>,
    moments: Vec<Moment>,
}

impl History {
    /// An empty pool whose files have no checksums, and are written in place.
    fn new(layout: Layout, uuid: u8) -> Self {
        let new = |number| {
            Arc::new(ImageDevice::new(
                format!("memory{number}"),
                Image::new(layout.device_bytes()),
                layout.class(number),
            ))
        };
        let devices: Vec<Arc<ImageDevice>> = (0..layout.devices).map(new).collect();
        let writable: Vec<_> =
            devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
        layout.mkfs_named(&writable, Uuid([uuid; 16]));
        let recorder = Recorder::new();
        let recorded = (0..).zip(&devices).map(|(number, device)| {
            recorder.device(&format!("memory{number}"), device.image(), layout.class(number))
        });
        Self { layout, devices: recorded.collect(), recorder, moments: Vec::new() }
    }

    fn open(&self) -> Filesystem {
        let devices = self.devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>);
        let mut pool = Pool::on(devices.collect(), &self.layout);
        (pool.write.tree_log, pool.write.nodatacow) = (true, true);
        pool.open().expect("opens")
    }

    fn remember(&mut self, what: &'static str, is_committed: bool) {
        let images = self.devices.iter().map(|device| device.image()).collect();
        self.moments.push(Moment { what, is_committed, position: self.recorder.position(), images });
    }

    /// Some steps of one mount, each with what makes it durable.
    fn use_it(&mut self, filesystem: &Filesystem, random: &mut Random) {
        let program = Program::new(filesystem);
        if program.find("large").is_none() {
            program.put("large", &[1; 256 << 10]);
            filesystem.sync().expect("commits");
        }
        for step in 0..STEPS {
            let bytes = vec![random.number().to_le_bytes()[0]; 32 << 10];
            let (what, is_committed) = match random.below(6) {
                0 => {
                    program.put(&format!("new {}", random.number()), &bytes);
                    ("data", true)
                }
                kind @ 1..=2 => {
                    let file = program.open("large");
                    program.write(&file, random.below(7) * to_u64(bytes.len()), &bytes);
                    if kind == 1 {
                        program.sync(&file);
                    }
                    program.close(file);
                    if kind == 1 { ("data that is synced", false) } else { ("data in place", true) }
                }
                _ => {
                    program.put("name", b"");
                    program.rename("name", &format!("other {step} {}", random.number()));
                    ("names", true)
                }
            };
            if is_committed {
                filesystem.sync().expect("commits");
            }
            self.remember(what, is_committed);
        }
    }

    /// The devices at a moment, if the power is cut then.
    fn after_cut(&self, moment: &Moment) -> Vec<Image> {
        let recording = self.recorder.recording();
        recording.state_at(moment.position, LossMode::Everything, &mut Random::new(1)).images()
    }
}

fn generation(image: &Image) -> u64 {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    image.read(SUPERBLOCK_OFFSETS[0], &mut bytes);
    Superblock::parse(&bytes, SUPERBLOCK_OFFSETS[0]).expect("whole").generation.get()
}

/// Returns true if two states of a device differ in more than superblocks.
fn differ(one: &Image, other: &Image) -> bool {
    let bare = |image: &Image| {
        let mut image = image.clone();
        let size = to_u64(SUPERBLOCK_SIZE);
        let there = SUPERBLOCK_OFFSETS.into_iter().filter(|offset| offset + size <= image.size_bytes());
        there.collect::<Vec<_>>().into_iter().for_each(|offset| image.zero(offset, size));
        image
    };
    bare(one).first_difference(&bare(other)).is_some()
}

/// Result of giving an old copy back: the reason for which the pool is not written.
fn refusal(images: &[Image], layout: &Layout) -> Option<String> {
    let opened = Pool::on(writable(images, layout), layout).open();
    opened.err().map(|error| error.to_string())
}

/// The reason for which a pool that was opened to be read does not trust a device; or for which it was not opened.
fn distrust(images: &[Image], layout: &Layout) -> Option<String> {
    let devices = writable(images, layout).into_iter().map(|device| device as Arc<dyn Device>);
    match Filesystem::open(devices.collect(), &top_level()) {
        Ok(filesystem) => filesystem.warnings().iter().find(|warning| warning.contains("stale")).cloned(),
        Err(error) => Some(error.to_string()),
    }
}

#[derive(Default)]
struct Counts {
    found_out: usize,
    whole: usize,
    indistinct: usize,
}

impl Counts {
    /// Gives back every copy of one device, made at any moment before, to the devices of an end.
    fn give_back(
        &mut self,
        end: &[Image],
        number: usize,
        before: &[Moment],
        kind: &End<'_>,
        layout: &Layout,
    ) {
        let newest = end.iter().map(generation).max().expect("devices");
        let end_of = kind.what;
        assert_eq!(refusal(end, layout), None, "{end_of}: the devices as they are");
        for (at, moment) in before.iter().enumerate() {
            let copy = &moment.images[number];
            let mut mixed = end.to_vec();
            mixed[number] = copy.clone();
            let generations: Vec<u64> = mixed.iter().map(generation).collect();
            let what = format!(
                "{generations:?} ({}): device {number} of moment {at} ({}) after {end_of}",
                generation(&end[number]),
                moment.what
            );
            // Made since the last commit, and after something was synced: a superblock says nothing of what came then.
            let is_of_last = !kind.is_committed
                && generation(copy) == generation(&end[number])
                && before[at + 1..].iter().all(|later| !later.is_committed);
            // Superblocks of fast devices are written at the same time, and a crash comes between two of them.
            let is_one_behind = number < layout.fast && !kind.is_clean && generation(copy) + 1 == newest;
            // No other device is newer: that is the pool as of then.
            let is_newest = !kind.is_clean && mixed.iter().all(|image| generation(image) <= generation(copy));
            if !differ(copy, &end[number]) {
                // An older superblock may have been written over for other reasons, such as another mount.
                if generation(copy) == generation(&end[number]) {
                    assert_eq!(refusal(&mixed, layout), None, "{what} lacks nothing");
                    self.whole += 1;
                }
            } else if is_of_last || is_one_behind || is_newest {
                self.indistinct += 1;
            } else {
                let refused = refusal(&mixed, layout).unwrap_or_else(|| panic!("{what} is written"));
                let is_one_copy = layout.metadata == Profile::Dup && number < layout.fast;
                assert!(is_one_copy || refused.contains("stale"), "{what}: {refused}");
                assert!(distrust(&mixed, layout).is_some(), "{what} is trusted");
                self.found_out += 1;
            }
        }
    }
}

struct End<'h> {
    what: &'h str,
    is_clean: bool,
    is_committed: bool,
}

fn try_all(layout: &Layout, seed: u64) -> Counts {
    let mut random = Random::new(seed);
    let layout = Layout { device_mib: 256, ..*layout };
    let mut history = History::new(layout, 0x90);
    for _ in 0..2 {
        let filesystem = history.open();
        history.use_it(&filesystem, &mut random);
        drop(filesystem);
        let filesystem = history.open();
        history.use_it(&filesystem, &mut random);
        filesystem.shutdown().expect("closes");
        drop(filesystem);
        history.remember("unmounting", true);
    }
    let mut counts = Counts::default();
    let (moments, layout) = (&history.moments, &history.layout);
    for (at, moment) in moments.iter().enumerate().skip(1) {
        let is_clean = moment.what == "unmounting";
        if !is_clean && random.below(4) != 0 {
            continue;
        }
        let end = End { what: moment.what, is_clean, is_committed: moment.is_committed };
        for images in [moment.images.clone(), history.after_cut(moment)] {
            let number = usize::try_from(random.below(to_u64(layout.devices))).expect("small");
            counts.give_back(&images, number, &moments[..at], &end, layout);
        }
    }
    counts
}

#[test]
fn an_old_copy_of_a_device_is_never_taken_for_one_that_slept() {
    let single = Layout { data: Profile::Single, ..TWO_OF_EACH };
    for layout in [ONE_OF_EACH, TWO_OF_EACH, single] {
        let mut sum = Counts::default();
        for seed in seeds(300, 2) {
            let counts = try_all(&layout, seed);
            sum.found_out += counts.found_out;
            sum.whole += counts.whole;
            sum.indistinct += counts.indistinct;
        }
        let Counts { found_out, whole, indistinct } = sum;
        eprintln!(
            "{layout:?}: {found_out} old copies found out, {whole} whole, {indistinct} of the last moment"
        );
        assert!(found_out > 100 && whole > 10, "{found_out} {whole}");
    }
}

//! The library as a subject of crashes and faults.

use super::kernel;
use crate::simulated::{Habits, Layout, Library, PART_BYTES, Pool, findings};
use brindle_check::{CheckOptions, Finding};
use brindle_device::{DeviceClass, WritableDevice};
use brindle_fs::{Filesystem, LogProfile, WriteBackMode, WriteBackSettings};
use brindle_ondisk::{Profile, Uuid};
use brindle_sim::{Image, ImageDevice};
use brindle_testing::crash::{CrashGuarantees, NewDevice, Subject};
use brindle_testing::manifest::Manifest;
use std::sync::Arc;

/// UUID of a pool of this number of devices, which no pool of another test has.
fn uuid_of(devices: usize) -> Uuid {
    let mut uuid = [0xc4; 16];
    uuid[15] = u8::try_from(devices).expect("few");
    Uuid(uuid)
}

/// Pools of one layout. They are made once; each run begins with a copy.
pub(crate) struct LibrarySubject {
    layout: Layout,
    classes: Vec<DeviceClass>,
    images: Vec<Image>,
    habits: Habits,
    /// Contents may be written, and metadata committed, whenever that seems right.
    is_hasty: bool,
    /// A device may have missed commits, and is left out then.
    may_be_degraded: bool,
    contents: Contents,
    /// True if moved data comes to lie in parts.
    moves_in_parts: bool,
    /// An fsync is logged where it can be.
    logs: bool,
}

/// Way of writing contents.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Elsewhere, with checksums.
    Plain,
    /// Elsewhere, without (`nodatasum`).
    Unsummed,
    /// Overwritten in place, without checksums (`nodatacow`).
    InPlace,
}

impl LibrarySubject {
    /// An fsync is a commit of everything, and so is a snapshot.
    pub(crate) fn new(layout: Layout) -> Self {
        Self::on((0..layout.devices).map(|number| layout.class(number)).collect(), layout)
    }

    /// Subject like [`new`](Self::new), with the fast devices behind the others.
    pub(crate) fn reversed(layout: Layout) -> Self {
        let classes = (0..layout.devices).rev().map(|number| layout.class(number));
        Self::on(classes.collect(), layout)
    }

    /// This one, and extents count for the subvolume that wrote them first.
    pub(crate) fn counting(self) -> Self {
        self.prepared(|filesystem| filesystem.pool().enable_simple_quotas().expect("room"))
    }

    /// This one, and waiting data has one copy.
    pub(crate) fn waiting_with_one_copy(self) -> Self {
        let settings = WriteBackSettings { mode: None, profile: Some(Profile::Single) };
        self.prepared(|filesystem| filesystem.set_write_back(settings).expect("stored"))
    }

    /// This one, after something was done to the new pool.
    fn prepared(self, prepare: impl FnOnce(&Filesystem)) -> Self {
        let new = |(number, image): (usize, &Image)| {
            let class = self.classes[number];
            Arc::new(ImageDevice::new(format!("memory{number}"), image.clone(), class))
        };
        let devices: Vec<Arc<ImageDevice>> = self.images.iter().enumerate().map(new).collect();
        let writable = devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
        let filesystem = Pool::on(writable, &self.layout).open().expect("a new pool");
        prepare(&filesystem);
        filesystem.shutdown().expect("closes");
        Self { images: devices.iter().map(|device| device.image()).collect(), ..self }
    }

    fn on(classes: Vec<DeviceClass>, layout: Layout) -> Self {
        let new = |(number, class): (usize, &DeviceClass)| {
            ImageDevice::new(format!("memory{number}"), Image::new(layout.device_bytes()), *class)
        };
        let devices: Vec<Arc<ImageDevice>> = classes.iter().enumerate().map(|it| Arc::new(new(it))).collect();
        let writable: Vec<_> =
            devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
        layout.mkfs_named(&writable, uuid_of(layout.devices));
        let images = devices.iter().map(|device| device.image()).collect();
        let habits = Habits { syncs_all: true, ..Habits::default() };
        Self {
            layout,
            classes,
            images,
            habits,
            is_hasty: false,
            may_be_degraded: false,
            contents: Contents::Plain,
            moves_in_parts: false,
            logs: false,
        }
    }

    /// An fsync commits names and attributes, but writes contents of its own file only; others are written back
    /// early, for there is little memory.
    pub(crate) fn hasty(layout: Layout) -> Self {
        Self::new(layout).into_hasty()
    }

    /// This one, as [`hasty`](Self::hasty).
    pub(crate) fn into_hasty(self) -> Self {
        Self { habits: Habits { syncs_all: false, ..self.habits }, is_hasty: true, ..self }
    }

    /// Subject as before, on devices that fail.
    pub(crate) fn failing(layout: Layout) -> Self {
        Self { may_be_degraded: true, ..Self::hasty(layout) }
    }

    /// The same with contents that are written otherwise.
    pub(crate) fn of(self, contents: Contents) -> Self {
        Self { contents, ..self }
    }

    /// Subject like [`hasty`](Self::hasty), with block groups that are emptied now and then, which commits.
    pub(crate) fn relocating(layout: Layout) -> Self {
        Self::new(layout).into_relocating()
    }

    /// This one, as [`relocating`](Self::relocating).
    pub(crate) fn into_relocating(self) -> Self {
        let hasty = self.into_hasty();
        Self { habits: Habits { relocates_every: 9, ..hasty.habits }, ..hasty }
    }

    /// Subject like [`sorting`](Self::sorting), where fast devices have room for some of it only.
    pub(crate) fn sorting_crowded(layout: Layout) -> Self {
        let plain = Self::sorting(layout);
        Self { habits: Habits { fast_bytes: 24 << 10, ..plain.habits }, ..plain }
    }

    /// This one, and extents that are moved come to lie in parts.
    pub(crate) fn in_parts(self) -> Self {
        Self { moves_in_parts: true, ..self }
    }

    /// Subject like [`hasty`](Self::hasty), whose chunks of data are full now and then, so that others are made.
    pub(crate) fn outgrowing(layout: Layout) -> Self {
        let hasty = Self::hasty(layout);
        Self { habits: Habits { outgrows_every: 15, ..hasty.habits }, ..hasty }
    }

    /// Subject like [`hasty`](Self::hasty), with metadata that is defragmented now and then, which commits.
    pub(crate) fn defragmenting(layout: Layout) -> Self {
        let hasty = Self::hasty(layout);
        Self { habits: Habits { defragments_every: 4, ..hasty.habits }, ..hasty }
    }

    /// Subject like [`hasty`](Self::hasty), with contents of files that are defragmented now and then, which commits.
    pub(crate) fn defragmenting_files(layout: Layout) -> Self {
        let hasty = Self::hasty(layout);
        Self { habits: Habits { defragments_files_every: 6, ..hasty.habits }, ..hasty }
    }

    /// This one, and an fsync is logged where it can be.
    pub(crate) fn logging(self) -> Self {
        Self { logs: true, ..self }
    }

    /// This one, with a log of fewer copies from the first operation on.
    pub(crate) fn logging_as(self, profile: LogProfile) -> Self {
        Self { logs: true, habits: Habits { log_profile: Some(profile), ..self.habits }, ..self }
    }

    /// This one, on devices of which one is lost.
    pub(crate) fn into_degraded(self) -> Self {
        Self { may_be_degraded: true, ..self }
    }

    /// Subject like [`hasty`](Self::hasty), with data that is moved between tiers now and then, and whenever the pool
    /// is opened.
    pub(crate) fn sorting(layout: Layout) -> Self {
        let plain = Self::hasty(layout);
        Self { habits: Habits { sorts_every: 9, ..plain.habits }, ..plain }
    }

    /// Subject like [`hasty`](Self::hasty), with data that lies in the write-back tier first: all of it, or what is synced.
    pub(crate) fn writing_back(layout: Layout, write_back: WriteBackMode) -> Self {
        let plain = Self::hasty(layout);
        Self { habits: Habits { destages_every: 7, write_back, ..plain.habits }, ..plain }
    }

    /// Subject like [`failing`](Self::failing), on devices that may be full.
    pub(crate) fn crowded(layout: Layout) -> Self {
        let plain = Self::failing(layout);
        Self { habits: Habits { may_be_full: true, ..plain.habits }, ..plain }
    }
}

fn class_name(class: DeviceClass) -> &'static str {
    if class == DeviceClass::Rotating { "disk" } else { "SSD" }
}

impl Subject for LibrarySubject {
    type Target = Library;

    fn make(&self) -> Vec<NewDevice> {
        let new = |(number, image): (usize, &Image)| NewDevice {
            name: format!("memory{number}"),
            image: image.clone(),
            class: self.classes[number],
        };
        self.images.iter().enumerate().map(new).collect()
    }

    fn open(&self, devices: &[Arc<dyn WritableDevice>]) -> Result<Library, String> {
        let mut pool = Pool::on(devices.to_vec(), &self.layout);
        if self.is_hasty {
            pool.write.dirty_bytes_max = 256 << 10;
        }
        pool.write.nodatasum = self.contents == Contents::Unsummed;
        pool.write.nodatacow = self.contents == Contents::InPlace;
        pool.write.tree_log = self.logs;
        if self.moves_in_parts {
            pool.write.moved_extent_bytes_max = PART_BYTES;
        }
        let refusal = match Library::open(pool.clone(), self.habits) {
            Ok(library) => return Ok(library),
            Err(refusal) => refusal.to_string(),
        };
        if !self.may_be_degraded {
            return Err(refusal);
        }
        pool.open.pool.volume.degraded = true;
        Library::open(pool, self.habits).map_err(|error| format!("{refusal}; degraded: {error}"))
    }

    fn close(&self, mut target: Library) -> Result<(), String> {
        target.close().map_err(|error| error.to_string())
    }

    fn check(&self, devices: &[Arc<dyn WritableDevice>]) -> Result<(), String> {
        // Parity is not of the same moment as the data beside it, and need not be as long as no device is lost.
        let check_data_csum = !self.layout.data.has_parity() && !self.may_be_degraded;
        let mut options = CheckOptions { check_data_csum, threads: Some(1), ..CheckOptions::default() };
        options.volume.degraded = self.may_be_degraded;
        // A device whose superblock is behind is asked last, and what is rebuilt from parity instead may be wrong.
        let may_be_stale = self.may_be_degraded || self.layout.metadata.has_parity();
        // One superblock is enough to open it; the next commit writes all.
        findings(devices, &options, |pass, finding| {
            let is_stale = may_be_stale && matches!(finding, Finding::BadCopy { .. });
            pass != "superblocks" && !is_stale
        })
    }

    fn pool(&self) -> String {
        let classes: Vec<&str> = self.classes.iter().map(|class| class_name(*class)).collect();
        let Layout { data, metadata, nodesize, features, .. } = self.layout;
        let compression =
            self.layout.compression.map_or_else(String::new, |kind| format!(", {kind:?}").to_lowercase());
        let features = if features.is_empty() { String::new() } else { format!(", {features}") };
        format!(
            "{}: data {data}, metadata {metadata}, nodes of {nodesize}{compression}{features}",
            classes.join(" + ")
        )
    }

    fn referee(&self, devices: &[Arc<dyn WritableDevice>]) -> Result<Option<Manifest>, String> {
        if self.may_be_degraded {
            return Ok(None);
        }
        kernel::tree(devices, self.layout.data.has_parity() || self.layout.metadata.has_parity())
    }

    fn guarantees(&self) -> CrashGuarantees {
        if self.is_hasty {
            CrashGuarantees {
                fsync_commits: false,
                snapshot_commits: false,
                commits_only_when_asked: false,
                names_follow_operations: true,
                fsyncs_are_kept: true,
            }
        } else {
            CrashGuarantees {
                fsync_commits: !self.logs,
                snapshot_commits: true,
                names_follow_operations: true,
                ..CrashGuarantees::default()
            }
        }
    }
}

//! Panics while a lock of each rank is taken or given back: the pool stops, and what is on the devices is the last commit
//! and its log.
//!
//! `BRINDLE_PANICS` is the number of places that are tried of each rank and moment.

mod ground;
mod work;

use crate::shared::machine::World;
use crate::simulated::{Layout, Pool, findings};
use brindle_check::{CheckOptions, Finding};
use brindle_device::WritableDevice;
use brindle_fs::{Filesystem, FsError};
use brindle_ondisk::Profile;
use brindle_sim::{Image, ImageDevice};
use brindle_sync::{Moment, Probe, Rank};
use ground::{Ground, plain};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use work::work;

const MIRRORS: Layout = Layout {
    devices: 3,
    device_mib: 256,
    data: Profile::Raid1,
    metadata: Profile::Raid1,
    nodesize: 4096,
    features: "",
    compression: None,
    fast: 1,
};

/// Ranks that the work does not reach, each with the reason why it need not.
const NOT_REACHED: [(Rank, &str); 15] = [
    (Rank::BulkRuns, "a pool that is filled in bulk has no superblocks yet"),
    (Rank::BulkFailure, "a pool that is filled in bulk has no superblocks yet"),
    (Rank::UpkeepCalls, "threads of the upkeep, which these programs do without; what they do, others do"),
    (Rank::TornFiles, "only where a mount lays torn files together by itself"),
    (Rank::ParityRow, "these pools have no parity; others below do"),
    (Rank::Lease, "only in pools with a lease; they are below"),
    (Rank::LogPreparation, "only where entries of a log are prepared under a lock; the others are below"),
    (Rank::Backlog, "notes of the policy that reads by load, which no write looks at"),
    (Rank::Quotas, "only in pools with quota groups; they are below"),
    (Rank::CachesInUse, "these devices have no cache"),
    (Rank::FlashCache, "these devices have no cache"),
    (Rank::DurableRequest, "requests of files; these devices are in memory"),
    (Rank::DeviceRequest, "engines of files; these devices are in memory"),
    (Rank::DeviceQueue, "engines of files; these devices are in memory"),
    (Rank::RequestRecord, "requests of files; these devices are in memory"),
];

/// Number of places that are tried of each rank and moment.
const PLACES: u64 = 2;
/// Offset and length of the superblocks that a device of this size has.
const SUPERBLOCKS: [(u64, usize); 2] = [(64 << 10, 4096), (64 << 20, 4096)];

/// A pool that is the same at the begin of each run.
struct Scene {
    layout: Layout,
    log_prepare_locked: bool,
    has_lease: bool,
    images: Vec<Image>,
}

/// A run of the work, from its begin.
struct Run {
    pool: Pool,
    ground: Ground,
}

impl Scene {
    fn new(layout: Layout) -> Self {
        let images = vec![Image::new(layout.device_bytes()); layout.devices];
        let scene = Self { layout, log_prepare_locked: false, has_lease: false, images };
        let devices = scene.devices();
        let writable: Vec<_> =
            devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
        layout.mkfs(&writable);
        Self { images: devices.iter().map(|device| device.image()).collect(), ..scene }
    }

    /// The same pool with quota groups.
    fn with_quotas(self) -> Self {
        let devices = self.devices();
        let writable: Vec<_> =
            devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
        let filesystem = Pool::on(writable, &self.layout).open().expect("a new pool");
        filesystem.pool().enable_quotas().expect("room");
        while filesystem.pool().quota_rescan_step().expect("counts").is_some() {}
        filesystem.shutdown().expect("closes");
        Self { images: devices.iter().map(|device| device.image()).collect(), ..self }
    }

    fn devices(&self) -> Vec<Arc<ImageDevice>> {
        let device = |(number, image): (usize, &Image)| {
            Arc::new(ImageDevice::new(format!("memory{number}"), image.clone(), self.layout.class(number)))
        };
        self.images.iter().enumerate().map(device).collect()
    }

    fn begin(&self) -> Run {
        let devices = self.devices().into_iter().map(|device| device as Arc<dyn WritableDevice>);
        let mut pool = Pool::on(devices.collect(), &self.layout);
        pool.write.tree_log = true;
        pool.write.log_prepare_locked = self.log_prepare_locked;
        if self.has_lease {
            pool.open.pool.volume.lease = Arc::<World>::default().machine(1);
        }
        pool.write.discard = true;
        pool.write.dirty_bytes_max = 128 << 10;
        Run { pool, ground: Ground::default() }
    }

    /// Counts of the ranks that the work takes.
    fn count(&self) -> Probe {
        let mut run = self.begin();
        let fs = run.pool.open().expect("a new pool");
        let probe = Probe::default();
        probe.watch(|| work(&fs, &mut run.ground)).expect("nothing is in its way");
        fs.verify();
        drop(fs);
        run.judge().unwrap_or_else(|why| panic!("without any panic: {why}"));
        probe
    }

    /// Goes through the work with a panic at one place, and says what is wrong afterwards.
    fn panic_at(&self, rank: Rank, moment: Moment, number: u64) -> Result<(), String> {
        let mut run = self.begin();
        let fs = run.pool.open().expect("a new pool");
        let probe = Probe::panicking_at(rank, moment, number);
        let ended = catch_unwind(AssertUnwindSafe(|| probe.watch(|| work(&fs, &mut run.ground))));
        if let Ok(ended) = ended {
            return Err(format!("the work went on: {ended:?}, has panicked: {}", probe.has_panicked()));
        }
        let superblocks = run.superblocks();
        let accepted = accepted(&fs);
        // A destructor may panic at a poisoned lock; it must not write.
        catch_unwind(AssertUnwindSafe(|| drop(fs))).ok();
        if run.superblocks() != superblocks {
            run.judge().map_err(|why| format!("published: {why}"))?;
            return Err(format!("a superblock was written after the panic; accepted: {accepted:?}"));
        }
        if !accepted.is_empty() {
            return Err(format!("accepted after the panic: {accepted:?}"));
        }
        run.judge()
    }
}

impl Run {
    fn superblocks(&self) -> Vec<Vec<u8>> {
        let read = |(device, (offset, length)): (&Arc<dyn WritableDevice>, (u64, usize))| {
            let mut bytes = vec![0; length];
            device.read_at(offset, &mut bytes).expect("in memory");
            bytes
        };
        let places = |device| SUPERBLOCKS.iter().map(move |place| (device, *place));
        self.pool.devices.iter().flat_map(places).map(read).collect()
    }

    /// The first thing that is wrong with what is on the devices.
    fn judge(&self) -> Result<(), String> {
        let options = CheckOptions { check_data_csum: true, threads: Some(1), ..CheckOptions::default() };
        // One superblock is enough to open it; the next commit writes all.
        findings(&self.pool.devices, &options, |pass, _: &Finding| pass != "superblocks")?;
        self.ground.compare(&self.pool)
    }
}

/// Changes, and requests to make them durable, that a filesystem accepts after a panic.
fn accepted(fs: &Filesystem) -> Vec<&'static str> {
    type Act<'f> = Box<dyn Fn() -> Result<(), FsError> + 'f>;
    let top = fs.root();
    let acts: [(&str, Act<'_>); 8] = [
        ("create", Box::new(|| fs.create(top, b"late", &plain()).map(|_| ()))),
        ("write", Box::new(|| fs.write(&fs.open_file(work::of(fs, "kept")?)?, 0, b"late").map(|_| ()))),
        ("fsync", Box::new(|| fs.sync_file(&fs.open_file(work::of(fs, "kept")?)?))),
        ("unlink", Box::new(|| fs.unlink(top, b"kept"))),
        ("snapshot", Box::new(|| fs.snapshot(top.tree, top, b"snap-late", false).map(|_| ()))),
        ("background", Box::new(|| fs.background_step().map(|_| ()))),
        ("commit", Box::new(|| fs.commit())),
        ("sync", Box::new(|| fs.sync())),
    ];
    let is_accepted = |act: &Act<'_>| matches!(catch_unwind(AssertUnwindSafe(act)), Ok(Ok(())));
    acts.iter().filter(|(_, act)| is_accepted(act)).map(|(name, _)| *name).collect()
}

/// Runs the work with panics at locks of these ranks, and shows all that is wrong afterwards.
fn panic_at_all(scene: &Scene, ranks: &[Rank]) {
    let places =
        std::env::var("BRINDLE_PANICS").ok().and_then(|places| places.parse().ok()).unwrap_or(PLACES);
    // The first run of a process makes memory for buffers, which later ones find.
    scene.count();
    let counts = scene.count();
    let mut wrong = Vec::new();
    for rank in ranks {
        for moment in [Moment::Taken, Moment::Released] {
            let count = counts.count(*rank, moment);
            if count == 0 {
                wrong.push(format!("{rank:?} is never {moment:?}"));
            }
            // Places all over the work, the last one included.
            let tried = count.min(places);
            for number in (1..=tried).map(|place| count * place / tried - 1) {
                if let Err(why) = scene.panic_at(*rank, moment, number) {
                    wrong.push(format!("{rank:?}, {moment:?}, {number} of {count}: {why}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} places:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_panic_at_a_lock_of_any_rank_leaves_the_last_commit() {
    let is_reached = |rank: &Rank| NOT_REACHED.iter().all(|(unreached, _)| unreached != rank);
    let reached: Vec<Rank> = Rank::ALL.iter().copied().filter(is_reached).collect();
    panic_at_all(&Scene::new(MIRRORS), &reached);
}

#[test]
fn a_panic_while_parity_is_written_leaves_the_last_commit() {
    let ranks = [Rank::ParityRow, Rank::Repair, Rank::Space, Rank::Superblock, Rank::LostWrites];
    let layout = Layout { data: Profile::Raid5, metadata: Profile::Raid5, fast: 0, ..MIRRORS };
    panic_at_all(&Scene::new(layout), &ranks);
}

#[test]
fn a_panic_while_entries_are_prepared_under_a_lock_leaves_the_last_commit() {
    let scene = Scene { log_prepare_locked: true, ..Scene::new(MIRRORS) };
    panic_at_all(&scene, &[Rank::LogPreparation, Rank::LogState]);
}

#[test]
fn a_panic_at_the_lock_of_quota_groups_leaves_the_last_commit() {
    panic_at_all(&Scene::new(MIRRORS).with_quotas(), &[Rank::Quotas]);
}

#[test]
fn a_panic_at_the_lock_of_a_lease_leaves_the_last_commit() {
    let scene = Scene { has_lease: true, ..Scene::new(MIRRORS) };
    panic_at_all(&scene, &[Rank::Lease]);
}

//! The facts: devices with their classes, and chunks.

use crate::commands::health::{self, AllHealth};
use crate::commands::pool::open_pool;
use crate::commands::refused::explain;
use anyhow::{Result, bail};
use brindle_admin::pool::tiers::{FileFacts, files_of_mount, files_of_pool};
use brindle_admin::pool::{BrindleMount, KernelMount};
use brindle_admin::tier::{
    ClassifiedDevice, Inventory, MountedDevice, classes_of_mount, classified, require_no_seed,
};
use brindle_admin::{Mounted, PoolFacts, Reach};
use brindle_fs::Filesystem;
use brindle_ondisk::{DevId, Uuid};
use brindle_policy::placement::PlacementClass;
use brindle_policy::tier::missing::absence;
use brindle_policy::tier::{ClassReason, TierDevice, TierPool};
use brindle_tree::Pool;
use clap::Args;
use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// Choice of fast and bulk devices.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct ClassOptions {
    /// This device is fast, whatever it looks like: its path or its id in the pool; may be repeated
    #[arg(long, value_name = "DEVICE", help_heading = "Classes")]
    fast: Vec<PathBuf>,
    /// This device is bulk, whatever it looks like
    #[arg(long, value_name = "DEVICE", help_heading = "Classes")]
    bulk: Vec<PathBuf>,
}

impl ClassOptions {
    /// Returns true if no device is named.
    pub(crate) fn is_empty(&self) -> bool {
        self.fast.is_empty() && self.bulk.is_empty()
    }
}

/// A pool, as it is found.
pub(crate) struct Facts {
    /// UUID of the pool.
    pub(crate) fsid: Uuid,
    /// Source of the facts.
    pub(crate) source: Source,
    /// Its devices.
    pub(crate) devices: Vec<ClassifiedDevice>,
    /// The same, as they are found.
    pub(crate) members: Vec<MountedDevice>,
    /// State of its devices.
    pub(crate) health: AllHealth,
    /// Input of the decisions.
    pub(crate) pool: TierPool,
}

/// Source of the facts.
pub(crate) enum Source {
    /// A mount, of the kernel or of ours.
    Mounted(Mounted),
    /// A pool that is not mounted.
    Open(UnmountedPool),
}

/// A pool that is not mounted.
pub(crate) enum UnmountedPool {
    /// Its trees alone, as the last commit has them.
    Trees(Box<Pool>),
    /// With its files, and with what its log says.
    Files(Box<Filesystem>),
}

impl Deref for UnmountedPool {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        match self {
            Self::Trees(pool) => pool,
            Self::Files(filesystem) => filesystem.pool(),
        }
    }
}

impl Facts {
    /// Looks at what is mounted at a path, or at an unmounted pool on devices.
    pub(crate) fn gather(paths: &[PathBuf], options: &ClassOptions) -> Result<Self> {
        match Reach::of(paths)? {
            Reach::Kernel(KernelMount(mounted)) | Reach::Brindle(BrindleMount(mounted)) => {
                Self::of_mounted(mounted, options)
            }
            Reach::Devices(devices) => Self::of_unmounted(&devices, options),
        }
    }

    /// Returns true if there are devices of both classes.
    pub(crate) fn has_both_classes(&self) -> bool {
        let has = |class| self.pool.count(class) > 0;
        has(PlacementClass::Fast) && has(PlacementClass::Bulk)
    }

    /// The label of the pool, which may be empty.
    pub(crate) fn label(&self) -> String {
        let label = match &self.source {
            Source::Mounted(mounted) => mounted.label().unwrap_or_default(),
            Source::Open(pool) => pool.superblock().label().to_vec(),
        };
        String::from_utf8_lossy(&label).into_owned()
    }

    /// The mount, if it is one of the kernel.
    pub(crate) fn kernel_mount(&self) -> Option<&Mounted> {
        match &self.source {
            Source::Mounted(mounted) if mounted.is_of_kernel() => Some(mounted),
            _ => None,
        }
    }

    /// The operands by which commands reach the pool.
    pub(crate) fn operands(&self) -> String {
        match &self.source {
            Source::Mounted(mounted) => mounted.path().display().to_string(),
            Source::Open(_) => {
                let paths = self.devices.iter().filter(|device| !device.path.as_os_str().is_empty());
                paths.map(|device| device.path.display().to_string()).collect::<Vec<_>>().join(" ")
            }
        }
    }

    /// Classes chosen by the user, by the names of devices.
    pub(crate) fn chosen_classes(&self) -> BTreeMap<String, PlacementClass> {
        let chosen = self.devices.iter().filter(|device| device.class.1 == ClassReason::Chosen);
        let there = chosen.filter(|device| !device.path.as_os_str().is_empty());
        there.map(|device| (device.path.display().to_string(), device.class.0)).collect()
    }

    /// Looks at a mounted pool.
    fn of_mounted(mounted: Mounted, options: &ClassOptions) -> Result<Self> {
        // What is used of a block group is told as of the last commit.
        mounted.sync()?;
        let inventory = mounted.inventory().map_err(explain)?;
        require_no_seed(&inventory)?;
        let served = classes_of_mount(&mounted)?;
        Self::classified(inventory, Source::Mounted(mounted), &served, options)
    }

    fn of_unmounted(paths: &[PathBuf], options: &ClassOptions) -> Result<Self> {
        Self::of_open(UnmountedPool::Trees(Box::new(open_pool(paths)?)), options)
    }

    /// Looks at an unmounted pool that is open.
    pub(crate) fn of_open(pool: UnmountedPool, options: &ClassOptions) -> Result<Self> {
        let inventory = PoolFacts::inventory(&*pool)?;
        Self::classified(inventory, Source::Open(pool), &HashMap::new(), options)
    }

    fn classified(
        inventory: Inventory,
        source: Source,
        served: &HashMap<DevId, PlacementClass>,
        options: &ClassOptions,
    ) -> Result<Self> {
        let fsid = inventory.fsid;
        let chosen = chosen_classes(&inventory.devices, options)?;
        let is_of_kernel = matches!(&source, Source::Mounted(mounted) if mounted.is_of_kernel());
        if let Err(problem) = &inventory.classes {
            tracing::warn!("the classes of devices that the pool stores count for nothing: {problem}");
        }
        let members = inventory.devices.clone();
        let (devices, pool) = classified(inventory, is_of_kernel, &chosen, served);
        let health = match &source {
            Source::Mounted(mounted) => health::of_mounted(mounted).map_err(explain)?,
            Source::Open(pool) => health::of_pool(pool)?,
        };
        Ok(Self { fsid, source, devices, members, health, pool })
    }

    /// Files up to this size have their data on fast devices; 0 on a mount of the kernel, which does not look at sizes.
    pub(crate) fn small_file_bytes(&self) -> Result<u64> {
        Ok(match &self.source {
            Source::Mounted(mounted) if mounted.is_of_kernel() => 0,
            Source::Mounted(mounted) => mounted.space()?.small_file_bytes,
            Source::Open(pool) => pool.settings()?.small_file_bytes,
        })
    }

    /// Looks at all files; `None` if it makes no difference.
    pub(crate) fn files(&self) -> Result<Option<FileFacts>> {
        Ok(match &self.source {
            Source::Mounted(mounted) => files_of_mount(mounted, &self.pool)?,
            Source::Open(pool) => files_of_pool(pool, &self.pool)?,
        })
    }

    /// The pool of a later inventory, with the same classes; what has come since is bulk.
    pub(crate) fn pool_of(&self, inventory: &Inventory) -> TierPool {
        let device = |device: &MountedDevice| TierDevice {
            devid: device.devid,
            class: self.pool.class(device.devid),
            rank: self.pool.rank(device.devid),
            total_bytes: device.total_bytes,
        };
        let there = inventory.devices.iter().filter(|device| !device.is_missing);
        let pool = TierPool {
            devices: there.map(device).collect(),
            members: self.pool.members.clone(),
            chunks: inventory.chunks.clone(),
            classes: self.pool.classes.clone(),
            is_ours: self.pool.is_ours,
            is_by_side: false,
        };
        pool.settled()
    }

    /// The missing devices in words, and the changes once they are back.
    pub(crate) fn absence(&self) -> Option<String> {
        let absence = absence(&self.pool)?;
        let is_unknown = |device: &&ClassifiedDevice| {
            device.path.as_os_str().is_empty() && device.class.1 == ClassReason::Unknown
        };
        let Some(device) = self.devices.iter().find(is_unknown) else { return Some(absence.to_string()) };
        let (devid, (fast, bulk)) = (device.devid, absence.there);
        Some(format!(
            "device {devid} is missing, and counts for nothing: {fast} fast and {bulk} bulk devices are there. Its return changes \
             things by its class, which the pool does not store: --fast {devid} or --bulk {devid} tells it"
        ))
    }

    /// Ids of the missing devices.
    pub(crate) fn missing_devids(&self) -> Vec<u64> {
        let missing = self.members.iter().filter(|device| device.is_missing);
        missing.map(|device| device.devid.get()).collect()
    }

    /// Class of a device in words: its rank and name where the owner has listed classes, else its side.
    pub(crate) fn shown_class(&self, device: &ClassifiedDevice) -> String {
        match self.pool.classes.is_empty() {
            true => device.class.0.to_string(),
            false => format!("{} {}", device.rank, device.class_name),
        }
    }
}

/// Classes chosen by the user.
fn chosen_classes(
    devices: &[MountedDevice],
    options: &ClassOptions,
) -> Result<HashMap<DevId, PlacementClass>> {
    let mut chosen = HashMap::new();
    let fast = options.fast.iter().map(|name| (name, PlacementClass::Fast));
    let bulk = options.bulk.iter().map(|name| (name, PlacementClass::Bulk));
    for (name, class) in fast.chain(bulk) {
        let device = find_device(devices, name)?;
        if chosen.insert(device.devid, class).is_some_and(|other| other != class) {
            bail!("{}: said to be both fast and bulk", name.display());
        }
    }
    Ok(chosen)
}

/// The device of a pool that is named by its path or its id.
pub(super) fn find_device<'d>(devices: &'d [MountedDevice], name: &Path) -> Result<&'d MountedDevice> {
    match devices.iter().find(|device| is_named(device, name)) {
        Some(device) => Ok(device),
        None => bail!("{}: no device of the pool", name.display()),
    }
}

fn is_named(device: &MountedDevice, name: &Path) -> bool {
    let number = name.to_str().and_then(|name| name.parse().ok());
    let is_path = || match (device.path.canonicalize(), name.canonicalize()) {
        (Ok(device), Ok(name)) => device == name,
        _ => false,
    };
    number == Some(device.devid.get()) || (!device.is_missing && is_path())
}

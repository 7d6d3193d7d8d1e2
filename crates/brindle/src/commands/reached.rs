//! A pool to look into, by the operands of a command: a mount of the kernel, one of brindle, or devices.

use crate::commands::pool::{PoolOptions, open_pool};
use crate::commands::refused::explain_admin;
use anyhow::Result;
use brindle_admin::subvolumes::{SubvolumeFacts, subvolumes};
use brindle_admin::trees::Trees;
use brindle_admin::{Mounted, Reach};
use brindle_fs::Filesystem;
use std::path::{Path, PathBuf};

/// A pool to look into.
pub(crate) enum Reached {
    /// A path of a mount.
    Mounted(Mounted),
    /// Devices that are not mounted.
    Open(Box<dyn Trees>),
    /// The same, entered by a subvolume.
    Entered(Box<Filesystem>),
}

impl Reached {
    /// The pool of any path of a mount, or of devices.
    pub(crate) fn of(places: &[PathBuf]) -> Result<Self> {
        match mount_of(places)? {
            Some(mounted) => Ok(Self::Mounted(mounted)),
            None => Ok(Self::Open(Box::new(open_pool(places)?))),
        }
    }

    /// The same; devices are entered by these options.
    pub(crate) fn enter(places: &[PathBuf], options: &PoolOptions) -> Result<Self> {
        match mount_of(places)? {
            Some(mounted) => Ok(Self::Mounted(mounted)),
            None => Ok(Self::Entered(Box::new(options.open(places)?))),
        }
    }

    /// Its trees.
    pub(crate) fn trees(&self) -> &dyn Trees {
        match self {
            Self::Mounted(mounted) => mounted,
            Self::Open(trees) => &**trees,
            Self::Entered(filesystem) => filesystem.pool(),
        }
    }

    /// The mount.
    pub(crate) fn mounted(&self) -> Option<&Mounted> {
        match self {
            Self::Mounted(mounted) => Some(mounted),
            Self::Open(_) | Self::Entered(_) => None,
        }
    }

    /// Its subvolumes, and the id of the default one.
    pub(crate) fn subvolumes(&self) -> Result<(Vec<SubvolumeFacts>, u64)> {
        subvolumes(self.trees()).map_err(explain_admin)
    }

    /// The subvolume that the operand lies in; of devices the one that is entered.
    pub(crate) fn subvolume(&self) -> Result<u64> {
        Ok(match self {
            Self::Mounted(mounted) => mounted.subvolume()?.id,
            Self::Open(_) => brindle_fs::RootId::FS_TREE.get(),
            Self::Entered(filesystem) => filesystem.root().tree.get(),
        })
    }
}

/// The mount that a single operand lies on. A file of a mount is taken for itself, not for an image, if it is no device.
fn mount_of(places: &[PathBuf]) -> Result<Option<Mounted>> {
    if let [place] = places {
        if place.is_dir() || is_plain_file(place) {
            if let Ok(mounted) = Mounted::open(place) {
                return Ok(Some(mounted));
            }
        }
    }
    Ok(match Reach::of(places)? {
        Reach::Devices(_) => None,
        reach => reach.into_mounted(),
    })
}

/// Returns true for a file that holds no pool: an image on a btrfs is one all the same.
fn is_plain_file(path: &Path) -> bool {
    path.is_file() && !matches!(brindle_admin::pool::DeviceIdentity::read(path), Ok(Some(_)))
}

//! `brindle property list`: the properties that an object can have.

use super::{EXAMPLES, Property, is_mount_point, is_place_of_mount};
use crate::options::JsonOption;
use crate::output;
use anyhow::{Context, Result};
use brindle_admin::Mounted;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

/// Types of objects that have properties, as btrfs has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ObjectType {
    #[value(alias = "i")]
    Inode,
    #[value(alias = "s")]
    Subvol,
    #[value(alias = "f")]
    Filesystem,
    #[value(alias = "d")]
    Device,
}

/// List the properties that an object can have
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ListCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Only those of this type
    #[arg(short = 't', value_enum, value_name = "TYPE")]
    object_type: Option<ObjectType>,
    /// File, directory, device or mount point
    path: PathBuf,
}

impl Property {
    /// Types of objects that have it.
    fn types(self) -> &'static [ObjectType] {
        match self {
            Self::Ro => &[ObjectType::Subvol],
            Self::Compression | Self::Tier => &[ObjectType::Inode],
            Self::SmallFiles => &[ObjectType::Inode, ObjectType::Filesystem],
            Self::AllocationHint => &[ObjectType::Device, ObjectType::Filesystem],
            _ => &[ObjectType::Filesystem],
        }
    }

    /// A few words about it.
    fn about(self) -> &'static str {
        match self {
            Self::Ro => "read-only status of a subvolume",
            Self::Compression => "compression algorithm for the file or directory",
            Self::Label => "label of the filesystem",
            Self::Tier => "class of devices for the data of a file, or of new files of a directory",
            Self::Placement => "weight of the class of a device",
            Self::SmallFiles => "length up to which data of files lies on fast devices",
            Self::WriteBack => "data that lies on fast devices first",
            Self::WriteBackProfile => "profile of data that waits on fast devices",
            Self::LogProfile => "copies of the log",
            Self::AllocationHint => "use of a device",
            Self::MountOptions => "options of the mount that are not the default",
            Self::MetadataDefrag => "defragmentation of metadata while the mount is idle",
            Self::Autodefrag => "torn files are laid together again by the mount",
            Self::AutodefragStatistics => "work of autodefrag since the pool was mounted",
            Self::ReadPolicy => "choice of one of several mirrors",
            Self::ReadStatistics => "counts of reads under every policy",
            Self::ReadHostStatistics => "regard for the requests of other programs",
            Self::RoundrobinMixedOnly => "penalties only where a pool has disks and flash",
            Self::RoundrobinRotating => "penalty of a disk that would have to seek",
            Self::RoundrobinNonRotating => "penalty of flash that would have to seek",
        }
    }
}

/// Lists what an object can have.
pub(super) fn list(command: &ListCommand) -> Result<()> {
    let ListCommand { json, object_type, path } = command;
    let metadata = path.metadata().with_context(|| path.display().to_string())?;
    let is_device = metadata.file_type().is_block_device();
    let mounted = Mounted::open(path).ok().filter(|_| !is_device);
    let has = |kind: ObjectType| match (kind, &mounted) {
        (ObjectType::Device, mounted) => mounted.is_none(),
        (_, None) => false,
        (ObjectType::Inode, _) => true,
        (ObjectType::Subvol, Some(mounted)) => mounted.is_subvolume_root(),
        (ObjectType::Filesystem, _) => is_mount_point(path),
    };
    let is_served = mounted.as_ref().is_some_and(|mounted| !mounted.is_of_kernel());
    let is_meant = |property: &&Property| {
        let is_known = is_served
            || mounted.is_none()
            || matches!(property, Property::Ro | Property::Compression | Property::Label | Property::Tier)
            || (matches!(property, Property::SmallFiles) && !is_place_of_mount(path));
        let has_type = |kind: &&ObjectType| object_type.is_none_or(|wanted| wanted == **kind) && has(**kind);
        is_known && property.types().iter().any(|kind| has_type(&kind))
    };
    let properties = Property::value_variants().iter().filter(is_meant);
    if json.json {
        let of = |property: &Property| json!({ "name": property.name(), "about": property.about() });
        return output::print_json(&json!({ "properties": properties.map(of).collect::<Vec<_>>() }));
    }
    let mut out = output::stdout();
    for property in properties {
        writeln!(out, "{:<20}{}", property.name(), property.about())?;
    }
    Ok(out.flush()?)
}

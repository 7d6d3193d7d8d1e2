//! `brindle property`: what files, directories and subvolumes of a mounted pool can be told to be.

mod list;
mod marks;

use self::list::{ListCommand, ObjectType, list};
use self::marks::{SMALL_FILES, TIER, set_small_files, set_tier};
use crate::commands::device_property;
use crate::commands::filesystem::{mode_name, set_label};
use crate::commands::mkfs::parse_profile;
use crate::commands::mount_options::parse_small_files;
use crate::commands::path::{name_json, shown_name};
use crate::commands::tier::log;
use crate::commands::tier_warning;
use crate::commands::usage::{OrWrongUsage, wrong_usage};
use crate::options::JsonOption;
use crate::output;
use anyhow::{Context, Result, bail};
use brindle_admin::{ControlError, Mounted};
use brindle_policy::writeback::WriteBackMode;
use brindle_uapi::mount_table;
use clap::{Args, Subcommand, ValueEnum};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle property set /mnt/snapshot ro false
    brindle property set /mnt/logs compression zstd
    brindle property get /mnt/logs compression
    brindle property get /mnt
    brindle property set /mnt/database tier fast
    brindle property set /mnt small_files 64K
    brindle property set /mnt/mail small_files 1M
    brindle property get /mnt allocation_hint
    brindle property set --devid 2 /mnt allocation_hint METADATA_ONLY
    brindle property set -o device=/dev/sdc /dev/sdb allocation_hint \\
        METADATA_PREFERRED
    brindle property set --devid 2 -o degraded /dev/sdb allocation_hint \\
        NO_NEW_CHUNKS
    brindle property set /mnt read_policy round-robin:1M
    brindle property get /mnt read_policy
    brindle property get /mnt mount_options
    brindle property get /mnt autodefrag_statistics
    brindle property set /mnt writeback all
    brindle property set /mnt writeback_profile single
    brindle property set /mnt log_profile single

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

/// Show and change properties of files, directories and subvolumes of a mounted pool
#[derive(Subcommand, Debug)]
pub(crate) enum PropertyCommand {
    Get(GetCommand),
    Set(SetCommand),
    List(ListCommand),
}

/// Show a property, or all
///
/// Without a name all properties of PATH are shown: `ro` of a subvolume, `compression` and `tier` where they are set, all of a
/// mount of brindle by its mount point, the `allocation_hint` of a device.
///
/// `ro`: true for a read-only subvolume. `compression`: algorithm for a file, or for new files of a directory.
/// `tier`: class of devices for the data of a file, or of new files of a directory. `small_files`: length up to which
/// data of files lies on fast devices. `writeback` and `writeback_profile`: data that lies on fast devices first. `log_profile`: copies of the log.
/// `placement`: whether new chunks go by the classes of devices. `allocation_hint`: contents that a device is
/// for; of a device, or of all devices of a mount. Of a mount: `read_policy`, all policies, the one that chooses
/// mirrors in brackets; `mount_options`, those that are not the default; `metadata_defrag`, as it was mounted; `autodefrag`, and
/// `autodefrag_statistics`, the work of it since the pool was mounted; `read_statistics`; `read_host_stats`; and the numbers of the policy roundrobin. These have the
/// names of the files that the kernel and its patches have in sysfs, and answer to `read_policies/policy` and
/// `read_policies/roundrobin_...` as well.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct GetCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Type of the object, accepted as in btrfs: the property tells it already
    #[arg(short = 't', value_enum, value_name = "TYPE", hide = true)]
    _object_type: Option<ObjectType>,
    /// File, directory, device or mount point
    path: PathBuf,
    /// The property; all if none is named
    property: Option<Property>,
    /// Property of this device of the pool, with `allocation_hint`
    #[arg(long, value_name = "ID")]
    devid: Option<u64>,
    /// Comma-separated: device=PATH (another device of an unmounted pool, with --devid)
    #[arg(short, long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
}

/// Change a property
///
/// `ro` of a subvolume is true or false; false of one that was received takes -f. `compression` of a file or directory is zlib, lzo, zstd, or none; it counts for
/// later writes, and for new files of the directory.
///
/// `tier` of a file or directory is fast, bulk, the name of a class (see brindle tier class), or empty for none. It counts for later writes, to the
/// file or to new files of the directory; data that full fast devices have no room for goes to the others.
/// `small_files` of a mount is a length in bytes, K, M and so on behind it are allowed: files up to that, compressed, have their
/// data on fast devices; 0 for none. Of a file, or for new files and directories below a directory or subvolume, it counts
/// instead of that of the mount; empty for that again. Data written before is moved by `brindle tier apply`. Both are stored in any
/// pool, and count where it has devices of two classes, enough of them for the profile of the data, or fast ones for some of its copies; a
/// warning says if that is not so. `placement` of a
/// mount is ssd_metadata, ssd_metadata=strict or no_ssd_metadata, as the mount options are; it counts for chunks made
/// from then on, until the pool is unmounted.
///
/// `writeback` of a mount is sync, all or off: data that lies on flash first, and is moved to the hard disks later
/// (see brindle mount --help). `writeback_profile` is the profile that data has while it waits there: data for that
/// of other data, or one such as single, which few fast devices are enough for: if such a device is lost, so is what
/// waits on it. Both are stored in the pool, and count at once.
///
/// `log_profile` of a mount is the number of copies of the log, which fsyncs write between two commits: metadata for as many
/// as other metadata has, or single, raid1 or raid1c3, for which few fast devices are enough: with single, what was fsynced
/// since the last commit is lost if that device is, and nothing else. It is stored in the pool, and counts after the
/// third commit of a mount.
///
/// `allocation_hint` of a device is DATA_PREFERRED, METADATA_PREFERRED, METADATA_ONLY, DATA_ONLY or NO_NEW_CHUNKS. It is
/// stored in the pool, where stock kernels ignore it, and counts for chunks made from then on. The pool is not mounted,
/// and -o names its other devices; or brindle has it mounted, and either the device or the mount point is named. With
/// --devid another device of the pool is meant, which may be missing (-o degraded): it goes by its hint when it is back.
/// Of a mount, until it ends: `autodefrag`, true or false, as the mount option; `read_policy`, the choice of one of several mirrors (pid, round-robin[:BYTES],
/// devid[:ID], roundrobin, latency, queue, auto; see brindle mount --help); `read_statistics`, 1 to count reads for
/// brindle device reads under every policy; `read_host_stats`, 1 if the policies roundrobin, queue and auto are to regard
/// the requests of other programs to the same disk, as the host counts them (block devices only; 0 unless set);
/// `roundrobin_rot_nonlocal_inc` and `roundrobin_nonrot_nonlocal_inc`, the
/// penalties of the policy roundrobin for a disk or for flash that would have to seek, and
/// `roundrobin_nonlocal_inc_mixed_only`, 1 if only where a pool has both.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct SetCommand {
    /// Type of the object, accepted as in btrfs: the property tells it already
    #[arg(short = 't', value_enum, value_name = "TYPE", hide = true)]
    _object_type: Option<ObjectType>,
    /// File, directory, device or mount point
    path: PathBuf,
    /// The property
    property: Property,
    /// New value
    value: String,
    /// Make a subvolume writable although it was received: further streams can't build on it then
    #[arg(short, long)]
    force: bool,
    /// Property of this device of the pool, with `allocation_hint`
    #[arg(long, value_name = "ID")]
    devid: Option<u64>,
    /// Comma-separated: device=PATH (another device of an unmounted pool), degraded
    #[arg(short, long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Property {
    Ro,
    Compression,
    Label,
    Tier,
    Placement,
    #[value(name = "small_files")]
    SmallFiles,
    #[value(name = "writeback")]
    WriteBack,
    #[value(name = "writeback_profile")]
    WriteBackProfile,
    #[value(name = "log_profile")]
    LogProfile,
    #[value(name = "allocation_hint")]
    AllocationHint,
    #[value(name = "mount_options")]
    MountOptions,
    #[value(name = "metadata_defrag")]
    MetadataDefrag,
    #[value(name = "autodefrag")]
    Autodefrag,
    #[value(name = "autodefrag_statistics")]
    AutodefragStatistics,
    #[value(name = "read_policy", alias = "read_policies/policy")]
    ReadPolicy,
    #[value(name = "read_statistics")]
    ReadStatistics,
    #[value(name = "read_host_stats")]
    ReadHostStatistics,
    #[value(
        name = "roundrobin_nonlocal_inc_mixed_only",
        alias = "read_policies/roundrobin_nonlocal_inc_mixed_only"
    )]
    RoundrobinMixedOnly,
    #[value(name = "roundrobin_rot_nonlocal_inc", alias = "read_policies/roundrobin_rot_nonlocal_inc")]
    RoundrobinRotating,
    #[value(name = "roundrobin_nonrot_nonlocal_inc", alias = "read_policies/roundrobin_nonrot_nonlocal_inc")]
    RoundrobinNonRotating,
}

impl Property {
    fn name(self) -> String {
        let value = self.to_possible_value().expect("no property is hidden");
        value.get_name().to_owned()
    }

    /// Returns true if it belongs to a mount and to nothing else.
    fn is_of_mount(self) -> bool {
        !matches!(
            self,
            Self::Ro | Self::Compression | Self::Label | Self::Tier | Self::SmallFiles | Self::AllocationHint
        )
    }

    /// Returns true if a path, which may be the mount point of a mount of brindle, has the property.
    fn is_of(self, mounted: &Mounted, is_served: bool) -> bool {
        match self {
            Self::Ro => mounted.is_read_only().is_ok(),
            Self::Compression | Self::Tier => true,
            Self::SmallFiles if !is_place_of_mount(mounted.path()) => true,
            // As in btrfs, of the whole pool, and asked for by its name alone where many properties are shown.
            Self::Label => false,
            // A mount that is not written does not know them.
            Self::AllocationHint | Self::SmallFiles | Self::Placement => is_served && mounted.space().is_ok(),
            Self::WriteBack | Self::WriteBackProfile => is_served && mounted.write_back().is_ok(),
            Self::LogProfile => is_served && mounted.log_profile().is_ok(),
            Self::MountOptions | Self::Autodefrag | Self::AutodefragStatistics => {
                is_served && mounted.setting(&self.name()).is_ok()
            }
            _ => is_served,
        }
    }
}

/// Value of `writeback_profile` where none is chosen.
const AS_DATA: &str = "data";
/// Extended attribute of the property.
const COMPRESSION: &str = "btrfs.compression";

/// Runs one of the commands.
pub(crate) fn run(command: &PropertyCommand) -> Result<ExitCode> {
    match command {
        PropertyCommand::Get(command) => get(command)?,
        PropertyCommand::Set(command) => set(command)?,
        PropertyCommand::List(command) => list(command)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn get(command: &GetCommand) -> Result<()> {
    let path = &command.path;
    let properties: Vec<Property> = match (command.property, Mounted::open(path)) {
        (Some(property), _) => vec![property],
        (None, Ok(mounted)) => {
            let is_served = !mounted.is_of_kernel() && is_mount_point(path);
            let all = Property::value_variants().iter().copied();
            all.filter(|property| property.is_of(&mounted, is_served)).collect()
        }
        (None, Err(_)) => vec![Property::AllocationHint],
    };
    if command.json.json {
        return output::print_json(&as_json(command, &properties)?);
    }
    let mut out = output::stdout();
    for property in properties {
        print(property, command, &mut out)?;
    }
    Ok(out.flush()?)
}

/// Properties with their values, texts as `property set` takes them; a property that is not set is left out. Hints are those of devices.
fn as_json(command: &GetCommand, properties: &[Property]) -> Result<Value> {
    let (mut values, mut devices) = (Map::new(), Vec::new());
    for property in properties {
        if let Property::AllocationHint = property {
            devices = device_property::get(&command.path, command.devid, &command.options)?;
            continue;
        }
        let (mut line, name) = (Vec::new(), property.name());
        print(*property, command, &mut line)?;
        if let Some(value) = line.strip_prefix(format!("{name}=").as_bytes()) {
            values.insert(name, name_json(value.strip_suffix(b"\n").unwrap_or(value)));
        }
    }
    let devices: Vec<Value> = devices.iter().map(device_property::Hinted::as_json).collect();
    Ok(
        json!({ "path": name_json(command.path.as_os_str().as_bytes()), "properties": values, "devices": devices }),
    )
}

fn is_mount_point(path: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|metadata| metadata.dev()).ok();
    path.is_dir() && device(path) != device(&path.join(".."))
}

/// Returns true unless a path lies below the mount point: the root of a subvolume is a mount point by its looks.
fn is_place_of_mount(path: &Path) -> bool {
    let (Ok(mounts), Ok(canonical)) = (mount_table::read(), path.canonicalize()) else {
        return is_mount_point(path);
    };
    mount_table::holding(&mounts, &canonical).is_none_or(|mount| mount.mountpoint == canonical)
}

fn print(property: Property, command: &GetCommand, out: &mut impl Write) -> Result<()> {
    let GetCommand { path, devid, options, .. } = command;
    match property {
        Property::AllocationHint => {
            for device in device_property::get(path, *devid, options)? {
                device.print(out)?;
            }
        }
        Property::SmallFiles if !is_place_of_mount(path) => {
            print_attribute(out, path, "small_files", SMALL_FILES)?;
        }
        Property::SmallFiles => {
            writeln!(out, "small_files={}", Mounted::open(path)?.space()?.small_file_bytes)?;
        }
        Property::WriteBack => {
            let mode = Mounted::open(path)?.write_back()?.mode;
            writeln!(out, "writeback={mode}")?;
        }
        Property::WriteBackProfile => {
            let profile = Mounted::open(path)?.write_back()?.stored_profile;
            let name = profile.map_or_else(|| AS_DATA.to_owned(), |profile| profile.to_string());
            writeln!(out, "writeback_profile={name}")?;
        }
        Property::LogProfile => writeln!(out, "log_profile={}", Mounted::open(path)?.log_profile()?)?,
        Property::Placement => {
            let mode = Mounted::open(path)?.space()?.placement;
            writeln!(out, "placement={}", mode_name(mode))?;
        }
        Property::Label => {
            write!(out, "label=")?;
            out.write_all(&shown_name(&Mounted::open(path)?.label()?))?;
            writeln!(out)?;
        }
        Property::Tier => print_attribute(out, path, "tier", TIER)?,
        Property::Ro => writeln!(out, "ro={}", Mounted::open(path)?.is_read_only()?)?,
        Property::Compression => print_attribute(out, path, "compression", COMPRESSION)?,
        of_reading => {
            let name = of_reading.name();
            writeln!(out, "{name}={}", Mounted::open(path)?.setting(&name)?)?;
        }
    }
    Ok(())
}

fn print_attribute(out: &mut impl Write, path: &Path, what: &str, attribute: &str) -> Result<()> {
    let mut value = [0; 64];
    match rustix::fs::getxattr(path, attribute, &mut value[..]) {
        Ok(length) => {
            write!(out, "{what}=")?;
            out.write_all(&shown_name(&value[..length]))?;
            writeln!(out)?;
            Ok(())
        }
        Err(Errno::NODATA) => Ok(()),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// Refuses a path below the mount point for what would change the whole mount.
fn require_mount_point(property: Property, path: &Path) -> Result<()> {
    let mounts = mount_table::read().context("cannot read the mount table")?;
    let canonical = path.canonicalize().with_context(|| path.display().to_string())?;
    match mount_table::holding(&mounts, &canonical) {
        Some(mount) if mount.mountpoint != canonical => {
            let (name, place) = (property.name(), mount.mountpoint.display());
            wrong_usage(format!("{}: {name} is a property of the whole mount, {place}", path.display()))
        }
        _ => Ok(()),
    }
}

fn set(SetCommand { path, property, value, force, devid, options, .. }: &SetCommand) -> Result<()> {
    if property.is_of_mount() {
        require_mount_point(*property, path)?;
    }
    match (property, value.as_str()) {
        (Property::AllocationHint, _) => device_property::set(path, *devid, options, value)?,
        (Property::SmallFiles, _) if !is_place_of_mount(path) => set_small_files(path, value)?,
        (Property::SmallFiles, _) => {
            let (mounted, bytes) = (Mounted::open(path)?, parse_small_files(value).or_wrong_usage()?);
            mounted.set_small_files(bytes)?;
            if bytes > 0 {
                tier_warning::of_mount(&mounted, "small_files");
            }
        }
        (Property::WriteBack, _) => {
            let mode = value.parse::<WriteBackMode>().or_wrong_usage()?;
            let mounted = Mounted::open(path)?;
            mounted.set_write_back_mode(mode)?;
            warn_of_obstacle(&mounted)?;
        }
        (Property::WriteBackProfile, _) => {
            let mounted = Mounted::open(path)?;
            let profile = match value.as_str() {
                AS_DATA => None,
                word => {
                    Some(parse_profile(word).context(format!("writeback_profile {word}")).or_wrong_usage()?)
                }
            };
            mounted.set_write_back_profile(profile)?;
            warn_of_obstacle(&mounted)?;
        }
        (Property::LogProfile, _) => {
            let profile = value.parse().or_wrong_usage()?;
            Mounted::open(path)?.set_log_profile(profile)?;
            log::warn_of_mount(path, profile);
        }
        (Property::Tier, mark) => set_tier(path, mark)?,
        (Property::Placement, _) => {
            Mounted::open(path)?.set_placement(parse_placement(value).or_wrong_usage()?)?;
        }
        (Property::Ro, "true" | "false") => set_read_only(path, value == "true", *force)?,
        (Property::Label, label) => set_label(&Mounted::open(path)?, label.as_bytes())?,
        (Property::MountOptions, _) => {
            return wrong_usage(
                "a mount chooses its options; `mount -o remount` changes some of them".to_owned(),
            );
        }
        (Property::Ro, _) => return wrong_usage(format!("'{value}': ro is true or false")),
        (Property::Compression, _) => {
            let value = if value.is_empty() { "none" } else { value.as_str() };
            match rustix::fs::setxattr(path, COMPRESSION, value.as_bytes(), XattrFlags::empty()) {
                Err(Errno::INVAL) => {
                    return wrong_usage(format!("'{value}': compression is zlib, lzo, zstd or none"));
                }
                done => done.with_context(|| format!("{}: compression {value}", path.display()))?,
            }
        }
        (of_reading, value) => {
            let name = of_reading.name();
            set_setting(&Mounted::open(path)?, &name, value)?;
        }
    }
    Ok(())
}

fn parse_placement(value: &str) -> Result<u64> {
    let words =
        || format!("'{value}': placement is {}", (0..3).map(mode_name).collect::<Vec<_>>().join(", "));
    (0..3).find(|mode| mode_name(*mode) == value).with_context(words)
}

/// Makes a subvolume read-only or writable; one that was received only if it is forced.
fn set_read_only(path: &Path, is_read_only: bool, is_forced: bool) -> Result<()> {
    let mounted = Mounted::open(path)?;
    if !mounted.is_subvolume_root() {
        bail!("{}: ro is a property of subvolumes, and this is none", path.display());
    }
    if !is_read_only && !is_forced && mounted.is_read_only()? && mounted.is_received()? {
        bail!(
            "{}: received from a stream: once it is writable, no further stream builds on it. `brindle subvolume snapshot` \
             makes a copy that can be written; -f makes it writable itself",
            path.display()
        );
    }
    match mounted.set_read_only(is_read_only) {
        Err(ControlError::Refused { source: Errno::BUSY, .. }) => {
            bail!("{}: in use: it is being sent, or what is being received builds on it", path.display())
        }
        done => Ok(done?),
    }
}

/// Changes a setting of a mount, and tells what it may be where it is refused.
fn set_setting(mounted: &Mounted, name: &str, value: &str) -> Result<()> {
    match mounted.set_setting(name, value) {
        Err(ControlError::Refused { source: Errno::INVAL, .. }) => {
            let now = mounted.setting(name).unwrap_or_default();
            wrong_usage(match name {
                // All policies, with the one of now in brackets.
                "read_policy" => format!("'{value}': {name} is one of {now}"),
                _ => format!("'{value}': no value of {name}, which is {now} now"),
            })
        }
        done => done.with_context(|| format!("{name} {value}")),
    }
}

/// Tells why no data goes to the write-back tier, if it is meant to, and what the loss of a device would cost.
fn warn_of_obstacle(mounted: &Mounted) -> Result<()> {
    let tier = mounted.write_back()?;
    let is_on = tier.mode != WriteBackMode::Off;
    if let Some(obstacle) = tier.obstacle.filter(|_| is_on) {
        tracing::warn!("no data goes to the write-back tier: {obstacle}");
    } else if is_on && tier.stored_profile.is_some_and(|profile| profile.attributes().tolerated_failures == 0)
    {
        tracing::warn!(
            "data that waits on fast devices is {}: it is lost if its device is, until it has been moved",
            tier.profile
        );
    }
    Ok(())
}

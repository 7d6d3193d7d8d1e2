//! `brindle mkfs`: makes a pool.

mod rootdir;

use crate::commands::device_word::{SaidClass, split_said};
use crate::commands::quantity::parse_size;
use crate::commands::stop::Stop;
use crate::commands::tier_warning;
use crate::commands::usage::{OrWrongUsage, as_wrong_usage, wrong_usage};
use crate::format::UnitMode;
use crate::options::JsonOption;
use crate::output;
use anyhow::{Context, Result, anyhow, bail};
use brindle_cache::{is_no_path, open_device_to_write};
use brindle_care::mkfs::{
    FEATURES, Features, MkfsError, MkfsOptions, MkfsReport, NewBlockGroup, NewDevice, PlacementClass, mkfs,
};
use brindle_device::{FileDevice, WritableDevice};
use brindle_fs::{Filesystem, OpenOptions, WriteOptions};
use brindle_ondisk::{ChecksumType, Profile, Uuid};
use brindle_policy::class::DeviceClasses;
use brindle_policy::tier::Content;
use brindle_volume::{LeaseOptions, check_leases};
use clap::Args;
use rootdir::{Filling, RootdirOptions};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

const EXAMPLES: &str = "\
DEVICES
  The class of a device is fast (flash) or bulk (spindles), as in
  /dev/nvme0n1:fast; without such a word a device is fast if the host says that
  it does not rotate. Fast devices get the lowest devids; metadata goes to them
  if they are enough for its profile, data to the others. Classes that were
  given are stored in the pool, where stock kernels ignore them
  (METADATA_PREFERRED in the type of the device). With --small-files, data of
  small files lies on the fast devices as well; this is what `brindle property
  set MOUNTPOINT small_files` sets later. More than two classes are listed by
  --fast and --bulk, and given to devices by name: /dev/sdc:smr. Then metadata
  goes to the fastest class, and files that --rootdir finds marked to theirs;
  this is what `brindle tier class set` sets later.

PROFILES
  single, dup, raid0, raid1, raid1c3, raid1c4, raid10, raid5, raid6

EXAMPLES
  A pool in an image file, made for it:
    brindle mkfs --size 10G pool.img

  Metadata on two SSDs, data on two hard disks, each mirrored:
    brindle mkfs -m raid1 -d raid1 /dev/sda:fast /dev/sdb:fast /dev/sdc:bulk \\
        /dev/sdd:bulk

  The same, filled with a directory, with its files up to 64 KiB on the SSDs,
  too:
    brindle mkfs --rootdir tree --small-files 64K /dev/sda:fast /dev/sdb:fast \\
        /dev/sdc:bulk /dev/sdd:bulk

  Four classes of devices:
    brindle mkfs --fast nvme,ssd --bulk disk,smr /dev/nvme0n1:nvme \\
        /dev/sda:ssd /dev/sdb:disk /dev/sdc:smr

  An image of a directory, as small as can be, with a subvolume:
    brindle mkfs --rootdir tree --subvol home --compress zstd --shrink pool.img

  For a kernel or btrfs-progs from before 6.1:
    brindle mkfs -O ^block-group-tree /dev/sdb

  The same bytes each time:
    SOURCE_DATE_EPOCH=0 brindle mkfs -U 5e7fb3a1-64ab-4f0c-9b5e-5d1e2b0c3a4f \\
        --size 1G pool.img

EXIT STATUS
  0  the pool is made
  1  it is not; unless a device failed, nothing was written. With --rootdir, the
     devices hold no filesystem when it stops half way, for whatever reason
  2  wrong usage
  129, 130, 143  --rootdir was stopped by SIGHUP, SIGINT or SIGTERM: the devices
                 hold no filesystem

ENVIRONMENT
  SOURCE_DATE_EPOCH  seconds since 1970, to be taken for now; with -U, all other
                     UUIDs then follow from the pool's, and the same command
                     gives the same bytes";

/// Make a pool, on block devices or image files
///
/// All contents of the devices are lost. The pool is one that the Linux kernel mounts: after making one on several
/// block devices, make them known to it with `brindle device scan` or `btrfs device scan`. The root directory
/// belongs to the calling user (with --rootdir, to the owner of DIR).
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct MkfsCommand {
    /// Profile of data [default: single]
    #[arg(short, long, value_name = "PROFILE", value_parser = parse_profile)]
    data: Option<Profile>,
    /// Profile of metadata and system chunks [default: dup on one device, raid1 on several]
    #[arg(short, long, value_name = "PROFILE", value_parser = parse_profile)]
    metadata: Option<Profile>,
    /// Data and metadata share block groups, as -O mixed-bg
    #[arg(short = 'M', long)]
    mixed: bool,
    /// Label
    #[arg(short = 'L', long, value_name = "LABEL", default_value = "", hide_default_value = true)]
    label: String,
    /// UUID of the pool [default: random]
    #[arg(short = 'U', long, value_name = "UUID", value_parser = parse_uuid)]
    uuid: Option<Uuid>,
    /// UUID of the device, where it is one [default: random]
    #[arg(long, value_name = "UUID", value_parser = parse_uuid)]
    device_uuid: Option<Uuid>,
    /// Size of tree blocks: 4K, 8K, 16K, 32K or 64K [default: 16K; 4K with --mixed]
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size)]
    nodesize: Option<u64>,
    /// Size of sectors: 4K, the only one
    #[arg(short = 's', long = "sectorsize", value_name = "SIZE", value_parser = parse_sectorsize)]
    _sectorsize: Option<u64>,
    /// Checksum algorithm: crc32c, xxhash, sha256 or blake2
    #[arg(long, visible_alias = "checksum", value_name = "TYPE", default_value = "crc32c", value_parser = parse_checksum)]
    csum: ChecksumType,
    /// Comma-separated: features to turn on, or off with ^ before them; list-all lists them
    #[arg(short = 'O', long, value_name = "FEATURES")]
    features: Vec<String>,
    /// Give each DEVICE, which is an image file, this size; make it if it is not there
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "byte_count")]
    size: Option<u64>,
    /// The same; of a block device, use no more than this
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size)]
    byte_count: Option<u64>,
    /// Names of classes of fast devices, the fastest first, for DEVICE:NAME; stored in the pool
    #[arg(long, value_name = "NAME,...")]
    fast: Option<String>,
    /// Names of classes of bulk devices, the fastest first
    #[arg(long, value_name = "NAME,...")]
    bulk: Option<String>,
    /// Files up to this length lie on fast devices, if there are enough of them; stored in the pool
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    small_files: Option<u64>,
    #[command(flatten)]
    rootdir: RootdirOptions,
    /// Overwrite a filesystem that is there; one that is mounted never is
    #[arg(short, long)]
    force: bool,
    /// Do not discard (TRIM) the space of the devices first
    #[arg(short = 'K', long)]
    nodiscard: bool,
    #[command(flatten)]
    json: JsonOption,
    /// Block devices or image files
    #[arg(required_unless_present = "features", value_name = "DEVICE[:fast|:bulk|:NAME]")]
    devices: Vec<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(command: &MkfsCommand, quiet: bool) -> Result<ExitCode> {
    if command.features.iter().any(|list| list == "list-all") {
        print_features()?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut options = options(command)?;
    let filling = command.rootdir.prepare(&mut options, command.small_files, !command.json.json)?;
    let mut images = NewImages::default();
    let devices = open_all(command, &options.classes, filling.as_ref(), &mut images)?;
    let (report, filled) = match &filling {
        Some(filling) => {
            let stop = Stop::on_signals()?;
            match (filling.make(devices, &options, &stop), stop.name_and_code()) {
                (Err(error), Some((_, code))) => {
                    output::complain(&error);
                    return Ok(ExitCode::from(code));
                }
                (made, _) => made.map(|(report, filled)| (report, Some(filled)))?,
            }
        }
        None => {
            let report = mkfs(&devices, &options).map_err(|error| explain(error, command))?;
            if let Some(bytes) = command.small_files {
                store_small_files(devices, bytes)?;
            }
            (report, None)
        }
    };
    images.keep();
    if command.small_files.is_some_and(|bytes| bytes > 0) {
        tier_warning::of_new(&report, "--small-files");
    }
    for warning in report.warnings.iter().chain(filled.iter().flat_map(|filled| &filled.warnings)) {
        tracing::warn!("{warning}");
    }
    if command.json.json {
        let mut value = report_json(&report);
        if let Some(filled) = &filled {
            value["rootdir"] = rootdir::report_json(filled);
        }
        output::print_json(&value)?;
    } else if !quiet {
        let mut out = output::stdout();
        print_report(&mut out, &report)?;
        if let Some(filled) = &filled {
            rootdir::print_report(&mut out, filled)?;
        }
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Stores the limit for small files in a pool that was made.
fn store_small_files(devices: Vec<NewDevice>, bytes: u64) -> Result<()> {
    let devices = devices.into_iter().map(|new| new.device).collect();
    let filesystem = Filesystem::open_writable(devices, &OpenOptions::default(), &WriteOptions::default())?;
    filesystem.set_small_file_bytes(bytes)?;
    Ok(filesystem.shutdown()?)
}

fn options(command: &MkfsCommand) -> Result<MkfsOptions> {
    if command.device_uuid.is_some() && command.devices.len() > 1 {
        return wrong_usage(
            "--device-uuid is that of the only device: several have none in common".to_owned(),
        );
    }
    let epoch = std::env::var_os("SOURCE_DATE_EPOCH").map(|epoch| {
        let seconds = epoch.to_str().and_then(|text| text.parse::<i64>().ok());
        seconds.with_context(|| {
            format!("SOURCE_DATE_EPOCH is not a number of seconds: {}", epoch.to_string_lossy())
        })
    });
    let epoch = epoch.transpose()?;
    let time_sec = match epoch {
        Some(seconds) => seconds,
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs().try_into()?,
    };
    let seed = match (command.uuid, epoch) {
        (Some(uuid), Some(_)) => uuid.0,
        _ => random()?,
    };
    let fsid = match command.uuid {
        Some(uuid) => uuid,
        None => random_uuid()?,
    };
    let mut features = Features::default();
    for list in &command.features {
        features = features.with_list(list)?;
    }
    features.set(Features::MIXED_BG, command.mixed || features.contains(Features::MIXED_BG));
    // What does not fit is no valid size either, and is refused as such.
    let nodesize = command.nodesize.map(|size| u32::try_from(size).unwrap_or(u32::MAX));
    Ok(MkfsOptions {
        data: command.data,
        metadata: command.metadata,
        label: command.label.clone(),
        nodesize,
        checksum: command.csum,
        features,
        root_owner: root_owner(),
        classes: classes(command)?,
        force: command.force,
        discard: !command.nodiscard,
        device_uuid: command.device_uuid,
        ..MkfsOptions::new(fsid, seed, time_sec)
    })
}

/// Classes of devices that are listed.
fn classes(command: &MkfsCommand) -> Result<DeviceClasses> {
    let mut classes = DeviceClasses::default();
    for (side, names) in [(PlacementClass::Fast, &command.fast), (PlacementClass::Bulk, &command.bulk)] {
        let names: Vec<&str> = names.iter().flat_map(|names| names.split(',')).collect();
        classes.list(side, &names).or_wrong_usage()?;
    }
    Ok(classes)
}

/// Root's directory is root's alone; an ordinary user makes a pool for himself, and could not write it otherwise.
fn root_owner() -> (u32, u32) {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if user.is_root() { (0, 0) } else { (user.as_raw(), group.as_raw()) }
}

/// Image files that were made for the pool: taken away again unless it is made.
#[derive(Default)]
struct NewImages(Vec<PathBuf>);

impl NewImages {
    fn keep(&mut self) {
        self.0.clear();
    }
}

impl Drop for NewImages {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

fn open_all(
    command: &MkfsCommand,
    classes: &DeviceClasses,
    filling: Option<&Filling>,
    images: &mut NewImages,
) -> Result<Vec<NewDevice>> {
    let size = command.size.or(command.byte_count);
    let named: Vec<(PathBuf, SaidClass)> =
        command.devices.iter().map(|word| split_said(word, classes)).collect::<Result<_>>()?;
    let mut seen: Vec<PathBuf> = Vec::new();
    let mut devices = Vec::new();
    for (path, SaidClass { side: class, name: class_name }) in named {
        filling.map_or(Ok(()), |filling| filling.refuse_image(&path))?;
        refuse_missing_directory(&path)?;
        let is_new = (size.is_some() || filling.is_some()) && !path.exists() && !is_no_path(&path);
        let (device, is_fixed): (Arc<dyn WritableDevice>, bool) = if is_new {
            let device = FileDevice::create(&path, 0)?;
            images.0.push(path.clone());
            (Arc::new(device), false)
        } else {
            let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
            if seen.contains(&real) {
                return wrong_usage(format!("{} is given twice", path.display()));
            }
            let is_fixed = is_no_path(&path)
                || fs::metadata(&path).is_ok_and(|found| found.file_type().is_block_device());
            if command.size.is_some() && is_fixed {
                bail!("{} is a block device: --size is for image files", path.display());
            }
            if !path.exists() && !is_no_path(&path) {
                bail!("{}: no such file: with --size SIZE it is made", path.display());
            }
            (open_device_to_write(&path)?, is_fixed)
        };
        let (resize_bytes, limit_bytes) = match size {
            limit if is_fixed => (None, limit),
            None if is_new => (filling.map(Filling::image_bytes), None),
            size => (size, None),
        };
        seen.push(fs::canonicalize(&path).unwrap_or(path));
        check_leases(&[Arc::clone(&device)], &LeaseOptions::default())?;
        devices.push(NewDevice { class, class_name, resize_bytes, limit_bytes, ..NewDevice::new(device) });
    }
    Ok(devices)
}

/// Refuses a new image in a directory that is not there.
fn refuse_missing_directory(path: &Path) -> Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    match directory {
        Some(directory) if !is_no_path(path) && !directory.exists() => {
            bail!("{}: there is no directory {}", path.display(), directory.display())
        }
        _ => Ok(()),
    }
}

/// Tells of `--size` where an image file is too small, and marks what no device could make right as wrong usage.
fn explain(error: MkfsError, command: &MkfsCommand) -> anyhow::Error {
    match &error {
        MkfsError::TooSmall { device, .. } if command.size.is_none() && Path::new(device).is_file() => {
            anyhow!("{error}; --size SIZE gives the file that size")
        }
        MkfsError::NodeSize(_)
        | MkfsError::MixedNodeSize(_)
        | MkfsError::MixedProfiles { .. }
        | MkfsError::Label(_)
        | MkfsError::Uuid
        | MkfsError::Feature { .. } => as_wrong_usage(error),
        _ => error.into(),
    }
}

pub(crate) fn parse_profile(word: &str) -> Result<Profile> {
    let row = Profile::TABLE.iter().find(|row| row.name.eq_ignore_ascii_case(word));
    let names = || Profile::TABLE.iter().map(|row| row.name).collect::<Vec<_>>().join(", ");
    row.map(|row| row.profile).with_context(|| format!("it is one of {}", names()))
}

fn parse_checksum(word: &str) -> Result<ChecksumType> {
    Ok(match word.to_ascii_lowercase().as_str() {
        "crc32c" => ChecksumType::Crc32c,
        "xxhash" | "xxhash64" => ChecksumType::Xxhash64,
        "sha256" => ChecksumType::Sha256,
        "blake2" | "blake2b" => ChecksumType::Blake2b,
        _ => bail!("it is one of crc32c, xxhash, sha256, blake2"),
    })
}

/// Takes the only size of sectors.
fn parse_sectorsize(word: &str) -> Result<u64> {
    match parse_size(word)? {
        4096 => Ok(4096),
        _ => bail!("pools have sectors of 4096 bytes, as kernels of all architectures read them"),
    }
}

fn parse_uuid(word: &str) -> Result<Uuid> {
    Uuid::parse(word).context("a UUID is 32 hex digits, in groups of 8-4-4-4-12")
}

fn random() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("/dev/urandom")?;
    Ok(bytes)
}

/// A random UUID (version 4).
fn random_uuid() -> Result<Uuid> {
    let mut bytes = random()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(Uuid(bytes))
}

fn print_features() -> Result<()> {
    let mut out = output::stdout();
    for row in &FEATURES {
        let default = if Features::default().contains(row.feature) { " (default)" } else { "" };
        writeln!(out, "{:20}- {}{default}", row.name, row.about)?;
    }
    Ok(out.flush()?)
}

/// The report of mkfs.btrfs, and the devices of each content.
fn print_report(out: &mut impl Write, report: &MkfsReport) -> Result<()> {
    let size = |bytes| UnitMode::DEFAULT.format(bytes);
    let label = if report.label.is_empty() { "(null)" } else { &report.label };
    writeln!(out, "Label:              {label}")?;
    writeln!(out, "UUID:               {}", report.fsid)?;
    writeln!(out, "Node size:          {}", report.nodesize)?;
    writeln!(out, "Sector size:        {}", report.sectorsize)?;
    writeln!(out, "Filesystem size:    {}", size(report.total_bytes))?;
    writeln!(out, "Block group profiles:")?;
    // Data first, as mkfs.btrfs has it.
    for group in report.block_groups.iter().rev() {
        let content = format!("{}:", group.kind.content_name());
        let (profile, length) = (profile_name(group), size(group.length_bytes));
        writeln!(out, "  {content:<17} {profile:<8} {length:>15}  on devid {}", devids(group).join(", "))?;
    }
    writeln!(out, "Features:           {}", report.features.join(", "))?;
    writeln!(out, "Checksum:           {}", report.checksum)?;
    writeln!(out, "Number of devices:  {}", report.devices.len())?;
    writeln!(out, "Devices:")?;
    let widest = report.devices.iter().map(|device| device.class_name.len()).max().unwrap_or(0).max(5);
    writeln!(out, "   ID        SIZE  {:<widest$}  PATH", "CLASS")?;
    for device in &report.devices {
        let (class, length) = (&device.class_name, size(device.size_bytes));
        writeln!(out, "  {:>3}  {length:>10}  {class:<widest$}  {}", device.devid, device.name)?;
    }
    for note in tier_warning::notes_of_new(report) {
        writeln!(out, "Note: {note}")?;
    }
    Ok(())
}

fn profile_name(group: &NewBlockGroup) -> String {
    let name = group.profile.attributes().name;
    if group.profile == Profile::Single { name.to_owned() } else { name.to_ascii_uppercase() }
}

/// Each device once, in the order of the stripes.
fn devids(group: &NewBlockGroup) -> Vec<String> {
    let mut devids: Vec<String> = group.devices.iter().map(ToString::to_string).collect();
    devids.dedup();
    devids
}

fn report_json(report: &MkfsReport) -> Value {
    let group = |group: &NewBlockGroup| {
        json!({
            "content": Content::of(group.kind).to_string(),
            "profile": group.profile.to_string(),
            "total_bytes": group.length_bytes,
            "stripes": group.devices.iter().map(|devid| devid.get()).collect::<Vec<_>>(),
        })
    };
    let devices: Vec<Value> = report
        .devices
        .iter()
        .map(|device| {
            json!({
                "devid": device.devid.get(),
                "uuid": device.uuid.to_string(),
                "path": device.name,
                "total_bytes": device.size_bytes,
                "class": device.class.to_string(),
                "class_name": device.class_name,
                "allocation_hint": device.hint.to_string(),
            })
        })
        .collect();
    json!({
        "label": report.label,
        "uuid": report.fsid.to_string(),
        "nodesize": report.nodesize,
        "sectorsize": report.sectorsize,
        "bytes": report.total_bytes,
        "checksum": report.checksum.name(),
        "features": report.features,
        "incompat": report.incompat.names(),
        "compat_ro": report.compat_ro.names(),
        "block_groups": report.block_groups.iter().map(group).collect::<Vec<_>>(),
        "devices": devices,
        "warnings": report.warnings,
        "notes": tier_warning::notes_of_new(report),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_btrfs_progs() {
        let of = |word| parse_size(word).ok();
        assert_eq!((of("4096"), of("16k"), of("1G")), (Some(4096), Some(16384), Some(1 << 30)));
        assert_eq!((of(""), of("G"), of("1.5G"), of("1Gi"), of("16E")), (None, None, None, None, None));
        assert_eq!(of("12é"), None);
    }

    #[derive(clap::Parser, Debug)]
    struct Line {
        #[command(flatten)]
        mkfs: MkfsCommand,
    }

    fn make(words: &[&str]) -> Result<ExitCode> {
        run(&<Line as clap::Parser>::try_parse_from([&["mkfs", "--json"], words].concat())?.mkfs, false)
    }

    #[test]
    fn images_are_made_with_the_pool_or_not_at_all() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let image = directory.path().join("pool.img");
        let path = image.to_str().expect("UTF-8");
        let error = make(&["--size", "2M", path]).expect_err("too small");
        assert!(error.to_string().contains("needs at least"), "{error}");
        assert!(!image.exists());
        make(&["--size", "300M", "-L", "first", path]).expect("large enough");
        let error = make(&["--size", "400M", path]).expect_err("there is a pool");
        assert!(error.to_string().ends_with("holds a btrfs filesystem; use -f to overwrite it"), "{error}");
        let error = make(&["-f", path, path]).expect_err("twice");
        assert!(error.to_string().ends_with("is given twice"), "{error}");
        assert_eq!(fs::metadata(&image).expect("still there").len(), 300 << 20);
        make(&["-f", "--size", "400M", "-O", "^bgt", &format!("{path}:fast")]).expect("forced");
        assert_eq!(fs::metadata(&image).expect("still there").len(), 400 << 20);
    }

    #[test]
    fn a_pool_that_cannot_be_filled_is_not_left_behind() {
        use brindle_device::Device;
        use brindle_fs::{Filesystem, OpenOptions};
        let directory = tempfile::tempdir().expect("temporary directory");
        let (source, image) = (directory.path().join("source"), directory.path().join("pool.img"));
        fs::create_dir(&source).expect("room");
        fs::write(source.join("large"), vec![7; 300 << 20]).expect("room");
        let (from, path) = (source.to_str().expect("UTF-8"), image.to_str().expect("UTF-8"));
        make(&["--size", "200M", path]).expect("large enough");
        let error = make(&["-f", "--rootdir", from, path]).expect_err("it does not fit");
        assert!(format!("{error:#}").contains("large: no space left in the pool"), "{error:#}");
        let device: Arc<dyn Device> = Arc::new(FileDevice::open(&image).expect("still there"));
        let error = Filesystem::open(vec![device], &OpenOptions::default()).expect_err("no pool");
        assert!(error.to_string().contains("not a btrfs device"), "{error}");
        let inside = source.join("pool.img");
        fs::write(&inside, "").expect("room");
        let error = make(&["--rootdir", from, "--size", "400M", inside.to_str().expect("UTF-8")]);
        assert!(error.expect_err("itself").to_string().contains("lies in the directory"));
        fs::remove_file(&inside).expect("own file");
        fs::remove_file(&image).expect("own file");
        make(&["--rootdir", from, path]).expect("an image of the size that it takes is made");
        make(&["-f", "--rootdir", from, "--shrink", path]).expect("it fits");
        assert!(fs::metadata(&image).expect("still there").len() < 400 << 20);
    }

    #[test]
    fn words_are_known_in_any_case() {
        assert_eq!(parse_profile("RAID1C3").expect("known"), Profile::Raid1c3);
        assert!(parse_profile("raid7").expect_err("unknown").to_string().contains("raid6"));
        assert_eq!(parse_checksum("XXHash").expect("known"), ChecksumType::Xxhash64);
        assert!(parse_checksum("md5").is_err() && parse_uuid("12").is_err());
    }
}

//! `tier class`: names and ranks of devices within the fast and the bulk side.

use super::facts::{ClassOptions, Facts, Source, find_device};
use crate::commands::companions::with_others;
use crate::commands::mount_options::MountOptions;
use crate::commands::pool::open_writable;
use crate::commands::usage::{OrWrongUsage, wrong_usage};
use crate::format::{Align, write_table};
use crate::options::JsonOption;
use crate::output;
use anyhow::{Context, Result, bail};
use brindle_admin::Reach;
use brindle_admin::tier::ClassifiedDevice;
use brindle_cache::open_pool_device_to_write;
use brindle_device::WritableDevice;
use brindle_policy::class::{ClassesProblem, DeviceClasses};
use brindle_policy::placement::PlacementClass;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

const EXAMPLES: &str = "\
EXAMPLES
  Four classes, and a device of each:
    brindle tier class set --fast nvme,ssd --bulk disk,smr \\
        --device /dev/nvme0n1=nvme \\
        --device /dev/sda=ssd --device /dev/sdb=disk --device /dev/sdc=smr /mnt
    brindle tier class list /mnt

  Another name for one, and no class of its own for a device:
    brindle tier class set --rename nvme=optane --device 3=bulk /mnt

  A directory whose new files go to the shingled disks:
    brindle property set /mnt/archive tier smr

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

/// Show and change the classes of devices
///
/// A device is on the fast or on the bulk side, by its allocation hint or by itself. Within a side the owner may list classes, the
/// fastest first: then metadata goes to the fastest class that has devices enough for its profile, other data to the fastest bulk
/// class, and files and directories that are marked with the name of a class (brindle property set PATH tier NAME) to that class. A
/// class that is full hands on to the next one.
#[derive(Subcommand, Debug)]
pub(crate) enum ClassCommand {
    List(ListCommand),
    Set(SetCommand),
}

/// List the classes, and the devices of each
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ListCommand {
    #[command(flatten)]
    json: JsonOption,
    /// A directory of a mounted pool, or the devices of one that is not mounted
    #[arg(required = true, value_name = "MOUNTPOINT|DEVICE")]
    pool: Vec<PathBuf>,
}

/// Change the classes, and the classes of devices
///
/// They are stored in the pool, where stock kernels leave them alone, and count for chunks made from then on; `brindle tier apply` moves
/// what was there before. The pool is not mounted, or brindle has it mounted. All changes of one command are made together, or none.
///
/// Names have up to 16 of a-z, 0-9, '-' and '_', a letter first. There are 8 classes at most. A device that is given a class gets an
/// allocation hint of its side, and all others hints of the sides that they are on. A device without a class of its own is of
/// the last class of the fast side, or of the first of the bulk side. A new name of a class does not change marks of files.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct SetCommand {
    /// Forget all classes first, also those that can't be understood
    #[arg(long)]
    discard: bool,
    /// Another name for a class
    #[arg(long, value_name = "OLD=NEW", value_parser = parse_pair)]
    rename: Vec<(String, String)>,
    /// Classes of the fast side, the fastest first; an empty list for none
    #[arg(long, value_name = "NAME,...")]
    fast: Option<String>,
    /// Classes of the bulk side, the fastest first
    #[arg(long, value_name = "NAME,...")]
    bulk: Option<String>,
    /// Class of a device, by its path or its id; fast or bulk for none of its own
    #[arg(long, value_name = "DEVICE=NAME", value_parser = parse_pair)]
    device: Vec<(String, String)>,
    /// A directory of a mounted pool, or the devices of one that is not mounted
    #[arg(required = true, value_name = "MOUNTPOINT|DEVICE")]
    pool: Vec<PathBuf>,
}

/// Parses a pair, such as `sda=ssd`: the last sign counts, for paths may have some.
fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (left, right) = text.rsplit_once('=').ok_or("two words with '=' between are expected")?;
    Ok((left.to_owned(), right.to_owned()))
}

/// Runs one of the commands.
pub(super) fn run(command: &ClassCommand) -> Result<ExitCode> {
    match command {
        ClassCommand::List(command) => list(command)?,
        ClassCommand::Set(command) => set(command)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(command: &ListCommand) -> Result<()> {
    let facts = Facts::gather(&command.pool, &ClassOptions::default())?;
    let stored = stored(&facts).context(UNREADABLE)?;
    let classes = stored.all();
    let of_class = |rank: usize| facts.devices.iter().filter(move |device| usize::from(device.rank) == rank);
    if command.json.json {
        let class = |(rank, class): (usize, &brindle_policy::class::NamedClass)| {
            json!({
                "rank": rank,
                "name": class.name,
                "side": class.side.to_string(),
                "devids": of_class(rank).map(|device| device.devid.get()).collect::<Vec<_>>(),
            })
        };
        let all: Vec<Value> = classes.iter().enumerate().map(class).collect();
        return output::print_json(&json!({
            "uuid": facts.fsid.to_string(),
            "listed": !stored.is_empty(),
            "classes": all,
        }));
    }
    let mut rows = vec![["RANK", "NAME", "SIDE", "DEVICES"].map(str::to_owned).to_vec()];
    for (rank, class) in classes.iter().enumerate() {
        let devices: Vec<String> = of_class(rank).map(shown).collect();
        let devices = if devices.is_empty() { "-".to_owned() } else { devices.join(" ") };
        rows.push(vec![rank.to_string(), class.name.clone(), class.side.to_string(), devices]);
    }
    let mut out = output::stdout();
    write_table(&mut out, &[Align::Right, Align::Left, Align::Left, Align::Left], &rows)?;
    Ok(out.flush()?)
}

fn shown(device: &ClassifiedDevice) -> String {
    match device.path.as_os_str().is_empty() {
        true => format!("{} (missing)", device.devid),
        false => device.path.display().to_string(),
    }
}

const UNREADABLE: &str =
    "the item of device classes can't be understood; `brindle tier class set --discard` begins anew";

fn stored(facts: &Facts) -> Result<DeviceClasses> {
    Ok(match &facts.source {
        Source::Mounted(mounted) => mounted.stored_classes()??,
        Source::Open(pool) => pool.stored_classes()??,
    })
}

fn set(command: &SetCommand) -> Result<()> {
    let reach = Reach::of(&command.pool)?;
    if let Some(mounted) = reach.mounted().filter(|mounted| mounted.is_of_kernel()) {
        bail!(
            "{}: the kernel has mounted the pool, and knows no classes; unmount it, or mount it with brindle",
            mounted.path().display()
        );
    }
    let facts = Facts::gather(&command.pool, &ClassOptions::default())?;
    let before =
        if command.discard { DeviceClasses::default() } else { stored(&facts).context(UNREADABLE)? };
    let classes = changed(before, command, &facts)?;
    if let Source::Mounted(mounted) = &facts.source {
        return Ok(mounted.set_classes(&classes)?);
    }
    // It is opened to be written, which needs the devices alone.
    drop(facts);
    let open = |path: &PathBuf| -> Result<Arc<dyn WritableDevice>> { Ok(open_pool_device_to_write(path)?) };
    let devices = with_others(&command.pool).iter().map(open).collect::<Result<Vec<_>>>()?;
    let filesystem = open_writable(devices, &MountOptions::parse::<String>(&[])?)?;
    filesystem.pool().set_classes(&classes)?;
    Ok(filesystem.shutdown()?)
}

/// The classes that a command asks for.
fn changed(mut classes: DeviceClasses, command: &SetCommand, facts: &Facts) -> Result<DeviceClasses> {
    for (from, to) in &command.rename {
        classes.rename(from, to).or_wrong_usage()?;
    }
    let devices =
        command.device.iter().map(|(name, class)| Ok((find_device(&facts.members, Path::new(name))?, class)));
    let devices = devices.collect::<Result<Vec<_>>>()?;
    for (index, (device, _)) in devices.iter().enumerate() {
        if devices[..index].iter().any(|(before, _)| before.devid == device.devid) {
            return wrong_usage(format!("devid {} is given a class twice", device.devid));
        }
    }
    // A class that is left by all its devices may go with the same command, and a new one be had.
    for (device, _) in &devices {
        classes.assign(device.uuid, &PlacementClass::Fast.to_string())?;
    }
    for (side, names) in [(PlacementClass::Fast, &command.fast), (PlacementClass::Bulk, &command.bulk)] {
        let Some(names) = names else { continue };
        let names: Vec<&str> = names.split(',').filter(|name| !name.is_empty()).collect();
        classes.list(side, &names).map_err(|problem| in_words(problem, facts, &classes)).or_wrong_usage()?;
    }
    for (device, class) in devices {
        classes.assign(device.uuid, class).or_wrong_usage()?;
    }
    Ok(classes)
}

/// A problem, with the devices that are in the way.
fn in_words(problem: ClassesProblem, facts: &Facts, classes: &DeviceClasses) -> anyhow::Error {
    let ClassesProblem::InUse(name) = &problem else { return problem.into() };
    let is_of =
        |device: &&brindle_admin::tier::MountedDevice| classes.class_of(&device.uuid) == Some(name.as_str());
    let devids: Vec<String> =
        facts.members.iter().filter(is_of).map(|device| device.devid.to_string()).collect();
    match devids.is_empty() {
        // Of devices that the pool does not have any more.
        true => problem.into(),
        false => anyhow::anyhow!("{problem}: devid {}", devids.join(", ")),
    }
}

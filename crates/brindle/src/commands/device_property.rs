//! The allocation hint of a device: `property get|set DEVICE|MOUNT allocation_hint`.

use crate::commands::companions::others;
use crate::commands::device_word::split_class;
use crate::commands::mount_options::MountOptions;
use crate::commands::path::name_json;
use crate::commands::pool::{open_pool, open_writable};
use crate::commands::silent::answering;
use crate::commands::usage::{OrWrongUsage, wrong_usage};
use anyhow::{Context, Result, bail};
use brindle_admin::pool::DeviceIdentity;
use brindle_admin::tier::MountedDevice;
use brindle_admin::{ControlError, DevId, Mounted, PoolFacts, Reach};
use brindle_cache::open_pool_device_to_write;
use brindle_device::{DeviceError, WritableDevice};
use brindle_policy::placement::AllocationHint;
use brindle_uapi::message::text;
use rustix::io::Errno;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A device and what the pool stores of it.
pub(super) struct Hinted {
    devid: u64,
    /// Empty if it is missing.
    path: PathBuf,
    stored_type: u64,
}

impl Hinted {
    /// Prints the hint in the words of the patches that hints come from.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let is_missing = self.path.as_os_str().is_empty();
        let path = if is_missing { Path::new("missing") } else { self.path.as_path() };
        write!(out, "devid={}, path={}: allocation_hint=", self.devid, path.display())?;
        match AllocationHint::from_disk(self.stored_type) {
            Some(hint) if hint.is_stored() => writeln!(out, "{hint}"),
            Some(role) => writeln!(out, "{role} (role {})", self.stored_type),
            None => writeln!(out, "<UNKNOWN> ({})", self.stored_type),
        }
    }

    /// The same in JSON; a hint that is unknown is `null`.
    pub(super) fn as_json(&self) -> Value {
        let path = Some(&self.path).filter(|path| !path.as_os_str().is_empty());
        json!({
            "devid": self.devid,
            "path": path.map(|path| name_json(path.as_os_str().as_bytes())),
            "allocation_hint": AllocationHint::from_disk(self.stored_type).map(|hint| hint.to_string()),
        })
    }
}

/// The hint of a device, or of all devices of a mounted pool (or of one of them).
pub(super) fn get(path: &Path, devid: Option<u64>, options: &[String]) -> Result<Vec<Hinted>> {
    let mut found = match (Reach::of(&[path.to_owned()])?.mounted(), devid) {
        (Some(mounted), _) => of_mount(mounted)?,
        (None, None) => vec![of_device(path)?],
        (None, Some(_)) => of_pool(path, &parse_options(options)?)?,
    };
    found.retain(|device| devid.is_none_or(|devid| devid == device.devid));
    if let (Some(devid), []) = (devid, found.as_slice()) {
        bail!("{}: no device {devid}", path.display());
    }
    Ok(found)
}

/// Stores a hint by a mount.
fn store(mounted: &Mounted, devid: u64, hint: AllocationHint) -> Result<()> {
    match mounted.set_allocation_hint(devid, hint.number().into()) {
        Err(ControlError::Refused { source: Errno::NODEV, .. }) => {
            bail!("the pool has no device with the id {devid}")
        }
        done => Ok(done?),
    }
}

/// Stores another hint: on a mount of brindle, or in a pool that is not in use.
pub(super) fn set(path: &Path, devid: Option<u64>, options: &[String], value: &str) -> Result<()> {
    let hint: AllocationHint =
        value.parse().with_context(|| format!("'{value}' is no allocation hint")).or_wrong_usage()?;
    if let Some(mounted) = Reach::of(&[path.to_owned()])?.mounted() {
        let devices = mounted.device_infos()?;
        let devid = match (devid, devices.as_slice()) {
            (Some(devid), _) => devid,
            (None, [only]) => only.devid,
            (None, _) => {
                return wrong_usage(format!("{}: of several devices, --devid says which", path.display()));
            }
        };
        return store(mounted, devid, hint);
    }
    match set_unmounted(path, devid, options, hint) {
        Err(error) if is_busy(&error) => match Mounted::serving(&answering(), path) {
            Some((mounted, itself)) => store(&mounted, devid.unwrap_or(itself.get()), hint),
            None => Err(error),
        },
        done => done,
    }
}

fn is_busy(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<DeviceError>(), Some(DeviceError::Busy { .. }))
}

fn set_unmounted(path: &Path, devid: Option<u64>, options: &[String], hint: AllocationHint) -> Result<()> {
    let options = parse_options(options)?;
    let named = std::iter::once(path).chain(options.devices.iter().map(PathBuf::as_path));
    let named = named.map(|word| Ok(split_class(word)?.0)).collect::<Result<Vec<PathBuf>>>()?;
    let others = others(&named, &[], &options);
    let open = |path: &PathBuf| -> Result<Arc<dyn WritableDevice>> { Ok(open_pool_device_to_write(path)?) };
    let devices = named.iter().chain(&others).map(open).collect::<Result<Vec<_>>>()?;
    let devid = DevId::new(match devid {
        Some(devid) => devid,
        None => of_device(path)?.devid,
    });
    let filesystem = open_writable(devices, &options).context(
        "all devices of the pool are needed to change it; -o device=PATH names another one, -o degraded does without",
    )?;
    filesystem.pool().set_allocation_hint(devid, hint)?;
    filesystem.pool().commit()?;
    Ok(())
}

fn parse_options(options: &[String]) -> Result<MountOptions> {
    let options = MountOptions::parse(options)?;
    if let Some(option) = options.first_of_mount() {
        return wrong_usage(format!("unknown option '{option}': here -o takes degraded and device=PATH"));
    }
    Ok(options)
}

/// Hint of every device of an unmounted pool, in the chunk tree.
fn of_pool(path: &Path, options: &MountOptions) -> Result<Vec<Hinted>> {
    let paths: Vec<PathBuf> =
        std::iter::once(path.to_owned()).chain(options.devices.iter().cloned()).collect();
    let pool = open_pool(&paths)?;
    let hinted = |device: MountedDevice| Hinted {
        devid: device.devid.get(),
        path: device.path,
        stored_type: device.stored,
    };
    Ok(PoolFacts::inventory(&pool)?.devices.into_iter().map(hinted).collect())
}

/// Hint in the device's own superblock.
fn of_device(path: &Path) -> Result<Hinted> {
    let Some(device) = DeviceIdentity::read(path)? else {
        bail!("{}: not a btrfs device (no superblock magic at 64 KiB)", path.display());
    };
    Ok(Hinted { devid: device.devid.get(), path: path.to_owned(), stored_type: device.stored })
}

fn of_mount(mounted: &Mounted) -> Result<Vec<Hinted>> {
    let paths = mounted.device_infos()?;
    if mounted.is_of_kernel() {
        // The kernel does not tell; what it has found on the devices it leaves there.
        return paths.iter().map(|info| of_device(Path::new(OsStr::from_bytes(text(&info.path))))).collect();
    }
    let space = mounted.space()?;
    let hinted = |device: &brindle_uapi::message::DeviceSpace| {
        let info = paths.iter().find(|info| info.devid == device.devid);
        let path = info.map_or(&b""[..], |info| text(&info.path));
        let path = PathBuf::from(OsStr::from_bytes(path));
        Hinted { devid: device.devid, path, stored_type: device.stored_type }
    };
    Ok(space.devices.iter().map(hinted).collect())
}

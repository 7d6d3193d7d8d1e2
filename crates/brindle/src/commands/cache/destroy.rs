//! `cache destroy`: takes a cache off its SSD.

use anyhow::{Result, bail};
use brindle_admin::health::find_ssds;
use brindle_cache::{
    CacheFacts, CacheWord, DestroyedCache, DiskMark, destroy, disk_mark, inspect, remove_mark,
};
use brindle_device::{FileDevice, WritableDevice, open_device, open_device_to_write};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle cache destroy /dev/sda2

EXIT STATUS
  0  there is no cache any more
  1  it is in use, has dirty blocks, or there was none
  2  wrong usage";

/// Take a cache off its SSD
///
/// Refused while blocks are dirty: load the cache and stop it, and they are on the disk. With --force it says how much is lost.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DestroyCommand {
    /// Destroy it with its dirty blocks, which are lost; or take the mark off a disk whose SSD is lost
    #[arg(short, long)]
    force: bool,
    /// The SSD; or, with --force, a disk whose SSD is lost
    ssd: PathBuf,
}

/// Runs the command.
pub(crate) fn run(command: &DestroyCommand) -> Result<ExitCode> {
    if let Some(mark) = disk_mark(&*open_device(&command.ssd)?)? {
        unmark(&command.ssd, &mark, command.force)?;
        return Ok(ExitCode::SUCCESS);
    }
    let ssd = FileDevice::open_writable(&command.ssd)?;
    let facts = inspect(&ssd).ok();
    let destroyed = destroy(&ssd, command.force)?;
    let rest = facts.filter(|facts| facts.mirror.is_some_and(|state| state != "alone"));
    let rest = match rest {
        Some(facts) => {
            let gone = std::path::absolute(&command.ssd)?.display().to_string();
            ssds_of(facts.uuid, &gone, Path::new(&facts.disk), |facts| facts.mirror != Some("behind"))?
        }
        None => Vec::new(),
    };
    tell_losses(&destroyed, &rest);
    Ok(ExitCode::SUCCESS)
}

/// Says what a disk lacks now; the other SSD of a mirror may have all of it.
fn tell_losses(destroyed: &DestroyedCache, rest: &[String]) {
    let disk = destroyed.disk.as_deref().unwrap_or("its disk");
    if let [other, ..] = rest {
        tracing::warn!(
            "the cache goes on with {other}, the other SSD of the mirror, which has what {disk} lacks; `brindle cache mirror` gives it a second one"
        );
        return;
    }
    match destroyed.lost_bytes {
        Some(0) => {}
        Some(bytes) => tracing::warn!("{bytes} bytes that {disk} lacks are lost"),
        None => tracing::warn!("the cache was damaged: what {disk} lacks is lost"),
    }
    if destroyed.is_veiled {
        tracing::warn!("{disk} bears the mark of the cache, which `brindle cache destroy --force` takes off");
    }
}

/// Takes the mark off a disk.
fn unmark(disk: &Path, mark: &DiskMark, is_forced: bool) -> Result<()> {
    let (name, ssd) = (&mark.name, &mark.flash);
    if !is_forced {
        bail!(
            "{} is the disk of the cache {name}, not its SSD; if the SSD is lost, --force takes the mark off",
            disk.display()
        );
    }
    let device = open_device_to_write(disk)?;
    let there = ssds_of(mark.uuid, ssd, disk, |_| true)?;
    if !there.is_empty() {
        let (has, they) = if there.len() > 1 { ("have", "they are") } else { ("has", "it is") };
        bail!(
            "{} needs the blocks that {} {has}, of the cache {name}: {they} there. Load the cache and stop it, or destroy it first",
            disk.display(),
            there.join(" and ")
        );
    }
    remove_mark(&*device as &dyn WritableDevice)?;
    tracing::warn!(
        "{}: what was on {ssd} alone is lost, the first 4 KiB of the disk and those at 64 KiB among it, where filesystems \
         begin; a btrfs filesystem has further superblocks (`brindle rescue super-recover`)",
        disk.display()
    );
    Ok(())
}

/// SSDs that hold a cache: those that its mark names, block devices, and files beside these and the disk.
fn ssds_of(
    uuid: [u8; 16],
    ssd: &str,
    disk: &Path,
    is_wanted: impl Fn(&CacheFacts) -> bool,
) -> Result<Vec<String>> {
    let word = CacheWord::parse(Path::new(&format!("cache:{ssd}:{}", disk.display())))?;
    let mut named: Vec<PathBuf> =
        word.into_iter().flat_map(|word| [Some(word.flash), word.mirror]).flatten().collect();
    named.push(std::path::absolute(disk)?);
    let named: Vec<&Path> = named.iter().map(PathBuf::as_path).collect();
    let found = find_ssds(&named, |_, facts| facts.uuid == uuid && is_wanted(facts));
    Ok(found.into_iter().map(|(path, _)| path.display().to_string()).collect())
}

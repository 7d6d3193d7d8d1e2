//! `cache destroy`: takes a cache off its SSD.

use anyhow::{Result, bail};
use brindle_cache::{CacheWord, DiskMark, destroy, disk_mark, inspect, remove_mark};
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
    let destroyed = destroy(&FileDevice::open_writable(&command.ssd)?, command.force)?;
    let disk = destroyed.disk.as_deref().unwrap_or("its disk");
    match destroyed.lost_bytes {
        Some(0) => {}
        Some(bytes) => tracing::warn!("{bytes} bytes that {disk} lacks are lost"),
        None => tracing::warn!("the cache was damaged: what {disk} lacks is lost"),
    }
    if destroyed.is_veiled {
        tracing::warn!("{disk} bears the mark of the cache, which `brindle cache destroy --force` takes off");
    }
    Ok(ExitCode::SUCCESS)
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
    let holds = |path: &Path| {
        let found = FileDevice::open(path).ok().and_then(|device| inspect(&device).ok());
        found.is_some_and(|cache| cache.uuid == mark.uuid)
    };
    let word = CacheWord::parse(Path::new(&format!("cache:{ssd}:{}", disk.display())))?;
    let ssds = word.into_iter().flat_map(|word| [Some(word.flash), word.mirror]).flatten();
    if ssds.chain([PathBuf::from(ssd)]).any(|path| holds(&path)) {
        bail!(
            "{} needs the blocks on {ssd}, its SSD, which is there: load the cache and stop it, or destroy it first",
            disk.display()
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

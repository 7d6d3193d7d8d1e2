//! `cache create`: makes a cache.

use super::contents::{check_apart, check_disk, check_sole, check_ssd};
use crate::commands::mount::machine_bytes;
use crate::commands::usage::{OrWrongUsage, wrong_usage};
use anyhow::{Context, Result, bail};
use brindle_cache::{
    ASSOCIATIVITY, BLOCK_BYTES, CreateOptions, DISK_ASSOCIATIVITY, HostClock, MEMORY_PER_SLOT, Mode, create,
    create_mirrored, planned_slots, planned_slots_mirrored,
};
use brindle_device::{Device, FileDevice, WritableDevice, is_remote, open_device_to_write};
use clap::Args;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

const MANUAL: &str = "\
SIZES
  As of flashcache: a number of sectors of 512 bytes, or a number with the
  suffix k, M, G or T. A block has 512 bytes to 1 MiB, a set has up to 32768
  blocks; both are powers of two.

MEMORY
  A block of the cache takes 49 bytes of memory while it is in use: 12 MiB for
  each GiB of SSD with blocks of 4 KiB. A cache that needs more than a quarter
  of the machine's memory is refused unless forced.

TWO SSDS
  With --mirror both SSDs have each cached block. One may fail, at any time: no
  block is lost, and the cache goes on. The smaller one tells the size. Only for
  -p back: in the other modes the disk has everything. `brindle cache mirror`
  adds a second SSD later, and replaces a lost one.

EXAMPLES
    brindle cache create -p back fsdc /dev/sda2 /dev/sdc
    brindle cache create -p back --mirror /dev/sdb2 fsdc /dev/sda2 /dev/sdc
    brindle cache create -p thru -s 20G -b 8k fsdc /dev/sda2 /dev/sdc

EXIT STATUS
  0  the cache is there
  1  it could not be made, the SSD holds a cache or a filesystem already, or the
     disk has another cache
  2  wrong usage";

/// Make a cache on an SSD for a disk
///
/// Everything on the SSD is lost. The disk is not written: what it holds is what the cache shows. `brindle cache load` uses it.
#[derive(Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct CreateCommand {
    /// Treatment of writes: back, thru or around
    #[arg(short = 'p', value_name = "MODE", value_parser = parse_mode)]
    mode: Mode,
    /// Cache writes only, not reads (mode back)
    #[arg(short = 'w')]
    write_only: bool,
    /// Take the place of a cache that is there, with its dirty blocks, or of a filesystem
    #[arg(short, long)]
    force: bool,
    /// Length of a block
    #[arg(short, value_name = "SIZE", value_parser = parse_sectors, default_value = "8")]
    block: u64,
    /// Length of a block of the cache's own data: 4k
    #[arg(short = 'm', value_name = "SIZE", value_parser = parse_sectors, default_value = "8")]
    metadata_block: u64,
    /// Size of the cache; the whole SSD unless told otherwise
    #[arg(short, value_name = "SIZE", value_parser = parse_sectors)]
    size: Option<u64>,
    /// Blocks of a set (associativity)
    #[arg(short, value_name = "BLOCKS", default_value_t = ASSOCIATIVITY)]
    associativity: u32,
    /// Adjacent blocks of the disk in one set: a power of two, up to a set. Always 64 here; as of flashcache
    #[arg(short, value_name = "BLOCKS")]
    disk_associativity: Option<u32>,
    /// A second SSD that mirrors the first (mode back)
    #[arg(long, value_name = "SSD")]
    mirror: Option<PathBuf>,
    /// Name of the cache
    name: String,
    /// The SSD
    ssd: PathBuf,
    /// The disk, or the URI of an export
    disk: PathBuf,
}

fn parse_mode(word: &str) -> Result<Mode, String> {
    word.parse().map_err(|_| "must be back, thru or around".to_owned())
}

/// A size as flashcache's tools take it.
fn parse_sectors(word: &str) -> Result<u64, String> {
    let (digits, unit) = match word.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&word[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&word[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&word[..at], 1 << 30),
        Some((at, 't' | 'T')) => (&word[..at], 1_u64 << 40),
        _ => (word, 512),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{word} is no size"))?;
    number.checked_mul(unit).filter(|bytes| *bytes > 0).ok_or_else(|| format!("{word} is no size of a cache"))
}

/// Runs the command.
pub(crate) fn run(command: &CreateCommand) -> Result<ExitCode> {
    if command.metadata_block != BLOCK_BYTES {
        return wrong_usage("-m: the cache's own data has blocks of 4k".to_owned());
    }
    if let Some(adjacent) = command.disk_associativity {
        check_disk_associativity(adjacent, command.associativity)?;
    }
    let options = CreateOptions {
        name: command.name.clone(),
        mode: command.mode,
        block_bytes: command.block,
        associativity: command.associativity,
        size_bytes: command.size,
        is_write_only: command.write_only,
        is_forced: command.force,
        uuids: [random_uuid()?, random_uuid()?, random_uuid()?],
    };
    let checked = if command.mirror.is_some() { options.check_mirrored() } else { options.check() };
    checked.or_wrong_usage()?;
    let others = [Some(command.disk.as_path()), command.mirror.as_deref()];
    others.into_iter().flatten().try_for_each(|other| check_apart(&command.ssd, other))?;
    let open_ssd = |path: &PathBuf| -> Result<Arc<dyn WritableDevice>> {
        Ok(Arc::new(FileDevice::open_writable(&std::path::absolute(path)?)?))
    };
    let flash = open_ssd(&command.ssd)?;
    // The SSD keeps the name, for `cache load` without it.
    let disk = if is_remote(&command.disk) {
        open_device_to_write(&command.disk)?
    } else {
        open_device_to_write(&std::path::absolute(&command.disk)?)?
    };
    let mirror = command.mirror.as_ref().map(open_ssd).transpose()?;
    if !command.force {
        check_disk(disk.as_device())?;
        [Some(&flash), mirror.as_ref()]
            .into_iter()
            .flatten()
            .try_for_each(|ssd| check_ssd(ssd.as_device()))?;
        check_sole(disk.as_device(), &[Some(&*flash), mirror.as_deref()].map(|ssd| ssd.map(Device::name)))?;
    }
    let slots = match &mirror {
        None => planned_slots(&*flash, &*disk, &options)?,
        Some(mirror) => planned_slots_mirrored([&*flash, &**mirror], &*disk, &options)?,
    };
    let memory = slots * MEMORY_PER_SLOT;
    let limit = machine_bytes() / 4;
    if memory > limit && !command.force {
        bail!(
            "a cache of {slots} blocks needs {memory} bytes of memory, more than a quarter of what is there \
             ({limit}); choose longer blocks (-b) or force it (-f)"
        );
    }
    let clock = Arc::new(HostClock::new());
    match mirror {
        None => create(flash, disk, &options, clock)?,
        Some(mirror) => create_mirrored([flash, mirror], disk, &options, clock)?,
    };
    tracing::info!("{}: {slots} blocks of {} bytes, {memory} bytes of memory", command.name, command.block);
    Ok(ExitCode::SUCCESS)
}

/// Refuses numbers that flashcache refuses. Sets are made of regions of 64 blocks whatever it is.
fn check_disk_associativity(adjacent: u32, associativity: u32) -> Result<()> {
    if !adjacent.is_power_of_two() || adjacent > associativity {
        return wrong_usage(format!("-d: must be a power of two up to {associativity}, the blocks of a set"));
    }
    if u64::from(adjacent) != DISK_ASSOCIATIVITY {
        tracing::info!(
            "-d {adjacent}: a set has regions of {DISK_ASSOCIATIVITY} adjacent blocks all the same"
        );
    }
    Ok(())
}

pub(super) fn random_uuid() -> Result<[u8; 16]> {
    let mut uuid = [0; 16];
    File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut uuid)).context("/dev/urandom")?;
    Ok(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_flashcache() {
        assert_eq!(
            ["8", "4k", "1M", "20G", "1T"].map(parse_sectors),
            [4096, 4096, 1 << 20, 20 << 30, 1 << 40].map(Ok)
        );
        for wrong in ["", "k", "0", "-1", "4kb", "99999999999T"] {
            parse_sectors(wrong).expect_err(wrong);
        }
    }
}

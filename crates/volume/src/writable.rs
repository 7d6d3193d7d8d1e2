//! Permission to write a pool that can be read.

use crate::pool::Pool;
use crate::scan::{Found, Scan};
use brindle_ondisk::{DevId, Generation, Superblock};
use thiserror::Error;

/// Flags of a superblock that are no reason to keep off: `WRITTEN`, `RELOC` and `ERROR`.
const HARMLESS_FLAGS: u64 = 0b111;
/// A pool that is a seed (`BTRFS_SUPER_FLAG_SEEDING`).
const SEEDING: u64 = 1 << 32;
/// Upper bound on successive transactions that are passed over.
const PASSED_OVER: u64 = 2;

/// Reason for which a pool may only be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotWritable {
    /// Features that must be known to write, by name or by number.
    #[error("unsupported feature{}: {}", if .0.len() == 1 { "" } else { "s" }, .0.join(", "))]
    Features(Vec<String>),
    /// A seed, which others have grown from.
    #[error("it is a seed")]
    Seed,
    /// Flags of the superblock: an image of metadata only, or a conversion that was not finished.
    #[error("unsupported superblock flags {0:#x}")]
    Flags(u64),
    /// Assurances are given up that writing needs.
    #[error("rescue options are for reading")]
    Rescue,
    /// Two devices claim to be the same one.
    #[error("{device} is devid {devid}, as is {other}, which is just as new")]
    Twins {
        /// One of them.
        device: String,
        /// The other one.
        other: String,
        /// Their devid.
        devid: DevId,
    },
    /// A device has missed transactions, and was to take part.
    #[error(
        "{device} (devid {devid}) is stale, its generation is {generation}, the pool's {expected}; \
         mounted with -o degraded the pool is written without it, and `brindle device rejoin` takes it in again; where the pool \
         can't do without it, `brindle rescue readmit` sees whether it lacks anything"
    )]
    Stale {
        /// The device.
        device: String,
        /// Its id in the pool.
        devid: DevId,
        /// The last transaction it took part in.
        generation: Generation,
        /// The pool's last transaction.
        expected: Generation,
    },
    /// A device was given that another one has taken the place of.
    #[error(
        "{device} was devid {devid} until another device took its place, in generation {since}: name that one; mounted with \
         -o degraded the pool is written without either, and `brindle device replace` takes {device} in as a new one"
    )]
    Replaced {
        /// The device.
        device: String,
        /// Its former id in the pool.
        devid: DevId,
        /// Generation of the replacement.
        since: Generation,
    },
    /// A device is shorter than the pool has it.
    #[error("{device} (devid {devid}) ends at {size_bytes}, the pool has it as {total_bytes} bytes long")]
    Short {
        /// The device.
        device: String,
        /// Its id in the pool.
        devid: DevId,
        /// Its size in bytes.
        size_bytes: u64,
        /// Its size in bytes by its device item.
        total_bytes: u64,
    },
}

/// Checks that the pool may be written, by its superblocks. Stale devices are found later: one that has left the pool
/// does as well.
pub(crate) fn check(scan: &Scan) -> Result<(), NotWritable> {
    check_superblock(&scan.superblock)?;
    let name = |found: &Found| found.device.name().to_owned();
    for twin in &scan.duplicates {
        let key = |found: &Found| (found.devid(), found.generation());
        if let Some(member) = scan.members.iter().find(|member| key(member) == key(twin)) {
            return Err(NotWritable::Twins { device: name(twin), other: name(member), devid: twin.devid() });
        }
    }
    Ok(())
}

/// Of the commit before the last one. A device with a superblock of that may lack nothing: a crash came between the
/// superblocks of one commit, which are written when everything else is durable everywhere.
pub(crate) fn generation_before(superblock: &Superblock) -> Generation {
    let newest = superblock.generation.get();
    let backups = || superblock.super_roots.iter().map(|backup| backup.tree_root_gen.get());
    let usual = newest.saturating_sub(1);
    let before = backups().filter(|generation| *generation < newest).max();
    match before.filter(|_| backups().any(|generation| generation == newest)) {
        Some(before) => Generation::new(before.max(usual.saturating_sub(PASSED_OVER))),
        None => Generation::new(usual),
    }
}

fn check_superblock(superblock: &Superblock) -> Result<(), NotWritable> {
    let mut features = superblock.incompat().refused();
    features.extend(superblock.compat_ro().refused_for_writing());
    if !features.is_empty() {
        return Err(NotWritable::Features(features));
    }
    let flags = superblock.flags.get() & !HARMLESS_FLAGS;
    match flags {
        0 => Ok(()),
        _ if flags & SEEDING != 0 => Err(NotWritable::Seed),
        _ => Err(NotWritable::Flags(flags)),
    }
}

/// Checks that every device is as long as the pool has it: data beyond its end would be lost.
pub(crate) fn check_sizes(pool: &Pool) -> Result<(), NotWritable> {
    for member in &pool.devices {
        let Some(device) = &member.writable else { continue };
        let (size_bytes, total_bytes) = (device.size_bytes(), member.total_bytes());
        if size_bytes < total_bytes {
            let (device, devid) = (device.name().to_owned(), member.devid);
            return Err(NotWritable::Short { device, devid, size_bytes, total_bytes });
        }
    }
    Ok(())
}

//! The values of mount options.

use super::MountOptions;
use crate::commands::quantity::parse_size;
use anyhow::{Context, Result, bail};
use brindle_fs::CompressionChoice;
use brindle_ondisk::RootId;
use brindle_volume::Rescue;
use std::time::Duration;

/// An algorithm, perhaps with a level; an empty value means zlib.
pub(super) fn compression(value: &str, force: bool) -> Result<Option<CompressionChoice>> {
    let word = if value.is_empty() { "zlib" } else { value };
    let choice = CompressionChoice::parse(word).with_context(|| format!("option 'compress={value}'"))?;
    Ok(choice.map(|choice| CompressionChoice { force, ..choice }))
}

/// Missing devices are no obstacle; the word `named` has the named ones used alone.
pub(super) fn degraded(options: &mut MountOptions, value: &str) -> Result<()> {
    options.named_alone = match value {
        "" => false,
        "named" => true,
        _ => bail!("option 'degraded={value}': degraded stands alone, or is degraded=named"),
    };
    options.degraded = true;
    Ok(())
}

/// A number of bytes, or of KiB with a K behind it.
pub(super) fn inline(value: &str) -> Result<u32> {
    let wrong = || format!("option 'max_inline={value}': it is a number of bytes, K behind it is allowed");
    let (digits, factor) = match value.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1024),
        None => (value, 1),
    };
    let number: u32 = digits.parse().with_context(wrong)?;
    number.checked_mul(factor).with_context(wrong)
}

/// A length in bytes, with a unit or without.
pub(crate) fn small_files(value: &str) -> Result<u64> {
    parse_size(value).with_context(|| format!("'{value}' is no length for small_files"))
}

/// A number of seconds; 0 stands for the default, as with the kernel.
pub(super) fn commit(value: &str) -> Result<Option<Duration>> {
    let seconds: u64 =
        value.parse().with_context(|| format!("option 'commit={value}': it is a number of seconds"))?;
    Ok((seconds > 0).then(|| Duration::from_secs(seconds)))
}

/// A number of seconds, named by its option.
pub(super) fn seconds(option: &str, value: &str) -> Result<Duration> {
    let number =
        value.parse().with_context(|| format!("option '{option}={value}': it is a number of seconds"))?;
    Ok(Duration::from_secs(number))
}

/// The interval of a lease; `None` if there is no value.
pub(super) fn lease(value: &str) -> Result<Option<Duration>> {
    if value.is_empty() {
        return Ok(None);
    }
    let seconds = value.parse::<u64>().ok().filter(|seconds| (1..=60).contains(seconds));
    let wrong = || format!("option 'lease={value}': it is a number of seconds, from 1 to 60");
    Ok(Some(Duration::from_secs(seconds.with_context(wrong)?)))
}

/// A number of MiB, in bytes.
pub(super) fn memory(value: &str) -> Result<usize> {
    const MOST_MIB: usize = 1 << 20;
    let number = value.parse::<usize>().ok().filter(|mib| (1..=MOST_MIB).contains(mib));
    let wrong = || format!("option 'metadata_memory={value}': it is a number of MiB, from 1 to {MOST_MIB}");
    Ok(number.with_context(wrong)? << 20)
}

/// Words of a rescue, with colons between them.
pub(super) fn rescue(options: &mut MountOptions, words: &str) -> Result<()> {
    for word in words.split(':') {
        match word {
            "usebackuproot" => options.rescue.backup_roots = true,
            "ibadroots" | "ignorebadroots" => options.rescue.bad_roots = true,
            "idatacsums" | "ignoredatacsums" => options.rescue.data_checksums = true,
            "imetacsums" | "ignoremetacsums" => options.rescue.tree_checksums = true,
            // No pool is refused for its flags where it is only read.
            "isuperflags" | "ignoresuperflags" | "nologreplay" => options.leaves_log = true,
            "chunks" => options.recovers_chunks = true,
            "all" => {
                let backup_roots = options.rescue.backup_roots;
                options.rescue = Rescue { backup_roots, ..Rescue::ALL };
                options.leaves_log = true;
            }
            _ => bail!(
                "option 'rescue={words}': '{word}' is none of usebackuproot, ibadroots, idatacsums, imetacsums, \
                 isuperflags, nologreplay, chunks and all"
            ),
        }
    }
    Ok(())
}

/// The id of a subvolume, decimal or hexadecimal.
pub(super) fn subvolume(value: &str) -> Result<RootId> {
    let number = match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => value.parse(),
    };
    Ok(RootId::new(number.with_context(|| format!("option 'subvolid={value}': the id is not a number"))?))
}

//! Mount options that say how a pool is written, as the kernel's btrfs has them.

use crate::commands::mkfs::parse_size;
use anyhow::{Context, Result, bail};
use brindle_fs::{AtimeMode, Compression, CompressionChoice, PlacementClass, PlacementMode, WriteOptions};
use brindle_policy::defragment::idle::AutoDefragment;
use std::collections::BTreeMap;
use std::time::Duration;

/// What `-o` said of writing; what it did not say is as usual.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteChoices {
    compression: Option<CompressionChoice>,
    nodatacow: bool,
    nodatasum: bool,
    max_inline_bytes: Option<u32>,
    flush_on_commit: bool,
    no_tree_log: bool,
    discard: bool,
    /// When the time of the last access is kept.
    pub(crate) atime: AtimeMode,
    /// Not of directories (`nodiratime`).
    pub(crate) no_directory_atime: bool,
    /// How much the class of a device weighs (`ssd_metadata`).
    pub(crate) placement: PlacementMode,
    /// Files up to this length have their data on fast devices (`small_files`).
    pub(crate) small_file_bytes: Option<u64>,
    /// The class that a device is to have, by its name.
    pub(crate) classes: BTreeMap<String, PlacementClass>,
    /// How often to commit (`commit=`).
    pub(crate) commit_interval: Option<Duration>,
    /// Whether metadata is defragmented while the mount is idle (`metadata_defrag`).
    pub(crate) auto_defragment: AutoDefragment,
    /// Who owns a subvolume may delete it (`user_subvol_rm_allowed`).
    pub(crate) owners_delete_subvolumes: bool,
    /// The first of these options that was given.
    pub(crate) first: Option<String>,
}

/// As the kernel has it: a commit interval longer than this is warned of.
const COMMIT_SECONDS_LONG: u64 = 300;

impl WriteChoices {
    /// Takes an option; false if it is none of these.
    pub(crate) fn add(&mut self, name: &str, value: Option<&str>) -> Result<bool> {
        match (name, value) {
            ("compress" | "compress-force", value) => {
                self.compression = parse_compression(value, name == "compress-force")?;
            }
            ("nodatacow", None) => (self.nodatacow, self.nodatasum) = (true, true),
            ("datacow", None) => self.nodatacow = false,
            ("nodatasum", None) => self.nodatasum = true,
            // What is not copied on write can't have checksums.
            ("datasum", None) => (self.nodatacow, self.nodatasum) = (false, false),
            ("max_inline", Some(value)) => self.max_inline_bytes = Some(parse_inline(value)?),
            ("discard", None | Some("async" | "sync")) => self.discard = true,
            ("nodiscard", None) => self.discard = false,
            ("noatime", None) => self.atime = AtimeMode::Never,
            ("strictatime", None) => self.atime = AtimeMode::Strict,
            ("relatime" | "atime" | "nostrictatime", None) => self.atime = AtimeMode::Relative,
            ("nodiratime", None) => self.no_directory_atime = true,
            ("diratime", None) => self.no_directory_atime = false,
            ("ssd_metadata", None | Some("preferred")) => self.placement = PlacementMode::Preferred,
            ("ssd_metadata", Some("strict")) => self.placement = PlacementMode::Strict,
            ("ssd_metadata", Some(value)) => {
                bail!(
                    "option 'ssd_metadata={value}': it is ssd_metadata, ssd_metadata=strict or no_ssd_metadata"
                )
            }
            ("no_ssd_metadata", None) => self.placement = PlacementMode::Classic,
            ("small_files", Some(value)) => self.small_file_bytes = Some(parse_small_files(value)?),
            ("commit", Some(value)) => self.commit_interval = parse_commit(value)?,
            ("metadata_defrag", None | Some("rotating")) => self.auto_defragment = AutoDefragment::Rotating,
            ("metadata_defrag", Some("always")) => self.auto_defragment = AutoDefragment::Always,
            ("metadata_defrag", Some("off")) => self.auto_defragment = AutoDefragment::Off,
            ("user_subvol_rm_allowed", None) => self.owners_delete_subvolumes = true,
            ("flushoncommit", None) => self.flush_on_commit = true,
            ("noflushoncommit", None) => self.flush_on_commit = false,
            ("treelog", None) => self.no_tree_log = false,
            ("notreelog", None) => self.no_tree_log = true,
            ("max_inline" | "commit" | "small_files", None) => {
                bail!("option '{name}' needs a value: {name}=...")
            }
            _ => return Ok(false),
        }
        self.first.get_or_insert_with(|| name.to_owned());
        Ok(true)
    }

    /// Warns of what is allowed and may be regretted.
    pub(crate) fn warn(&self) {
        let seconds = self.commit_interval.map_or(0, |interval| interval.as_secs());
        if seconds > COMMIT_SECONDS_LONG {
            tracing::warn!("commit={seconds}: a crash may lose what was written in so many seconds");
        }
    }

    /// What the filesystem must know.
    pub(crate) fn for_filesystem(&self) -> WriteOptions {
        let usual = WriteOptions::default();
        WriteOptions {
            compression: self.compression,
            nodatacow: self.nodatacow,
            nodatasum: self.nodatasum,
            max_inline_bytes: self.max_inline_bytes.unwrap_or(usual.max_inline_bytes),
            flush_on_commit: self.flush_on_commit,
            tree_log: !self.no_tree_log,
            discard: self.discard,
            atime: self.atime,
            placement: self.placement,
            small_file_bytes: self.small_file_bytes,
            classes: self.classes.clone(),
            ..usual
        }
    }
}

/// `zlib`, `lzo` or `zstd`, the first and last with a level behind a colon; nothing means zlib.
fn parse_compression(value: Option<&str>, force: bool) -> Result<Option<CompressionChoice>> {
    const ZLIB_LEVEL_MAX: u8 = 9;
    const ZSTD_LEVEL_MAX: u8 = 15;
    let value = value.unwrap_or("zlib");
    let (name, level) = match value.split_once(':') {
        Some((name, level)) => (name, Some(level)),
        None => (value, None),
    };
    let (algorithm, level_max) = match name {
        "zlib" => (Compression::Zlib, ZLIB_LEVEL_MAX),
        "lzo" => (Compression::Lzo, 0),
        "zstd" => (Compression::Zstd, ZSTD_LEVEL_MAX),
        "no" | "none" if level.is_none() => return Ok(None),
        _ => bail!("option 'compress={value}': it is one of zlib, lzo, zstd, no"),
    };
    let wrong = || format!("option 'compress={value}': the level is a number from 1 to {level_max}");
    let level = level.map(str::parse::<u8>).transpose().with_context(wrong)?;
    if level.is_some_and(|level| level == 0 || level > level_max) {
        match level_max {
            0 => bail!("option 'compress={value}': lzo has no levels"),
            _ => bail!(wrong()),
        }
    }
    Ok(Some(CompressionChoice { algorithm, level, force }))
}

fn parse_inline(value: &str) -> Result<u32> {
    let wrong = || format!("option 'max_inline={value}': it is a number of bytes, K behind it is allowed");
    let (digits, factor) = match value.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1024),
        None => (value, 1),
    };
    let number: u32 = digits.parse().with_context(wrong)?;
    number.checked_mul(factor).with_context(wrong)
}

/// A length in bytes, with a unit or without.
pub(crate) fn parse_small_files(value: &str) -> Result<u64> {
    parse_size(value).with_context(|| format!("'{value}' is no length for small_files"))
}

/// A number of seconds; 0 stands for the default, as with the kernel.
fn parse_commit(value: &str) -> Result<Option<Duration>> {
    let seconds: u64 =
        value.parse().with_context(|| format!("option 'commit={value}': it is a number of seconds"))?;
    Ok((seconds > 0).then(|| Duration::from_secs(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices(options: &[&str]) -> Result<WriteChoices> {
        let mut choices = WriteChoices::default();
        for option in options {
            let (name, value) =
                option.split_once('=').map_or((*option, None), |(name, value)| (name, Some(value)));
            assert!(choices.add(name, value)?, "{option} is known");
        }
        Ok(choices)
    }

    #[test]
    fn compression_is_as_the_kernel_has_it() {
        let compression = |option| choices(&[option]).expect("right").for_filesystem().compression;
        let choice = |algorithm, level, force| Some(CompressionChoice { algorithm, level, force });
        assert_eq!(compression("compress"), choice(Compression::Zlib, None, false));
        assert_eq!(compression("compress=zstd:3"), choice(Compression::Zstd, Some(3), false));
        assert_eq!(compression("compress-force=lzo"), choice(Compression::Lzo, None, true));
        assert_eq!(compression("compress=no"), None);
        for wrong in
            ["compress=bzip2", "compress=zstd:16", "compress=lzo:1", "compress=zlib:x", "compress=zlib:0"]
        {
            assert!(choices(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_last_one_counts() {
        let options =
            choices(&["nodatacow", "datasum", "discard=async", "max_inline=1k", "noatime", "relatime"]);
        let options = options.expect("right");
        let write = options.for_filesystem();
        assert!(!write.nodatacow && !write.nodatasum && write.discard);
        assert_eq!((write.max_inline_bytes, write.atime), (1024, AtimeMode::Relative));
        assert_eq!(options.first.as_deref(), Some("nodatacow"));
        assert!(
            choices(&["nodatacow"]).expect("right").for_filesystem().nodatasum,
            "one follows from the other"
        );
    }

    #[test]
    fn fsyncs_are_logged_unless_told_otherwise() {
        let logs = |options: &[&str]| choices(options).expect("right").for_filesystem().tree_log;
        assert!(logs(&[]) && logs(&["notreelog", "treelog"]));
        assert!(!logs(&["notreelog"]));
    }

    #[test]
    fn small_files_have_a_length() {
        let small = |option| choices(&[option]).map(|options| options.for_filesystem().small_file_bytes);
        assert_eq!(small("small_files=64K").expect("right"), Some(65_536));
        assert_eq!(small("small_files=0").expect("right"), Some(0));
        assert_eq!(small("noatime").expect("right"), None, "what the pool has stored counts");
        for wrong in ["small_files=x", "small_files=", "small_files=K", "small_files=99999999999999999999M"] {
            assert!(small(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn s0_14_no_two_options_mean_the_same_by_accident() {
        let words = [
            "compress=zlib",
            "compress-force",
            "nodatacow",
            "nodatasum",
            "max_inline=1",
            "discard",
            "noatime",
            "strictatime",
            "nodiratime",
            "ssd_metadata=strict",
            "no_ssd_metadata",
            "commit=5",
            "notreelog",
            "small_files=1",
            "user_subvol_rm_allowed",
            "metadata_defrag",
            "metadata_defrag=always",
        ];
        let sets = |word: &str| WriteChoices { first: None, ..choices(&[word]).expect("known") };
        for (index, word) in words.iter().enumerate() {
            assert_ne!(sets(word), WriteChoices::default(), "{word} means something");
            for other in &words[..index] {
                assert_ne!(sets(word), sets(other), "{word} and {other}");
            }
        }
    }

    #[test]
    fn options_of_placement_exclude_each_other() {
        let mode = |options: &[&str]| choices(options).expect("right").for_filesystem().placement;
        assert_eq!(mode(&[]), PlacementMode::Preferred);
        assert_eq!(mode(&["no_ssd_metadata"]), PlacementMode::Classic);
        assert_eq!(mode(&["no_ssd_metadata", "ssd_metadata"]), PlacementMode::Preferred);
        assert_eq!(mode(&["ssd_metadata", "ssd_metadata=strict"]), PlacementMode::Strict);
    }

    #[test]
    fn commits_have_an_interval() {
        let interval = |option| choices(&[option]).map(|options| options.commit_interval);
        assert_eq!(interval("commit=5").expect("right"), Some(Duration::from_secs(5)));
        assert_eq!(interval("commit=0").expect("the default"), None);
        assert!(interval("commit=x").is_err() && interval("commit").is_err());
    }

    #[test]
    fn others_are_left_to_others() {
        let mut options = WriteChoices::default();
        assert!(!options.add("bogus", None).expect("no error"));
        assert!(!options.add("nodatacow", Some("1")).expect("no error"));
        assert_eq!(options, WriteChoices::default());
    }
}

//! `brindle mkfs --rootdir`: the pool is filled while it is made.

use crate::commands::stop::Stop;
use crate::format::UnitMode;
use anyhow::{Context, Result, anyhow, bail};
use brindle_care::job::Control;
use brindle_care::mkfs::{Contents, MkfsOptions, MkfsReport, NewDevice, mkfs};
use brindle_care::populate::{
    InodeFlagRule, PopulateError, PopulateOptions, PopulateReport, Source, SubvolumeKind, SubvolumeRule,
    Veiled, populate,
};
use brindle_device::WritableDevice;
use brindle_fs::CompressionChoice;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use std::fs::{self, Metadata};
use std::io::{IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
/// Bytes of an image beside contents and their metadata: system chunks, and room to work.
const SPARE_BYTES: u64 = 64 * MIB;

/// Options for the contents of a new pool.
#[derive(Args, Debug)]
pub(super) struct RootdirOptions {
    /// Fill the pool with the contents of DIR; an image that is not there is made, large enough
    #[arg(short, long, value_name = "DIR")]
    rootdir: Option<PathBuf>,
    /// End the pool, and an image file, behind its last chunk; chunks are as small as the contents allow
    #[arg(long, requires = "rootdir")]
    shrink: bool,
    /// Compress files: zlib, lzo or zstd, with a level if you like; no for none
    #[arg(long, value_name = "ALG[:LEVEL]", requires = "rootdir", value_parser = parse_compression)]
    compress: Option<ChosenCompression>,
    /// SUBDIR of the source becomes a subvolume: writable (rw), read-only (ro), the default one (may be repeated)
    #[arg(short = 'u', long, value_name = "[TYPE:]SUBDIR", requires = "rootdir", value_parser = parse_subvolume)]
    subvol: Vec<SubvolumeRule>,
    /// Flags of PATH in the source and everything below it: nodatacow, nodatasum, comma-separated (may be repeated)
    #[arg(long, value_name = "FLAGS:PATH", requires = "rootdir", value_parser = parse_inode_flags)]
    inode_flags: Vec<InodeFlagRule>,
}

/// Compression of files; `None` for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChosenCompression(Option<CompressionChoice>);

/// A source that was looked at, and what is to be done with it.
pub(super) struct Filling {
    source: Source,
    options: PopulateOptions,
    contents: Contents,
    shows_progress: bool,
}

impl RootdirOptions {
    /// Looks at the source, before anything is written.
    pub(super) fn prepare(
        &self,
        options: &mut MkfsOptions,
        small_file_bytes: Option<u64>,
        shows_progress: bool,
    ) -> Result<Option<Filling>> {
        let Some(rootdir) = &self.rootdir else { return Ok(None) };
        let source = Source::scan(rootdir)?;
        // Leaves are not quite full, and a tree has more than leaves.
        let metadata_bytes = source.metadata_bytes() * 3 / 2 + 8 * MIB;
        let contents = Contents { data_bytes: source.data_bytes(), metadata_bytes };
        if self.shrink {
            options.contents = Some(contents);
        }
        let options = PopulateOptions {
            compression: self.compress.and_then(|chosen| chosen.0),
            subvolumes: self.subvol.clone(),
            inode_flags: self.inode_flags.clone(),
            shrink: self.shrink,
            is_reproducible: std::env::var_os("SOURCE_DATE_EPOCH").is_some(),
            small_file_bytes,
            threads: None,
            data_bytes: None,
            seed: options.seed,
            time_sec: options.time_sec,
        };
        Ok(Some(Filling { source, options, contents, shows_progress }))
    }
}

impl Filling {
    /// The size of each image that is made, in bytes.
    pub(super) fn image_bytes(&self) -> u64 {
        // Metadata and data are both written twice at the most by what is usual; each device can hold all of it.
        let Contents { data_bytes, metadata_bytes } = self.contents;
        (data_bytes + data_bytes / 8 + 3 * metadata_bytes + SPARE_BYTES).next_multiple_of(MIB)
    }

    /// Refuses an image that is to take in itself.
    pub(super) fn refuse_image(&self, path: &Path) -> Result<()> {
        let Some(metadata) = fs::metadata(path).ok().filter(Metadata::is_file) else { return Ok(()) };
        match self.source.find_file((metadata.dev(), metadata.ino())) {
            Some(inside) => bail!("{} lies in the directory that it is to be filled with", inside.display()),
            None => Ok(()),
        }
    }

    /// Makes and fills the pool. Until that is done no device has a superblock: a failure, and a signal, leave no filesystem.
    pub(super) fn make(
        &self,
        mut devices: Vec<NewDevice>,
        options: &MkfsOptions,
        stop: &Stop,
    ) -> Result<(MkfsReport, PopulateReport)> {
        let veil = |new: &mut NewDevice| {
            let veiled = Arc::new(Veiled::new(Arc::clone(&new.device)));
            new.device = Arc::clone(&veiled) as Arc<dyn WritableDevice>;
            veiled
        };
        let veils: Vec<Arc<Veiled>> = devices.iter_mut().map(veil).collect();
        let (mut report, mut filled) = (mkfs(&devices, options)?, self.fill(&devices, None, stop)?);
        if let Some(contents) = filled.tighter().filter(|_| self.options.shrink) {
            // How much things come to is known now: what compression leaves, and what trees take.
            let options = MkfsOptions { contents: Some(contents), force: true, ..options.clone() };
            let data_bytes = Some(filled.used.data_bytes);
            (report, filled) = (mkfs(&devices, &options)?, self.fill(&devices, data_bytes, stop)?);
        }
        self.cut(&devices, &mut report, &filled)?;
        veils.iter().try_for_each(|veil| veil.lift())?;
        Ok((report, filled))
    }

    fn fill(&self, devices: &[NewDevice], data_bytes: Option<u64>, stop: &Stop) -> Result<PopulateReport> {
        let options = PopulateOptions { data_bytes, ..self.options.clone() };
        let is_shown = self.shows_progress && std::io::stderr().is_terminal();
        let target =
            if is_shown { ProgressDrawTarget::stderr_with_hz(8) } else { ProgressDrawTarget::hidden() };
        let style = ProgressStyle::with_template("filling {wide_bar} {percent:>3}% {eta:>4}");
        let bar = ProgressBar::with_draw_target(Some(self.source.units()), target)
            .with_style(style.expect("the template is right"));
        let writable = devices.iter().map(|new| Arc::clone(&new.device)).collect();
        let filled = populate(writable, &self.source, &options, &mut |progress| {
            bar.set_position(progress.moved_bytes);
            if stop.is_set() { Control::Cancel } else { Control::Continue }
        });
        bar.finish_and_clear();
        filled.map_err(|error| {
            let size = UnitMode::DEFAULT.format(self.image_bytes());
            match error {
                PopulateError::NoSpace { .. } => anyhow!(error).context(format!(
                    "no filesystem was made: the contents do not fit; devices of {size} would have room"
                )),
                _ => anyhow!(error).context("no filesystem was made"),
            }
        })
    }

    /// Image files end where the pool does.
    fn cut(&self, devices: &[NewDevice], report: &mut MkfsReport, filled: &PopulateReport) -> Result<()> {
        for (devid, size_bytes) in &filled.device_sizes {
            let Some(member) = report.devices.iter_mut().find(|member| member.devid == *devid) else {
                continue;
            };
            report.total_bytes -= member.size_bytes - size_bytes;
            member.size_bytes = *size_bytes;
            let device = devices.iter().find(|new| new.device.name() == member.name);
            let is_image = fs::metadata(&member.name).is_ok_and(|metadata| metadata.is_file());
            if let Some(new) = device.filter(|_| is_image) {
                new.device.set_size(*size_bytes)?;
                new.device.flush()?;
            }
        }
        Ok(())
    }
}

/// Report of the files taken in, for people.
pub(super) fn print_report(out: &mut impl Write, filled: &PopulateReport) -> Result<()> {
    let size = UnitMode::DEFAULT.format(filled.content_bytes);
    writeln!(out, "Contents:           {size} in {} files", filled.files)?;
    writeln!(
        out,
        "                    {} directories, {} symbolic links, {} hard links, {} special files, {} subvolumes",
        filled.directories, filled.symlinks, filled.hard_links, filled.specials, filled.subvolumes
    )?;
    Ok(())
}

/// The same for programs.
pub(super) fn report_json(filled: &PopulateReport) -> Value {
    json!({
        "files": filled.files,
        "directories": filled.directories,
        "symlinks": filled.symlinks,
        "hard_links": filled.hard_links,
        "specials": filled.specials,
        "subvolumes": filled.subvolumes,
        "content_bytes": filled.content_bytes,
        "warnings": filled.warnings,
    })
}

fn parse_compression(word: &str) -> Result<ChosenCompression> {
    Ok(ChosenCompression(CompressionChoice::parse(word)?))
}

fn parse_subvolume(word: &str) -> Result<SubvolumeRule> {
    let kind = |is_read_only, is_default| SubvolumeKind { is_read_only, is_default };
    let (kind, path) = match word.split_once(':') {
        Some(("rw", path)) => (kind(false, false), path),
        Some(("ro", path)) => (kind(true, false), path),
        Some(("default", path)) => (kind(false, true), path),
        Some(("default-ro", path)) => (kind(true, true), path),
        _ => (kind(false, false), word),
    };
    Ok(SubvolumeRule { kind, path: inside(path)? })
}

fn parse_inode_flags(word: &str) -> Result<InodeFlagRule> {
    let (flags, path) = word.split_once(':').context("it is FLAGS:PATH")?;
    let mut rule = InodeFlagRule { nodatacow: false, nodatasum: false, path: inside(path)? };
    for flag in flags.split(',') {
        match flag {
            "nodatacow" => rule.nodatacow = true,
            "nodatasum" => rule.nodatasum = true,
            _ => bail!("flags are nodatacow and nodatasum"),
        }
    }
    Ok(rule)
}

/// A path within the source.
fn inside(path: &str) -> Result<PathBuf> {
    if path.is_empty() || path.starts_with('/') {
        bail!("the path is one within the source, without a slash before it");
    }
    Ok(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_fs::Compression;

    #[test]
    fn words_are_those_of_mkfs_btrfs() {
        let of = |word| parse_compression(word).ok().map(|chosen| chosen.0);
        let zstd = |level| CompressionChoice { algorithm: Compression::Zstd, level, force: false };
        assert_eq!((of("zstd:15"), of("zstd")), (Some(Some(zstd(Some(15)))), Some(Some(zstd(None)))));
        assert_eq!((of("no"), of("zstd:x"), of("xz")), (Some(None), None, None));
        let rule = parse_subvolume("default-ro:a/b").expect("known words");
        assert!(rule.kind.is_default && rule.kind.is_read_only && rule.path == Path::new("a/b"));
        assert_eq!(parse_subvolume("x:y").expect("a path").path, Path::new("x:y"));
        assert!(parse_subvolume("ro:/abs").is_err() && parse_inode_flags("sync:a").is_err());
        assert!(parse_inode_flags("nodatacow,nodatasum:a").expect("known words").nodatacow);
    }
}

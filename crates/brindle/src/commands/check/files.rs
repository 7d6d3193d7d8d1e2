//! Files that bad copies of data belong to.

use crate::commands::mount_options::MountOptions;
use crate::commands::pool::open_to_read;
use anyhow::Result;
use brindle_care::scrub::{DamagedFile, damaged_files};
use brindle_check::{Finding, Report};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

/// Number of places of a file that are listed.
const PLACES_SHOWN: usize = 4;

/// The files that the listed findings of data belong to, by path.
pub(super) fn named(report: &Report, paths: &[&Path], options: &[String]) -> Result<Vec<DamagedFile>> {
    let address = |finding: &Finding| match finding {
        Finding::Data { at, .. } | Finding::DataUnreadable { at, .. } => Some(*at),
        _ => None,
    };
    let addresses: BTreeSet<_> = report.findings().filter_map(|(_, finding)| address(finding)).collect();
    if addresses.is_empty() {
        return Ok(Vec::new());
    }
    let top_level = "degraded,subvolid=5".to_owned();
    let options: Vec<&String> = options.iter().chain([&top_level]).collect();
    let filesystem = open_to_read(paths, &MountOptions::parse(&options)?)?;
    let (files, failed) = damaged_files(&filesystem, &addresses);
    if let Some(error) = failed {
        tracing::warn!("not all files with bad data can be named: {error}");
    }
    Ok(files)
}

/// Lists the files.
pub(super) fn print(out: &mut dyn Write, files: &[DamagedFile]) -> io::Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    writeln!(out, "files with bad copies of data, by the findings that are listed:")?;
    for file in files {
        let places: Vec<String> = file.offsets.iter().take(PLACES_SHOWN).map(u64::to_string).collect();
        let more = file.offsets.len() - places.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let state = if file.is_lost { "lost there" } else { "whole by another copy" };
        writeln!(out, "  {} at {}{more}: {state}", String::from_utf8_lossy(&file.path), places.join(", "))?;
    }
    Ok(())
}

/// The files as JSON.
pub(super) fn json(files: &[DamagedFile]) -> Value {
    let one = |file: &DamagedFile| {
        json!({
            "path": String::from_utf8_lossy(&file.path),
            "offsets": file.offsets,
            "lost": file.is_lost,
        })
    };
    files.iter().map(one).collect()
}

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

/// Number of findings of bad data that are kept, unless a list of all files is wanted: each takes memory.
pub(super) const PLACES_KEPT: usize = 1 << 18;

/// Damaged files, for people and for programs.
pub(super) struct Named {
    /// The files, by path.
    pub(super) files: Vec<DamagedFile>,
    /// Every finding of bad data was kept.
    pub(super) are_all: bool,
    /// Number of files to show to people.
    pub(super) most: usize,
}

/// Returns true if each finding of bad data was kept.
pub(super) fn are_all_kept(report: &Report) -> bool {
    report
        .pass("data")
        .is_none_or(|pass| u64::try_from(pass.errors.list.len()).is_ok_and(|kept| kept == pass.errors.count))
}

/// The files that the kept findings of data belong to, by path.
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

impl Named {
    /// No files.
    pub(super) fn none() -> Self {
        Self { files: Vec::new(), are_all: true, most: 0 }
    }

    /// Files of which no copy of a part is right.
    pub(super) fn lost(&self) -> impl Iterator<Item = &DamagedFile> {
        self.files.iter().filter(|file| file.is_lost)
    }

    /// Lists the files, those first that have lost data.
    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        let extent = if self.are_all { "" } else { ", by the first findings" };
        writeln!(out, "files with bad copies of data ({}){extent}:", self.files.len())?;
        let whole = self.files.iter().filter(|file| !file.is_lost);
        for file in self.lost().chain(whole).take(self.most) {
            let places: Vec<String> = file.offsets.iter().take(PLACES_SHOWN).map(u64::to_string).collect();
            let more = file.offsets.len() - places.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let state = if file.is_lost { "lost there" } else { "whole by another copy" };
            let path = String::from_utf8_lossy(&file.path);
            writeln!(out, "  {path} at {}{more}: {state}", places.join(", "))?;
        }
        let more = self.files.len().saturating_sub(self.most);
        if more > 0 {
            writeln!(out, "  and {more} more: --json has all, --damaged-files LIST those with lost data")?;
        }
        Ok(())
    }

    /// The files as JSON.
    pub(super) fn json(&self) -> Value {
        let one = |file: &DamagedFile| {
            json!({
                "path": String::from_utf8_lossy(&file.path),
                "offsets": file.offsets,
                "lost": file.is_lost,
            })
        };
        self.files.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_files_come_first_and_those_that_are_not_shown_are_counted() {
        let file = |name: u64, is_lost| DamagedFile {
            path: format!("/{name}").into_bytes(),
            offsets: [name * 4096].into(),
            is_lost,
        };
        let files = (0..300).map(|name| file(name, name == 299)).collect();
        let named = Named { files, are_all: true, most: 2 };
        let mut out = Vec::new();
        named.print(&mut out).expect("memory");
        let text = String::from_utf8(out).expect("text");
        let expected = "files with bad copies of data (300):\n  /299 at 1224704: lost there\n  /0 at 0: whole by another copy\n  \
                        and 298 more: --json has all, --damaged-files LIST those with lost data\n";
        assert_eq!(text, expected);
        assert_eq!(named.json().as_array().map(Vec::len), Some(300));
        assert_eq!(named.lost().count(), 1);
    }
}

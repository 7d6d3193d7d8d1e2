//! The table of `usage -T`: a row a device, a column a profile.

use super::by_device::name;
use super::profile_name;
use crate::format::{Align, UnitMode, write_ruled};
use brindle_admin::usage::Usage;
use std::io::{self, Write};

/// Prints the table.
pub(super) fn print(out: &mut impl Write, usage: &Usage, mode: UnitMode) -> io::Result<()> {
    let shown = |bytes: u64| if bytes == 0 { "-".to_owned() } else { mode.format(bytes) };
    let kinds = || usage.kinds.iter();
    let mut contents = vec![String::new(); 2];
    contents.extend(kinds().map(|sum| sum.kind.content_name().to_owned()));
    contents.extend(vec![String::new(); 3]);
    let mut heads = vec!["Id".to_owned(), "Path".to_owned()];
    heads.extend(kinds().map(|sum| profile_name(sum.kind)));
    heads.extend(["Unallocated", "Total", "Slack"].map(str::to_owned));
    let mut rows = Vec::new();
    for device in &usage.devices {
        let mut row = vec![device.devid.to_string(), name(device)];
        row.extend(kinds().map(|sum| shown(device.of_kind(sum.kind))));
        row.push(shown(device.unallocated_bytes()));
        row.extend([shown(device.total_bytes), shown(device.slack_bytes)]);
        rows.push(row);
    }
    let overall = usage.overall();
    let mut total = vec![String::new(), "Total".to_owned()];
    total.extend(kinds().map(|sum| mode.format(sum.total_bytes)));
    total.extend([overall.unallocated, overall.size, overall.slack].map(|bytes| mode.format(bytes)));
    let mut used = vec![String::new(), "Used".to_owned()];
    used.extend(kinds().map(|sum| mode.format(sum.used_bytes)));
    used.extend(vec![String::new(); 3]);

    write_ruled(out, Align::Left, &[contents, heads], &[&rows, &[total, used]])
}

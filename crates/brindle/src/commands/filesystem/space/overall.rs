//! The sums over the pool.

use crate::format::UnitMode;
use brindle_admin::usage::Usage;
use std::io::{self, Write};

/// Column of the numbers, by tabs.
const COLUMN: usize = 32;
/// Width of a number with a unit that fits.
const WIDTH: usize = 10;
/// Width of other numbers.
const WIDE: usize = 18;

/// Prints the part `Overall`.
pub(super) fn print(out: &mut impl Write, usage: &Usage, mode: UnitMode) -> io::Result<()> {
    let overall = usage.overall();
    let width = if mode == UnitMode::DEFAULT { WIDTH } else { WIDE };
    writeln!(out, "Overall:")?;
    let mut line = |name: &str, value: String, behind: String| {
        let tabs = "\t".repeat((COLUMN - ("    :".len() + name.len())).div_ceil(8));
        writeln!(out, "    {name}:{tabs}{value:>width$}{behind}")
    };
    let none = String::new;
    line("Device size", mode.format(overall.size), none())?;
    line("Device allocated", mode.format(overall.allocated), none())?;
    line("Device unallocated", mode.format(overall.unallocated), none())?;
    line("Device missing", mode.format(overall.missing), none())?;
    line("Device slack", mode.format(overall.slack), none())?;
    line("Used", mode.format(overall.used), none())?;
    let least = format!("\t(min: {})", mode.format(overall.free_min));
    line("Free (estimated)", mode.format(overall.free), least)?;
    if let Some(free) = usage.free_statfs {
        line("Free (statfs, df)", mode.format(free), none())?;
    }
    line("Data ratio", format!("{:.2}", overall.ratios.data), none())?;
    line("Metadata ratio", format!("{:.2}", overall.ratios.metadata), none())?;
    if let Some([total, used]) = usage.reserve {
        line("Global reserve", mode.format(total), format!("\t(used: {})", mode.format(used)))?;
    }
    let several = usage.contents_of_several_profiles();
    match several.as_slice() {
        [] => line("Multiple profiles", "no".to_owned(), none()),
        several => line("Multiple profiles", "yes".to_owned(), format!("\t({})", several.join(", "))),
    }
}

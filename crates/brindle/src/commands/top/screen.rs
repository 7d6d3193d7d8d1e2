//! Lines of a view, for a width and a height.

use super::view::{CacheView, DeviceView, FlashCacheView, SyncView, View, WriteBackView};
use crate::format::UnitMode;
use brindle_device::Operation;
use std::time::Duration;

/// Width where there is no terminal, in columns.
pub(super) const WIDTH: usize = 80;
/// Columns of a device's line behind its path.
const BEHIND_PATH: usize = 68;

/// A line and its look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The text.
    pub(super) text: String,
    /// Its look.
    pub(super) tone: Tone,
}

/// Look of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// Usual text.
    Plain,
    /// A heading.
    Heading,
    /// Trouble.
    Trouble,
    /// Something at rest.
    Quiet,
}

/// The lines of a view; none is wider than the screen, and there are no more than it has.
pub(super) fn lines(view: &View, width: usize, height: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut add = |tone, text: String| lines.push(Line { text: cut(text.trim_end(), width), tone });
    let is_well = view.state == "ok";
    let title = format!("{}  {}  {} ({})", view.name, view.state, view.place, view.server);
    let every = format!("{}  q quits", time(view.interval));
    add(if is_well { Tone::Heading } else { Tone::Trouble }, apart(&title, &every, width));
    add(Tone::Plain, String::new());
    let path = width.saturating_sub(BEHIND_PATH).clamp(12, 60);
    add(
        Tone::Heading,
        format!(
            "{:path$} {:5} {:>6} {:>6} {:>6} {:>6} {:>6} {:>4} {:>7} {}",
            "DEVICE", "CLASS", "READ/s", "MB/s", "WRIT/s", "MB/s", "FLSH/s", "QUE", "LATENCY", "STATE",
        ),
    );
    for device in &view.devices {
        add(tone(device), load(device, path));
    }
    add(Tone::Plain, String::new());
    add(
        Tone::Heading,
        format!(
            "{:path$} {:>12} {:>12} {:>12} {:>12}",
            "CONTENTS", "METADATA", "DATA", "WRITE-BACK", "UNALLOCATED",
        ),
    );
    for device in &view.devices {
        add(Tone::Plain, contents(device, path));
    }
    for group in &view.groups {
        let class = group.class.map_or_else(String::new, |class| class.to_string());
        let of = format!("{} of {}", bytes(group.used_bytes), bytes(group.total_bytes));
        add(Tone::Plain, format!("  {:9} {:8} {:5} {of}", group.content_name(), group.profile_name(), class));
    }
    add(Tone::Plain, String::new());
    let facts = [
        view.syncs.as_ref().map(|it| ("fsyncs".to_owned(), syncs(it))),
        view.syncs.as_ref().map(|it| ("commits".to_owned(), commits(it))),
        view.cache.as_ref().map(|it| ("metadata".to_owned(), cache(it))),
        view.write_back.as_ref().map(|it| ("write-back".to_owned(), write_back(it))),
    ];
    let caches = view.flash_caches.iter().map(|it| (format!("cache {}", it.devid), flash_cache(it)));
    let jobs = [("jobs".to_owned(), jobs(view))];
    for (name, text) in facts.into_iter().flatten().chain(caches).chain(jobs) {
        add(Tone::Plain, format!("{name:11} {text}"));
    }
    lines.truncate(height);
    lines
}

/// Text at most this many characters wide. What a path or a label holds may not move the cursor.
fn cut(text: &str, width: usize) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).take(width).collect()
}

/// One text at the left, another at the right.
fn apart(left: &str, right: &str, width: usize) -> String {
    let room = width.saturating_sub(right.chars().count() + 1);
    format!("{:room$} {right}", cut(left, room))
}

fn tone(device: &DeviceView) -> Tone {
    match device.state {
        "busy" => Tone::Plain,
        "idle" | "asleep" => Tone::Quiet,
        _ => Tone::Trouble,
    }
}

/// The name of a device in its column: the end of a path tells more.
fn name(device: &DeviceView, width: usize) -> String {
    let all = format!("{} {}", device.devid, if device.path.is_empty() { "-" } else { &device.path });
    let length = all.chars().count();
    if length <= width {
        return all;
    }
    let number = format!("{} ..", device.devid);
    let room = width.saturating_sub(number.chars().count());
    number + &all.chars().skip(length - room).collect::<String>()
}

fn load(device: &DeviceView, path: usize) -> String {
    let [read, write, flush] = [Operation::Read, Operation::Write, Operation::Flush]
        .map(|operation| device.rates[operation as usize]);
    let state = match device.idle {
        Some(idle) if device.state == "idle" || device.state == "asleep" => {
            format!("{} {}", device.state, time(idle))
        }
        _ => device.state.to_owned(),
    };
    format!(
        "{:path$} {:5} {:>6} {:>6} {:>6} {:>6} {:>6} {:>4} {:>7} {state}",
        name(device, path),
        device.class.as_deref().unwrap_or("-"),
        number(read.requests),
        number(read.bytes / 1e6),
        number(write.requests),
        number(write.bytes / 1e6),
        number(flush.requests),
        device.in_flight,
        device.latency().map_or_else(|| "-".to_owned(), time),
    )
}

fn contents(device: &DeviceView, path: usize) -> String {
    let of = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), bytes);
    format!(
        "{:path$} {:>12} {:>12} {:>12} {:>12}",
        name(device, path),
        of(device.contents.map(|contents| contents.metadata_bytes)),
        of(device.contents.map(|contents| contents.data_bytes)),
        of(device.contents.map(|contents| contents.write_back_bytes)),
        bytes(device.unallocated_bytes),
    )
}

fn syncs(syncs: &SyncView) -> String {
    let [half, most] = syncs.percentiles.map_or(["-".to_owned(), "-".to_owned()], |it| it.map(time));
    format!(
        "{}/s in {} log writes, {}/s by commit; p50 {half}, p99 {most}",
        number(syncs.by_log),
        number(syncs.log_writes),
        number(syncs.by_commit),
    )
}

fn commits(syncs: &SyncView) -> String {
    format!("{}/s; longest {}", number(syncs.commits), time(syncs.longest_commit))
}

fn percent(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0))
}

fn flash_cache(cache: &FlashCacheView) -> String {
    format!(
        "hits {} of {} MB/s ({} ever); {} of {} wait",
        percent(cache.hit_ratio),
        number(cache.read / 1e6),
        percent(cache.hit_ratio_ever),
        bytes(cache.dirty_bytes),
        bytes(cache.used_bytes),
    )
}

fn cache(cache: &CacheView) -> String {
    format!(
        "{}/s, hits {} ({} ever); {} of {}",
        number(cache.lookups),
        percent(cache.hit_ratio),
        percent(cache.hit_ratio_ever),
        bytes(cache.used_bytes),
        bytes(cache.capacity_bytes),
    )
}

fn write_back(tier: &WriteBackView) -> String {
    let oldest = tier.age.map_or_else(String::new, |age| format!(", oldest {}", time(age)));
    format!(
        "{}; {} of {} wait{oldest}; {} MB/s destaged",
        tier.mode,
        bytes(tier.waiting_bytes),
        bytes(tier.capacity_bytes),
        number(tier.destaged / 1e6),
    )
}

fn jobs(view: &View) -> String {
    let each = view.jobs.iter().map(|job| {
        let percent = job.percent().map_or_else(String::new, |percent| format!(" {percent} %"));
        format!("{}{percent}{}", job.name, if job.is_running { "" } else { " (paused)" })
    });
    let all: Vec<String> = each.collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

fn bytes(bytes: u64) -> String {
    UnitMode::DEFAULT.format(bytes)
}

/// A number of six characters at most.
fn number(value: f64) -> String {
    match value {
        value if value <= 0.0 => "0".to_owned(),
        value if value < 9.95 => format!("{value:.2}"),
        value if value < 99.5 => format!("{value:.1}"),
        value if value < 99_999.5 => format!("{value:.0}"),
        value if value < 9_999_500.0 => format!("{:.0}k", value / 1e3),
        value => format!("{:.0}M", value / 1e6),
    }
}

/// A time of seven characters at most.
fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let in_unit = |value: f64, unit: &str| {
        if value < 9.95 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
    };
    match time.as_secs() {
        0 if seconds < 0.000_999_5 => in_unit(seconds * 1e6, "us"),
        0 if seconds < 0.999_5 => in_unit(seconds * 1e3, "ms"),
        0..120 => in_unit(seconds, "s"),
        120..7200 => format!("{} min", time.as_secs() / 60),
        7200..172_800 => format!("{} h", time.as_secs() / 3600),
        _ => format!("{} d", time.as_secs() / 86_400),
    }
}

#[cfg(test)]
mod tests;

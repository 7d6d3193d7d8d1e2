//! Sections of a report, in their order: what was measured and how far it can be trusted, where brindle is ahead and where behind, the
//! published figures beside ours, each work, the 73 cases.

use super::document::{Block, Cell, Plot, Table, Tone};
use super::figures::{Figure, PhaseFigures, Verdict, counts_text, group_of, median, verdict};
use super::plots;
use super::published::{OVERWRITTEN, PUBLISHED, Published, Unit};
use crate::DiskCounts;
use crate::compare::{DiskKind, Filesystem, Results, StepRecord};
use crate::is_poor;
use std::collections::BTreeMap;

const MEBIBYTE: f64 = 1_048_576.0;
/// Work of the 73 cases, which has a section of its own.
const CASES: &str = "cases";

/// A number with three digits that say something.
pub(super) fn three_digits(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        value if value >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// A ratio of speeds.
pub(super) fn ratio_text(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.2}") } else { three_digits(ratio) }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a run are below 2^53")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / MEBIBYTE
}

/// Bytes as a size.
pub(super) fn size_text(bytes: u64) -> String {
    let mebibytes = mebibytes(bytes);
    let (value, unit) = if mebibytes < 1000.0 { (mebibytes, "MiB") } else { (mebibytes / 1024.0, "GiB") };
    if bytes == 0 { "0".to_owned() } else { format!("{} {unit}", three_digits(value)) }
}

/// Nanoseconds as seconds.
pub(super) fn seconds_text(nanoseconds: u64) -> String {
    format!("{} s", three_digits(std::time::Duration::from_nanos(nanoseconds).as_secs_f64()))
}

fn heading(level: usize, words: impl Into<String>) -> Block {
    Block::Heading(level, words.into())
}

/// Facts of the measurement: the plan, the machine, and how far the figures can be trusted.
pub(super) fn method(results: &Results) -> Vec<Block> {
    let head = &results.head;
    let steps: Vec<&StepRecord> = results.done().collect();
    let loads = steps.iter().map(|step| step.load);
    let (low, high) = (loads.clone().fold(f64::MAX, f64::min), loads.fold(0.0, f64::max));
    let late = steps.iter().filter(|step| step.run.as_ref().is_some_and(crate::RunRecord::has_late_answers));
    let late = late.count();
    let gibibytes = head.memory_bytes >> 30;
    let disk = |kind: DiskKind| {
        let size = head.disks.get(kind.name()).map_or(0, |(_, size)| size >> 30);
        format!("`{}` of {size} GiB", head.model(kind))
    };
    let commit = head.commit.as_deref().unwrap_or("unknown");
    let mut blocks = vec![
        heading(1, "Filesystems on modelled disks"),
        Block::Text(format!(
            "Plan {}, {} round{}, seed {}; brindle {}, commit {commit}; {}; {} processors, {gibibytes} GiB. \
             **Modelled disks**, not drives: hard disk {}, SSD {}. Configurations took turns in each round; each figure \
             is of disks and a filesystem of its own, which was examined afterwards.",
            head.plan,
            head.rounds,
            if head.rounds == 1 { "" } else { "s" },
            head.seed,
            head.version,
            head.kernel,
            head.processors,
            disk(DiskKind::Hdd),
            disk(DiskKind::Ssd),
        )),
    ];
    let mut notes = Vec::new();
    if late > 0 || high > f64::from(u32::try_from(head.processors).unwrap_or(1)) {
        notes.push(format!(
            "The machine was busy (load {low:.1} to {high:.1}; in {late} of {} steps more than one answer of a disk in a \
             thousand was over 1 ms late). Counts hold; of times only ratios mean something, and small ones nothing.",
            steps.len()
        ));
    }
    let of_step =
        |step: &&StepRecord| format!("{} on {}, round {}", step.work, step.configuration, step.round);
    let void: Vec<_> = steps.iter().copied().filter(|step| !step.is_valid()).collect();
    for step in &void {
        let found = step.checks.iter().find(|check| !check.passed);
        let found =
            found.map_or_else(String::new, |check| format!("`{}` found: {}", check.command, check.output));
        notes.push(format!("**Void**: {}; {}", of_step(step), found.replace('\n', " ")));
    }
    let is_open = |step: &&StepRecord| !steps.iter().any(|done| same_step(done, step));
    let failed: BTreeMap<_, _> = results
        .steps
        .iter()
        .filter(|step| !step.is_done())
        .filter(is_open)
        .map(|step| (of_step(&step), step.error.clone().unwrap_or_default()))
        .collect();
    notes.extend(
        failed.into_iter().map(|(step, error)| format!("**Failed**: {step}: {}", error.replace('\n', " "))),
    );
    if void.is_empty() {
        notes.push(format!("All {} filesystems were found right by their checks.", steps.len()));
    }
    blocks.push(Block::List(notes));
    blocks
}

fn same_step(one: &StepRecord, other: &StepRecord) -> bool {
    (&one.work, &one.configuration, one.round) == (&other.work, &other.configuration, other.round)
}

fn is_brindle(figure: &Figure) -> bool {
    figure.configuration.filesystem == Filesystem::Brindle
}

/// A configuration of brindle beside the kernel's on the same disks.
struct Duel<'a> {
    phase: &'a PhaseFigures,
    ours: &'a Figure,
    theirs: &'a Figure,
    verdict: Verdict,
    ratio: f64,
}

/// Figures of brindle beside the fastest kernel filesystem on the same disks: ahead, level, behind.
pub(super) fn verdicts(phases: &[PhaseFigures]) -> Vec<Block> {
    let mut duels = Vec::new();
    for phase in phases.iter().filter(|phase| phase.work != CASES) {
        for ours in phase.figures.iter().filter(|figure| is_brindle(figure)) {
            let peers = phase.figures.iter().filter(|peer| !is_brindle(peer) && peer.group() == ours.group());
            let fastest = peers
                .max_by(|one, other| one.speed().unwrap_or(0.0).total_cmp(&other.speed().unwrap_or(0.0)));
            let Some(theirs) = fastest else { continue };
            let Some((verdict, ratio)) = verdict(ours, theirs) else { continue };
            duels.push(Duel { phase, ours, theirs, verdict, ratio });
        }
    }
    if duels.is_empty() {
        return Vec::new();
    }
    duels.sort_by(|one, other| other.ratio.total_cmp(&one.ratio));
    let mut blocks = vec![
        heading(2, "Where brindle is ahead, and where not"),
        Block::Text(
            "Beside the fastest kernel filesystem on the same disks; a ratio above 1 means that brindle is faster. Ahead and \
             behind are figures whose ranges over all rounds do not overlap, and differ by more than 5 %. The counts \
             are brindle's, then the other's; of two disks, those of the SSD come first."
                .to_owned(),
        ),
    ];
    for (verdict, title) in
        [(Verdict::Ahead, "Ahead"), (Verdict::Level, "Level"), (Verdict::Behind, "Behind")]
    {
        let rows: Vec<_> = duels.iter().filter(|duel| duel.verdict == verdict).map(duel_row).collect();
        blocks.push(heading(3, format!("{title}: {}", rows.len())));
        if !rows.is_empty() {
            let head = ["work", "ratio", "brindle", "other", "seeks", "flushes", "MiB written", "MiB read"];
            blocks.push(Block::Table(Table { rows, ..Table::new(&head, 4) }));
        }
    }
    blocks
}

fn duel_row(duel: &Duel<'_>) -> Vec<Cell> {
    let both =
        |of: &dyn Fn(&Figure) -> String| Cell::from(format!("{} / {}", of(duel.ours), of(duel.theirs)));
    let tone = match duel.verdict {
        Verdict::Ahead => Tone::Good,
        Verdict::Level => Tone::Plain,
        Verdict::Behind => Tone::Bad,
    };
    vec![
        phase_name(duel.phase).into(),
        Cell::toned(ratio_text(duel.ratio), tone),
        duel.ours.configuration.name.into(),
        duel.theirs.configuration.name.into(),
        both(&seeks),
        both(&flushes),
        both(&written),
        both(&read),
    ]
}

fn phase_name(phase: &PhaseFigures) -> String {
    if phase.work == phase.phase { phase.work.clone() } else { format!("{}, {}", phase.work, phase.phase) }
}

fn seeks(figure: &Figure) -> String {
    counts_text(figure, |kind, counts| (kind == DiskKind::Hdd).then(|| counts.seeks.to_string()))
}

fn flushes(figure: &Figure) -> String {
    counts_text(figure, |_, counts| Some(counts.flushes.to_string()))
}

fn written(figure: &Figure) -> String {
    counts_text(figure, |_, counts: &DiskCounts| Some(three_digits(mebibytes(counts.written_bytes))))
}

fn read(figure: &Figure) -> String {
    counts_text(figure, |_, counts: &DiskCounts| Some(three_digits(mebibytes(counts.read_bytes))))
}

/// Published figures beside ours.
pub(super) fn published(phases: &[PhaseFigures]) -> Vec<Block> {
    let mut blocks = Vec::new();
    for table in &PUBLISHED {
        let phase = phases.iter().find(|phase| phase.work == table.work && phase.phase == table.phase);
        let Some(phase) = phase else { continue };
        let rows = published_rows(table, phase);
        if rows.iter().all(|row| row[4].text == "-") {
            continue;
        }
        let unit = match table.unit {
            Unit::Seconds => "s",
            Unit::MebibytesPerSecond => "MiB/s",
        };
        blocks.push(heading(3, table.title));
        let (published, ours) = (format!("published, {unit}"), format!("here, {unit}"));
        let head = ["", "configuration here", &published, "ratio", &ours, "ratio"];
        blocks.push(Block::Table(Table { rows, ..Table::new(&head, 2) }));
    }
    blocks.extend(overwritten(phases));
    blocks.extend(defragmented(phases));
    if !blocks.is_empty() {
        let words = "Ratios are to one row of each table, and compare across the two sides: other machines, drives, sizes and kernels \
                     stand behind the published values, so those alone do not."
            .to_owned();
        blocks.splice(0..0, [heading(2, "Published figures"), Block::Text(words)]);
    }
    blocks
}

fn published_rows(table: &Published, phase: &PhaseFigures) -> Vec<Vec<Cell>> {
    let ours = |configuration: &str| {
        let figure = phase.figures.iter().find(|figure| figure.configuration.name == configuration)?;
        match table.unit {
            Unit::Seconds => median(&figure.seconds),
            Unit::MebibytesPerSecond => median(&figure.byte_rates).map(|rate| rate / MEBIBYTE),
        }
    };
    let (_, reference, configuration) = table.rows[table.reference];
    let our_reference = ours(configuration);
    let cell = |value: Option<f64>| Cell::from(value.map_or_else(|| "-".to_owned(), three_digits));
    let ratio = |value: Option<f64>, reference: Option<f64>| {
        let ratio = value.zip(reference).map(|(value, reference)| value / reference);
        Cell::from(ratio.map_or_else(|| "-".to_owned(), ratio_text))
    };
    let row = |(name, value, configuration): &(&str, Option<f64>, &str)| {
        let here = ours(configuration);
        let configuration = if configuration.is_empty() { "-" } else { configuration };
        vec![
            Cell::from(*name),
            Cell::from(configuration),
            cell(*value),
            ratio(*value, reference),
            cell(here),
            ratio(here, our_reference),
        ]
    };
    table.rows.iter().map(row).collect()
}

/// Sequential reads before and after overwrites anywhere.
fn overwritten(phases: &[PhaseFigures]) -> Vec<Block> {
    let find = |name: &str| phases.iter().find(|phase| phase.work == "overwrites" && phase.phase == name);
    let (Some(new), Some(old)) = (find("read new"), find("read overwritten")) else { return Vec::new() };
    let row = |figure: &Figure| {
        let same = old.figures.iter().find(|other| other.configuration == figure.configuration)?;
        let (before, after) = (median(&figure.byte_rates)?, median(&same.byte_rates)?);
        let share = after / before;
        let tone = if share >= OVERWRITTEN.1 { Tone::Plain } else { Tone::Bad };
        Some(vec![
            figure.configuration.name.into(),
            three_digits(before / MEBIBYTE).into(),
            three_digits(after / MEBIBYTE).into(),
            Cell::toned(format!("{:.0} %", share * 100.0), tone),
            format!("{} / {}", seeks(figure), seeks(same)).into(),
        ])
    };
    let rows: Vec<_> = new.figures.iter().filter_map(row).collect();
    let head = ["configuration", "new, MiB/s", "overwritten, MiB/s", "left", "seeks, new / overwritten"];
    if rows.is_empty() {
        return Vec::new();
    }
    vec![
        heading(3, "A file in order, new and after overwrites anywhere (published: 30 % are left on btrfs)"),
        Block::Text(format!(
            "Aim of brindle, after defragmentation: {:.0} %. None was done here.",
            OVERWRITTEN.1 * 100.0
        )),
        Block::Table(Table { rows, ..Table::new(&head, 1) }),
    ]
}

/// Sequential reads before and after overwrites anywhere, and after defragmentation.
fn defragmented(phases: &[PhaseFigures]) -> Vec<Block> {
    let find = |name: &str| phases.iter().find(|phase| phase.work == "defragment" && phase.phase == name);
    let all = ["read new", "read overwritten", "defragment", "read defragmented"].map(find);
    let [Some(new), Some(torn), Some(work), Some(again)] = all else { return Vec::new() };
    let row = |figure: &Figure| {
        let is_same = |other: &&Figure| other.configuration == figure.configuration;
        let same = [torn, work, again].map(|phase| phase.figures.iter().find(is_same));
        let [Some(torn), Some(work), Some(again)] = same else { return None };
        let rates = [figure, torn, again].map(|figure| median(&figure.byte_rates));
        let [Some(before), Some(after), Some(at_last)] = rates else { return None };
        let share = at_last / before;
        let tone = if share >= OVERWRITTEN.1 { Tone::Good } else { Tone::Bad };
        Some(vec![
            figure.configuration.name.into(),
            three_digits(before / MEBIBYTE).into(),
            three_digits(after / MEBIBYTE).into(),
            median(&work.seconds).map_or_else(|| "-".to_owned(), three_digits).into(),
            three_digits(at_last / MEBIBYTE).into(),
            Cell::toned(format!("{:.0} %", share * 100.0), tone),
            format!("{} / {} / {}", seeks(figure), seeks(torn), seeks(again)).into(),
        ])
    };
    let rows: Vec<_> = new.figures.iter().filter_map(row).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let head = [
        "configuration",
        "new, MiB/s",
        "overwritten, MiB/s",
        "defragmentation, s",
        "defragmented, MiB/s",
        "of new",
        "seeks, new / overwritten / defragmented",
    ];
    vec![
        heading(
            3,
            "A file read in order: new, overwritten at random, and after `brindle filesystem defragment`",
        ),
        Block::Text(format!("Aim of brindle: {:.0} % of new.", OVERWRITTEN.1 * 100.0)),
        Block::Table(Table { rows, ..Table::new(&head, 1) }),
    ]
}

/// Each work: its figures with their counts, bars and curves.
pub(super) fn works(results: &Results, phases: &[PhaseFigures]) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut last = "";
    for phase in phases.iter().filter(|phase| phase.work != CASES) {
        if phase.work != last {
            blocks.push(heading(2, format!("Work: {}", phase.work)));
            let command = results.head.works.get(&phase.work);
            blocks.extend(command.map(|command| Block::Text(format!("`{command}`"))));
            last = &phase.work;
        }
        if phase.phase != phase.work {
            blocks.push(heading(3, phase.phase.clone()));
        }
        blocks.extend(phase_blocks(phase));
    }
    blocks
}

/// The configuration that others are compared with: btrfs of the kernel on a hard disk, or the first one.
fn reference_of(phase: &PhaseFigures) -> Option<&Figure> {
    let measured = || phase.figures.iter().filter(|figure| figure.speed().is_some_and(|speed| speed > 0.0));
    measured().find(|figure| figure.configuration.name == "btrfs-hdd").or_else(|| measured().next())
}

fn phase_blocks(phase: &PhaseFigures) -> Vec<Block> {
    let Some(reference) = reference_of(phase) else { return Vec::new() };
    let base = reference.speed().unwrap_or(1.0);
    let name = reference.configuration.name;
    let (ratio, mut bars, mut rows) = (format!("to {name}"), Vec::new(), Vec::new());
    for figure in &phase.figures {
        rows.push(figure_row(figure, base));
        if let (Some(speed), Some((low, high))) = (figure.speed(), figure.spread()) {
            bars.push((figure.configuration, speed / base, low / base, high / base));
        }
    }
    let head = [
        "configuration",
        "s",
        "least to most",
        "per s",
        "MiB/s",
        &ratio,
        "p50 ms",
        "p99 ms",
        "seeks",
        "flushes",
        "MiB written",
        "MiB read",
    ];
    let mut blocks = vec![Block::Table(Table { rows, ..Table::new(&head, 1) })];
    let caption = format!("{}: speed, {name} is 1; more is faster", phase_name(phase));
    blocks.push(Block::Plot(Plot { svg: plots::bars(&bars), caption }));
    let mut groups: Vec<&str> = Vec::new();
    for group in phase.figures.iter().map(Figure::group) {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    for group in groups {
        let has_curve = |figure: &&Figure| group_of(figure.configuration) == group && figure.curve.len() > 1;
        let figures: Vec<_> = phase.figures.iter().filter(has_curve).collect();
        if !figures.is_empty() {
            let caption = format!(
                "{} on {group}: latency that a share of operations does not exceed",
                phase_name(phase)
            );
            blocks.push(Block::Plot(Plot { svg: plots::latencies(&figures), caption }));
        }
    }
    blocks.extend(gallery(phase));
    blocks
}

/// Pictures of what each disk was asked for, when and where.
fn gallery(phase: &PhaseFigures) -> Option<Block> {
    let plots_of = |figure: &Figure| {
        let disks = figure.configuration.disks.iter().zip(&figure.activity);
        let is_touched = disks.filter(|(_, activity)| !activity.cells.is_empty());
        let name = figure.configuration.name;
        is_touched
            .map(|(kind, activity)| {
                let seeks: u64 = activity.seeks.iter().sum();
                let seeks = if seeks > 0 { format!(", {seeks} seeks") } else { String::new() };
                let caption = format!("{} on {name}: the {}{seeks}", phase_name(phase), kind.name());
                Plot { svg: plots::activity(activity, &format!("{name}: {}", kind.name())), caption }
            })
            .collect::<Vec<_>>()
    };
    let plots: Vec<_> = phase.figures.iter().flat_map(plots_of).collect();
    let summary = format!(
        "{}: {} pictures of requests by time (across) and place (down); reads in green, writes in red, seeks below",
        phase_name(phase),
        plots.len()
    );
    (!plots.is_empty()).then_some(Block::Gallery { summary, plots })
}

fn figure_row(figure: &Figure, base: f64) -> Vec<Cell> {
    let number = |value: Option<f64>| Cell::from(value.map_or_else(|| "-".to_owned(), three_digits));
    let range = |values: &[f64]| match (values.first(), values.last()) {
        (Some(low), Some(high)) => format!("{} to {}", three_digits(*low), three_digits(*high)),
        _ => "-".to_owned(),
    };
    let rate = figure.seconds.first().zip(figure.speed());
    vec![
        figure.configuration.name.into(),
        number(median(&figure.seconds)),
        range(&figure.seconds).into(),
        number(rate.map(|(_, speed)| speed)),
        number(median(&figure.byte_rates).filter(|rate| *rate > 0.0).map(|rate| rate / MEBIBYTE)),
        figure.speed().map_or_else(|| "-".to_owned(), |speed| ratio_text(speed / base)).into(),
        number(figure.latency(500)),
        number(figure.latency(990)),
        seeks(figure).into(),
        flushes(figure).into(),
        written(figure).into(),
        read(figure).into(),
    ]
}

/// The 73 cases: each configuration beside ext4 on the same disks, or on the hard disk where it has both.
pub(super) fn cases(phases: &[PhaseFigures]) -> Vec<Block> {
    let cases: Vec<_> = phases.iter().filter(|phase| phase.work == CASES).collect();
    let Some(first) = cases.first() else { return Vec::new() };
    let names: Vec<_> = first.figures.iter().map(|figure| figure.configuration).collect();
    let reference_name = |group: &str| if group == "ssd" { "ext4-ssd" } else { "ext4-hdd" };
    let mut poor: BTreeMap<&str, usize> = BTreeMap::new();
    let mut rows = Vec::new();
    for case in &cases {
        let speed_of = |name: &str| {
            case.figures.iter().find(|figure| figure.configuration.name == name).and_then(Figure::speed)
        };
        let mut row = vec![Cell::from(case.phase.as_str())];
        for configuration in &names {
            let reference = speed_of(reference_name(group_of(configuration)));
            let figure = case.figures.iter().find(|figure| figure.configuration == *configuration);
            row.push(match (figure.and_then(Figure::speed), reference) {
                (Some(_), _) if figure.is_some_and(|figure| figure.is_refused) => "refused".into(),
                (Some(speed), Some(reference)) if is_poor(speed, reference) => {
                    *poor.entry(configuration.name).or_default() += 1;
                    Cell::toned(format!("{} poor", three_digits(speed)), Tone::Bad)
                }
                (Some(speed), _) => three_digits(speed).into(),
                (None, _) => "-".into(),
            });
        }
        rows.push(row);
    }
    let counts = names.iter().map(|configuration| {
        let number = poor.get(configuration.name).copied().unwrap_or(0);
        let reference = reference_name(group_of(configuration));
        format!("{}: {number} of {} poor beside {reference}", configuration.name, cases.len())
    });
    let head: Vec<_> = std::iter::once("case").chain(names.iter().map(|one| one.name)).collect();
    vec![
        heading(2, "The 73 cases"),
        Block::Text(
            "Requests a second, medians. Poor is the published rule: more than 20 % slower than ext4 on the same disk; what has both \
             disks is held against ext4 on the hard disk."
                .to_owned(),
        ),
        Block::List(counts.collect()),
        Block::Table(Table { rows, ..Table::new(&head, 1) }),
    ]
}

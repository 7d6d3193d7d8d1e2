//! Records as text: JSON lines of `brindle lab record`, the default output of blkparse, or the kernel's tracepoints of requests.

use super::{Trace, TraceDisk, TraceHeader, TraceOperation, TraceRequest};
use std::collections::HashMap;
use thiserror::Error;

const SECTOR_BYTES: u64 = 512;

/// Reason for which a text is no record.
#[derive(Debug, Error)]
pub enum TraceError {
    /// A line that cannot be read.
    #[error("line {line}: {why}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// The reason.
        why: String,
    },
    /// No request.
    #[error(
        "no request of a disk: neither a record of `brindle lab record`, nor the text of blkparse with D and C events, nor of \
         `perf script` with block_rq_issue and block_rq_complete"
    )]
    Empty,
    /// A disk that the record does not have.
    #[error("the record has no disk {name}; there are {known}", known = known.join(" "))]
    NoDisk {
        /// Its name.
        name: String,
        /// Names that there are.
        known: Vec<String>,
    },
}

impl Trace {
    /// Reads a record.
    ///
    /// # Errors
    /// A text of another kind, or one without requests.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let trace = if text.starts_with('{') { parse_record(text)? } else { parse_events(text) };
        if trace.requests.is_empty() { Err(TraceError::Empty) } else { Ok(trace) }
    }
}

/// Returns true if a disk may have such a request: at most 4 GiB, the most that the kernel makes, at a place that a file can have.
fn is_possible(offset: u64, length: u64) -> bool {
    const LENGTH_MAX: u64 = 1 << 32;
    let end = offset.checked_add(length).and_then(|end| i64::try_from(end).ok());
    length <= LENGTH_MAX && end.is_some()
}

fn parse_record(text: &str) -> Result<Trace, TraceError> {
    let mut lines = text.lines().enumerate();
    let failed = |line: usize, why: String| TraceError::Line { line: line + 1, why };
    let Some((number, first)) = lines.next() else { return Err(TraceError::Empty) };
    let header: TraceHeader =
        serde_json::from_str(first).map_err(|error| failed(number, error.to_string()))?;
    if header.kind != TraceHeader::KIND {
        return Err(failed(number, format!("the kind is {:?}, not {:?}", header.kind, TraceHeader::KIND)));
    }
    let mut requests = Vec::new();
    for (number, line) in lines {
        let request: TraceRequest =
            serde_json::from_str(line).map_err(|error| failed(number, error.to_string()))?;
        if request.disk >= header.disks.len() || request.end_ns < request.begin_ns {
            return Err(failed(number, "a disk that is not listed, or an end before the begin".to_owned()));
        }
        if !is_possible(request.offset, request.length) {
            return Err(failed(number, "a place that no disk has".to_owned()));
        }
        requests.push(request);
    }
    Ok(Trace::new(header.disks, requests, header.lost))
}

/// An event of a block device.
struct Event<'t> {
    disk: &'t str,
    time_ns: u64,
    step: Step,
    flags: &'t str,
    /// First sector and number of sectors; `None` of a flush alone.
    range: Option<(u64, u64)>,
}

/// Step of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The device is given it.
    Issue,
    /// The device has done it.
    Completion,
}

/// `8,0 3 11 0.009507758 697 D W 223490 + 8 [name]` of blkparse: anything else is a summary or a message.
fn blkparse_event(line: &str) -> Option<Event<'_>> {
    let mut words = line.split_whitespace();
    let disk = words.next().filter(|word| word.contains(','))?;
    let time_ns = nanoseconds(words.nth(2)?)?;
    let step = match words.nth(1)? {
        "D" => Step::Issue,
        "C" => Step::Completion,
        _ => return None,
    };
    Some(Event { disk, time_ns, step, flags: words.next()?, range: range(words) })
}

/// Tracepoints of the kernel, with the steps that they tell.
const TRACEPOINTS: [(&str, Step); 2] =
    [("block_rq_issue:", Step::Issue), ("block_rq_complete:", Step::Completion)];

/// `fio 697 [001] 24992.199426: block:block_rq_issue: 8,0 WS 4096 () 223490 + 8 [fio]`, as `perf script`, `trace-cmd report` and the
/// kernel's own trace print it; the size in bytes is of the issue alone.
fn tracepoint_event(line: &str) -> Option<Event<'_>> {
    let found = TRACEPOINTS.iter().find_map(|(name, step)| Some((line.split_once(name)?, *step)));
    let ((head, rest), step) = found?;
    let head = head.trim_end().trim_end_matches("block:").trim_end();
    let time_ns = nanoseconds(head.rsplit(char::is_whitespace).next()?.strip_suffix(':')?)?;
    let (request, place) = rest.split_once(')')?;
    let mut words = request.split_whitespace();
    Some(Event {
        disk: words.next().filter(|word| word.contains(','))?,
        time_ns,
        step,
        flags: words.next()?,
        range: range(place.split_whitespace()),
    })
}

/// Seconds with a fraction, in nanoseconds.
fn nanoseconds(time: &str) -> Option<u64> {
    let (seconds, fraction) = time.split_once('.')?;
    let fraction = format!("{fraction:0<9}");
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction.get(..9)?.parse().ok()?)
}

/// `223490 + 8`; `None` of no sectors.
fn range<'t>(mut words: impl Iterator<Item = &'t str>) -> Option<(u64, u64)> {
    let first = words.next()?.parse().ok()?;
    words.next().filter(|word| *word == "+")?;
    let count = words.next()?.parse().ok()?;
    (count > 0).then_some((first, count))
}

/// Requests from their issue to their completion.
fn parse_events(text: &str) -> Trace {
    let (mut disks, mut requests) = (Vec::<TraceDisk>::new(), Vec::new());
    let mut open: HashMap<(usize, u64, TraceOperation), Event<'_>> = HashMap::new();
    for event in text.lines().filter_map(|line| tracepoint_event(line).or_else(|| blkparse_event(line))) {
        let Some(operation) = operation(event.flags) else { continue };
        if event.range.is_none() && operation != TraceOperation::Flush {
            // The flush that came before or after a write has its own events.
            continue;
        }
        let disk = disks.iter().position(|disk| disk.name == event.disk).unwrap_or_else(|| {
            disks.push(TraceDisk { name: event.disk.to_owned(), size_bytes: 0, is_fast: false });
            disks.len() - 1
        });
        let key = (disk, event.range.map_or(0, |range| range.0), operation);
        match event.step {
            Step::Issue => {
                open.insert(key, event);
            }
            Step::Completion => {
                let Some(begun) = open.remove(&key) else { continue };
                let (first, count) = begun.range.unwrap_or((0, 0));
                let (offset, length) =
                    (first.saturating_mul(SECTOR_BYTES), count.saturating_mul(SECTOR_BYTES));
                if !is_possible(offset, length) {
                    continue;
                }
                requests.push(TraceRequest {
                    disk,
                    operation,
                    offset,
                    length,
                    begin_ns: begun.time_ns,
                    end_ns: event.time_ns.max(begun.time_ns),
                    is_metadata: begun.flags.contains('M'),
                });
            }
        }
    }
    let lost = open.len() as u64;
    Trace::new(disks, requests, lost)
}

/// Operation by the letters of a request; the kernel makes requests of their own of flushes.
fn operation(flags: &str) -> Option<TraceOperation> {
    match () {
        () if flags.contains('D') => Some(TraceOperation::Discard),
        () if flags.contains('W') => Some(TraceOperation::Write),
        () if flags.contains('R') => Some(TraceOperation::Read),
        () if flags.contains('F') => Some(TraceOperation::Flush),
        () => None,
    }
}

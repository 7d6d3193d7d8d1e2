//! Records as text: JSON lines of `brindle lab record`, or the default output of blkparse.

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
        "no request of a disk: neither a record of `brindle lab record` nor the text of blkparse with D and C events"
    )]
    Empty,
}

impl Trace {
    /// Reads a record.
    ///
    /// # Errors
    /// A text of another kind, or one without requests.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let trace = if text.starts_with('{') { parse_record(text)? } else { parse_blkparse(text)? };
        if trace.requests.is_empty() { Err(TraceError::Empty) } else { Ok(trace) }
    }
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
        requests.push(request);
    }
    Ok(Trace::new(header.disks, requests, header.lost))
}

/// An event of blkparse.
struct Event<'t> {
    disk: &'t str,
    time_ns: u64,
    action: &'t str,
    flags: &'t str,
    /// First sector and number of sectors; `None` of a flush alone.
    range: Option<(u64, u64)>,
}

/// `8,0 3 11 0.009507758 697 D W 223490 + 8 [name]`: anything else is a summary or a message.
fn event(line: &str) -> Option<Event<'_>> {
    let mut words = line.split_whitespace();
    let disk = words.next().filter(|word| word.contains(','))?;
    let time = words.nth(2)?;
    let (seconds, fraction) = time.split_once('.')?;
    let fraction = format!("{fraction:0<9}");
    let time_ns = seconds
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(fraction.get(..9)?.parse().ok()?)?;
    let (action, flags) = (words.nth(1)?, words.next()?);
    let range = (|| {
        let first = words.next()?.parse().ok()?;
        words.next().filter(|word| *word == "+")?;
        Some((first, words.next()?.parse().ok()?))
    })();
    Some(Event { disk, time_ns, action, flags, range })
}

/// Requests from their issue to their completion (D and C events).
fn parse_blkparse(text: &str) -> Result<Trace, TraceError> {
    let (mut disks, mut requests) = (Vec::<TraceDisk>::new(), Vec::new());
    let mut open: HashMap<(usize, u64, TraceOperation), Event<'_>> = HashMap::new();
    for event in text.lines().filter_map(event) {
        let disk = disks.iter().position(|disk| disk.name == event.disk).unwrap_or_else(|| {
            disks.push(TraceDisk { name: event.disk.to_owned(), size_bytes: 0, is_fast: false });
            disks.len() - 1
        });
        let Some(operation) = operation(event.flags) else { continue };
        let key = (disk, event.range.map_or(0, |range| range.0), operation);
        match event.action {
            "D" => {
                open.insert(key, event);
            }
            "C" => {
                let Some(begun) = open.remove(&key) else { continue };
                let (first, count) = begun.range.unwrap_or((0, 0));
                requests.push(TraceRequest {
                    disk,
                    operation,
                    offset: first.saturating_mul(SECTOR_BYTES),
                    length: count.saturating_mul(SECTOR_BYTES),
                    begin_ns: begun.time_ns,
                    end_ns: event.time_ns.max(begun.time_ns),
                    is_metadata: begun.flags.contains('M'),
                });
            }
            _ => {}
        }
    }
    let lost = open.len() as u64;
    Ok(Trace::new(disks, requests, lost))
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

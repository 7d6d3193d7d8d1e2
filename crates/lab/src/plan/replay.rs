//! Requests in virtual time on modelled drives.

use super::route::{Part, Target};
use super::{Role, Route, Trace, TraceOperation, TraceRequest};
use crate::Model;
use brindle_sim::{Completion, Drive, DriveCounts, DriveRequest, DriveRequestKind};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

/// Prediction for one role of the SSD.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// The role.
    pub role: Role,
    /// Time of all requests, pauses of the program among them.
    pub elapsed_ns: u64,
    /// Latencies of requests: the median, that which 99 of 100 do not exceed, and the greatest.
    pub latencies_ns: [u64; 3],
    /// Sum of all latencies.
    pub waited_ns: u64,
    /// Counts of the disks together.
    pub disks: DriveCounts,
    /// Counts of the SSD.
    pub ssd: Option<DriveCounts>,
    /// Bytes that the SSD holds at the end, in whole blocks.
    pub held_bytes: u64,
    /// Bytes for which it had no room.
    pub refused_bytes: u64,
    /// Share of read bytes that came from the SSD.
    pub read_share: Option<f64>,
    /// Bytes that wait for the disks at the end, and the time in which the disks take them.
    pub destage: Option<(u64, u64)>,
}

/// Issues the requests of a trace on disks of a model, with an SSD of a model in a role, or none.
pub fn replay(trace: &Trace, role: Role, disk: &Model, ssd: &Model, ssd_bytes: u64) -> Prediction {
    let route = Route::new(role, ssd_bytes);
    let mut drives: Vec<Drive> = trace
        .disks
        .iter()
        .map(|found| {
            let model = if found.is_fast { ssd } else { disk };
            model.drive(found.size_bytes.max(model.size_bytes()))
        })
        .collect();
    drives.push(ssd.drive(ssd_bytes.max(1 << 20)));
    let mut run = Run::new(trace, route, drives);
    run.all();
    run.prediction(role)
}

/// Requests, each with the one that it waited for.
struct Run<'t> {
    requests: &'t [TraceRequest],
    /// The last drive is the SSD.
    drives: Vec<Drive>,
    route: Route,
    /// Requests that are issued after a request, with their pauses.
    followers: Vec<Vec<(usize, u64)>>,
    /// Requests that flushes wait for, and those flushes.
    flushes: HashMap<usize, Vec<usize>>,
    /// Number of requests that each one still waits for, and the earliest time of its issue.
    waits: Vec<(usize, u64)>,
    /// Times of issue that are known.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    /// Parts under way of each request.
    parts: Vec<usize>,
    issued_ns: Vec<u64>,
    ended_ns: Vec<u64>,
    /// Request of each part, if it is awaited.
    owners: HashMap<u64, usize>,
    next_part: u64,
    now_ns: u64,
    /// Drives with writes since their last flush.
    unflushed: HashSet<usize>,
}

impl<'t> Run<'t> {
    fn new(trace: &'t Trace, route: Route, drives: Vec<Drive>) -> Self {
        let requests = trace.requests.as_slice();
        let count = requests.len();
        let mut run = Self {
            requests,
            drives,
            route,
            followers: vec![Vec::new(); count],
            flushes: HashMap::new(),
            waits: vec![(0, 0); count],
            due: BinaryHeap::new(),
            parts: vec![0; count],
            issued_ns: vec![0; count],
            ended_ns: vec![0; count],
            owners: HashMap::new(),
            next_part: 0,
            now_ns: 0,
            unflushed: HashSet::new(),
        };
        run.find_causes();
        run
    }

    /// A request waited for the one that had ended last when it began; a flush for all writes of its disk before it, too.
    fn find_causes(&mut self) {
        let first_ns = self.requests.first().map_or(0, |request| request.begin_ns);
        let mut ends: BTreeMap<(u64, usize), ()> = BTreeMap::new();
        let mut writes: HashMap<usize, Vec<usize>> = HashMap::new();
        for (index, request) in self.requests.iter().enumerate() {
            let cause = ends
                .range(..=(request.begin_ns, usize::MAX))
                .next_back()
                .map(|((end_ns, cause), ())| (*end_ns, *cause));
            match cause {
                Some((end_ns, cause)) => {
                    self.followers[cause].push((index, request.begin_ns - end_ns));
                    self.waits[index].0 += 1;
                    // Causes further back cannot be found any more.
                    ends = ends.split_off(&(end_ns, cause));
                }
                None => self.waits[index].1 = request.begin_ns - first_ns,
            }
            if request.operation == TraceOperation::Flush {
                for write in writes.remove(&request.disk).unwrap_or_default() {
                    if self.requests[write].end_ns <= request.begin_ns {
                        self.flushes.entry(write).or_default().push(index);
                        self.waits[index].0 += 1;
                    }
                }
            } else if request.operation == TraceOperation::Write {
                writes.entry(request.disk).or_default().push(index);
            }
            ends.insert((request.end_ns, index), ());
            if self.waits[index].0 == 0 {
                self.due.push(Reverse((self.waits[index].1, index)));
            }
        }
    }

    fn all(&mut self) {
        loop {
            let issue = self.due.peek().map(|Reverse((at, _))| (*at).max(self.now_ns));
            let event = self.drives.iter().filter_map(Drive::next_event_ns).min();
            match (issue, event) {
                (Some(issue), event) if event.is_none_or(|event| issue <= event) => self.issue(issue),
                (_, Some(event)) if !self.owners.is_empty() || issue.is_some() => self.advance(event),
                _ => return,
            }
        }
    }

    fn issue(&mut self, at_ns: u64) {
        self.advance(at_ns);
        let Some(Reverse((_, index))) = self.due.pop() else { return };
        let request = &self.requests[index];
        self.issued_ns[index] = at_ns;
        for part in self.route.parts(request) {
            self.submit(index, request, part);
        }
        if self.parts[index] == 0 {
            self.end(index, at_ns);
        }
    }

    fn submit(&mut self, index: usize, request: &TraceRequest, part: Part) {
        let ssd = self.drives.len() - 1;
        if part.operation == TraceOperation::Flush {
            // A filesystem flushes those that it has written, and the disk of the record may not be one of them.
            for drive in [request.disk, ssd] {
                if self.unflushed.remove(&drive) {
                    self.send(index, drive, DriveRequestKind::Flush, true);
                }
            }
            return;
        }
        let (drive, offset) = match part.target {
            Target::Disk => (request.disk, request.offset + part.at),
            Target::Ssd(offset) => (ssd, offset),
            Target::Home(disk, offset) => (disk, offset),
        };
        let kind = match part.operation {
            TraceOperation::Read => DriveRequestKind::Read(offset, part.length),
            TraceOperation::Discard => DriveRequestKind::Discard(offset, part.length),
            TraceOperation::Write | TraceOperation::Flush => DriveRequestKind::Write(offset, part.length),
        };
        if part.operation == TraceOperation::Write {
            self.unflushed.insert(drive);
        }
        self.send(index, drive, kind, part.is_awaited);
    }

    fn send(&mut self, index: usize, drive: usize, kind: DriveRequestKind, is_awaited: bool) {
        let id = self.next_part;
        self.next_part += 1;
        if is_awaited {
            self.owners.insert(id, index);
            self.parts[index] += 1;
        }
        self.drives[drive].submit(DriveRequest { id, kind, at_ns: self.now_ns });
    }

    /// Lets all drives come to this time.
    fn advance(&mut self, to_ns: u64) {
        self.now_ns = self.now_ns.max(to_ns);
        let mut answered: Vec<Completion> = Vec::new();
        self.drives.iter_mut().for_each(|drive| drive.advance(to_ns, &mut answered));
        answered.sort_unstable();
        for Completion { at_ns, id } in answered {
            let Some(index) = self.owners.remove(&id) else { continue };
            self.parts[index] -= 1;
            if self.parts[index] == 0 {
                self.end(index, at_ns);
            }
        }
    }

    fn end(&mut self, index: usize, at_ns: u64) {
        self.ended_ns[index] = at_ns;
        let followers = std::mem::take(&mut self.followers[index]);
        let flushes = self.flushes.remove(&index).unwrap_or_default();
        let pauses = followers.into_iter().chain(flushes.into_iter().map(|flush| (flush, 0)));
        for (next, pause_ns) in pauses.collect::<Vec<_>>() {
            let (left, due_ns) = &mut self.waits[next];
            *left -= 1;
            *due_ns = (*due_ns).max(at_ns + pause_ns);
            if *left == 0 {
                self.due.push(Reverse((*due_ns, next)));
            }
        }
    }

    fn prediction(&mut self, role: Role) -> Prediction {
        let mut latencies: Vec<u64> = self
            .ended_ns
            .iter()
            .zip(&self.issued_ns)
            .map(|(end, begin)| end.saturating_sub(*begin))
            .collect();
        latencies.sort_unstable();
        let of = |percent: usize| {
            latencies.get((latencies.len() * percent).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0)
        };
        let elapsed_ns = self.ended_ns.iter().copied().max().unwrap_or(0);
        let counts: Vec<DriveCounts> = self.drives.iter().map(Drive::counts).collect();
        let read = self.route.read_bytes;
        #[expect(clippy::cast_precision_loss, reason = "a share for people")]
        let share = read[0] as f64 / (read[0] + read[1]) as f64;
        Prediction {
            role,
            elapsed_ns,
            latencies_ns: [of(50), of(99), of(100)],
            waited_ns: latencies.iter().sum(),
            disks: sum(&counts[..counts.len() - 1]),
            ssd: counts.last().copied().filter(|_| role != Role::None),
            held_bytes: self.route.held_bytes(),
            refused_bytes: self.route.refused_bytes,
            read_share: (read[0] + read[1] > 0).then_some(share),
            destage: matches!(role, Role::WriteBack | Role::CacheBack).then(|| self.destage()),
        }
    }

    /// Writes what waits to the disks, in the order of its places.
    fn destage(&mut self) -> (u64, u64) {
        let metadata: HashSet<(usize, u64)> = self
            .requests
            .iter()
            .filter(|request| request.is_metadata)
            .map(|request| (request.disk, request.offset / Route::block_bytes()))
            .collect();
        let waiting =
            self.route.waiting(|disk, offset| metadata.contains(&(disk, offset / Route::block_bytes())));
        let begin_ns = self.now_ns;
        self.owners.clear();
        let disks: HashSet<usize> = waiting.iter().map(|(disk, _)| *disk).collect();
        // One at a time on each disk, as a destager does.
        for (disk, offset) in &waiting {
            self.wait_for(*disk, DriveRequestKind::Write(*offset, Route::block_bytes()));
        }
        disks.into_iter().for_each(|disk| self.wait_for(disk, DriveRequestKind::Flush));
        (waiting.len() as u64 * Route::block_bytes(), self.now_ns - begin_ns)
    }

    fn wait_for(&mut self, drive: usize, kind: DriveRequestKind) {
        let id = self.next_part;
        self.next_part += 1;
        self.drives[drive].submit(DriveRequest { id, kind, at_ns: self.now_ns });
        loop {
            let Some(event) = self.drives[drive].next_event_ns() else { return };
            let mut answered = Vec::new();
            self.drives[drive].advance(event, &mut answered);
            self.now_ns = self.now_ns.max(event);
            if answered.iter().any(|answer| answer.id == id) {
                return;
            }
        }
    }
}

/// Counts of several drives together.
fn sum(all: &[DriveCounts]) -> DriveCounts {
    all.iter().fold(DriveCounts::default(), |sum, one| DriveCounts {
        reads: sum.reads + one.reads,
        read_bytes: sum.read_bytes + one.read_bytes,
        writes: sum.writes + one.writes,
        written_bytes: sum.written_bytes + one.written_bytes,
        flushes: sum.flushes + one.flushes,
        discards: sum.discards + one.discards,
        discarded_bytes: sum.discarded_bytes + one.discarded_bytes,
        seeks: sum.seeks + one.seeks,
        wake_ups: sum.wake_ups + one.wake_ups,
        bands: sum.bands + one.bands,
    })
}

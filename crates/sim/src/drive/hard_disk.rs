//! A hard disk: one head, platters that turn, a queue from which it takes what is nearest, and caches.

use super::geometry::Geometry;
use super::hard_disk_parameters::HardDiskParameters;
use super::shingles::{APPEND_BYTES_MAX, APPEND_RANGES_MAX, Shingles, Visit};
use super::write_cache::WriteCache;
use super::{Answers, Completion, DriveCounts, DriveRequest, DriveRequestKind, transfer_ns};
use brindle_interval::Interval;
use std::collections::VecDeque;

/// A hard disk.
#[derive(Clone, Debug)]
pub struct HardDisk {
    parameters: HardDiskParameters,
    geometry: Geometry,
    /// Persistent cache and bands, if tracks overlap.
    shingles: Option<Shingles>,
    now_ns: u64,
    /// Reads, in order of arrival.
    reads: VecDeque<Read>,
    /// Writes for which the cache has no room.
    writes: VecDeque<DriveRequest>,
    /// The flush that is waited for, and what has come since.
    flush: Option<u64>,
    held: VecDeque<DriveRequest>,
    cache: WriteCache,
    running: Option<Running>,
    /// Range that the head reads or has read: at `head_ns` it stood at `stream.1`.
    stream: (u64, u64),
    /// True if it goes on reading there.
    is_streaming: bool,
    /// Position of the head, if it has left the stream for another part of a shingled disk.
    away: Option<u64>,
    head_ns: u64,
    read_ns: u64,
    /// True if the head's last operation was a read.
    has_read: bool,
    /// The last command, and the last write.
    command_ns: u64,
    written_ns: u64,
    segments: VecDeque<(u64, u64)>,
    interface_free_ns: u64,
    /// The last command, or the end of the head's last operation: whichever came later.
    active_ns: u64,
    /// True if the platters stand still.
    is_asleep: bool,
    counts: DriveCounts,
    answers: Answers,
}

#[derive(Clone, Copy, Debug)]
struct Read {
    id: u64,
    start: u64,
    end: u64,
    position_ns: u64,
    at_ns: u64,
}

/// Operation of the head.
#[derive(Clone, Debug)]
struct Running {
    end_ns: u64,
    work: Work,
}

#[derive(Clone, Debug)]
enum Work {
    /// A read: from, to, its number.
    Read(u64, u64, u64),
    /// A read of which parts lie in the persistent cache.
    Gather(u64, u64, u64),
    /// A write in its place: from, to.
    Write(u64, u64),
    /// Writes to the persistent cache.
    Append(Vec<Interval>),
    /// A step of the rewriting of a band.
    Clean,
}

impl HardDisk {
    /// A new one; the head is at the outer edge.
    pub fn new(parameters: HardDiskParameters) -> Self {
        let shingles = parameters.shingles.map(|shingles| Shingles::new(shingles, parameters.size_bytes));
        let before = shingles.as_ref().map_or(0, Shingles::base);
        let platters = HardDiskParameters { size_bytes: parameters.size_bytes + before, ..parameters };
        Self {
            geometry: Geometry::new(&platters),
            shingles,
            parameters,
            now_ns: 0,
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            flush: None,
            held: VecDeque::new(),
            cache: WriteCache::default(),
            running: None,
            stream: (0, 0),
            is_streaming: false,
            away: None,
            head_ns: 0,
            read_ns: 0,
            has_read: false,
            command_ns: 0,
            written_ns: 0,
            segments: VecDeque::new(),
            interface_free_ns: 0,
            active_ns: 0,
            is_asleep: false,
            counts: DriveCounts::default(),
            answers: Answers::default(),
        }
    }

    pub(super) fn submit(&mut self, request: DriveRequest) {
        self.progress(request.at_ns);
        self.counts.count(request.kind);
        self.is_asleep = self.is_asleep(self.now_ns);
        (self.active_ns, self.command_ns) = (self.now_ns, self.now_ns);
        if matches!(request.kind, DriveRequestKind::Write(..)) {
            self.written_ns = self.now_ns;
        }
        self.take(request);
        self.dispatch();
    }

    pub(super) fn counts(&self) -> DriveCounts {
        self.counts
    }

    pub(super) fn reset_counts(&mut self) {
        self.counts = DriveCounts::default();
    }

    /// Returns true if the platters stand still at a moment: they stop if nothing has happened for long enough. A command
    /// that the caches answer lets them stand.
    pub(super) fn is_asleep(&self, now_ns: u64) -> bool {
        let is_idle = self.running.is_none() && self.reads.is_empty() && self.cache.is_empty();
        let is_idle = is_idle && self.shingles.as_ref().is_none_or(Shingles::is_empty);
        let after = self.parameters.spin_down_ns;
        let is_time = after.is_some_and(|after| now_ns >= self.active_ns.saturating_add(after));
        self.is_asleep || is_idle && is_time
    }

    /// Time until the platters turn.
    fn wake_up_ns(&mut self) -> u64 {
        if !self.is_asleep {
            return 0;
        }
        self.keep_segment();
        (self.is_asleep, self.is_streaming) = (false, false);
        self.counts.wake_ups += 1;
        self.parameters.spin_up_ns
    }

    fn take(&mut self, request: DriveRequest) {
        if self.flush.is_some() {
            self.held.push_back(request);
            return;
        }
        // The command itself takes time, and the head what comes first.
        let at_ns = request.at_ns.max(self.now_ns) + self.parameters.command_ns;
        match request.kind {
            DriveRequestKind::Read(offset, length) => {
                let (start, end) = (offset, offset + length);
                if length == 0 || self.is_cached(start, end) {
                    self.answer_from_cache(at_ns, length, request.id);
                } else {
                    let position_ns = self.place_ns(start);
                    self.reads.push_back(Read { id: request.id, start, end, position_ns, at_ns });
                }
            }
            DriveRequestKind::Write(..) => {
                self.writes.push_back(request);
                self.take_writes();
            }
            DriveRequestKind::Flush => self.flush = Some(request.id),
            // It has nothing to forget, and says so at once.
            DriveRequestKind::Discard(..) => self.answers.add(at_ns, request.id),
        }
    }

    /// Takes what has room into the write cache.
    fn take_writes(&mut self) {
        while let Some(request) = self.writes.front().copied() {
            let DriveRequestKind::Write(offset, length) = request.kind else { return };
            let room = self.parameters.write_cache_bytes.saturating_sub(self.cache.bytes());
            if length > room && !self.cache.is_empty() {
                return;
            }
            self.writes.pop_front();
            self.forget_read(offset, offset + length);
            self.cache.add(offset, offset + length);
            let at_ns = request.at_ns.max(self.now_ns) + self.parameters.command_ns;
            self.answer_from_cache(at_ns, length, request.id);
        }
    }

    fn answer_from_cache(&mut self, at_ns: u64, length: u64, id: u64) {
        let start = at_ns.max(self.interface_free_ns);
        self.interface_free_ns = start + transfer_ns(length, self.parameters.interface_bytes_per_second);
        self.answers.add(self.interface_free_ns, id);
    }

    /// Returns true if a range is cached: written lately, read lately, or read ahead.
    fn is_cached(&self, start: u64, end: u64) -> bool {
        let is_in = |(from, to): (u64, u64)| from <= start && end <= to;
        is_in((self.stream_start(), self.read_so_far()))
            || self.segments.iter().copied().any(is_in)
            || self.cache.holds(start, end)
    }

    /// Start of the cached part of the stream: of a long one, the end is remembered.
    fn stream_start(&self) -> u64 {
        self.stream.0.max(self.read_so_far().saturating_sub(self.parameters.read_segment_bytes))
    }

    /// Offset up to which the head has read ahead.
    fn read_so_far(&self) -> u64 {
        if !self.is_streaming || self.running.is_some() {
            return self.stream.1;
        }
        let at = self.geometry.offset(self.head_position_ns()).saturating_sub(self.base());
        at.clamp(self.stream.1, self.reach())
    }

    /// Offset up to which the head reads ahead: of a shingled disk not what lies in the persistent cache.
    fn reach(&self) -> u64 {
        let reach = self.stream.1 + self.parameters.look_ahead_bytes;
        let logged = self.shingles.as_ref().and_then(|shingles| shingles.next_logged(self.stream.1));
        logged.map_or(reach, |logged| reach.min(logged))
    }

    /// Bytes of the platters before the disk's first.
    fn base(&self) -> u64 {
        self.shingles.as_ref().map_or(0, Shingles::base)
    }

    /// Position of a byte of the disk in its place.
    fn position_ns(&self, offset: u64) -> u64 {
        self.geometry.position_ns(self.base() + offset)
    }

    /// Position of a byte of the disk where it lies.
    fn place_ns(&self, offset: u64) -> u64 {
        let place = self.shingles.as_ref().map(|shingles| shingles.places(offset, offset + 1));
        match place.as_deref() {
            Some([place, ..]) => self.geometry.position_ns(place.start),
            _ => self.position_ns(offset),
        }
    }

    /// Position of the head while idle: it reads on until it has read ahead enough, then stays on the track.
    fn head_position_ns(&self) -> u64 {
        if let Some(position) = self.away {
            return position;
        }
        let stopped = self.position_ns(self.stream.1);
        if !self.is_streaming {
            return stopped;
        }
        let limit = self.position_ns(self.reach());
        (stopped + self.now_ns.saturating_sub(self.head_ns)).min(limit)
    }

    fn forget_read(&mut self, start: u64, end: u64) {
        self.segments.retain(|(from, to)| *to <= start || end <= *from);
        if self.stream.0 < end && start < self.read_so_far() {
            self.stream.0 = self.stream.1;
        }
    }

    pub(super) fn next_event_ns(&self) -> Option<u64> {
        [self.next_head_ns(), self.answers.next_ns()].into_iter().flatten().min()
    }

    pub(super) fn advance(&mut self, now_ns: u64, answered: &mut Vec<Completion>) {
        self.progress(now_ns);
        self.answers.take_until(now_ns, answered);
    }

    /// Does what happens until a moment.
    fn progress(&mut self, now_ns: u64) {
        while let Some(next) = self.next_head_ns().filter(|next| *next <= now_ns) {
            self.now_ns = self.now_ns.max(next);
            if self.running.is_some() {
                self.finish();
            }
            self.dispatch();
        }
        self.now_ns = self.now_ns.max(now_ns);
    }

    /// When the head is done, or has something to do: later than now, for what it can begin now it has begun.
    fn next_head_ns(&self) -> Option<u64> {
        if let Some(running) = &self.running {
            return Some(running.end_ns);
        }
        let read = self.window().map(|read| read.at_ns).min();
        let is_drained = !self.cache.is_empty() && self.reads.is_empty();
        let drain = is_drained.then(|| self.drain_ns());
        let next = [read, drain, self.clean_ns()].into_iter().flatten().min();
        assert!(next.is_none_or(|next| next > self.now_ns), "an idle head begins what it can");
        next
    }

    /// Time from which the write cache is drained, if nothing else is to do.
    fn drain_ns(&self) -> u64 {
        let after_read = self.read_ns + self.parameters.write_idle_ns;
        let hold = self.shingles.as_ref().map(|shingles| self.written_ns + shingles.hold_ns());
        hold.map_or(after_read, |hold| hold.max(after_read))
    }

    /// Time from which a band is rewritten, if there is nothing else to do.
    fn clean_ns(&self) -> Option<u64> {
        let shingles = self.shingles.as_ref().filter(|shingles| !shingles.is_empty())?;
        let is_idle = self.reads.is_empty() && self.cache.is_empty() && self.flush.is_none();
        is_idle.then(|| self.command_ns + shingles.clean_idle_ns())
    }

    /// Reads to choose from.
    fn window(&self) -> impl Iterator<Item = &Read> + Clone {
        self.reads.iter().take(self.parameters.queue_depth)
    }

    /// The head has done what it did.
    fn finish(&mut self) {
        let Some(running) = self.running.take() else { return };
        self.has_read = matches!(running.work, Work::Read(..) | Work::Gather(..));
        match running.work {
            Work::Read(start, end, id) => {
                if start == self.stream.1 && self.is_streaming {
                    self.stream.1 = end;
                } else {
                    self.stream = (start, end);
                }
                (self.is_streaming, self.read_ns) = (true, running.end_ns);
                self.answers.add(running.end_ns, id);
            }
            Work::Gather(start, end, id) => {
                self.remember((start, end));
                self.read_ns = running.end_ns;
                self.answers.add(running.end_ns, id);
            }
            Work::Write(start, end) => {
                self.cache.remove(start, end);
                self.stream = (end, end);
                self.is_streaming = false;
                self.take_writes();
            }
            Work::Append(ranges) => {
                ranges.iter().for_each(|range| self.cache.remove(range.start, range.end));
                self.take_writes();
            }
            Work::Clean => {
                let is_band = self.shingles.as_mut().is_some_and(Shingles::finish_clean);
                self.counts.bands += u64::from(is_band);
            }
        }
        (self.head_ns, self.active_ns) = (running.end_ns, self.active_ns.max(running.end_ns));
    }

    /// Gives the head something to do, if it has nothing; answers the flushes that have nothing to wait for.
    fn dispatch(&mut self) {
        while self.running.is_none() {
            self.start_next();
            if self.running.is_some() || !self.answer_flush() {
                return;
            }
        }
    }

    /// Starts the head's next operation, if one is due.
    fn start_next(&mut self) {
        self.answer_what_was_read_ahead();
        // Reads come first, but each one that has waited too long leaves the next turn to the cache.
        let is_write_late = self.writes.front().is_some_and(|write| self.is_late(write.at_ns));
        if is_write_late && self.has_read && !self.cache.is_empty() {
            return self.start_write();
        }
        if let Some(index) = self.nearest_read() {
            return self.start_read(index);
        }
        if !self.reads.is_empty() {
            return;
        }
        let is_urgent = self.flush.is_some() || !self.writes.is_empty();
        if !self.cache.is_empty() && (is_urgent || self.now_ns >= self.drain_ns()) {
            self.start_write();
        } else if self.clean_ns().is_some_and(|clean| self.now_ns >= clean) {
            self.start_clean();
        }
    }

    /// Answers the flush, if all that came before it is done, and takes what has come since. Returns true if it did.
    fn answer_flush(&mut self) -> bool {
        let is_done = self.reads.is_empty() && self.writes.is_empty() && self.cache.is_empty();
        let Some(id) = self.flush.take_if(|_| is_done) else { return false };
        self.answers.add(self.now_ns + self.parameters.command_ns, id);
        while self.flush.is_none() {
            let Some(request) = self.held.pop_front() else { break };
            self.take(request);
        }
        true
    }

    /// Returns true if a request has waited for too long.
    fn is_late(&self, at_ns: u64) -> bool {
        self.now_ns.saturating_sub(at_ns) > self.parameters.wait_ns_max
    }

    /// Reads that have waited while the head read what they want.
    fn answer_what_was_read_ahead(&mut self) {
        for read in std::mem::take(&mut self.reads) {
            if read.at_ns <= self.now_ns && self.is_cached(read.start, read.end) {
                self.answer_from_cache(read.at_ns.max(self.now_ns), read.end - read.start, read.id);
            } else {
                self.reads.push_back(read);
            }
        }
    }

    /// Index of the queued read to which the head comes first; one that has waited too long comes before all. Of
    /// reads that follow each other the first comes first: a stream that is entered in its middle would leave its
    /// start behind.
    fn nearest_read(&self) -> Option<usize> {
        // Of the reads that are ready: one that is not, or is not seen yet, is no reason to wait. No read is empty, so
        // there is a first one.
        let ready = self.window().enumerate().filter(|(_, read)| read.at_ns <= self.now_ns);
        let follows = |read: &Read| ready.clone().any(|(_, other)| other.end == read.start);
        let head = self.head_position_ns();
        let choice = |(index, read): (usize, &Read)| match self.is_late(read.at_ns) {
            true => Some((0, index as u64, index)),
            false if follows(read) => None,
            false => Some((1, self.access_ns(head, read), index)),
        };
        ready.clone().filter_map(choice).min().map(|(.., index)| index)
    }

    /// Time until the head reaches the start of a read, or of the part that was not read ahead.
    fn access_ns(&self, head: u64, read: &Read) -> u64 {
        let goes_on = self.is_streaming && self.stream_start() <= read.start && read.start <= self.reach();
        if goes_on && self.is_still_reading() {
            return read.position_ns.saturating_sub(head);
        }
        self.geometry.access_ns(head, read.position_ns, self.now_ns, false)
    }

    /// Returns true if the head is still reading ahead.
    fn is_still_reading(&self) -> bool {
        self.is_streaming && self.read_so_far() < self.reach()
    }

    fn start_read(&mut self, index: usize) {
        let Some(read) = self.reads.remove(index) else { return };
        let begin_ns = self.now_ns + self.wake_up_ns();
        let shingles = self.shingles.as_ref();
        if let Some(shingles) = shingles.filter(|shingles| !shingles.is_in_place(read.start, read.end)) {
            let places = shingles.places(read.start, read.end);
            return self.start_gather(read, begin_ns, places);
        }
        let head = self.head_position_ns();
        let goes_on =
            self.stream_start() <= read.start && read.start <= self.reach() && self.is_still_reading();
        let end_position = self.position_ns(read.end);
        let (start, end_ns) = if goes_on {
            // What lies between is read along.
            (self.stream.1, begin_ns + end_position.saturating_sub(head))
        } else {
            self.keep_segment();
            let position_ns = self.position_ns(read.start);
            let access = self.geometry.access_ns(head, position_ns, begin_ns, false);
            (self.is_streaming, self.away) = (false, None);
            self.counts.seeks += 1;
            (read.start, begin_ns + access + (end_position - position_ns))
        };
        let end_ns = self.interface_ns(&read, end_ns);
        self.running = Some(Running { end_ns, work: Work::Read(start, read.end, read.id) });
    }

    /// Time at which a read that the head has done is with the host.
    fn interface_ns(&mut self, read: &Read, end_ns: u64) -> u64 {
        let interface = transfer_ns(read.end - read.start, self.parameters.interface_bytes_per_second);
        self.interface_free_ns = self.interface_free_ns.max(self.now_ns) + interface;
        end_ns.max(self.interface_free_ns)
    }

    fn start_gather(&mut self, read: Read, begin_ns: u64, places: Vec<Interval>) {
        let end_ns = self.visit(begin_ns, &Visit { places, is_write: false, is_stream: false });
        let end_ns = self.interface_ns(&read, end_ns);
        self.running = Some(Running { end_ns, work: Work::Gather(read.start, read.end, read.id) });
    }

    /// Sends the head to places of a shingled disk, one after the other; returns the time at which it is done.
    fn visit(&mut self, begin_ns: u64, visit: &Visit) -> u64 {
        let (mut now_ns, mut head) = (begin_ns, self.head_position_ns());
        // A stream that goes on where it has just ended loses no revolution.
        let is_next = visit.is_stream && self.away == Some(head) && self.now_ns == self.head_ns;
        self.keep_segment();
        self.is_streaming = false;
        for place in &visit.places {
            let (start, end) = (self.geometry.position_ns(place.start), self.geometry.position_ns(place.end));
            if !(is_next && start == head) {
                now_ns += self.geometry.access_ns(head, start, now_ns, visit.is_write);
                self.counts.seeks += 1;
            }
            (now_ns, head) = (now_ns + (end - start), end);
        }
        self.away = Some(head);
        now_ns
    }

    /// The head leaves its stream; what it has read is remembered.
    fn keep_segment(&mut self) {
        let segment = (self.stream_start(), self.read_so_far());
        self.remember(segment);
        self.stream.1 = segment.1;
    }

    fn remember(&mut self, segment: (u64, u64)) {
        if segment.0 < segment.1 {
            self.segments.push_back(segment);
            while self.segments.len() > self.parameters.read_segments {
                self.segments.pop_front();
            }
        }
    }

    fn start_write(&mut self) {
        let begin_ns = self.now_ns + self.wake_up_ns();
        if self.shingles.is_some() {
            return self.start_shingled_write(begin_ns);
        }
        let (head, at) = (self.head_position_ns(), self.stream.1);
        let until = |start: u64| {
            let is_next = !self.is_streaming && start == at && self.now_ns == self.head_ns;
            let position = self.position_ns(start);
            if is_next { 0 } else { self.geometry.access_ns(head, position, begin_ns, true) }
        };
        let nearest = self.cache.near(at).map(|range| (until(range.start), range.start, range.end)).min();
        let Some((access, start, end)) = nearest else { return };
        self.keep_segment();
        let transfer = self.position_ns(end) - self.position_ns(start);
        let end_ns = begin_ns + access + transfer;
        self.is_streaming = false;
        self.counts.seeks += u64::from(access > 0);
        self.running = Some(Running { end_ns, work: Work::Write(start, end) });
    }

    /// Writes to a band if a stream goes there, otherwise to the persistent cache, for which a band may have to make room.
    fn start_shingled_write(&mut self, begin_ns: u64) {
        let Some(shingles) = &mut self.shingles else { return };
        let (places, work) = if let Some(range) = self.cache.stream(shingles) {
            shingles.write_in_place(range);
            (shingles.places(range.start, range.end), Work::Write(range.start, range.end))
        } else if shingles.is_full() {
            return self.start_clean();
        } else {
            let ranges = self.cache.batch(APPEND_RANGES_MAX, APPEND_BYTES_MAX);
            (vec![shingles.append(&ranges)], Work::Append(ranges))
        };
        let is_stream = matches!(work, Work::Write(..));
        let end_ns = self.visit(begin_ns, &Visit { places, is_write: true, is_stream });
        self.running = Some(Running { end_ns, work });
    }

    /// Starts the next step of the rewriting of a band.
    fn start_clean(&mut self) {
        let Some(visit) = self.shingles.as_mut().and_then(Shingles::clean) else { return };
        let begin_ns = self.now_ns + self.wake_up_ns();
        let end_ns = self.visit(begin_ns, &visit);
        self.running = Some(Running { end_ns, work: Work::Clean });
    }
}

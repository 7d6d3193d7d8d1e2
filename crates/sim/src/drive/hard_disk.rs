//! A hard disk: one head, platters that turn, a queue from which it takes what is nearest, and caches.

use super::geometry::Geometry;
use super::hard_disk_parameters::HardDiskParameters;
use super::write_cache::WriteCache;
use super::{Answers, Completion, DriveCounts, DriveRequest, DriveRequestKind, transfer_ns};
use std::collections::VecDeque;

/// A hard disk.
#[derive(Clone, Debug)]
pub struct HardDisk {
    parameters: HardDiskParameters,
    geometry: Geometry,
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
    head_ns: u64,
    read_ns: u64,
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
#[derive(Clone, Copy, Debug)]
struct Running {
    end_ns: u64,
    start: u64,
    end: u64,
    /// The read, or `None` if it writes.
    read: Option<u64>,
}

impl HardDisk {
    /// A new one; the head is at the outer edge.
    pub fn new(parameters: HardDiskParameters) -> Self {
        Self {
            geometry: Geometry::new(&parameters),
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
            head_ns: 0,
            read_ns: 0,
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
        self.active_ns = self.now_ns;
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
                    let position_ns = self.geometry.position_ns(start);
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
        let limit = self.stream.1 + self.parameters.look_ahead_bytes;
        self.geometry.offset(self.head_position_ns()).clamp(self.stream.1, limit)
    }

    /// Position of the head while idle: it reads on until it has read ahead enough, then stays on the track.
    fn head_position_ns(&self) -> u64 {
        let stopped = self.geometry.position_ns(self.stream.1);
        if !self.is_streaming {
            return stopped;
        }
        let limit = self.geometry.position_ns(self.stream.1 + self.parameters.look_ahead_bytes);
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
        if let Some(running) = self.running {
            return Some(running.end_ns);
        }
        let read = self.window().map(|read| read.at_ns).min();
        let is_drained = !self.cache.is_empty() && self.reads.is_empty();
        let drain = is_drained.then_some(self.read_ns + self.parameters.write_idle_ns);
        let next = [read, drain].into_iter().flatten().min();
        assert!(next.is_none_or(|next| next > self.now_ns), "an idle head begins what it can");
        next
    }

    /// Reads to choose from.
    fn window(&self) -> impl Iterator<Item = &Read> + Clone {
        self.reads.iter().take(self.parameters.queue_depth)
    }

    /// The head has done what it did.
    fn finish(&mut self) {
        let Some(running) = self.running.take() else { return };
        match running.read {
            Some(id) => {
                if running.start == self.stream.1 && self.is_streaming {
                    self.stream.1 = running.end;
                } else {
                    self.stream = (running.start, running.end);
                }
                (self.is_streaming, self.read_ns) = (true, running.end_ns);
                self.answers.add(running.end_ns, id);
            }
            None => {
                self.cache.remove(running.start, running.end);
                self.stream = (running.end, running.end);
                self.is_streaming = false;
                self.take_writes();
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
        if is_write_late && self.is_streaming && !self.cache.is_empty() {
            return self.start_write();
        }
        if let Some(index) = self.nearest_read() {
            return self.start_read(index);
        }
        if !self.reads.is_empty() {
            return;
        }
        let is_urgent = self.flush.is_some() || !self.writes.is_empty();
        let is_idle = self.now_ns >= self.read_ns + self.parameters.write_idle_ns;
        if !self.cache.is_empty() && (is_urgent || is_idle) {
            self.start_write();
        }
    }

    /// Answers the flush, if all that came before it is done, and takes what has come since. Returns true if it did.
    fn answer_flush(&mut self) -> bool {
        let is_done = self.reads.is_empty() && self.writes.is_empty() && self.cache.is_empty();
        let Some(id) = self.flush.take_if(|_| is_done) else { return false };
        self.answers.add(self.now_ns + self.parameters.command_ns, id);
        while self.flush.is_none()
            && let Some(request) = self.held.pop_front()
        {
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
        let reach = self.stream.1 + self.parameters.look_ahead_bytes;
        let goes_on = self.is_streaming && self.stream_start() <= read.start && read.start <= reach;
        if goes_on && self.is_still_reading() {
            return read.position_ns.saturating_sub(head);
        }
        self.geometry.access_ns(head, read.position_ns, self.now_ns, false)
    }

    /// Returns true if the head is still reading ahead.
    fn is_still_reading(&self) -> bool {
        self.is_streaming && self.read_so_far() < self.stream.1 + self.parameters.look_ahead_bytes
    }

    fn start_read(&mut self, index: usize) {
        let Some(read) = self.reads.remove(index) else { return };
        let begin_ns = self.now_ns + self.wake_up_ns();
        let head = self.head_position_ns();
        let reach = self.stream.1 + self.parameters.look_ahead_bytes;
        let goes_on = self.stream_start() <= read.start && read.start <= reach && self.is_still_reading();
        let end_position = self.geometry.position_ns(read.end);
        let (start, end_ns) = if goes_on {
            // What lies between is read along.
            (self.stream.1, begin_ns + end_position.saturating_sub(head))
        } else {
            self.keep_segment();
            let access = self.geometry.access_ns(head, read.position_ns, begin_ns, false);
            self.is_streaming = false;
            self.counts.seeks += 1;
            (read.start, begin_ns + access + (end_position - read.position_ns))
        };
        let interface = transfer_ns(read.end - read.start, self.parameters.interface_bytes_per_second);
        self.interface_free_ns = self.interface_free_ns.max(self.now_ns) + interface;
        let end_ns = end_ns.max(self.interface_free_ns);
        self.running = Some(Running { end_ns, start, end: read.end, read: Some(read.id) });
    }

    /// The head leaves its stream; what it has read is remembered.
    fn keep_segment(&mut self) {
        let segment = (self.stream_start(), self.read_so_far());
        if segment.0 < segment.1 {
            self.segments.push_back(segment);
            while self.segments.len() > self.parameters.read_segments {
                self.segments.pop_front();
            }
        }
        self.stream.1 = self.read_so_far();
    }

    fn start_write(&mut self) {
        let begin_ns = self.now_ns + self.wake_up_ns();
        let (head, at) = (self.head_position_ns(), self.stream.1);
        let until = |start: u64| {
            let is_next = !self.is_streaming && start == at && self.now_ns == self.head_ns;
            let position = self.geometry.position_ns(start);
            if is_next { 0 } else { self.geometry.access_ns(head, position, begin_ns, true) }
        };
        let nearest = self.cache.near(at).map(|range| (until(range.start), range.start, range.end)).min();
        let Some((access, start, end)) = nearest else { return };
        self.keep_segment();
        let transfer = self.geometry.position_ns(end) - self.geometry.position_ns(start);
        let end_ns = begin_ns + access + transfer;
        self.is_streaming = false;
        self.counts.seeks += u64::from(access > 0);
        self.running = Some(Running { end_ns, start, end, read: None });
    }
}

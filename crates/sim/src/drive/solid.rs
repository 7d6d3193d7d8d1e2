//! A drive without moving parts: channels that work side by side, behind one link.

use super::{Answers, Completion, DriveCounts, DriveRequest, DriveRequestKind, transfer_ns};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Parameters of a solid state drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SolidParameters {
    /// Number of channels that work side by side.
    pub channels: usize,
    /// Bytes on one channel before the next one's turn.
    pub stripe_bytes: u64,
    /// Throughput of reads.
    pub read_bytes_per_second: u64,
    /// Throughput of writes.
    pub write_bytes_per_second: u64,
    /// Latency of a read.
    pub read_ns: u64,
    /// Latency of a read that begins at the end of the last one.
    pub sequential_read_ns: u64,
    /// Latency of a write.
    pub write_ns: u64,
    /// Commands a second.
    pub commands_per_second: u64,
    /// Time of a flush after a write.
    pub flush_ns: u64,
    /// Time of a flush without one.
    pub clean_flush_ns: u64,
    /// True if everything waits during a flush.
    pub is_flush_exclusive: bool,
}

impl SolidParameters {
    /// A SATA SSD.
    pub const fn sata() -> Self {
        Self {
            channels: 8,
            stripe_bytes: 16 << 10,
            read_bytes_per_second: 530_000_000,
            write_bytes_per_second: 500_000_000,
            read_ns: 80_000,
            sequential_read_ns: 20_000,
            write_ns: 60_000,
            commands_per_second: 90_000,
            flush_ns: 1_000_000,
            clean_flush_ns: 50_000,
            is_flush_exclusive: true,
        }
    }

    /// An NVMe drive.
    pub const fn nvme() -> Self {
        Self {
            channels: 32,
            stripe_bytes: 16 << 10,
            read_bytes_per_second: 3_000_000_000,
            write_bytes_per_second: 2_000_000_000,
            read_ns: 70_000,
            sequential_read_ns: 20_000,
            write_ns: 20_000,
            commands_per_second: 500_000,
            flush_ns: 50_000,
            clean_flush_ns: 15_000,
            is_flush_exclusive: false,
        }
    }
}

/// A drive without moving parts.
#[derive(Clone, Debug)]
pub struct Solid {
    parameters: SolidParameters,
    /// When each channel is free.
    channels: Vec<u64>,
    link_free_ns: u64,
    command_free_ns: u64,
    /// The last answer.
    quiet_ns: u64,
    read_end: u64,
    is_dirty: bool,
    /// Transfers over the link, by the time at which a channel has them.
    arriving: BinaryHeap<Reverse<Arriving>>,
    counts: DriveCounts,
    answers: Answers,
}

/// Data that a channel will have for the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Arriving {
    at_ns: u64,
    id: u64,
    /// Time that the link takes.
    took_ns: u64,
    /// Earliest time of the answer.
    last_ns: u64,
}

impl Solid {
    /// A new one.
    pub fn new(parameters: SolidParameters) -> Self {
        Self {
            parameters,
            channels: vec![0; parameters.channels],
            link_free_ns: 0,
            command_free_ns: 0,
            quiet_ns: 0,
            read_end: u64::MAX,
            is_dirty: false,
            arriving: BinaryHeap::new(),
            counts: DriveCounts::default(),
            answers: Answers::default(),
        }
    }

    pub(super) fn counts(&self) -> DriveCounts {
        self.counts
    }

    pub(super) fn reset_counts(&mut self) {
        self.counts = DriveCounts::default();
    }

    pub(super) fn submit(&mut self, request: DriveRequest) {
        let parameters = self.parameters;
        self.progress(request.at_ns);
        self.counts.count(request.kind);
        let start = request.at_ns.max(self.command_free_ns);
        match request.kind {
            DriveRequestKind::Flush => {
                let begin = start.max(self.quiet_ns);
                let took = if self.is_dirty { parameters.flush_ns } else { parameters.clean_flush_ns };
                self.is_dirty = false;
                if parameters.is_flush_exclusive {
                    self.command_free_ns = begin + took;
                }
                self.answers.add(begin + took, request.id);
            }
            DriveRequestKind::Read(offset, length) => {
                let is_next = self.read_end == offset;
                self.read_end = offset + length;
                let latency = if is_next { parameters.sequential_read_ns } else { parameters.read_ns };
                let took_ns = transfer_ns(length, parameters.read_bytes_per_second);
                self.fetch(request.id, start, (offset, length), latency, took_ns);
            }
            DriveRequestKind::Discard(..) => {
                // The mapping changes, which one channel's latency is taken for.
                self.is_dirty = true;
                self.command_free_ns = start + 1_000_000_000 / parameters.commands_per_second;
                self.answers.add(start + parameters.write_ns, request.id);
            }
            DriveRequestKind::Write(offset, length) => {
                self.is_dirty = true;
                let took_ns = transfer_ns(length, parameters.write_bytes_per_second);
                self.fetch(request.id, start, (offset, length), parameters.write_ns, took_ns);
            }
        }
    }

    /// Gives each channel its pieces; the link takes all once the first is there.
    fn fetch(&mut self, id: u64, start: u64, (offset, length): (u64, u64), latency: u64, took_ns: u64) {
        self.command_free_ns = start + 1_000_000_000 / self.parameters.commands_per_second;
        let stripe = self.parameters.stripe_bytes;
        let (first, last) = (offset / stripe, (offset + length.max(1) - 1) / stripe);
        let (mut at_ns, mut last_ns) = (start, start);
        for piece in first..=last {
            let channel =
                usize::try_from(piece % self.channels.len() as u64).expect("less than their number");
            let free = &mut self.channels[channel];
            *free = start.max(*free) + latency;
            at_ns = if piece == first { *free } else { at_ns };
            last_ns = last_ns.max(*free);
        }
        self.quiet_ns = self.quiet_ns.max(last_ns);
        self.arriving.push(Reverse(Arriving { at_ns, id, took_ns, last_ns }));
    }

    /// The link takes what has arrived.
    fn progress(&mut self, now_ns: u64) {
        while self.arriving.peek().is_some_and(|Reverse(first)| first.at_ns <= now_ns) {
            let Some(Reverse(first)) = self.arriving.pop() else { break };
            self.link_free_ns = first.at_ns.max(self.link_free_ns) + first.took_ns;
            let done = self.link_free_ns.max(first.last_ns);
            self.quiet_ns = self.quiet_ns.max(done);
            self.answers.add(done, first.id);
        }
    }

    pub(super) fn next_event_ns(&self) -> Option<u64> {
        let arriving = self.arriving.peek().map(|Reverse(first)| first.at_ns);
        [arriving, self.answers.next_ns()].into_iter().flatten().min()
    }

    pub(super) fn advance(&mut self, now_ns: u64, answered: &mut Vec<Completion>) {
        self.progress(now_ns);
        self.answers.take_until(now_ns, answered);
    }
}

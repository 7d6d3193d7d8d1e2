//! The way of a scrub through one device.

use super::joined::{Joined, Joining};
use super::{DeviceProgress, DeviceState, Scrub, ScrubError, WINDOW_BYTES, WINDOWS_UNDER_WAY, names};
use brindle_fs::Filesystem;
use brindle_ondisk::{DevId, Physical};
use brindle_tree::Committed;
use brindle_volume::{ScrubRead, ScrubStripe, StripeStatus};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A piece of a device extent that was begun.
struct Step<'p> {
    /// Address on the device behind it.
    end: Physical,
    /// Reads of it; `None` where nothing is in use.
    read: Option<UnderWay<'p>>,
}

/// A window that is being read.
struct UnderWay<'p> {
    // In the order in which they are to be dropped.
    read: ScrubRead<'p>,
    view: Committed<'p>,
}

/// One device on its way.
struct Walk<'s> {
    scrub: &'s Scrub,
    filesystem: &'s Filesystem,
    devid: DevId,
    name: &'s str,
    repairs: bool,
    /// Begin of this run, or of the present limit, and the bytes read since.
    since: Instant,
    bytes: u64,
    limit: u64,
    begun: Instant,
    /// Time that earlier runs have taken.
    before: Duration,
    /// Bytes of the device extents before the present one.
    passed: u64,
    /// Faults that are kept, and not in the log yet.
    untold: Joining,
}

impl Scrub {
    /// Goes through a device.
    pub(super) fn walk_device(&self, filesystem: &Filesystem, device: &DeviceProgress, repairs: bool) {
        let now = Instant::now();
        let (devid, name, limit) = (device.devid, device.name.as_str(), device.limit);
        let mut walk = Walk {
            scrub: self,
            filesystem,
            devid,
            name,
            repairs,
            since: now,
            bytes: 0,
            limit,
            begun: now,
            before: device.duration,
            passed: 0,
            untold: Joining::default(),
        };
        let ended = walk.run(Physical::new(device.last_physical));
        if let Some(rest) = walk.untold.end() {
            walk.tell(&rest);
        }
        let state = match ended {
            Ok(()) if self.is_stopped() => DeviceState::Cancelled,
            Ok(()) => DeviceState::Finished,
            Err(error) => {
                tracing::error!("scrub of {name}: {error}");
                DeviceState::Failed(error.to_string())
            }
        };
        self.update(devid, |device| {
            device.state = state;
            device.duration = walk.before + walk.begun.elapsed();
        });
    }
}

impl<'s> Walk<'s> {
    fn run(&mut self, from: Physical) -> Result<(), ScrubError> {
        let volume = self.filesystem.pool().volume();
        let mut at = from;
        let stripes = volume.chunks().into_iter().flat_map(|chunk| chunk.stripes);
        let is_before = |stripe: &StripeStatus| {
            stripe.devid == self.devid && stripe.physical.get() + stripe.length <= from.get()
        };
        self.passed = stripes.filter(is_before).map(|stripe| stripe.length).sum();
        while let Some(stripe) = volume.next_stripe(self.devid, at) {
            self.go_through(&stripe, at)?;
            if self.scrub.is_stopped() {
                return Ok(());
            }
            at = stripe.end();
            self.has_passed(&stripe, at);
            self.passed += stripe.length;
        }
        Ok(())
    }

    /// Goes through a device extent from an address on.
    fn go_through(&mut self, stripe: &ScrubStripe, from: Physical) -> Result<(), ScrubError> {
        let mut at = from.max(stripe.physical);
        let mut steps: VecDeque<Step<'s>> = VecDeque::new();
        while !self.scrub.is_stopped() {
            if self.limit() != 0 {
                // No view is held by a thread that waits for its turn.
                self.end(stripe, &mut steps, 0)?;
                self.scrub.wait_for_turn(self.devid, self.bytes, self.since);
            }
            let Some(step) = self.begin(stripe, at)? else { break };
            at = step.end;
            steps.push_back(step);
            self.end(stripe, &mut steps, WINDOWS_UNDER_WAY - 1)?;
        }
        self.end(stripe, &mut steps, 0)
    }

    /// Begins the next window of a device extent; `None` at the end.
    fn begin(&mut self, stripe: &ScrubStripe, at: Physical) -> Result<Option<Step<'s>>, ScrubError> {
        let pool = self.filesystem.pool();
        let volume = pool.volume();
        // Before the window: its chunk is mapped as long as the view lives.
        let view = pool.committed()?;
        let Some(window) = volume.scrub_window(stripe, at, WINDOW_BYTES) else { return Ok(None) };
        let expected = view.expected(&window)?;
        if expected.is_empty() {
            let (from, end) = (window.start + window.logical_length, stripe.chunk + stripe.chunk_length);
            let next = if from < end { view.next_used(from, end)? } else { None };
            let end = next.map_or(stripe.end(), |used| volume.skip_to(stripe, used).max(window.end()));
            return Ok(Some(Step { end, read: None }));
        }
        let read = volume.begin_scrub(&window, expected).map(|read| UnderWay { read, view });
        Ok(Some(Step { end: window.end(), read }))
    }

    /// Ends the oldest steps until no more than `left` are under way.
    fn end(
        &mut self,
        stripe: &ScrubStripe,
        steps: &mut VecDeque<Step<'s>>,
        left: usize,
    ) -> Result<(), ScrubError> {
        while steps.len() > left {
            let Some(Step { end, read }) = steps.pop_front() else { break };
            if let Some(read) = read {
                self.verify(read)?;
            }
            self.has_passed(stripe, end);
        }
        Ok(())
    }

    /// Waits for the answers of a window, verifies and counts.
    ///
    /// # Errors
    /// A device that does not answer: its contents are counted so far, and not listed one by one.
    fn verify(&mut self, UnderWay { read, view }: UnderWay<'s>) -> Result<(), ScrubError> {
        let findings = read.end(self.repairs);
        if findings.counts.read_errors > 0 {
            if let Err(error) = self.filesystem.pool().volume().probe(self.devid) {
                self.scrub.update(self.devid, |device| device.counts.add(&findings.counts));
                return Err(ScrubError::NoAnswer(error));
            }
        }
        let (mut joining, mut joined, mut unnamed) = (Joining::default(), Vec::new(), 0);
        for fault in &findings.faults {
            let files = names::of(self.filesystem, &view, fault).unwrap_or_else(|error| {
                tracing::debug!("scrub: {error}");
                unnamed += 1;
                Vec::new()
            });
            joined.extend(joining.add(Joined::new(fault, files)));
        }
        joined.extend(joining.end());
        drop(view);
        if unnamed > 0 {
            self.scrub.has_unnamed(unnamed);
        }
        // Kept at once, so that a crash loses none: the window counts as done from now on.
        for fault in joined {
            self.scrub.keep(fault.fault(self.name));
            if let Some(before) = self.untold.add(fault) {
                self.tell(&before);
            }
        }
        self.bytes += findings.counts.read_bytes;
        self.scrub.update(self.devid, |device| device.counts.add(&findings.counts));
        Ok(())
    }

    fn tell(&self, fault: &Joined) {
        tracing::error!("scrub: {}", fault.in_words(self.name));
    }

    /// Everything before an address within a device extent, or at its end, is done.
    fn has_passed(&self, stripe: &ScrubStripe, at: Physical) {
        let within = at.get().min(stripe.end().get()) - stripe.physical.get();
        self.scrub.update(self.devid, |device| {
            device.last_physical = at.get();
            device.duration = self.before + self.begun.elapsed();
            device.done_bytes = (self.passed + within).min(device.total_bytes);
        });
    }

    /// The limit; the bytes of before it was set do not count.
    fn limit(&mut self) -> u64 {
        let mut limit = 0;
        self.scrub.update(self.devid, |device| limit = device.limit);
        if limit != self.limit {
            (self.limit, self.since, self.bytes) = (limit, Instant::now(), 0);
        }
        limit
    }
}

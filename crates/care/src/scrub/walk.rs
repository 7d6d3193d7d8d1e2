//! The way of a scrub through one device.

use super::{DeviceProgress, DeviceState, Fault, Scrub, ScrubError, WINDOW_BYTES, names, text_of};
use brindle_fs::Filesystem;
use brindle_ondisk::{DevId, Physical};
use brindle_tree::Committed;
use brindle_volume::{ScrubRead, ScrubStripe, ScrubWindow, StripeStatus};
use std::time::{Duration, Instant};

/// A window that is being read.
struct UnderWay<'p> {
    // In the order in which they are to be dropped.
    read: ScrubRead<'p>,
    window: ScrubWindow,
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
        };
        let state = match walk.run(Physical::new(device.last_physical)) {
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
        let mut before: Option<UnderWay<'s>> = None;
        loop {
            // No view is held by a thread that waits for its turn.
            if self.limit() != 0 {
                self.end(before.take())?;
                self.scrub.wait_for_turn(self.devid, self.bytes, self.since);
            }
            let next = if self.scrub.is_stopped() { None } else { self.begin(stripe, at)? };
            self.end(before.take())?;
            let Some((end, under_way)) = next else { return Ok(()) };
            if under_way.is_none() {
                self.has_passed(stripe, end);
            }
            (at, before) = (end, under_way);
        }
    }

    /// Begins the next window of a device extent; returns the address behind it. `None` at the end.
    fn begin(
        &mut self,
        stripe: &ScrubStripe,
        at: Physical,
    ) -> Result<Option<(Physical, Option<UnderWay<'s>>)>, ScrubError> {
        let pool = self.filesystem.pool();
        let volume = pool.volume();
        // Before the window: its chunk is mapped as long as the view lives.
        let view = pool.committed()?;
        let Some(window) = volume.scrub_window(stripe, at, WINDOW_BYTES) else { return Ok(None) };
        let expected = view.expected(&window)?;
        if expected.is_empty() {
            let (from, end) = (window.start + window.logical_length, stripe.chunk + stripe.chunk_length);
            let next = if from < end { view.next_used(from, end)? } else { None };
            let at = next.map_or(stripe.end(), |used| volume.skip_to(stripe, used).max(window.end()));
            return Ok(Some((at, None)));
        }
        let under_way = volume.begin_scrub(&window, expected).map(|read| UnderWay { read, window, view });
        Ok(Some((window.end(), under_way)))
    }

    /// Ends a window.
    fn end(&mut self, window: Option<UnderWay<'s>>) -> Result<(), ScrubError> {
        let Some(UnderWay { read, window, view }) = window else { return Ok(()) };
        let findings = read.end(self.repairs);
        for fault in &findings.faults {
            let files = names::of(self.filesystem, &view, fault);
            let files = files.inspect_err(|error| tracing::debug!("scrub: {error}")).unwrap_or_default();
            self.scrub.keep(Fault { text: text_of(fault, self.name), files });
        }
        drop(view);
        self.bytes += findings.counts.read_bytes;
        self.scrub.update(self.devid, |device| device.counts.add(&findings.counts));
        self.has_passed(&window.stripe, window.end());
        Ok(())
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

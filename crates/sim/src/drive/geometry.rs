//! Position of a byte on the platters: its radius and its angle.
//!
//! A position is the time that streaming there from the first byte takes, in nanoseconds. That one number gives both: the
//! track is how often the platters have turned, the angle what is left. Zones, short strokes, and the revolution that is
//! lost by coming a moment too late follow from it; head and track switches are taken to be hidden by skew.

use super::hard_disk_parameters::HardDiskParameters;

/// Positions on a hard disk, and how long it takes to get from one to another.
#[derive(Clone, Debug)]
pub(super) struct Geometry {
    /// Bytes a nanosecond at the outer edge.
    outer: f64,
    /// Decrease of that for each nanosecond of position.
    slope: f64,
    /// The position after the last byte.
    end_ns: f64,
    revolution_ns: u64,
    seek_ns: [f64; 3],
    settle_ns: u64,
    margin_ns: u64,
}

impl Geometry {
    pub(super) fn new(parameters: &HardDiskParameters) -> Self {
        let rate = |bytes_per_second: u64| float(bytes_per_second) / 1e9;
        let (outer, inner) =
            (rate(parameters.outer_bytes_per_second), rate(parameters.inner_bytes_per_second));
        let end_ns = float(parameters.size_bytes) * 2.0 / (outer + inner);
        Self {
            outer,
            slope: (outer - inner) / end_ns,
            end_ns,
            revolution_ns: 60_000_000_000 / parameters.revolutions_per_minute,
            seek_ns: parameters.seek_ns.map(float),
            settle_ns: parameters.write_settle_ns,
            margin_ns: parameters.margin_ns,
        }
    }

    /// The position of a byte: of how much a disk whose rate falls evenly has streamed at a time, the inverse.
    pub(super) fn position_ns(&self, offset: u64) -> u64 {
        let bytes = float(offset);
        if self.slope == 0.0 {
            return whole(bytes / self.outer);
        }
        let root = (self.outer * self.outer - 2.0 * self.slope * bytes).max(0.0).sqrt();
        whole((self.outer - root) / self.slope)
    }

    /// The byte at a position.
    pub(super) fn offset(&self, position_ns: u64) -> u64 {
        let time = float(position_ns);
        whole(self.outer * time - self.slope * time * time / 2.0)
    }

    /// From a position at a time until the head is at another one and the platters have turned to it.
    pub(super) fn access_ns(&self, from: u64, to: u64, now_ns: u64, is_write: bool) -> u64 {
        let ready = now_ns + self.seek_ns(from, to) + if is_write { self.settle_ns } else { 0 };
        let turn = self.revolution_ns;
        let wait = (to % turn + turn - ready % turn) % turn;
        ready + wait - now_ns
    }

    /// Moving from the track of one position to that of another.
    fn seek_ns(&self, from: u64, to: u64) -> u64 {
        if from / self.revolution_ns == to / self.revolution_ns {
            return 0;
        }
        let [least, third, full] = self.seek_ns;
        let stroke = float(from.abs_diff(to)) / self.end_ns;
        let seek = if stroke <= 1.0 / 3.0 {
            least + (third - least) * (stroke * 3.0).sqrt()
        } else {
            third + (full - third) * (stroke * 1.5 - 0.5)
        };
        whole(seek) + self.margin_ns
    }
}

/// Sizes and times of drives are far below 2^53, up to which every whole number is one of these.
#[expect(clippy::cast_precision_loss, reason = "less than 2^53")]
fn float(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and less than 2^53")]
fn whole(number: f64) -> u64 {
    number as u64
}

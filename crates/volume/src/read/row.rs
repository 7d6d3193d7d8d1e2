//! Rows of raid5 and raid6, for a caller that holds parity against data.

use crate::Volume;
use crate::layout::STRIP_BYTES;
use brindle_ondisk::{Logical, Physical};

/// The part of a row of raid5 or raid6 at one offset of its strips.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParityRow {
    /// Addresses of the data, column by column.
    pub data: Vec<Logical>,
    /// Device and physical address of P, then, of raid6, those of Q.
    pub parity: Vec<(String, Physical)>,
}

impl Volume {
    /// The part of a row that holds an address; `None` where there is no parity.
    pub fn parity_row(&self, logical: Logical) -> Option<ParityRow> {
        let pool = self.snapshot();
        let (chunk, offset) = pool.locate_block(logical, 1).ok()?;
        let layout = &chunk.layout;
        if !layout.has_parity() {
            return None;
        }
        let run = layout.run_at(offset);
        let columns = layout.columns();
        let within = run.stripe_offset % STRIP_BYTES;
        let offsets = (0..columns).map(|column| (run.row * columns + column) * STRIP_BYTES + within);
        let data = offsets.filter(|offset| *offset < chunk.length).map(|offset| chunk.start + offset);
        let place = |parity: u64| {
            let stripe = &chunk.stripes[layout.stripe_in_row(run.row, columns + parity)];
            let physical = Physical::new(stripe.physical.get().saturating_add(run.stripe_offset));
            (pool.devices[stripe.device].name(), physical)
        };
        Some(ParityRow { data: data.collect(), parity: (0..layout.parities()).map(place).collect() })
    }
}

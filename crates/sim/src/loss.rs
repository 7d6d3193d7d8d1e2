//! Losses of a crash: an outcome for each write that was not flushed.

use crate::{Random, Tear};

/// Outcome of a write that was not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteOutcome {
    /// The medium holds it.
    Kept,
    /// The medium does not hold it.
    Lost,
    /// The medium holds some of its sectors.
    Torn(Tear),
}

/// In which way a crash takes what was not flushed. A later write may be kept where an earlier one is lost: that is
/// what reordering comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossMode {
    /// The process dies, the devices live on.
    Nothing,
    /// All of it.
    Everything,
    /// One write of all, lost or torn.
    LoseOne,
    /// All but one write, which is kept or torn.
    KeepOne,
    /// Each device had written, in order, up to a point of its own; the write at that point may be torn.
    InOrder,
    /// Each write has its own fate.
    Scattered,
    /// Each write of one device has its own fate, the other devices lose nothing.
    OneDevice,
    /// One device loses all of it, the others nothing.
    OneDeviceBehind,
}

impl LossMode {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Nothing,
        Self::Everything,
        Self::LoseOne,
        Self::KeepOne,
        Self::InOrder,
        Self::Scattered,
        Self::OneDevice,
        Self::OneDeviceBehind,
    ];

    /// The fate of each pending write of each device, in order. A write is told by the number of its sectors.
    #[must_use]
    pub fn fates(self, pending: &[Vec<u64>], random: &mut Random) -> Vec<Vec<WriteOutcome>> {
        let same = |fate: WriteOutcome| pending.iter().map(|writes| vec![fate; writes.len()]).collect();
        let tear =
            |sectors: u64, random: &mut Random| Tear::any(sectors, random).filter(|_| random.chance(1, 2));
        match self {
            Self::Nothing => same(WriteOutcome::Kept),
            Self::Everything => same(WriteOutcome::Lost),
            Self::LoseOne | Self::KeepOne => {
                let (many, one) = if self == Self::LoseOne {
                    (WriteOutcome::Kept, WriteOutcome::Lost)
                } else {
                    (WriteOutcome::Lost, WriteOutcome::Kept)
                };
                let mut fates: Vec<Vec<WriteOutcome>> = same(many);
                if let Some((device, write)) = any_write(pending, random) {
                    fates[device][write] =
                        tear(pending[device][write], random).map_or(one, WriteOutcome::Torn);
                }
                fates
            }
            Self::InOrder => {
                let in_order = |writes: &Vec<u64>| {
                    let cut = random.index(writes.len() + 1);
                    let mut fates = vec![WriteOutcome::Lost; writes.len()];
                    fates[..cut].fill(WriteOutcome::Kept);
                    if let Some(sectors) = writes.get(cut) {
                        fates[cut] = tear(*sectors, random).map_or(WriteOutcome::Lost, WriteOutcome::Torn);
                    }
                    fates
                };
                pending.iter().map(in_order).collect()
            }
            Self::Scattered => pending.iter().map(|writes| scattered(writes, random)).collect(),
            Self::OneDevice | Self::OneDeviceBehind => {
                let mut fates: Vec<Vec<WriteOutcome>> = same(WriteOutcome::Kept);
                let behind: Vec<usize> =
                    (0..pending.len()).filter(|device| !pending[*device].is_empty()).collect();
                if !behind.is_empty() {
                    let device = *random.pick(&behind);
                    fates[device] = match self {
                        Self::OneDevice => scattered(&pending[device], random),
                        _ => vec![WriteOutcome::Lost; pending[device].len()],
                    };
                }
                fates
            }
        }
    }
}

/// Numbers of 16 writes that are lost: one is drawn for each state, so that some lose little and some nearly all.
const SHARES: [u64; 5] = [1, 4, 8, 12, 15];

/// Numbers of 16 writes, of those not lost, that are torn.
const TORN_SHARES: [u64; 3] = [0, 1, 4];

fn scattered(writes: &[u64], random: &mut Random) -> Vec<WriteOutcome> {
    let lost = *random.pick(&SHARES);
    let torn = *random.pick(&TORN_SHARES);
    let fate = |sectors: &u64| {
        if random.chance(lost, 16) {
            WriteOutcome::Lost
        } else if random.chance(torn, 16) {
            Tear::any(*sectors, random).map_or(WriteOutcome::Kept, WriteOutcome::Torn)
        } else {
            WriteOutcome::Kept
        }
    };
    writes.iter().map(fate).collect()
}

/// Device and number of any pending write.
fn any_write(pending: &[Vec<u64>], random: &mut Random) -> Option<(usize, usize)> {
    let mut number = random.index(pending.iter().map(Vec::len).sum());
    for (device, writes) in pending.iter().enumerate() {
        if number < writes.len() {
            return Some((device, number));
        }
        number -= writes.len();
    }
    None
}

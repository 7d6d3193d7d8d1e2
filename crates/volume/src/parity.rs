//! Arithmetic of RAID5 and RAID6: GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d) and the
//! generator 2.
//!
//! Of the data `D_0 .. D_n-1` of a row, `P = ΣD_i` and `Q = Σ2^i·D_i`, addition being XOR. Whatever is
//! lost, a data stripe is a linear combination of what is left; this module finds the factors
//! ([`Recovery::data_factor`] and its like) and adds up ([`add_multiple`]).

/// The powers of the generator, twice over, so that a sum of two logarithms needs no reduction.
const POWERS: [u8; 510] = {
    let mut powers = [0; 510];
    let mut value = 1u8;
    let mut exponent = 0;
    while exponent < 510 {
        powers[exponent] = value;
        value = double(value);
        exponent += 1;
    }
    powers
};

/// The exponent that makes each number a power of the generator; 0 has none.
const LOGARITHMS: [u8; 256] = {
    let mut logarithms = [0; 256];
    let mut exponent = 0u8;
    while exponent < 255 {
        logarithms[POWERS[exponent as usize] as usize] = exponent;
        exponent += 1;
    }
    logarithms
};

/// Every product: the row of a factor turns multiplying into looking up.
static PRODUCTS: [[u8; 256]; 256] = {
    let mut products = [[0; 256]; 256];
    let mut a = 0;
    while a < 256 {
        let mut b = 0;
        while b < 256 {
            products[a][b] = product(a, b);
            b += 1;
        }
        a += 1;
    }
    products
};

/// More data stripes than this have no distinct powers of the generator.
pub(crate) const MAX_DATA_STRIPES: u64 = 255;

const fn double(value: u8) -> u8 {
    (value << 1) ^ (0x1d & (value >> 7).wrapping_neg())
}

const fn product(a: usize, b: usize) -> u8 {
    if a == 0 || b == 0 { 0 } else { POWERS[LOGARITHMS[a] as usize + LOGARITHMS[b] as usize] }
}

/// The product of two numbers of the field.
fn multiply(a: u8, b: u8) -> u8 {
    PRODUCTS[usize::from(a)][usize::from(b)]
}

/// The number that, multiplied with `a`, gives 1. `a` is not 0.
const fn invert(a: u8) -> u8 {
    POWERS[255 - LOGARITHMS[a as usize] as usize]
}

/// The generator to some power.
pub(crate) const fn power(exponent: u64) -> u8 {
    POWERS[(exponent % 255) as usize]
}

/// From what a lost data stripe is rebuilt; columns count the data stripes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// From P and the other data.
    FromP,
    /// From Q and the other data: P is lost too, or not to be trusted.
    FromQ,
    /// From P, Q, and the data other than this column too.
    FromBoth {
        /// The other lost column.
        other: u64,
    },
}

impl Recovery {
    /// The factor of the data in `column` when `lost` is rebuilt; 0 where it isn't needed.
    pub(crate) fn data_factor(self, lost: u64, column: u64) -> u8 {
        match self {
            _ if column == lost => 0,
            Self::FromP => 1,
            Self::FromQ => multiply(power(column), invert(power(lost))),
            Self::FromBoth { other } if column == other => 0,
            Self::FromBoth { other } => {
                multiply(power(column) ^ power(other), invert(power(lost) ^ power(other)))
            }
        }
    }

    /// The factor of P.
    pub(crate) fn p_factor(self, lost: u64) -> u8 {
        match self {
            Self::FromP => 1,
            Self::FromQ => 0,
            Self::FromBoth { other } => multiply(power(other), invert(power(lost) ^ power(other))),
        }
    }

    /// The factor of Q.
    pub(crate) fn q_factor(self, lost: u64) -> u8 {
        match self {
            Self::FromP => 0,
            Self::FromQ => invert(power(lost)),
            Self::FromBoth { other } => invert(power(lost) ^ power(other)),
        }
    }
}

/// `target += factor · source`, byte by byte.
pub(crate) fn add_multiple(target: &mut [u8], source: &[u8], factor: u8) {
    match factor {
        0 => {}
        1 => {
            for (target, source) in target.iter_mut().zip(source) {
                *target ^= source;
            }
        }
        _ => {
            let products = &PRODUCTS[usize::from(factor)];
            for (target, source) in target.iter_mut().zip(source) {
                *target ^= products[usize::from(*source)];
            }
        }
    }
}

/// P and Q of a row, or of a part of each of its strips: `columns` are the data, all of one length.
pub fn syndromes(columns: &[&[u8]]) -> (Vec<u8>, Vec<u8>) {
    let length = columns.first().map_or(0, |column| column.len());
    let (mut p, mut q) = (vec![0; length], vec![0; length]);
    // From the last to the first, so that each is doubled as often as there are others before it.
    for column in columns.iter().rev() {
        for ((p, q), data) in p.iter_mut().zip(&mut q).zip(*column) {
            *p ^= data;
            *q = double(*q) ^ data;
        }
    }
    (p, q)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::support::slow_multiply;
    use proptest::prelude::*;

    #[test]
    fn the_tables_agree_with_the_schools_method() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(multiply(a, b), slow_multiply(a, b), "{a} times {b}");
            }
        }
        assert!((1..=255).all(|a| multiply(a, invert(a)) == 1));
    }

    #[test]
    fn powers_of_the_generator_are_distinct_for_all_columns() {
        let mut seen = [false; 256];
        for column in 0..MAX_DATA_STRIPES {
            assert!(!std::mem::replace(&mut seen[usize::from(power(column))], true));
        }
    }

    /// P and Q of a row of bytes, straight from their definition.
    fn syndromes(row: &[u8]) -> (u8, u8) {
        let mut factor = 1;
        row.iter().fold((0, 0), |(p, q), data| {
            let next = (p ^ data, q ^ slow_multiply(factor, *data));
            factor = slow_multiply(factor, 2);
            next
        })
    }

    proptest! {
        #[test]
        fn every_recovery_gives_back_the_lost_byte(row in prop::collection::vec(any::<u8>(), 1..=255usize)) {
            let (p, q) = syndromes(&row);
            let columns = row.len() as u64;
            for lost in 0..columns {
                let others = (0..columns).filter(|other| *other != lost).take(16);
                let both = others.map(|other| Recovery::FromBoth { other });
                for recovery in [Recovery::FromP, Recovery::FromQ].into_iter().chain(both) {
                    let mut found = [0];
                    for (column, data) in (0..).zip(&row) {
                        add_multiple(&mut found, &[*data], recovery.data_factor(lost, column));
                    }
                    add_multiple(&mut found, &[p], recovery.p_factor(lost));
                    add_multiple(&mut found, &[q], recovery.q_factor(lost));
                    prop_assert_eq!(found[0], row[usize::try_from(lost).expect("small")], "{:?}", recovery);
                }
            }
        }

        #[test]
        fn sums_are_taken_byte_by_byte(pairs in prop::collection::vec(any::<(u8, u8)>(), 0..200), factor: u8) {
            let (mut target, source): (Vec<u8>, Vec<u8>) = pairs.iter().copied().unzip();
            add_multiple(&mut target, &source, factor);
            let expected: Vec<u8> = pairs.iter().map(|(t, s)| t ^ slow_multiply(*s, factor)).collect();
            prop_assert_eq!(target, expected);
        }
    }
}

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

/// More data stripes than this have no distinct powers of the generator.
pub(crate) const MAX_DATA_STRIPES: u64 = 255;

const fn double(value: u8) -> u8 {
    (value << 1) ^ (0x1d & (value >> 7).wrapping_neg())
}

/// The product of two numbers of the field.
const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    POWERS[LOGARITHMS[a as usize] as usize + LOGARITHMS[b as usize] as usize]
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
            let mut products = [0; 256];
            for (value, product) in (0..=255).zip(&mut products) {
                *product = multiply(value, factor);
            }
            for (target, source) in target.iter_mut().zip(source) {
                *target ^= products[usize::from(*source)];
            }
        }
    }
}

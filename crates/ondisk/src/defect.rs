//! Defects of some bytes, before their address is known.

use std::fmt;

/// One reason why bytes are not what the format allows. Each reason is raised in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defect {
    /// The reason, as a phrase that names the field.
    pub why: &'static str,
    /// The value found.
    pub found: u64,
    /// The value (or the bound) expected, where there is a single one.
    pub expected: Option<u64>,
}

impl Defect {
    /// A value that cannot be.
    pub const fn new(why: &'static str, found: u64) -> Self {
        Self { why, found, expected: None }
    }

    /// A value that differs from the only right one, or passes a bound.
    pub const fn expected(why: &'static str, expected: u64, found: u64) -> Self {
        Self { why, found, expected: Some(expected) }
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, found {:#x}", self.why, self.found)?;
        match self.expected {
            Some(expected) => write!(f, ", expected {expected:#x}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Defect {}

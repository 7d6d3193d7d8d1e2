//! The attributes of one command: found by their numbers, and read by their types.

use crate::number::AttributeNumber;
use crate::{StreamProblem, StreamTime, Uuid};
use std::ops::Range;

/// Number of attributes that the format has, with room for 0.
const KNOWN: usize = 32;

/// Attributes of a command, where each lies. The last of several with one number counts.
pub(crate) struct Attributes<'a> {
    payload: &'a [u8],
    places: [Option<Range<usize>>; KNOWN],
}

impl<'a> Attributes<'a> {
    /// Finds the attributes. Those that are unknown are passed over.
    pub(crate) fn find(payload: &'a [u8], version: u32) -> Result<Self, StreamProblem> {
        let mut places = [const { None }; KNOWN];
        let mut at = 0;
        while at < payload.len() {
            let number = AttributeNumber(two_bytes(payload, at)?);
            at += 2;
            let length = if version >= 2 && number == AttributeNumber::DATA {
                payload.len() - at
            } else {
                let length = two_bytes(payload, at)?.into();
                at += 2;
                length
            };
            let end = at + length;
            if end > payload.len() {
                return Err(StreamProblem::Overrun { attribute: number.name(), length });
            }
            if let Some(place) = places.get_mut(usize::from(number.0)) {
                *place = Some(at..end);
            }
            at = end;
        }
        Ok(Self { payload, places })
    }

    /// Bytes of an attribute.
    pub(crate) fn bytes(&self, number: AttributeNumber) -> Result<&'a [u8], StreamProblem> {
        self.optional(number).ok_or(StreamProblem::Missing { attribute: number.name() })
    }

    /// A number of 64 bits.
    pub(crate) fn number(&self, number: AttributeNumber) -> Result<u64, StreamProblem> {
        self.array(number).map(u64::from_le_bytes)
    }

    /// A number of 64 bits; 0 if it is missing.
    pub(crate) fn number_or_zero(&self, number: AttributeNumber) -> Result<u64, StreamProblem> {
        if self.optional(number).is_none() { Ok(0) } else { self.number(number) }
    }

    /// A number of 32 bits.
    pub(crate) fn small_number(&self, number: AttributeNumber) -> Result<u32, StreamProblem> {
        self.array(number).map(u32::from_le_bytes)
    }

    /// A number of 32 bits; 0 if it is missing.
    pub(crate) fn small_number_or_zero(&self, number: AttributeNumber) -> Result<u32, StreamProblem> {
        if self.optional(number).is_none() { Ok(0) } else { self.small_number(number) }
    }

    /// A UUID.
    pub(crate) fn uuid(&self, number: AttributeNumber) -> Result<Uuid, StreamProblem> {
        self.array(number).map(Uuid)
    }

    /// A time.
    pub(crate) fn time(&self, number: AttributeNumber) -> Result<StreamTime, StreamProblem> {
        let bytes: [u8; 12] = self.array(number)?;
        let (seconds, nanoseconds) = bytes.split_at(8);
        let seconds = i64::from_le_bytes(seconds.try_into().expect("eight bytes"));
        let nanoseconds = u32::from_le_bytes(nanoseconds.try_into().expect("four bytes"));
        if nanoseconds >= 1_000_000_000 {
            return Err(StreamProblem::Range { attribute: number.name(), found: nanoseconds.into() });
        }
        Ok(StreamTime { seconds, nanoseconds })
    }

    /// A time, if it is there.
    pub(crate) fn optional_time(&self, number: AttributeNumber) -> Result<Option<StreamTime>, StreamProblem> {
        self.optional(number).map(|_| self.time(number)).transpose()
    }

    fn optional(&self, number: AttributeNumber) -> Option<&'a [u8]> {
        let place = self.places.get(usize::from(number.0))?.clone()?;
        self.payload.get(place)
    }

    fn array<const N: usize>(&self, number: AttributeNumber) -> Result<[u8; N], StreamProblem> {
        let bytes = self.bytes(number)?;
        let wrong = |_| StreamProblem::Length { attribute: number.name(), found: bytes.len(), expected: N };
        bytes.try_into().map_err(wrong)
    }
}

fn two_bytes(payload: &[u8], at: usize) -> Result<u16, StreamProblem> {
    let bytes = payload.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
    let cut = StreamProblem::Overrun { attribute: "at the end", length: payload.len() - at };
    bytes.map(u16::from_le_bytes).ok_or(cut)
}

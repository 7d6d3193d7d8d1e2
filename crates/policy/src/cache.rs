//! A flash cache in front of a disk. The decisions: which block of a set makes way ([`replacement`]), which requests are parts
//! of a stream and go around the cache ([`sequential`]), how much may be written to the flash a day ([`wear`]), and
//! which dirty blocks are cleaned ([`cleaning`]).

pub mod cleaning;
pub mod replacement;
pub mod sequential;
pub mod wear;

//! Operations that meet.

mod meanwhile;

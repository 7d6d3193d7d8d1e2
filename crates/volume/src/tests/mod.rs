//! Whole volumes over devices in memory, laid out by a writer that knows nothing of `layout` and `parity`.

mod asleep;
mod bypass;
mod failing;
mod fetched;
mod flaky;
mod golden;
mod hostile;
mod mend;
mod models;
mod open;
mod recover;
mod sets;
pub(crate) mod support;
mod writable;
mod write;

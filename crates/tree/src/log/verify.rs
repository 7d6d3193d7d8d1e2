//! Comparison of the counters of a log.

use super::Log;

impl Log {
    /// Panics unless no sync is durable that has not begun.
    pub(crate) fn verify(&self) {
        let state = self.state();
        assert!(
            state.synced <= state.begun,
            "sync {} is durable, and {} have begun",
            state.synced,
            state.begun
        );
    }
}

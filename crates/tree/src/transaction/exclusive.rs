//! Operations of which a pool has one at a time: those that empty block groups, and those that change its devices.

use crate::{Pool, TreeError};

/// Such an operation runs as long as this lives.
#[derive(Debug)]
pub struct ExclusiveOperation<'p> {
    pool: &'p Pool,
}

impl Pool {
    /// Begins one, with its name for the callers that are refused meanwhile: [`TreeError::Busy`].
    pub fn begin_exclusive(&self, name: &'static str) -> Result<ExclusiveOperation<'_>, TreeError> {
        let _stops = self.stop_on_panic();
        let mut running = self.writer()?.exclusive.lock();
        match *running {
            Some(running) => Err(TreeError::Busy { running }),
            None => {
                *running = Some(name);
                Ok(ExclusiveOperation { pool: self })
            }
        }
    }
}

impl Drop for ExclusiveOperation<'_> {
    fn drop(&mut self) {
        let _stops = self.pool.stop_on_panic();
        if let Ok(writer) = self.pool.writer() {
            *writer.exclusive.lock() = None;
        }
    }
}

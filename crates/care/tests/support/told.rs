//! The errors in the log.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Takes the messages of errors.
#[derive(Clone, Default)]
struct Errors(Arc<Mutex<Vec<String>>>);

/// The errors that this thread logs meanwhile, with the result.
pub(crate) fn errors_of<R>(work: impl FnOnce() -> R) -> (R, Vec<String>) {
    let errors = Errors::default();
    let result = tracing::subscriber::with_default(errors.clone(), work);
    let told = std::mem::take(&mut *errors.0.lock().unwrap_or_else(PoisonError::into_inner));
    (result, told)
}

impl Subscriber for Errors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Visit for Errors {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{value:?}"));
        }
    }
}

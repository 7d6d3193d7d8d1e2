//! Tests over in-memory devices.

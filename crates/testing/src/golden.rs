//! Golden images.

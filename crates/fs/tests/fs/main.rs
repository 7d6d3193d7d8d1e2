//! Whole pools, read back: the kernel's golden images, damaged ones, and pools that the kernel makes now.

mod golden;
mod walk;

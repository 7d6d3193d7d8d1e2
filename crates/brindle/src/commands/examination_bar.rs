//! The bar of an examination.

use brindle_check::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};

/// Progress, on a terminal.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// A bar, which is shown if it is wanted and there is a terminal.
    pub(crate) fn new(is_wanted: bool) -> Self {
        let is_shown = is_wanted && io::stderr().is_terminal();
        let target =
            if is_shown { ProgressDrawTarget::stderr_with_hz(8) } else { ProgressDrawTarget::hidden() };
        let style = ProgressStyle::with_template("{msg:12} {wide_bar} {percent:>3}% {eta:>4}");
        Self(ProgressBar::with_draw_target(Some(0), target).with_style(style.expect("the template is right")))
    }

    /// Takes it off the terminal.
    pub(crate) fn clear(&self) {
        self.0.finish_and_clear();
    }
}

impl Progress for Bar {
    fn begin(&self, pass: &'static str) {
        self.0.set_position(0);
        self.0.set_length(0);
        self.0.set_message(pass);
    }

    fn total(&self, units: u64) {
        self.0.set_length(units);
    }

    fn advance(&self, units: u64) {
        self.0.inc(units);
    }
}

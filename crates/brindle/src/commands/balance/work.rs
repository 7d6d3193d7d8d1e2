//! A balance carried out wherever the pool is, and its progress on a terminal.

use crate::commands::stop::Stop;
use crate::format::UnitMode;
use crate::output;
use anyhow::Result;
use brindle_admin::PoolAdmin;
use brindle_admin::pool::BalanceJob;
use brindle_care::job::{Control, Ended, Progress};
use brindle_policy::balance::Balance;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Instant;

/// Carries a balance out, and prints its result.
pub(crate) fn run(pool: &dyn PoolAdmin, job: &BalanceJob) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let bar = progress_bar();
    let begun = Instant::now();
    let done = pool.balance(job, &mut observer(&stop, &bar)).and_then(|ended| pool.close().map(|()| ended));
    bar.finish_and_clear();
    let Ended { progress, control } = done?;
    let mut out = output::stdout();
    // The kernel counts block groups alone.
    let moved = match progress.moved_bytes {
        0 if progress.done > 0 => String::new(),
        bytes => format!(", {} moved", UnitMode::DEFAULT.format(bytes)),
    };
    let (done, expected) = (progress.done, progress.expected);
    let is_for_wrong = job.balance.as_ref().is_some_and(Balance::is_for_misplaced_alone);
    match control {
        Control::Continue if expected == 0 && is_for_wrong => writeln!(out, "Nothing to move.")?,
        Control::Continue => {
            let seconds = begun.elapsed().as_secs_f64();
            writeln!(out, "Done: {done} of {expected} block groups{moved} in {seconds:.1} s.")?;
        }
        Control::Pause => writeln!(out, "Paused after {done} of {expected} block groups{moved}.")?,
        Control::Cancel => {
            writeln!(out, "Cancelled after {done} of {expected} block groups{moved}.")?;
        }
    }
    out.flush()?;
    match stop.name_and_code().filter(|_| control != Control::Continue) {
        Some((_, code)) => Ok(ExitCode::from(code)),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Observer of a long job, which shows its progress, and cancels it after a signal.
pub(crate) fn observer<'a>(stop: &'a Stop, bar: &'a ProgressBar) -> impl FnMut(&Progress) -> Control + 'a {
    |progress| {
        show(bar, progress);
        if stop.is_set() { Control::Cancel } else { Control::Continue }
    }
}

/// Shows how far it is, on a terminal.
pub(crate) fn progress_bar() -> ProgressBar {
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8))
    } else {
        ProgressBar::hidden()
    };
    let template = "{bar:24} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} eta {eta} {wide_msg}";
    bar.set_style(ProgressStyle::with_template(template).expect("the template is right"));
    bar
}

/// Brings it up to date.
pub(crate) fn show(bar: &ProgressBar, progress: &Progress) {
    if progress.expected_bytes.max(progress.moved_bytes) == 0 {
        // A bar of nothing would be drawn as a full one.
        return;
    }
    bar.set_length(progress.expected_bytes.max(progress.moved_bytes));
    bar.set_position(progress.moved_bytes);
    bar.set_message(format!("{} of {} block groups", progress.done, progress.expected));
}

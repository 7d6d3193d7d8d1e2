//! Watching a mount of brindle.

use super::WatchCommand;
use crate::commands::balance::work;
use crate::commands::refused::explain_admin;
use crate::commands::stop::Stop;
use crate::output;
use anyhow::{Result, bail};
use brindle_admin::pool::BrindleMount;
use brindle_admin::pool::tiers::{ServedObserver, ServedOptions, keep_served};
use brindle_admin::{AdminError, PoolFacts};
use brindle_care::job::Progress;
use brindle_care::tier::keep::KeepEnded;
use indicatif::ProgressBar;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Watches until it is told to stop.
pub(super) fn run(command: &WatchCommand, mount: BrindleMount, stop: &Stop) -> Result<ExitCode> {
    if !command.classes.is_empty() {
        bail!(
            "--fast and --bulk are for pools that the kernel has mounted; a mount of brindle has classes of its own: \
             `brindle mount DEVICE:fast`, `brindle property set ... allocation_hint`"
        );
    }
    mount.0.require_written("tier watch")?;
    let fsid = mount.fsid()?;
    drop(mount);
    tracing::info!("watching {}", command.pool.display());
    let files_interval = Duration::from_secs(command.files_interval.saturating_mul(60));
    let options = ServedOptions {
        interval: Duration::from_secs(command.interval),
        files_interval: (!files_interval.is_zero()).then_some(files_interval),
        rate: command.rate,
    };
    let mut show = Show { stop, bar: None };
    match keep_served(&command.pool, fsid, &options, &mut show).map_err(explain_admin)? {
        KeepEnded::Stopped => {}
        KeepEnded::Gone => {
            let mut out = output::stdout();
            writeln!(out, "{}: the pool is not mounted there any more.", command.pool.display())?;
            out.flush()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows how far a move is.
struct Show<'a> {
    stop: &'a Stop,
    /// The bar of a move under way.
    bar: Option<ProgressBar>,
}

impl ServedObserver for Show<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.is_set()
    }

    fn moving(&mut self, progress: &Progress) {
        work::show(self.bar.get_or_insert_with(work::progress_bar), progress);
    }

    fn ended(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn failed(&mut self, error: AdminError) {
        tracing::warn!("{}", output::explain(&error.into()));
    }
}

//! `tier apply`: moves misplaced chunks and data.

use super::facts::{ClassOptions, Facts};
use super::plan::{Only, print_shortages};
use super::recover::{self, PATIENCE};
use super::state;
use crate::commands::balance::work;
use crate::commands::place::{administer_as, open_as};
use crate::commands::quantity::parse_rate;
use crate::commands::stop::Stop;
use crate::format::UnitMode;
use crate::output;
use anyhow::{Context, Result, bail};
use brindle_admin::pool::BalanceJob;
use brindle_admin::tier::{ApplyOptions, Observer, apply};
use brindle_admin::{PoolAdmin, Reach};
use brindle_care::device::order_devids;
use brindle_policy::balance::Balance;
use brindle_policy::tier::plan::{Move, Plan, Wanted, plan};
use clap::Args;
use indicatif::ProgressBar;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

const EXAMPLES: &str = "\
EXAMPLES
  Two SSDs have joined a pool of two disks; its metadata is to move there:
    btrfs device add /dev/nvme0n1 /dev/nvme1n1 /mnt
    brindle tier plan /mnt
    brindle tier apply /mnt

  Metadata alone, and gently:
    brindle tier apply --only metadata --rate 20M /mnt

FILES
  /var/lib/brindle/tier-UUID.json
      What sizes the devices of a pool had; there as long as they are fenced.
      BRINDLE_STATE_DIR names another directory; it must outlive a crash.

EXIT STATUS
  0    everything lies as well as the devices allow, or there was nothing to
       move
  1    failure, or there is no room for some of what is wanted; sizes are as
       before, unless the message says that `tier recover` is needed
  2    wrong usage
  129, 130, 143  stopped by SIGHUP, SIGINT or SIGTERM; sizes are as before";

/// Move metadata to the fast devices, and data to where it belongs
///
/// Fences that a killed run has left are taken down first. On a pool that is not mounted, and on a mount of brindle, this is `brindle balance start` with `misplaced`. Data on
/// fast devices is that of small and of marked files: other data there, because the others were full, or because
/// its file has grown, goes back to the others, and data of files that were marked later, or became small, to the fast ones. Data shared with
/// clones and snapshots stays shared. After Ctrl-C, a crash, or for lack of room, run it again, and it goes on.
///
/// Where there are fewer fast devices than the profile of the metadata has copies, each fast device gets a copy, and the others
/// lie on bulk devices: with one SSD, one copy of `raid1` metadata. So it is with data of small and of marked files, except on a pool that the
/// kernel has mounted. That is right, and a note says what more devices would give.
///
/// On a pool that the kernel has mounted: the kernel gives new chunks to the devices with the most unallocated space. So the
/// devices where something does not belong are fenced, resized down to the end of what they hold, and the misplaced chunks are relocated by
/// balance, one by one; then the devices get their sizes back. They get them back after an error and after Ctrl-C as
/// well, and after a crash by `brindle tier recover`, or when this is run again. Files can be used all the while.
///
/// It refuses if there is no room, if a device is missing, and while a balance, a resize or a change of devices is under way. Needs root.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ApplyCommand {
    /// Move this alone
    #[arg(long, value_name = "WHAT")]
    only: Option<Only>,
    /// Move no more than this in a second on the average, such as 20M; a chunk is moved at full speed
    #[arg(long, value_name = "BYTES", value_parser = parse_rate)]
    rate: Option<u64>,
    /// First give disks that stand before flash higher devids, so that flash can hold the log (see brindle tier status)
    ///
    /// Each in a commit of its own, which moves nothing; the pool must not be mounted.
    #[arg(long)]
    devids: bool,
    #[command(flatten)]
    classes: ClassOptions,
    /// A directory of a mounted pool, or the devices of one that is not mounted
    #[arg(required = true, value_name = "MOUNTPOINT|DEVICE")]
    pool: Vec<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(command: &ApplyCommand) -> Result<ExitCode> {
    match Reach::of(&command.pool)? {
        reach if command.devids && reach.mounted().is_some() => {
            bail!("--devids: the pool is mounted; unmount it, and name its devices")
        }
        Reach::Kernel(_) => on_kernel_mount(command),
        reach => run_here(command, &reach),
    }
}

/// Applies it to a pool that the kernel has mounted, by fences.
fn on_kernel_mount(command: &ApplyCommand) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let facts = Facts::gather(&command.pool, &command.classes)?;
    let mounted = facts.kernel_mount().context("the pool is not mounted by the kernel")?;
    let options = ApplyOptions { wanted: Only::wanted(command.only), rate: command.rate, patience: PATIENCE };
    let mut show = Show::new(&stop);
    let begin = Instant::now();
    let classify = |inventory: &_| facts.pool_of(inventory);
    let applied = apply(mounted, &state::directory(), &classify, &options, &mut show);
    show.bar.finish_and_clear();
    let applied = applied?;
    let mut out = output::stdout();
    let (bytes, seconds) = (UnitMode::DEFAULT.format(applied.bytes), begin.elapsed().as_secs_f64());
    let moved = match applied.chunks {
        1 => "1 chunk".to_owned(),
        chunks => format!("{chunks} chunks"),
    };
    match (applied.is_stopped, applied.chunks) {
        (false, 0) => writeln!(out, "Nothing to move.")?,
        (false, _) => writeln!(out, "Relocated {moved} with {bytes} in {seconds:.1} s.")?,
        (true, _) => writeln!(out, "Stopped after {moved} with {bytes}; run it again to go on.")?,
    }
    print_shortages(&mut out, &plan(&facts.pool, options.wanted).shortages)?;
    out.flush()?;
    match (applied.is_stopped, stop.name_and_code()) {
        (true, Some((_, code))) => Ok(ExitCode::from(code)),
        (true, None) => bail!("the balance was cancelled by another process"),
        (false, _) => Ok(ExitCode::SUCCESS),
    }
}

/// On a pool that is not mounted, or by the process that serves a mount: a balance of misplaced block groups and data.
fn run_here(command: &ApplyCommand, reach: &Reach) -> Result<ExitCode> {
    if let Some(mounted) = reach.mounted() {
        mounted.require_written("tier apply")?;
        if !command.classes.is_empty() {
            bail!(
                "--fast and --bulk: a mount of brindle has classes of its own: `brindle mount DEVICE:fast`, `brindle \
                 property set ... allocation_hint`"
            );
        }
    }
    let wanted = Only::wanted(command.only);
    recover::before_work(&command.pool)?;
    if command.devids {
        order(command)?;
    }
    let facts = Facts::gather(&command.pool, &command.classes)?;
    let shortages = plan(&facts.pool, wanted).shortages;
    let (chosen, absence) = (facts.chosen_classes(), facts.absence());
    // It has the devices open.
    drop(facts);
    let pool = administer_as(&command.pool, chosen)?;
    if pool.forget_misplaced()? {
        tracing::info!("resuming an interrupted balance");
    }
    let job = BalanceJob { balance: Some(misplaced(wanted)), force: false, rate: command.rate };
    let code = work::run(&*pool, &job)?;
    let mut out = output::stdout();
    print_shortages(&mut out, &shortages)?;
    if let Some(note) = absence {
        writeln!(out, "Note: {note}")?;
    }
    out.flush()?;
    Ok(code)
}

/// Gives bulk devices that stand before fast ones higher devids.
fn order(command: &ApplyCommand) -> Result<()> {
    let facts = Facts::gather(&command.pool, &command.classes)?;
    let chosen = facts.chosen_classes();
    // It has the devices open.
    drop(facts);
    let pool = open_as(&command.pool, chosen)?;
    let changed = order_devids(pool.0.pool())?;
    pool.close()?;
    let mut out = output::stdout();
    for (devid, new) in changed {
        writeln!(out, "devid {devid} is devid {new} now")?;
    }
    Ok(out.flush()?)
}

/// The balance that moves misplaced block groups and data.
fn misplaced(wanted: Wanted) -> Balance {
    let all = Balance::of_misplaced();
    Balance {
        data: all.data.filter(|_| wanted.data),
        metadata: all.metadata.filter(|_| wanted.metadata),
        system: all.system.filter(|_| wanted.metadata),
    }
}

/// Shows how far it is.
pub(crate) struct Show<'a> {
    stop: &'a Stop,
    bar: ProgressBar,
    /// Used bytes of the chunks that were moved.
    done: u64,
}

impl<'a> Show<'a> {
    pub(crate) fn new(stop: &'a Stop) -> Self {
        Self { stop, bar: work::progress_bar(), done: 0 }
    }
}

impl Observer for Show<'_> {
    fn is_stopped(&self) -> bool {
        self.bar.tick();
        self.stop.is_set()
    }

    fn planned(&mut self, plan: &Plan) {
        self.bar.set_length(self.done + plan.bytes());
        tracing::info!("{} chunks with {} bytes are misplaced", plan.chunks(), plan.bytes());
    }

    fn moving(&mut self, chunk: &Move) {
        self.bar.set_position(self.done);
        self.bar.set_message(format!("{} chunk at {}", chunk.content, chunk.logical));
        tracing::info!(
            "relocating the {} chunk at {}: {} bytes",
            chunk.content,
            chunk.logical,
            chunk.used_bytes
        );
    }

    fn progressed(&mut self, bytes: u64) {
        self.bar.set_position(self.done + bytes);
    }

    fn moved(&mut self, chunk: &Move) {
        self.done += chunk.used_bytes;
        self.bar.set_position(self.done);
    }

    fn recovered(&mut self) {
        self.bar.suspend(|| tracing::warn!("restored sizes that a run before this one had left fenced"));
    }
}

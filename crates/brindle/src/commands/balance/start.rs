//! `balance start`.

use super::work;
use crate::commands::detached::{self, Beginning};
use crate::commands::place::administer;
use crate::commands::quantity::parse_rate;
use crate::commands::refused::explain_admin;
use crate::commands::usage::wrong_usage;
use anyhow::{Context, Result, bail};
use brindle_admin::Reach;
use brindle_admin::pool::BalanceJob;
use brindle_policy::balance::{Balance, Filter};
use clap::Args;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

const EXAMPLES: &str = "\
FILTERS
  Behind -d, -m or -s, separated by commas; a block group is meant if all of
  them say so:
    usage=PERCENT, usage=FROM..TO   its use is below PERCENT, or in this range
    devid=ID                        a piece of it lies on this device
    drange=START..END               and in this range of bytes of it
    vrange=START..END               it shares something with this range of
                                    logical addresses
    limit=NUMBER, limit=FROM..TO    at most TO of them; none if there are fewer
                                    than FROM
    stripes=FROM..TO                its number of stripes is in this range
    profiles=PROFILE|PROFILE        it has one of these profiles
    convert=PROFILE                 it is to have this profile
    soft                            not if it has that profile already
    misplaced                       it lies on devices of the wrong class (see
                                    `brindle tier status`)

EXAMPLES
  Give back block groups that are hardly used:
    brindle balance start -dusage=10 /mnt

  Metadata on two devices, on a pool that is not mounted:
    brindle balance start -mconvert=raid1,soft disk1.img disk2.img

  Whatever lies on the wrong kind of device, gently:
    brindle balance start -mmisplaced --rate 20M /mnt

EXIT STATUS
  0    success
  1    failure; what was moved stays moved, and the pool is whole
  2    wrong usage
  129, 130, 143  cancelled by SIGHUP, SIGINT or SIGTERM";

/// Move the contents of chosen block groups to other places
///
/// Extents shared by snapshots and clones stay shared. Files remain usable meanwhile. After a crash or a pause, `balance
/// resume` continues; a kernel that mounts the pool first continues by itself (but not with `misplaced`, which it does
/// not know). Block groups that have no room elsewhere are left, and make it fail in the end.
///
/// With -m and without -s, system block groups are balanced like metadata.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct StartCommand {
    /// Data block groups
    #[arg(short, value_name = "FILTERS", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    data: Option<Filter>,
    /// Metadata block groups
    #[arg(short, value_name = "FILTERS", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    metadata: Option<Filter>,
    /// System block groups; needs --force
    #[arg(short, value_name = "FILTERS", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    system: Option<Filter>,
    /// All block groups
    #[arg(long, conflicts_with_all = ["data", "metadata", "system"])]
    full_balance: bool,
    /// Start even if metadata has fewer copies afterwards
    #[arg(short, long)]
    force: bool,
    /// Move no more than this in a second on the average, such as 20M
    #[arg(long, value_name = "BYTES", value_parser = parse_rate)]
    rate: Option<u64>,
    /// Return when it has begun; another process goes on with it
    #[arg(long, visible_alias = "bg")]
    background: bool,
    /// A directory of a mounted pool, or the devices of a pool that is not mounted
    #[arg(required = true, value_name = "PATH|DEVICE")]
    paths: Vec<PathBuf>,
}

/// Runs it.
pub(crate) fn run(command: &StartCommand) -> Result<ExitCode> {
    let StartCommand { data, metadata, system, force, rate, .. } = command;
    let balance = if command.full_balance {
        Balance::full()
    } else {
        let system_too = system.clone().or_else(|| metadata.clone());
        Balance { data: data.clone(), metadata: metadata.clone(), system: system_too }
    };
    if balance == Balance::default() {
        return wrong_usage("say which block groups: -d, -m, -s with filters, or --full-balance".to_owned());
    }
    if system.is_some() && !force {
        bail!(
            "-s is seldom wanted for itself (-m balances system block groups too); it is done with --force"
        );
    }
    if command.background {
        return in_background(command);
    }
    let pool = administer(&command.paths)?;
    work::run(&*pool, &BalanceJob { balance: Some(balance), force: *force, rate: *rate })
}

/// Leaves the balance to a process of its own. On a mount it has begun then, or its failure is told; `balance status` tells the rest.
fn in_background(command: &StartCommand) -> Result<ExitCode> {
    let reach = Reach::of(&command.paths).map_err(explain_admin)?;
    reach.fsid().map_err(explain_admin)?;
    let program = std::env::current_exe().context("cannot find the program to run in the background")?;
    let words = std::env::args_os().skip(1).filter(|word| word != "--bg" && word != "--background");
    let mut child = Command::new(program);
    child.args(words);
    let Some(mounted) = reach.mounted() else {
        child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        child.spawn().context("cannot start a process in the background")?;
        return Ok(ExitCode::SUCCESS);
    };
    if mounted.is_balancing()? {
        bail!("{}: a balance runs already, as `brindle balance status` tells", mounted.path().display());
    }
    match detached::start(&mut child, &mut |_| Ok(mounted.is_balancing()?))? {
        Beginning::Seen => {}
        Beginning::NotSeen => tracing::warn!(
            "{}: the balance has begun, and was not seen at work yet: `brindle balance status` tells",
            mounted.path().display()
        ),
        Beginning::Failed(code) => return Ok(code),
    }
    Ok(ExitCode::SUCCESS)
}

//! A replacement that the kernel was interrupted in, ended on devices that nothing has mounted.

use crate::commands::companions::others;
use crate::commands::device_word::{refuse_twice, with_those_of_options};
use crate::commands::mount_options::MountOptions;
use crate::commands::pool::{open_ending_replacement, open_pool};
use crate::commands::usage::wrong_usage;
use crate::output;
use anyhow::{Context, Result};
use brindle_admin::health::{retire_target, targets_of, without_targets};
use brindle_admin::pool::PoolFacts;
use brindle_cache::open_pool_device_to_write;
use std::path::PathBuf;

/// Ends it, and then the target; returns false without one.
pub(super) fn cancel(named: &[PathBuf], options: &[String]) -> Result<bool> {
    let options = MountOptions::parse(options)?;
    if let Some(option) = options.first_of_mount() {
        return wrong_usage(format!("unknown option '{option}': here -o takes degraded and device=PATH"));
    }
    let named = with_those_of_options(named, &options.devices);
    refuse_twice(named.iter().map(PathBuf::as_path))?;
    let members = without_targets(&named);
    if members.is_empty() {
        return wrong_usage(
            "name the devices of the pool, not the target of the replacement alone".to_owned(),
        );
    }
    let others = others(&members, &[], &options);
    let members: Vec<PathBuf> = members.into_iter().chain(others).collect();
    let (fsid, replacement) = {
        let pool = open_pool(&members)?;
        (pool.fsid()?, pool.replace_status()?.interrupted(None))
    };
    let targets = targets_of(&fsid, &named);
    // One that is in use ends the command before anything is changed.
    let opened = targets.iter().map(|path| open_pool_device_to_write(path)).collect::<Result<Vec<_>, _>>()?;
    if replacement.is_some() {
        let devices = members.iter().map(|path| open_pool_device_to_write(path)).collect::<Result<_, _>>()?;
        open_ending_replacement(devices, &options)?.shutdown()?;
    }
    for (path, target) in targets.iter().zip(&opened) {
        retire_target(target.as_ref()).with_context(|| {
            let path = path.display();
            format!("the replacement is canceled, but its target {path} keeps superblocks, with which the kernel mounts no pool")
        })?;
    }
    if replacement.is_some() && targets.is_empty() {
        output::complain_line(
            "the target was not found: should it come back, `wipefs -a` it, or the kernel mounts the pool no more",
        );
    }
    Ok(replacement.is_some() || !targets.is_empty())
}

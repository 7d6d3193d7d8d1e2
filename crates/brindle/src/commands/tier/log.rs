//! Devices that hold the log: those that fsyncs write superblocks of.

use super::facts::{ClassOptions, Facts, Source};
use anyhow::Result;
use brindle_policy::log::{LogEverywhere, LogPlacement, LogProfile};
use brindle_policy::tier::TierPool;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::Path;

/// Profile of the log that the pool is written with.
pub(super) fn profile(facts: &Facts) -> Result<LogProfile> {
    Ok(match &facts.source {
        Source::Mounted(mounted) if mounted.is_of_kernel() => LogProfile::default(),
        // A mount that is only read has no log to speak of.
        Source::Mounted(mounted) => mounted.log_profile().unwrap_or_default(),
        Source::Open(pool) => pool.stored_log_profile()?,
    })
}

/// Prints the devices that an fsync writes beside those of its data, or what is in the way of a log on fast devices alone
/// and what can be done, where the pool has both classes and brindle writes it.
pub(super) fn print(out: &mut dyn Write, facts: &Facts, profile: LogProfile) -> io::Result<()> {
    if !facts.pool.is_ours {
        return Ok(());
    }
    match facts.pool.log_placement(profile) {
        Err(LogEverywhere::OneClass) => Ok(()),
        Err(why) => {
            writeln!(out, "an fsync writes to every device: {why}")?;
            remedies(facts, profile, &why).iter().try_for_each(|remedy| writeln!(out, "  {remedy}"))
        }
        Ok(LogPlacement { devices, is_reduced }) => {
            let devids: Vec<String> = devices.iter().map(u64::to_string).collect();
            let devids = devids.join(", ");
            writeln!(
                out,
                "an fsync writes to devid {devids}, and to each device that got data since the last commit"
            )?;
            match is_reduced {
                true => writeln!(out, "  {}", loss(profile, &devids)),
                false => Ok(()),
            }
        }
    }
}

/// Warns of the consequences of a profile of the log: data that can be lost, or that it makes no difference, and why.
pub(crate) fn warn(profile: LogProfile, placement: &Result<LogPlacement, LogEverywhere>) {
    match placement {
        _ if profile == LogProfile::Metadata => {}
        Ok(LogPlacement { devices, is_reduced: true }) => {
            let devids: Vec<String> = devices.iter().map(u64::to_string).collect();
            tracing::warn!("{}", loss(profile, &devids.join(", ")));
        }
        Ok(LogPlacement { is_reduced: false, .. }) => tracing::warn!(
            "log_profile={profile} makes no difference in this pool as it is now: fast devices hold the log with as many \
             copies as other metadata has"
        ),
        Err(why) => {
            tracing::warn!("log_profile={profile} makes no difference in this pool as it is now: {why}");
        }
    }
}

/// The same of a mount of brindle. A failure to ask it does not matter: the command has done its work.
pub(crate) fn warn_of_mount(path: &Path, profile: LogProfile) {
    if let Ok(facts) = Facts::gather(&[path.to_owned()], &ClassOptions::default()) {
        warn(profile, &facts.pool.log_placement(profile));
    }
}

/// Data that is lost with the devices of a log that has fewer copies than other metadata.
fn loss(profile: LogProfile, devids: &str) -> String {
    format!(
        "log_profile={profile}: if devid {devids} is lost, so is what was fsynced since the last commit; everything \
         else has the copies of its profile"
    )
}

/// Ways to a log on fast devices alone.
fn remedies(facts: &Facts, profile: LogProfile, why: &LogEverywhere) -> Vec<String> {
    let mut remedies = Vec::new();
    if *why == LogEverywhere::OneClass {
        return remedies;
    }
    let before: Vec<String> = facts.pool.bulk_before_fast().iter().map(u64::to_string).collect();
    let mut pool = facts.pool.clone();
    if !before.is_empty() {
        let (before, s) = (before.join(", "), if before.len() == 1 { "" } else { "s" });
        let gets = format!("gives devid {before} higher id{s}, in a moment; nothing is moved");
        remedies.push(match &facts.source {
            Source::Mounted(_) => format!("unmounted, `brindle tier apply --devids DEVICE...` {gets}"),
            Source::Open(_) => format!("`brindle tier apply --devids {}` {gets}", facts.operands()),
        });
        pool = pool.with_ordered_devids();
    }
    if pool.log_placement(profile).is_err() {
        if let Some((fewer, placement)) = possible(&pool, profile) {
            let (mount, devids) = (mount_point(facts), placement.devices.iter().map(u64::to_string));
            let devids = devids.collect::<Vec<_>>().join(", ");
            remedies.push(format!(
                "`brindle property set {mount} log_profile {fewer}` puts the log on devid {devids} alone; {}",
                loss(fewer, &devids)
            ));
        }
    }
    remedies
}

/// The profile with most copies that a log on fast devices alone could have, where the owner chooses so.
fn possible(pool: &TierPool, present: LogProfile) -> Option<(LogProfile, LogPlacement)> {
    let fewer = [LogProfile::Raid1c3, LogProfile::Raid1, LogProfile::Single];
    fewer
        .into_iter()
        .filter(|profile| *profile != present)
        .find_map(|profile| Some((profile, pool.log_placement(profile).ok()?)))
}

/// Operand of commands for a mount.
fn mount_point(facts: &Facts) -> String {
    match &facts.source {
        Source::Mounted(mounted) => mounted.path().display().to_string(),
        Source::Open(_) => "MOUNTPOINT".to_owned(),
    }
}

/// The same in JSON.
pub(super) fn json(facts: &Facts, profile: LogProfile) -> Value {
    match facts.pool.log_placement(profile) {
        _ if !facts.pool.is_ours => Value::Null,
        Ok(placement) => json!({
            "devices": placement.devices,
            "reason": null,
            "profile": profile.to_string(),
            "has_fewer_copies": placement.is_reduced,
            "remedies": [],
        }),
        Err(why) => json!({
            "devices": null,
            "reason": why.to_string(),
            "profile": profile.to_string(),
            "has_fewer_copies": false,
            "remedies": remedies(facts, profile, &why),
        }),
    }
}

//! Findings and their remedies in words.

use crate::format::UnitMode;
use brindle_admin::health::{
    BadSuperblock, ERROR_KINDS, Finding, LessRedundant, PoolHealth, PoolServer, find_device,
};
use brindle_admin::pool::InterruptedReplacement;
use brindle_admin::{DevId, RootId, Uuid};
use brindle_care::device::DeviceCareError;
use brindle_fs::tree_name;
use brindle_policy::placement::PlacementClass;
use brindle_policy::tier::Content;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// A finding, in a few words.
#[expect(clippy::too_many_lines, reason = "a flat table: a row for each finding")]
pub(super) fn finding(finding: &Finding) -> String {
    let size = |bytes| UnitMode::DEFAULT.format(bytes);
    let percent =
        |percent: &Option<u64>| percent.map_or(String::new(), |percent| format!(", {percent} % done"));
    match finding {
        Finding::ReadOnly(why) => format!("read-only: {why}"),
        Finding::Replacing(InterruptedReplacement { devid, target }) => {
            let target = target.as_deref().unwrap_or("a target that is not there");
            format!(
                "the kernel was interrupted while it replaced devid {devid} by {target}: the pool is only read"
            )
        }
        Finding::DamagedTree(tree, why) => format!("the {} can't be read: {why}", tree_name(*tree)),
        Finding::Missing(devid, uuid) => format!("devid {devid} is missing (uuid {uuid})"),
        Finding::ReturnStopped(devid, path) => {
            format!("the return of devid {devid} ({}) was begun and has not ended", path.display())
        }
        Finding::Fenced(devices) => {
            let ids: Vec<String> = devices.iter().map(ToString::to_string).collect();
            format!("an interrupted move of chunks has left devid {} smaller", ids.join(", "))
        }
        Finding::LessRedundant(LessRedundant { content, profile, promised, used_bytes }) => {
            format!("{} of {content} are {profile}, with less redundancy than {promised}", size(*used_bytes))
        }
        Finding::BadSuperblock(BadSuperblock { path, offset, problem }) => {
            format!("{path}: superblock at offset {offset} is bad: {problem}")
        }
        Finding::LeftOut(devid, path) => {
            format!("{} is left out of writes, for it has missed some", device(devid, path))
        }
        Finding::Behind(devid, path) => {
            format!("{} lacks writes that it failed to take", device(devid, path))
        }
        Finding::DeviceErrors(devid, path, errors) => {
            let counted = ERROR_KINDS.iter().zip(errors).filter(|(_, count)| **count > 0);
            let counted: Vec<String> =
                counted.map(|(kind, count)| plural(*count, &format!("{kind} error"))).collect();
            format!("{}: {}", device(devid, path), counted.join(", "))
        }
        Finding::CacheDegraded(devid, mirror) => {
            format!("the cache of devid {devid} is {mirror}")
        }
        Finding::CacheWithoutSsd(devid, ssd) => {
            format!("the cache of devid {devid} goes without {ssd}, which failed")
        }
        Finding::CacheErrors(devid, errors) => {
            let counted: Vec<String> = errors.iter().map(|(name, count)| format!("{name} {count}")).collect();
            format!("the cache of devid {devid}: {}", counted.join(", "))
        }
        Finding::Uncorrectable(count) => {
            format!("the last scrub could not correct {}", plural(*count, "error"))
        }
        Finding::Correctable(count) => {
            format!("the last scrub left {} that other copies have right", plural(*count, "error"))
        }
        Finding::NotScrubbed(devid, why) => format!("devid {devid} was not scrubbed: {why}"),
        Finding::Full(content, room) => {
            format!("little room for {content}: {} left, {} % used", size(room.room_bytes), room.percent())
        }
        Finding::MetadataSpills => "fast devices are full: new metadata goes to bulk devices".to_owned(),
        Finding::WaitingStuck(bytes, why) => {
            format!("{} wait on fast devices and can't leave them: {why}", size(*bytes))
        }
        Finding::Waiting(bytes, since) => {
            let since = since.map_or(String::new(), |seconds| format!(" for {}", span(seconds)));
            format!("{} wait on fast devices{since}", size(*bytes))
        }
        Finding::ScrubRuns(done) => format!("a scrub is running{}", percent(done)),
        Finding::ScrubStopped(done) => format!("the last scrub was interrupted{}", percent(done)),
        Finding::ScrubLeft(count) => {
            format!("the last scrub left {} asleep", plural(*count as u64, "device"))
        }
        Finding::Scrubbed(seconds, corrected) => {
            let corrected = match corrected {
                0 => String::new(),
                count => format!(", corrected {}", plural(*count, "error")),
            };
            format!("scrubbed {} ago{corrected}", span(*seconds))
        }
        Finding::NeverScrubbed => "no scrub is known".to_owned(),
        Finding::WrongQuotas => "the numbers of quota groups are wrong".to_owned(),
        Finding::Job(job) => {
            let state = if job.is_running { "is running" } else { "is paused" };
            format!("{} {state}{}", job.name, percent(&job.percent()))
        }
    }
}

/// Returns true for the reason of a pool in which a replacement by the kernel was interrupted.
fn is_replacing(why: &str) -> bool {
    why.contains("the kernel was interrupted while it replaced")
}

/// Command, or advice, that mends a finding.
#[expect(clippy::too_many_lines, reason = "a flat table: a row for each finding")]
pub(super) fn remedy(finding: &Finding, health: &PoolHealth) -> Option<String> {
    let (pool, mount) = (operand(health), mount_operand(health));
    Some(match finding {
        Finding::ReadOnly(why) if is_replacing(why) => {
            "unmount the pool; `brindle device replace cancel` with its devices ends it, a mount of the kernel with the target goes on"
                .to_owned()
        }
        Finding::Replacing(InterruptedReplacement { target, .. }) => {
            let target = target.as_ref().map_or(String::new(), |target| format!(" {target}"));
            let devices = devices(health);
            format!(
                "`brindle device replace cancel {devices}{target}` ends it, a mount of the kernel with the target goes on"
            )
        }
        Finding::ReadOnly(_) => format!("unmount the pool, and see `brindle check {}`", devices(health)),
        Finding::DamagedTree(RootId::FREE_SPACE_TREE, _) => {
            format!("`brindle rescue clear-space-cache v2 {pool}` makes it anew")
        }
        Finding::DamagedTree(RootId::UUID_TREE, _) => {
            format!("`brindle rescue clear-uuid-tree {pool}` makes it anew")
        }
        Finding::DamagedTree(..) => {
            format!(
                "save what is left: `brindle restore -o rescue=all {pool} DEST`; see `brindle check {pool}`"
            )
        }
        // The finding of its return has the command.
        Finding::Missing(devid, _) if health.begun_returns.iter().any(|(begun, _)| begun == devid) => {
            return None;
        }
        Finding::Missing(devid, uuid) => match found(*devid, uuid, health).as_slice() {
            [] => format!("attach it, or `brindle device replace start {devid} DEVICE {mount}`"),
            [path] => taken_in(*devid, path, health),
            copies => {
                format!("{}: {} may be it, and are copies of each other", chosen(health), listed(copies))
            }
        },
        Finding::ReturnStopped(_, path) => goes_on(path, health),
        Finding::Fenced(_) => format!("`brindle tier recover {pool}` gives the size back"),
        Finding::LessRedundant(groups) => converted(groups, health),
        Finding::BadSuperblock(_) => {
            let devices = devices(health);
            format!("`brindle rescue super-recover {devices}` writes it anew, as the next commit of a mount does")
        }
        Finding::LeftOut(_, path) => {
            format!(
                "unmount the pool, `brindle device rejoin {path} -o degraded --pool` and its other devices"
            )
        }
        Finding::Behind(..) | Finding::Correctable(_) => format!("`brindle scrub start {pool}`"),
        Finding::DeviceErrors(..) => {
            format!(
                "look at the drive and its cable, `brindle scrub start {pool}`, then `brindle device stats -z {pool}`"
            )
        }
        Finding::CacheDegraded(..) => {
            "look at the SSD that failed; unmount the pool, `brindle cache mirror SSD NEW` for another one, and mount it with both"
                .to_owned()
        }
        Finding::CacheWithoutSsd(..) => {
            "look at the SSD and its cable: it is tried again when the pool is mounted anew".to_owned()
        }
        Finding::CacheErrors(..) => {
            format!("look at the drive and its cable, then `brindle cache set zero_stats=1 {mount}`")
        }
        Finding::Uncorrectable(_) => {
            format!("`brindle scrub status {pool}` names the files: restore them, and scrub again")
        }
        Finding::NotScrubbed(..) | Finding::ScrubStopped(_) | Finding::ScrubLeft(_) => {
            format!("`brindle scrub resume {pool}`")
        }
        Finding::NeverScrubbed => format!("`brindle scrub start {pool}`"),
        Finding::Full(..) => format!("delete files or snapshots, or `brindle device add DEVICE {mount}`"),
        Finding::MetadataSpills | Finding::WaitingStuck(..) => format!("`brindle tier status {pool}`"),
        Finding::WrongQuotas => format!("`brindle quota rescan -w {mount}`"),
        Finding::Job(job) if !job.is_running && job.name == "balance" => match health.server {
            PoolServer::Kernel => format!("`btrfs balance resume {mount}`"),
            _ => format!("`brindle balance resume {pool}`"),
        },
        Finding::Waiting(..) | Finding::ScrubRuns(_) | Finding::Scrubbed(..) | Finding::Job(_) => {
            return None;
        }
    })
}

/// The place of a device that the pool lacks, if the host has it all the same; with the places of its copies.
fn found(devid: DevId, uuid: &Uuid, health: &PoolHealth) -> Vec<PathBuf> {
    let there = health.devices.iter().filter(|device| !device.path.is_empty());
    let there: Vec<&Path> = there.map(|device| Path::new(&device.path)).collect();
    find_device(&there, &health.fsid, devid, uuid)
}

/// Advice for a missing device that the host has: it was away, or was not named.
fn taken_in(devid: DevId, path: &Path, health: &PoolHealth) -> String {
    let own = match health.server {
        PoolServer::Brindle => health.refusal_of_rejoin(path),
        PoolServer::Kernel | PoolServer::None => None,
    };
    let path = path.display();
    if let Some(refusal) = own {
        let mount = mount_operand(health);
        if let DeviceCareError::Replaced { .. } = refusal {
            return format!(
                "{path} is not it: another device took its place; `brindle device rejoin DEVICE {mount}` takes that one in, and \
                 `brindle device replace start -f {devid} {path} {mount}` takes {path} as a new one"
            );
        }
        let has = match refusal {
            DeviceCareError::OwnLog { .. } => "names a log of fsyncs that the pool does not hold",
            _ => "has been written by itself",
        };
        return format!(
            "{path} {has}, and may have what the pool lacks: `brindle device replace start -f {devid} {path} {mount}` gives that up, \
             and takes it in; to look first, unmount the pool, and `brindle ls -o degraded=named {path}`, which says if \
             the log can be read without the other devices"
        );
    }
    match health.server {
        PoolServer::Brindle => {
            format!("`brindle device rejoin {path} {}`, which writes to {path}", mount_operand(health))
        }
        PoolServer::Kernel => {
            format!(
                "unmount the pool, mount it with {path} again, then `brindle scrub start {}`",
                operand(health)
            )
        }
        PoolServer::None => format!("name all devices of the pool: {path} as well"),
    }
}

/// Advice for a device whose return was interrupted.
fn goes_on(path: &Path, health: &PoolHealth) -> String {
    let path = path.display();
    match health.server {
        PoolServer::Brindle => {
            format!("`brindle device rejoin {path} {}` goes on with it", mount_operand(health))
        }
        PoolServer::Kernel | PoolServer::None => {
            let first = if health.server == PoolServer::Kernel { "unmount the pool; " } else { "" };
            let devices = devices(health);
            format!("{first}`brindle device rejoin {path} -o degraded --pool {devices}` goes on with it")
        }
    }
}

/// Advice for contents with fewer copies than the profile has.
fn converted(groups: &LessRedundant, health: &PoolHealth) -> String {
    let pool = operand(health);
    let is_paused = health.jobs.iter().any(|job| job.name == "balance" && !job.is_running);
    let first = match health.devices.iter().any(|device| device.is_missing) {
        true => "once no device is missing, ",
        false if is_paused => "after the balance that is paused, ",
        false => "",
    };
    let to = |option: &str| format!("{option}convert={},soft", groups.promised);
    let filters = match groups.content {
        Content::Data => to("-d"),
        Content::Metadata | Content::System => to("-m"),
        Content::Mixed => format!("{} {}", to("-d"), to("-m")),
    };
    format!("{first}`brindle balance start {filters} {pool}`")
}

/// Advice for a missing device that the host has more than once: none of them is named, as it may be a backup.
fn chosen(health: &PoolHealth) -> String {
    match health.server {
        PoolServer::Brindle => {
            format!("`brindle device rejoin DEVICE {}`, which writes to DEVICE", mount_operand(health))
        }
        PoolServer::Kernel | PoolServer::None => "name all devices of the pool, and the right one".to_owned(),
    }
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ")
}

/// Fullness of a pool, in words.
pub(super) fn fill(health: &PoolHealth, units: UnitMode) -> Vec<String> {
    let space = &health.space;
    let all = space.data.used_bytes.saturating_add(space.data.room_bytes);
    let mut parts = vec![format!("data {} % of {}", space.data.percent(), units.format(all))];
    parts.push(format!("metadata {} %", space.metadata.percent()));
    let fast = health.devices.iter().filter(|device| device.class == Some(PlacementClass::Fast));
    let (taken, total) = fast.fold((0u64, 0u64), |(taken, total), device| {
        (taken.saturating_add(device.allocated_bytes), total.saturating_add(device.total_bytes))
    });
    let is_mixed = health.devices.iter().any(|device| device.class == Some(PlacementClass::Bulk));
    if total > 0 && is_mixed {
        let percent = u128::from(taken) * 100 / u128::from(total);
        parts.push(format!("fast devices {percent} % allocated"));
    }
    vec![parts.join(", ")]
}

fn device(devid: impl Display, path: &str) -> String {
    if path.is_empty() { format!("devid {devid}") } else { format!("devid {devid} ({path})") }
}

/// Operand of commands for a pool: its mount point, or its devices.
fn operand(health: &PoolHealth) -> String {
    match health.mountpoints.first() {
        Some(place) => place.display().to_string(),
        None => devices(health),
    }
}

/// Operand of commands for a mount.
fn mount_operand(health: &PoolHealth) -> String {
    health.mountpoints.first().map_or_else(|| "MOUNTPOINT".to_owned(), |place| place.display().to_string())
}

fn devices(health: &PoolHealth) -> String {
    let paths = health.devices.iter().filter(|device| !device.path.is_empty());
    paths.map(|device| device.path.as_str()).collect::<Vec<_>>().join(" ")
}

fn plural(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// A span of time, in its largest unit.
fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_fs::TreeError;

    #[test]
    fn a_replacement_by_the_kernel_is_known_by_the_reason_of_a_mount() {
        let interrupted = TreeError::ReplacementInterrupted { devid: DevId::new(2), target: None };
        assert!(is_replacing(&interrupted.to_string()));
        assert!(!is_replacing("cannot be written: /dev/sdb is write-protected"));
    }

    #[test]
    fn counts_and_spans_are_said_as_people_do() {
        assert_eq!([plural(1, "error"), plural(0, "error")], ["1 error", "0 errors"]);
        let spans = [
            (119, "119 s"),
            (120, "2 min"),
            (7200, "2 h"),
            (172_800, "2 days"),
            (u64::MAX, "213503982334601 days"),
        ];
        spans.iter().for_each(|(seconds, said)| assert_eq!(span(*seconds), *said));
        let errors = Finding::DeviceErrors(DevId::new(2), "/dev/sdb".to_owned(), [7, 0, 1, 0, 0]);
        assert_eq!(finding(&errors), "devid 2 (/dev/sdb): 7 write errors, 1 flush error");
        let errors = vec![("ssd_read_errors", 3), ("disk_flush_errors", 1)];
        let errors = Finding::CacheErrors(DevId::new(2), errors);
        assert_eq!(finding(&errors), "the cache of devid 2: ssd_read_errors 3, disk_flush_errors 1");
    }
}

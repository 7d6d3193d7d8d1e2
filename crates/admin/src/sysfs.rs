//! Facts in `/sys/fs/btrfs/UUID`.

use brindle_ondisk::{BlockGroupType, DevId, Uuid};
use brindle_policy::tier::watch::Fullness;
use std::fs;
use std::path::PathBuf;

/// Operation of which the kernel runs one at a time (`exclusive_operation`): `none`, `balance`,
/// `balance paused`, `resize`, ...; kernels before 5.10 do not say.
pub(crate) fn exclusive_operation(fsid: &Uuid) -> Option<String> {
    read(fsid, "exclusive_operation")
}

/// Returns true if a device belongs to another pool, of which this one is a sprout.
pub(crate) fn is_seed(fsid: &Uuid, devid: DevId) -> bool {
    read(fsid, &format!("devinfo/{devid}/fsid")).is_some_and(|found| found != fsid.to_string())
}

/// Returns true if a device is not there.
pub(crate) fn is_missing(fsid: &Uuid, devid: DevId) -> bool {
    read(fsid, &format!("devinfo/{devid}/missing")).is_some_and(|found| found == "1")
}

/// Returns true if quotas are on, and the numbers of their groups are wrong.
pub(crate) fn has_wrong_quotas(fsid: &Uuid) -> bool {
    read(fsid, "qgroups/inconsistent").is_some_and(|found| found == "1")
}

/// Fullness of the chunks that hold `data`, `metadata` or `system`, at this moment: with what is used, what is freed but
/// may not be used again yet, and what running transactions were promised.
pub(crate) fn fullness(fsid: &Uuid, content: &str) -> Option<Fullness> {
    let number = |name: &str| read(fsid, &format!("allocation/{content}/{name}"))?.parse::<u64>().ok();
    // As the kernel counts when it decides on a new chunk.
    let taken = ["bytes_used", "bytes_pinned", "bytes_reserved", "bytes_readonly"];
    Some(Fullness {
        total_bytes: number("total_bytes")?,
        taken_bytes: taken.iter().filter_map(|name| number(name)).sum(),
    })
}

/// Bytes that are used of the chunks that hold `data`, `metadata`, `system` or both (`mixed`), at this moment.
pub(crate) fn used_bytes(fsid: &Uuid, content: &str) -> Option<u64> {
    read(fsid, &format!("allocation/{content}/bytes_used"))?.parse().ok()
}

/// Block groups by content and profile: kind, logical length and used bytes.
pub(crate) fn block_groups(fsid: &Uuid) -> Vec<(BlockGroupType, u64, u64)> {
    let contents = [
        ("data", BlockGroupType::DATA),
        ("metadata", BlockGroupType::METADATA),
        ("system", BlockGroupType::SYSTEM),
        ("mixed", BlockGroupType::DATA | BlockGroupType::METADATA),
    ];
    let mut found = Vec::new();
    for (name, content) in contents {
        let Ok(entries) = fs::read_dir(format!("/sys/fs/btrfs/{fsid}/allocation/{name}")) else { continue };
        for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
            let profile = entry.file_name().to_string_lossy().into_owned();
            let number =
                |file: &str| read(fsid, &format!("allocation/{name}/{profile}/{file}"))?.parse().ok();
            // `single` has no bit.
            let bits = BlockGroupType::from_name(&profile.to_uppercase()).unwrap_or(BlockGroupType::empty());
            if let (Some(total), Some(used)) = (number("total_bytes"), number("used_bytes")) {
                if total > 0 {
                    found.push((content | bits, total, used));
                }
            }
        }
    }
    found.sort_by_key(|(kind, ..)| kind.bits());
    found
}

/// Number of commits since the pool was mounted, and milliseconds: of the last, of the longest, of all. Kernels before 6.0 do not say.
pub(crate) fn commits(fsid: &Uuid) -> Option<[u64; 4]> {
    let text = read(fsid, "commit_stats")?;
    let number = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value?.trim().parse::<u64>().ok()
    };
    let [count, last, longest, total] =
        ["commits", "last_commit_ms", "max_commit_ms", "total_commit_ms"].map(number);
    Some([count?, last?, longest?, total?])
}

fn read(fsid: &Uuid, name: &str) -> Option<String> {
    let path = PathBuf::from(format!("/sys/fs/btrfs/{fsid}/{name}"));
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

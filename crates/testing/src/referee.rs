//! Verdict of btrfs-progs on an unmounted pool.

use brindle_ondisk::{Incompat, SUPERBLOCK_SIZE, Superblock};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

/// The first superblock, in bytes of the device.
const FIRST: u64 = 64 << 10;
/// Words of a line that tells of something wrong.
const COMPLAINTS: [&str; 8] =
    ["error:", "warning:", "mismatch", "incorrect", "invalid", "missing", "bad ", "are different"];
/// Complaints of `btrfs check` about a sound pool: it looks at all devices of the host, those of others that come and
/// go or are damaged included. Of the pool itself a device with a bad superblock would be missing.
const HARMLESS: [&str; 4] = [
    "cannot scan",
    "superblock checksum mismatch",
    "space cache will be invalidated",
    "but found an existing device",
];

/// Number of times that a scan is waited for which ends early, and the time between.
const SCANS_MAX: u32 = 50;
const SCAN_PAUSE: Duration = Duration::from_millis(200);

/// Has `btrfs check` examine the pool of this image or block device, data included; of several devices, the host must
/// know them. Fails with all that it printed if it complains; `None` where it is not installed.
///
/// Of pools with parity only the trees are examined. btrfs-progs 6.2 rebuild data from parity with what they happen to
/// find in memory, and complain of second copies of sound pools: of one in forty that the kernel made and wrote alone,
/// while it reads those without each of their devices in turn. Pools with simple quotas are not examined, for 6.2 does not
/// know them.
pub fn btrfs_check(device: &Path) -> Option<Result<(), String>> {
    if has_simple_quotas(device) {
        return Some(Ok(()));
    }
    let mut check = Command::new("btrfs");
    check.args(["check", "--readonly"]);
    if !has_parity(device)? {
        check.arg("--check-data-csum");
    }
    check.arg(device);
    let mut output = check.output().ok()?;
    for _ in 0..SCANS_MAX {
        // Its scan ends at a device that can't be read, as a modelled disk of another test whose power was cut.
        let said = all_of(&output);
        if !said.contains("cannot scan") || !said.contains("missing") {
            break;
        }
        std::thread::sleep(SCAN_PAUSE);
        output = check.output().ok()?;
    }
    let said = all_of(&output);
    let is_content = output.status.success() && said.contains("no error found");
    let complains = said.lines().any(is_complaint);
    Some(if is_content && !complains {
        Ok(())
    } else {
        Err(format!("btrfs check: {}: {said}", output.status))
    })
}

fn has_simple_quotas(device: &Path) -> bool {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let read = File::open(device).and_then(|device| device.read_exact_at(&mut bytes, FIRST));
    read.is_ok()
        && Superblock::parse(&bytes, FIRST)
            .is_ok_and(|superblock| superblock.incompat().contains(Incompat::SIMPLE_QUOTA))
}

/// Returns true if a chunk of the pool has parity; `None` where btrfs-progs are not installed.
fn has_parity(device: &Path) -> Option<bool> {
    let dump =
        Command::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "chunk"]).arg(device).output();
    let said = all_of(&dump.ok()?);
    Some(said.contains("|RAID5") || said.contains("|RAID6"))
}

fn all_of(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn is_complaint(line: &str) -> bool {
    let lower = line.to_lowercase();
    COMPLAINTS.iter().any(|word| lower.contains(word)) && !HARMLESS.iter().any(|words| line.contains(words))
}

#[cfg(test)]
mod tests {
    use super::is_complaint;

    #[test]
    fn complaints_are_told_from_harmless_messages() {
        for line in
            ["ERROR: errors found in fs roots", "mirror 2 bytenr 7 csum 0x1 expected csum 0x2 mismatch"]
        {
            assert!(is_complaint(line), "{line}");
        }
        for line in [
            "no error found",
            "ERROR: cannot scan /dev/loop3: Input/output error",
            "ERROR: superblock checksum mismatch",
            "WARNING: adding device /dev/loop6 gen 81 but found an existing device /dev/loop3 gen 86",
            "[1/7] checking root items",
        ] {
            assert!(!is_complaint(line), "{line}");
        }
    }
}

//! Limits of quota groups, as programs that write meet them.

use crate::support::{Written, can_mount};
use brindle_admin::Mounted;
use brindle_admin::quotas::{NewLimit, QuotaMode};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const PART: usize = 64 << 10;

fn open(path: &Path) -> Mounted {
    Mounted::open(path).expect("a mount of ours")
}

/// A subvolume of a pool with quotas, and its directory.
fn subvolume(ours: &Written) -> (Mounted, PathBuf) {
    let top = open(ours.root());
    top.enable_quotas(QuotaMode::Full).expect("quotas");
    top.create_subvolume(b"sub").expect("created");
    top.wait_for_quota_rescan().expect("counted");
    (top, ours.root().join("sub"))
}

fn limit(subvolume: &Path, bytes: u64) {
    let limit = NewLimit { bytes: Some(bytes), is_exclusive: false, is_compressed: false };
    open(subvolume).limit_quota_group(None, &limit).expect("a limit");
}

/// Writes on until there is an error: the bytes that were taken, and the error.
fn write_until_refused(file: &mut File) -> (usize, Option<Errno>) {
    const FAR_TOO_MUCH: usize = 64 << 20;
    let part = vec![7; PART];
    let mut taken = 0;
    while taken < FAR_TOO_MUCH {
        match file.write_all(&part) {
            Ok(()) => taken += PART,
            Err(error) => return (taken, errno(&error)),
        }
    }
    (taken, None)
}

fn errno(error: &io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

#[test]
fn a_write_past_a_limit_is_refused_when_it_is_made() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("1G");
    let (top, sub) = subvolume(&ours);
    std::fs::write(sub.join("old"), [1; 4096]).expect("room");
    limit(&sub, 10 << 20);
    let made = OpenOptions::new().read(true).write(true).create_new(true).open(sub.join("new"));
    let appended = OpenOptions::new().append(true).open(sub.join("old"));
    for file in [made, appended] {
        let mut file = file.expect("opens");
        let (_, refused) = write_until_refused(&mut file);
        assert_eq!(refused, Some(Errno::DQUOT));
        file.sync_all().expect("all that was taken is there");
        drop(file);
    }
    let length = |name: &str| sub.join(name).metadata().expect("stat").len();
    assert!((9 << 20..10 << 20).contains(&length("new")), "{} bytes", length("new"));
    top.snapshot(&open(&sub), b"copy", true).expect("nothing was lost");
    drop(top);
    ours.finish();
}

#[test]
fn contents_that_were_refused_late_keep_no_snapshot_from_being_made() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("1G");
    let (top, sub) = subvolume(&ours);
    // Opened far from any limit, so that the kernel's cache takes contents.
    let files = ["synced", "closed", "frozen"].map(|name| File::create(sub.join(name)).expect("room"));
    limit(&sub, 1 << 20);
    let [mut synced, closed, frozen] = files;
    write_until_refused(&mut synced);
    let refused = synced.sync_all().expect_err("past the limit");
    assert_eq!(errno(&refused), Some(Errno::DQUOT));
    drop(synced);
    for mut file in [closed, frozen] {
        write_until_refused(&mut file);
        drop(file);
    }
    top.disable_quotas().expect("off");
    top.snapshot(&open(&sub), b"copy", true).expect("its writers were told");
    open(&sub).set_read_only(true).expect("its writers were told");
    // The kernel keeps the length of a file in its cache, also of what was refused; the copy has what was taken, if anything.
    let length = |name: &str| ours.root().join(name).metadata().expect("stat").len();
    assert!(length("copy/synced") <= length("sub/synced"));
    drop(top);
    ours.finish();
}

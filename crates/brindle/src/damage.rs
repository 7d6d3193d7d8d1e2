//! Damage that a command has met, and the advice that follows what it said of it.

use brindle_admin::AdminError;
use brindle_care::extract::ExtractError;
use brindle_care::send::SendError;
use brindle_check::{Finding, Report};
use brindle_fs::{Damage, FsError, TreeError};
use std::error::Error;
use std::ffi::OsString;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The worst that was met: one process runs one command.
static MET: AtomicU8 = AtomicU8::new(NONE);
const NONE: u8 = 0;
const DATA: u8 = 1;
const TREES: u8 = 2;

/// Commands that read a pool without a mount, and take `-o rescue=`.
const READERS: [&str; 7] = ["ls", "cat", "stat", "restore", "cp", "send", "inspect"];

/// Remembers the damage that an error tells of, if it does.
pub(crate) fn note(error: &(dyn Error + 'static)) {
    if let Some(damage) = damage_of(error) {
        remember(damage);
    }
}

/// Remembers the damage that `check` has found.
pub(crate) fn note_report(report: &Report) {
    for (_, finding) in report.findings() {
        match finding {
            Finding::Unreadable { .. } => remember(Damage::Trees),
            Finding::DataUnreadable { .. } => remember(Damage::Data),
            _ => {}
        }
    }
}

fn remember(damage: Damage) {
    MET.fetch_max(if damage == Damage::Trees { TREES } else { DATA }, Relaxed);
}

/// Damage that an error, or one that caused it, tells of.
fn damage_of(error: &(dyn Error + 'static)) -> Option<Damage> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let of_tree = |error: &TreeError| error.is_damage().then_some(Damage::Trees);
        let found = if let Some(error) = error.downcast_ref::<FsError>() {
            error.damage()
        } else if let Some(error) = error.downcast_ref::<TreeError>() {
            of_tree(error)
        } else if let Some(ExtractError::Filesystem(error)) = error.downcast_ref() {
            error.damage()
        } else if let Some(SendError::Filesystem(error)) = error.downcast_ref() {
            error.damage()
        } else {
            match error.downcast_ref::<AdminError>() {
                Some(AdminError::Tree(error)) => of_tree(error),
                Some(AdminError::Filesystem(error)) => error.damage(),
                _ => None,
            }
        };
        if found.is_some() {
            return found;
        }
        cause = error.source();
    }
    None
}

/// Advice at the end of a command that has met damage, unless its arguments give that assurance up already.
pub(crate) fn advice(arguments: &[OsString]) -> Option<String> {
    let words: Vec<_> = arguments.iter().skip(1).map(|word| word.to_string_lossy()).collect();
    if words.iter().any(|given| given.contains("rescue=")) {
        return None;
    }
    // What lies on a missing device can't be read without checksums either.
    let lacks_devices = words.iter().any(|given| given.contains("degraded"));
    let word = match MET.load(Relaxed) {
        NONE => return None,
        DATA if lacks_devices => return None,
        DATA => "idatacsums",
        _ => "all",
    };
    let older = if word == "all" {
        "; where no tree can be entered, rescue=all:usebackuproot takes an older commit"
    } else {
        ""
    };
    let command = words.iter().find(|word| !word.starts_with('-'));
    let is_reader = command.is_some_and(|command| READERS.iter().any(|reader| command.starts_with(reader)));
    Some(match command.map(AsRef::as_ref) {
        Some("mount") => format!("what is left of it may be read with -o ro,rescue={word}{older}"),
        _ if is_reader => format!("-o rescue={word} may read what is left of it{older}"),
        _ => format!(
            "`brindle mount -o ro,rescue={word}` and `brindle restore -o rescue={word}` may read what is left of it{older}"
        ),
    })
}

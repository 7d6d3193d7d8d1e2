//! Times at which a mount defragments its metadata by itself: where it was asked to, while the filesystem is idle,
//! and not again for a long time after a full pass.

use std::fmt;
use std::time::Duration;

/// Time without a request before a mount counts as idle.
pub const QUIET: Duration = Duration::from_secs(15);
/// From the end of one pass to the beginning of the next.
pub const REST: Duration = Duration::from_secs(6 * 3600);

/// Mode of defragmentation by the mount itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AutoDefragment {
    /// Never.
    #[default]
    Off,
    /// Only metadata on rotating devices. On flash it gains next to nothing, and wears it.
    Rotating,
    /// Wherever it lies.
    Always,
}

impl fmt::Display for AutoDefragment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Rotating => "rotating",
            Self::Always => "always",
        })
    }
}

/// IdleFacts for the decision.
#[derive(Clone, Copy, Debug)]
pub struct IdleFacts {
    /// Metadata lies on devices that rotate.
    pub rotates: bool,
    /// Time since the last request.
    pub quiet: Duration,
    /// A pass has begun, and is not finished.
    pub is_under_way: bool,
    /// Time since the last pass was finished; `None` if there was none.
    pub since_pass: Option<Duration>,
    /// Something has been committed since.
    pub has_changed: bool,
}

/// Returns true if the next step is due.
pub fn is_due(mode: AutoDefragment, facts: &IdleFacts) -> bool {
    let is_wanted = match mode {
        AutoDefragment::Off => false,
        AutoDefragment::Rotating => facts.rotates,
        AutoDefragment::Always => true,
    };
    let is_rested = facts.since_pass.is_none_or(|since| since >= REST && facts.has_changed);
    is_wanted && facts.quiet >= QUIET && (facts.is_under_way || is_rested)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: IdleFacts =
        IdleFacts { rotates: true, quiet: QUIET, is_under_way: false, since_pass: None, has_changed: false };

    #[test]
    fn it_is_for_disks_unless_told_otherwise() {
        assert!(!is_due(AutoDefragment::default(), &IDLE));
        assert!(is_due(AutoDefragment::Rotating, &IDLE));
        let flash = IdleFacts { rotates: false, ..IDLE };
        assert!(!is_due(AutoDefragment::Rotating, &flash) && is_due(AutoDefragment::Always, &flash));
    }

    #[test]
    fn requests_come_first() {
        let busy = IdleFacts { quiet: QUIET / 2, is_under_way: true, ..IDLE };
        assert!(!is_due(AutoDefragment::Always, &busy));
    }

    #[test]
    fn it_rests_between_passes_and_while_nothing_changes() {
        let due = |since, is_under_way, has_changed| {
            let facts = IdleFacts { since_pass: Some(since), is_under_way, has_changed, ..IDLE };
            is_due(AutoDefragment::Rotating, &facts)
        };
        assert!(!due(REST / 2, false, true) && due(REST, false, true) && !due(REST, false, false));
        assert!(due(REST / 2, true, true));
    }
}

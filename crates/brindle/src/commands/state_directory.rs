//! Directory of what must outlive a crash and is not in the pool: records of scrubs.

use std::path::PathBuf;

/// The directory for root, without `BRINDLE_STATE_DIR`.
const OF_ROOT: &str = "/var/lib/brindle";

/// `BRINDLE_STATE_DIR`; otherwise a directory of the system for root, and of the user for others.
pub(crate) fn state_directory() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = set("BRINDLE_STATE_DIR") {
        return path;
    }
    if rustix::process::geteuid().is_root() {
        return OF_ROOT.into();
    }
    let own = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    own.unwrap_or_else(|| OF_ROOT.into()).join("brindle")
}

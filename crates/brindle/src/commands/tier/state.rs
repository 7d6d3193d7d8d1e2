//! Journals of fences: their directory, and the check for one.

use super::facts::Facts;
use brindle_admin::tier::StateDirectory;

/// Default directory of journals, without `BRINDLE_STATE_DIR`: it must outlive a crash.
const STATE_DIRECTORY: &str = "/var/lib/brindle";

/// Directory of journals.
pub(crate) fn directory() -> StateDirectory {
    let path = std::env::var_os("BRINDLE_STATE_DIR").filter(|path| !path.is_empty());
    StateDirectory::new(path.unwrap_or_else(|| STATE_DIRECTORY.into()).into())
}

/// Returns true if devices of a pool may be fenced at this moment.
pub(crate) fn is_fenced(facts: &Facts) -> bool {
    match directory().read(&facts.fsid) {
        Ok(journal) => journal.is_some(),
        Err(error) => {
            tracing::warn!("{error}");
            false
        }
    }
}

/// Warns that sizes are not what they ought to be, and says what restores them.
pub(crate) fn warn_of_fences(facts: &Facts) {
    if is_fenced(facts) {
        let operands = facts.operands();
        tracing::warn!(
            "devices of the pool are fenced: smaller than they ought to be. If neither `brindle tier apply` nor `brindle tier \
             watch` is at work on it, `brindle tier recover {operands}` restores their sizes, and so does `brindle tier \
             apply {operands}` before it goes on"
        );
    }
}

//! Fail-stop of a server: a panic of any thread ends the process. The mount answers nothing from then on, and the pool on
//! disk is that of the last commit and its log.

use crate::logging;
use brindle_fuse::Abort;
use std::panic::PanicHookInfo;
use std::sync::OnceLock;

/// The way to abort the connection: a thread that waits for the kernel would keep the process from its end, and a core dump
/// would wait for that.
static ABORT: OnceLock<Abort> = OnceLock::new();

/// Has a panic from now on abort the connection.
pub(super) fn aborts(connection: Abort) {
    // There is one mount.
    ABORT.set(connection).ok();
}

/// Has every panic from now on end the process, with its reason in the log.
pub(super) fn ends_the_server() {
    std::panic::set_hook(Box::new(|panic| {
        report(panic);
        ABORT.get().map(Abort::run);
        std::process::abort();
    }));
}

fn report(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let payload = panic.payload();
    let formatted = payload.downcast_ref::<String>().map(String::as_str);
    let why = formatted.or_else(|| payload.downcast_ref().copied()).unwrap_or("no reason given");
    // The thread that tells what is logged would come too late.
    logging::tell_last(&format!(
        "the mount ends here, with the pool as of its last sync: a bug in brindle, at {place}: {why}"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// Set for the process that is to panic.
    const PANICS: &str = "BRINDLE_TEST_PANICS";

    #[test]
    fn a_panic_of_any_thread_ends_the_process() {
        if std::env::var_os(PANICS).is_some() {
            ends_the_server();
            let _ = std::thread::spawn(|| panic!("in a thread that nobody joins")).join();
            return;
        }
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["a_panic_of_any_thread_ends_the_process", "--nocapture"]).env(PANICS, "1");
        let status = command.output().expect("started").status;
        assert_eq!(status.signal(), Some(rustix::process::Signal::ABORT.as_raw()), "{status}");
    }
}

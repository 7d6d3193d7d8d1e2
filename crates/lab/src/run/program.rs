//! Programs that suites run: their places, and their errors with what they said.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The end of a program's output that an error tells, in bytes.
const OUTPUT_BYTES: usize = 1000;
/// Debian keeps the programs of a PostgreSQL server here, by version.
const POSTGRESQL: &str = "/usr/lib/postgresql";

/// Path of a program: of the newest PostgreSQL, or of the search path.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    let places = std::env::var_os("PATH").unwrap_or_default();
    newest(Path::new(POSTGRESQL))
        .into_iter()
        .chain(std::env::split_paths(&places))
        .map(|place| place.join(name))
        .find(|path| path.is_file())
}

/// Programs of the greatest version in a directory.
fn newest(versions: &Path) -> Option<PathBuf> {
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u64>().ok();
    let paths = std::fs::read_dir(versions).ok()?.filter_map(Result::ok).map(|entry| entry.path());
    let newest = paths.filter_map(|path| Some((number(&path)?, path))).max()?;
    Some(newest.1.join("bin"))
}

/// A program without any setting of the caller's environment.
pub(super) fn command(name: &str) -> io::Result<Command> {
    let path = find(name).ok_or_else(|| io::Error::other(format!("{name} is not installed")))?;
    let mut command = Command::new(path);
    command.env_clear().env("LC_ALL", "C").current_dir("/").stdin(Stdio::null());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    Ok(command)
}

/// Runs a program that must succeed, and returns its standard output.
pub(super) fn output(command: &mut Command) -> io::Result<Vec<u8>> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = [String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)].concat();
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect();
    let words: String = words.join(" ").chars().take(OUTPUT_BYTES).collect();
    Err(io::Error::other(format!("{words}: {}: {}", output.status, end_of(&said))))
}

/// The end of an output.
pub(super) fn end_of(output: &str) -> &str {
    let output = output.trim_end();
    let start = output.len().saturating_sub(OUTPUT_BYTES);
    let start = (start..=output.len()).find(|at| output.is_char_boundary(*at)).unwrap_or(0);
    &output[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_version_counts_by_its_number() {
        let scratch = tempfile::tempdir().expect("room");
        assert_eq!(newest(scratch.path()), None);
        for name in ["9", "15", "common"] {
            std::fs::create_dir(scratch.path().join(name)).expect("new");
        }
        assert_eq!(newest(scratch.path()), Some(scratch.path().join("15/bin")));
    }

    #[test]
    fn errors_tell_what_a_program_said() {
        assert!(command("no-such-program").expect_err("none").to_string().contains("is not installed"));
        let mut shell = command("sh").expect("there");
        assert_eq!(output(shell.args(["-c", "echo well"])).expect("succeeds"), b"well\n");
        let mut shell = command("sh").expect("there");
        let error = output(shell.args(["-c", "echo no room >&2; exit 3"])).expect_err("it fails").to_string();
        assert!(error.contains("exit status: 3: no room"), "{error}");
        assert_eq!(end_of(&"é".repeat(600)), "é".repeat(500));
    }
}

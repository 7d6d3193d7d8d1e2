//! Command lines that ask for what cannot be: exit code 2, as for those that `clap` refuses.

use anyhow::Error;
use std::fmt;

/// Error of the command line.
#[derive(Debug)]
pub(crate) struct WrongUsage(Error);

impl fmt::Display for WrongUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl std::error::Error for WrongUsage {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// Marks an error as one of the command line.
pub(crate) trait OrWrongUsage<T> {
    /// The same, as wrong usage.
    fn or_wrong_usage(self) -> Result<T, Error>;
}

impl<T, E: Into<Error>> OrWrongUsage<T> for Result<T, E> {
    fn or_wrong_usage(self) -> Result<T, Error> {
        self.map_err(as_wrong_usage)
    }
}

/// The same error, as wrong usage.
pub(crate) fn as_wrong_usage(error: impl Into<Error>) -> Error {
    Error::new(WrongUsage(error.into()))
}

/// Refuses a command line.
pub(crate) fn wrong_usage<T>(why: String) -> Result<T, Error> {
    Err(Error::msg(why)).or_wrong_usage()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn it_says_what_it_said_before() {
        let number = || "x".parse::<u32>().context("no number");
        let (before, after) =
            (number().expect_err("refused"), number().or_wrong_usage().expect_err("refused"));
        assert!(after.is::<WrongUsage>() && !before.is::<WrongUsage>());
        assert_eq!(format!("{before:#}"), format!("{after:#}"));
    }
}

//! The keeper of a pool: looks at it from time to time, until it is told to stop or the pool has gone. One loop and one rule of
//! trying again serve every kind of pool; [`Kept`] says how one of them is looked at.

use std::time::{Duration, Instant};

/// A pool that is looked after.
pub trait Kept {
    /// Reason to end.
    type Error;
    /// Looks at the pool, and puts right what is misplaced, if that is due.
    fn look(&mut self) -> Result<Looked, Self::Error>;
    /// Waits until the next look. Returns false if the keeper is told to stop.
    fn pause(&mut self, time: Duration) -> bool;
}

/// Outcome of a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// The pool is there.
    There,
    /// Another operation excludes the work; the next look tries again.
    Busy(String),
    /// The pool is not there any more.
    Gone,
}

/// Reason for the end of a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepEnded {
    /// The keeper was told to stop.
    Stopped,
    /// The pool has gone.
    Gone,
}

/// Looks at a pool at once, and then after each interval.
pub fn keep<K: Kept>(kept: &mut K, interval: Duration) -> Result<KeepEnded, K::Error> {
    let mut until_next = Duration::ZERO;
    while kept.pause(until_next) {
        match kept.look()? {
            Looked::There => {}
            Looked::Busy(operation) => tracing::info!("{operation}"),
            Looked::Gone => return Ok(KeepEnded::Gone),
        }
        until_next = interval;
    }
    Ok(KeepEnded::Stopped)
}

/// Pause after the first failure.
const RETRY_MIN: Duration = Duration::from_secs(600);
/// The longest pause after a failure.
const RETRY_MAX: Duration = Duration::from_secs(3600);

/// The rule of trying again: a failure is followed by a pause, twice as long after each further one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Retry {
    /// Time of the last failure, and pause after it.
    failed: Option<(Instant, Duration)>,
}

impl Retry {
    /// Notes a failure.
    pub fn fail(&mut self, now: Instant) {
        let pause = self.failed.map_or(RETRY_MIN, |(_, pause)| (pause * 2).min(RETRY_MAX));
        self.failed = Some((now, pause));
    }

    /// Notes a success.
    pub fn succeed(&mut self) {
        self.failed = None;
    }

    /// Returns true unless the pause after a failure lasts.
    pub fn may_try(&self, now: Instant) -> bool {
        self.failed.is_none() || self.is_due(now)
    }

    /// Returns true if a failure is to be tried again.
    pub fn is_due(&self, now: Instant) -> bool {
        self.failed.is_some_and(|(failed, pause)| now.saturating_duration_since(failed) > pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool that answers by a list, and stops after the last answer.
    struct Listed {
        answers: Vec<Result<Looked, &'static str>>,
        pauses: Vec<Duration>,
    }

    impl Kept for Listed {
        type Error = &'static str;

        fn look(&mut self) -> Result<Looked, Self::Error> {
            self.answers.remove(0)
        }

        fn pause(&mut self, time: Duration) -> bool {
            self.pauses.push(time);
            !self.answers.is_empty()
        }
    }

    const INTERVAL: Duration = Duration::from_secs(5);

    fn kept(answers: Vec<Result<Looked, &'static str>>) -> (Result<KeepEnded, &'static str>, Vec<Duration>) {
        let mut pool = Listed { answers, pauses: Vec::new() };
        (keep(&mut pool, INTERVAL), pool.pauses)
    }

    #[test]
    fn a_pool_is_looked_at_at_once_and_after_each_interval_until_it_is_gone() {
        let busy = Looked::Busy("a balance".to_owned());
        let (ended, pauses) = kept(vec![Ok(Looked::There), Ok(busy), Ok(Looked::Gone), Ok(Looked::There)]);
        assert_eq!(ended, Ok(KeepEnded::Gone));
        assert_eq!(pauses, [Duration::ZERO, INTERVAL, INTERVAL]);
    }

    #[test]
    fn a_keeper_ends_when_told_and_at_an_error() {
        assert_eq!(kept(vec![Ok(Looked::There)]), (Ok(KeepEnded::Stopped), vec![Duration::ZERO, INTERVAL]));
        assert_eq!(kept(vec![Err("broken"), Ok(Looked::There)]), (Err("broken"), vec![Duration::ZERO]));
    }

    #[test]
    fn pauses_after_failures_double_up_to_an_hour_and_end_with_a_success() {
        let begin = Instant::now();
        let after = |minutes: u64| begin + Duration::from_secs(minutes * 60 + 1);
        let mut retry = Retry::default();
        assert!(retry.may_try(begin) && !retry.is_due(after(1000)));
        for minutes in [10, 20, 40, 60, 60] {
            retry.fail(begin);
            assert!(!retry.may_try(after(minutes - 1)) && !retry.is_due(after(minutes - 1)), "{minutes}");
            assert!(retry.may_try(after(minutes)) && retry.is_due(after(minutes)), "{minutes}");
        }
        retry.succeed();
        assert!(retry.may_try(begin) && !retry.is_due(after(1000)));
        retry.fail(begin);
        assert!(retry.may_try(after(10)));
    }
}

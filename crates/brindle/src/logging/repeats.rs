//! Lines that are logged again and again: told at once, counted, and told again at growing intervals. Lines that are new
//! pass [`Floods`] before.

use super::floods::Floods;
use super::lines::{INTERVALS, LINES_MAX, Line, span};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Lines that were told, and the times that each was heard since.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    lines: HashMap<Line, Known>,
    floods: Floods,
}

#[derive(Debug)]
struct Known {
    told: Instant,
    /// Number of times that it has been told.
    tellings: usize,
    /// Number of times that it was heard since it was told.
    heard: u64,
}

impl Known {
    fn interval(&self) -> Duration {
        let index = self.tellings.saturating_sub(1).min(INTERVALS.len() - 1);
        INTERVALS[index]
    }

    fn is_due(&self, now: Instant) -> bool {
        self.heard > 0 && now.saturating_duration_since(self.told) >= self.interval()
    }

    fn tell(&mut self, text: &str, now: Instant) -> String {
        let told = text_of_repeats(text, self.heard, now.saturating_duration_since(self.told));
        (self.told, self.heard) = (now, 0);
        self.tellings += 1;
        told
    }
}

impl Repeats {
    /// The text to be told of a line that is logged; `None` if it is only counted.
    pub(super) fn hear(&mut self, line: &Line, now: Instant) -> Option<String> {
        if let Some(known) = self.lines.get_mut(line) {
            known.heard += 1;
            return known.is_due(now).then(|| known.tell(&line.1, now));
        }
        if !self.floods.admit(line, now) {
            return None;
        }
        if self.lines.len() >= LINES_MAX {
            // A line that was not heard for an hour is news when it comes again.
            let longest = INTERVALS[INTERVALS.len() - 1];
            self.lines
                .retain(|_, known| known.heard > 0 || now.saturating_duration_since(known.told) < longest);
        }
        if self.lines.len() < LINES_MAX {
            self.lines.insert(line.clone(), Known { told: now, tellings: 1, heard: 0 });
        }
        Some(line.1.clone())
    }

    /// The lines whose repeats are to be told by now.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Line> {
        let mut due = self.tell_if(now, |known| known.is_due(now));
        due.extend(self.floods.due(now));
        due
    }

    /// Lines for the repeats that were not written yet.
    pub(super) fn rest(&mut self, now: Instant) -> Vec<Line> {
        let mut rest = self.tell_if(now, |known| known.heard > 0);
        rest.extend(self.floods.rest(now));
        rest
    }

    fn tell_if(&mut self, now: Instant, is_due: impl Fn(&Known) -> bool) -> Vec<Line> {
        let due = self.lines.iter_mut().filter(|(_, known)| is_due(known));
        due.map(|((level, text), known)| (*level, known.tell(text, now))).collect()
    }
}

fn text_of_repeats(text: &str, heard: u64, since: Duration) -> String {
    let times = if heard == 1 { "once".to_owned() } else { format!("{heard} times") };
    format!("{text} (repeated {times} in {})", span(since))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    fn line(text: &str) -> Line {
        (Level::WARN, text.to_owned())
    }

    #[test]
    fn repeats_are_told_at_growing_intervals_and_in_the_end() {
        let (mut repeats, begin) = (Repeats::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let bad = line("disk 1 fails");
        assert_eq!(repeats.hear(&bad, at(0)).as_deref(), Some("disk 1 fails"));
        assert_eq!(repeats.hear(&line("disk 2 fails"), at(0)).as_deref(), Some("disk 2 fails"));
        for second in 1..60 {
            assert_eq!(repeats.hear(&bad, at(second)), None);
        }
        assert!(repeats.due(at(59)).is_empty());
        assert_eq!(repeats.due(at(60)), [line("disk 1 fails (repeated 59 times in 60 seconds)")]);
        assert!(repeats.due(at(10_000)).is_empty(), "nothing was heard since");
        assert_eq!(repeats.hear(&bad, at(61)), None);
        assert!(repeats.due(at(120)).is_empty(), "ten minutes by now");
        assert_eq!(repeats.due(at(660)), [line("disk 1 fails (repeated once in 10 minutes)")]);
        for hour in 1..5_u64 {
            for second in 0..3600 {
                repeats.hear(&bad, at(660 + (hour - 1) * 3600 + second));
            }
            assert!(repeats.due(at(659 + hour * 3600)).is_empty(), "at most one an hour");
            let told = repeats.due(at(660 + hour * 3600));
            assert_eq!(told, [line("disk 1 fails (repeated 3600 times in 60 minutes)")]);
        }
        assert_eq!(repeats.hear(&bad, at(16_000)), None);
        assert_eq!(repeats.rest(at(16_001)).len(), 1);
        assert!(repeats.rest(at(16_002)).is_empty());
    }

    #[test]
    fn each_failure_of_a_device_that_dies_is_a_line_and_most_are_counted() {
        let (mut repeats, begin) = (Repeats::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let failure = |number: u64| line(&format!("/dev/sdb: reading at {}: error 5", (number + 1) << 20));
        let told = (0..822).filter(|number| repeats.hear(&failure(*number), at(number / 100)).is_some());
        assert_eq!(told.count(), 10);
        assert_eq!(repeats.hear(&failure(3), at(9)), None, "one that was told already");
        let due: Vec<String> = repeats.due(at(10)).into_iter().map(|(_, text)| text).collect();
        assert_eq!(due, ["/dev/sdb: reading at 861929472: error 5 (812 lines like this one in 10 seconds)"]);
        assert_eq!(repeats.rest(at(20)).len(), 1, "and its repeat");
    }

    #[test]
    fn a_line_that_comes_again_next_week_is_told() {
        let (mut repeats, begin) = (Repeats::default(), Instant::now());
        repeats.hear(&line("a"), begin);
        let told = repeats.hear(&line("a"), begin + Duration::from_secs(7 * 86_400));
        assert_eq!(told.as_deref(), Some("a (repeated once in 7 days)"));
    }

    #[test]
    fn memory_is_limited_and_no_line_is_lost_for_that() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        for number in 0..3 * LINES_MAX {
            assert!(repeats.hear(&line(&"a".repeat(number)), now).is_some());
        }
        assert_eq!(repeats.lines.len(), LINES_MAX);
        let later = now + Duration::from_secs(3600);
        repeats.hear(&line("new"), later);
        assert_eq!(repeats.lines.len(), 1);
    }
}

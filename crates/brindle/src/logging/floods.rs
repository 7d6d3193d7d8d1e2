//! Lines that differ by numbers only, such as those of each failed access to a device that dies: the first ones are told, the
//! others are counted.

use super::lines::{INTERVALS, LINES_MAX, Line, span};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tracing::Level;

/// Lines of a kind that are told before others are counted.
const TOLD_MAX: u32 = 10;
/// Interval in which `TOLD_MAX` lines are a flood.
const FIRST_INTERVAL: Duration = Duration::from_secs(10);
/// A number of fewer digits is part of a name: of a device, a subvolume, an error.
const DIGITS_MIN: usize = 4;

/// Kinds of lines that were heard lately. A kind is a line with a mark in the place of each long number.
#[derive(Debug, Default)]
pub(super) struct Floods(HashMap<(Level, String), Flood>);

#[derive(Debug)]
struct Flood {
    begun: Instant,
    /// Number of lines that were told since then.
    told: u32,
    /// Number of lines that were only counted since then, and the last of them.
    counted: u64,
    last: String,
    /// Number of times that the count was told.
    tellings: usize,
}

impl Flood {
    fn is_over(&self, now: Instant) -> bool {
        let interval = match self.tellings {
            0 => FIRST_INTERVAL,
            more => INTERVALS[(more - 1).min(INTERVALS.len() - 1)],
        };
        now.saturating_duration_since(self.begun) >= interval
    }

    fn tell(&mut self, now: Instant) -> String {
        let (last, since) = (std::mem::take(&mut self.last), now.saturating_duration_since(self.begun));
        let told = match self.counted {
            1 => last,
            more => format!("{last} ({more} lines like this one in {})", span(since)),
        };
        (self.begun, self.counted) = (now, 0);
        self.tellings += 1;
        told
    }
}

impl Floods {
    /// Returns true if a line is to be told, false if it is counted.
    pub(super) fn admit(&mut self, (level, text): &Line, now: Instant) -> bool {
        let Some(kind) = kind_of(text) else { return true };
        if self.0.len() >= LINES_MAX {
            self.0.retain(|_, flood| flood.counted > 0 || !flood.is_over(now));
        }
        let is_full = self.0.len() >= LINES_MAX;
        let flood = match self.0.entry((*level, kind)) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(_) if is_full => return true,
            std::collections::hash_map::Entry::Vacant(new) => {
                let (begun, last) = (now, String::new());
                new.insert(Flood { begun, told: 0, counted: 0, last, tellings: 0 })
            }
        };
        if flood.counted == 0 && flood.is_over(now) {
            (flood.begun, flood.told, flood.tellings) = (now, 0, 0);
        }
        if flood.told < TOLD_MAX {
            flood.told += 1;
            return true;
        }
        flood.counted += 1;
        flood.last.clone_from(text);
        false
    }

    /// The counts that are to be told by now.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Line> {
        self.tell_if(now, |flood| flood.is_over(now))
    }

    /// Lines for the counts that were not written yet.
    pub(super) fn rest(&mut self, now: Instant) -> Vec<Line> {
        self.tell_if(now, |_| true)
    }

    fn tell_if(&mut self, now: Instant, is_due: impl Fn(&Flood) -> bool) -> Vec<Line> {
        let due = self.0.iter_mut().filter(|(_, flood)| flood.counted > 0 && is_due(flood));
        due.map(|((level, _), flood)| (*level, flood.tell(now))).collect()
    }
}

/// The kind of a line; `None` if it has no long number.
fn kind_of(text: &str) -> Option<String> {
    let (mut kind, mut rest, mut has_number) = (String::with_capacity(text.len()), text, false);
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(start);
        let length = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        kind.push_str(before);
        if length < DIGITS_MIN {
            kind.push_str(&number[..length]);
        } else {
            kind.push('#');
            has_number = true;
        }
        rest = &number[length..];
    }
    kind.push_str(rest);
    has_number.then_some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(device: &str, number: u64) -> Line {
        (Level::WARN, format!("{device} (devid 2): reading at {}: Input/output error", 8192 + number * 4096))
    }

    #[test]
    fn a_dying_device_is_told_of_and_then_counted() {
        let (mut floods, begin) = (Floods::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let told =
            (0..822).filter(|number| floods.admit(&line("/dev/sdb", *number), at(*number / 100))).count();
        assert_eq!(told, 10, "the first ones");
        assert!(floods.admit(&line("/dev/sdc1", 5), at(3)), "another device");
        assert!(floods.admit(&(Level::WARN, "/dev/sdb (devid 2): too slow".to_owned()), at(3)));
        assert!(floods.due(at(9)).is_empty());
        let (_, text) = line("/dev/sdb", 821);
        assert_eq!(
            floods.due(at(10)),
            [(Level::WARN, format!("{text} (812 lines like this one in 10 seconds)"))]
        );
        assert!(!floods.admit(&line("/dev/sdb", 900), at(11)), "it goes on");
        assert!(floods.due(at(60)).is_empty(), "a minute by now");
        assert_eq!(floods.due(at(70)), [line("/dev/sdb", 900)], "one is as good as itself");
        assert!(!floods.admit(&line("/dev/sdb", 901), at(600)));
        assert!(floods.due(at(660)).is_empty(), "ten minutes");
        assert_eq!(floods.rest(at(661)).len(), 1);
        assert!(floods.rest(at(662)).is_empty());
    }

    #[test]
    fn a_message_that_was_quiet_for_long_is_shown_again() {
        let (mut floods, begin) = (Floods::default(), Instant::now());
        assert_eq!((0..20).filter(|number| floods.admit(&line("/dev/sdb", *number), begin)).count(), 10);
        assert_eq!(floods.due(begin + FIRST_INTERVAL).len(), 1);
        let later = begin + Duration::from_secs(7200);
        assert!((0..10).all(|number| floods.admit(&line("/dev/sdb", number), later)));
        assert!(!floods.admit(&line("/dev/sdb", 10), later));
    }

    #[test]
    fn slow_news_are_told_each() {
        let (mut floods, begin) = (Floods::default(), Instant::now());
        for number in 0..1000 {
            assert!(floods.admit(&line("/dev/sdb", number), begin + Duration::from_secs(2 * number)));
        }
    }

    #[test]
    fn names_are_not_taken_for_numbers() {
        assert_eq!(kind_of("/dev/sdb12 (devid 300): bad"), None);
        assert_eq!(kind_of("logical 1048576, 4096 bytes: x").as_deref(), Some("logical #, # bytes: x"));
        assert_eq!(kind_of("at 12345").as_deref(), Some("at #"));
    }

    #[test]
    fn memory_is_limited_and_no_line_is_lost_for_that() {
        let (mut floods, now) = (Floods::default(), Instant::now());
        for number in 0..3 * LINES_MAX {
            assert!(floods.admit(&(Level::WARN, format!("{}: 1234", "a".repeat(number))), now));
        }
        assert_eq!(floods.0.len(), LINES_MAX);
    }
}

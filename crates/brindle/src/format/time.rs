//! Times, in UTC.

use std::fmt;

/// A moment as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Civil {
    year: i64,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
}

const SECONDS_PER_DAY: i64 = 86_400;
/// Days of the 400 years after which the Gregorian calendar repeats.
const DAYS_PER_ERA: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const DAYS_BEFORE_EPOCH: i64 = 719_468;

impl Civil {
    /// The moment `seconds` after 1970-01-01 00:00:00 UTC.
    pub(crate) fn from_epoch(seconds: i64) -> Self {
        let of_day = seconds.rem_euclid(SECONDS_PER_DAY);
        let days = seconds.div_euclid(SECONDS_PER_DAY) + DAYS_BEFORE_EPOCH;
        // Years are counted from March here, so that the leap day is the last day of a year.
        let era = days.div_euclid(DAYS_PER_ERA);
        let of_era = days.rem_euclid(DAYS_PER_ERA);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        let small = |value: i64| u8::try_from(value).expect("a part of a date or of a day is below 60");
        Self {
            year,
            month: small(month),
            day: small(day),
            hour: small(of_day / 3600),
            minute: small(of_day / 60 % 60),
            second: small(of_day % 60),
        }
    }
}

/// `2026-11-21 08:41:03`
impl fmt::Display for Civil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, hour, minute, second } = self;
        write!(f, "{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
    }
}

/// A time as a long listing shows it: `2026-11-21 08:41`.
pub(crate) fn long_listing_time(seconds: i64) -> String {
    let Civil { year, month, day, hour, minute, .. } = Civil::from_epoch(seconds);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_across_the_calendar() {
        let of = |seconds| Civil::from_epoch(seconds).to_string();
        assert_eq!(of(0), "1970-01-01 00:00:00");
        assert_eq!(of(-5), "1969-12-31 23:59:55");
        assert_eq!(of(1_795_250_463), "2026-11-21 08:41:03");
        assert_eq!(of(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(of(1 << 40), "36812-02-20 00:36:16");
    }

    #[test]
    fn the_extremes_do_not_panic() {
        assert!(Civil::from_epoch(i64::MIN).to_string().starts_with("-292277022657"));
        assert!(Civil::from_epoch(i64::MAX).to_string().starts_with("292277026596"));
    }
}

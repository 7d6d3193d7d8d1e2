//! Filters as they are typed: `usage=50,devid=2`.

use super::Filter;
use brindle_ondisk::{DevId, Profile};
use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;

/// Error of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    what: String,
    why: &'static str,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.what, self.why)
    }
}

impl std::error::Error for ParseError {}

impl FromStr for Filter {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut filter = Self::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            filter.add(word).map_err(|why| ParseError { what: word.to_owned(), why })?;
        }
        let refuse = |why| Err(ParseError { what: text.to_owned(), why });
        if filter.soft && filter.convert.is_none() {
            return refuse("soft goes with convert");
        }
        if filter.physical.is_some() && filter.devid.is_none() {
            return refuse("drange goes with devid");
        }
        Ok(filter)
    }
}

impl Filter {
    fn add(&mut self, word: &str) -> Result<(), &'static str> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let value = |why| value.filter(|value| !value.is_empty()).ok_or(why);
        match name {
            "profiles" => {
                let names = value("profiles=raid1|dup")?.split('|');
                self.profiles = Some(names.map(profile).collect::<Result<_, _>>()?);
            }
            "usage" => self.usage = Some(usage(value("usage=PERCENT or FROM..TO")?)?),
            "devid" => self.devid = Some(DevId::new(number(value("devid=NUMBER")?)?)),
            "drange" => self.physical = Some(bytes(value("drange=START..END")?)?),
            "vrange" => self.logical = Some(bytes(value("vrange=START..END")?)?),
            "limit" => self.limit = Some(limit(value("limit=NUMBER or FROM..TO")?)?),
            "stripes" => self.stripes = Some(stripes(value("stripes=FROM..TO")?)?),
            "convert" => self.convert = Some(profile(value("convert=PROFILE")?)?),
            "soft" => self.soft = true,
            "misplaced" => self.misplaced = true,
            _ => {
                return Err(
                    "no such filter: there are usage=, devid=, drange=, vrange=, limit=, stripes=, profiles=, \
                            convert=, soft and misplaced",
                );
            }
        }
        Ok(())
    }
}

fn profile(name: &str) -> Result<Profile, &'static str> {
    let row = Profile::TABLE.iter().find(|row| row.name == name);
    row.map(|row| row.profile).ok_or("no such profile")
}

fn number<T: FromStr>(text: &str) -> Result<T, &'static str> {
    text.parse().map_err(|_| "not a number")
}

/// `a..b`, either of which may be left out.
type Bounds<T> = (Option<T>, Option<T>);

fn bounds<T: FromStr>(text: &str) -> Result<Option<Bounds<T>>, &'static str> {
    let Some((from, to)) = text.split_once("..") else { return Ok(None) };
    let part = |text: &str| if text.is_empty() { Ok(None) } else { number(text).map(Some) };
    Ok(Some((part(from)?, part(to)?)))
}

fn usage(text: &str) -> Result<Range<u32>, &'static str> {
    let (from, to) = match bounds::<u32>(text)? {
        Some((from, to)) => (from.unwrap_or(0), to.unwrap_or(101)),
        None => (0, number(text)?),
    };
    if from > to || to > 101 { Err("not a range of percents") } else { Ok(from..to) }
}

fn limit(text: &str) -> Result<RangeInclusive<u32>, &'static str> {
    let (from, to) = match bounds::<u32>(text)? {
        Some((from, to)) => (from.unwrap_or(0), to.unwrap_or(u32::MAX)),
        None => (0, number(text)?),
    };
    if from > to { Err("the range ends before it begins") } else { Ok(from..=to) }
}

fn stripes(text: &str) -> Result<RangeInclusive<u32>, &'static str> {
    let (from, to) = match bounds::<u32>(text)? {
        Some((from, to)) => (from.unwrap_or(0), to.unwrap_or(u32::MAX)),
        None => number(text).map(|count| (count, count))?,
    };
    if from > to { Err("the range ends before it begins") } else { Ok(from..=to) }
}

fn bytes(text: &str) -> Result<Range<u64>, &'static str> {
    let (from, to) = bounds::<u64>(text)?.ok_or("START..END in bytes")?;
    let (from, to) = (from.unwrap_or(0), to.unwrap_or(u64::MAX));
    if from >= to { Err("the range is empty") } else { Ok(from..to) }
}

//! A while of a home server's time, as it passes: what it asks of its disks, and whether they may sleep.
//!
//! Each 10 seconds a line of a log that is synced; each 20 seconds a mail; each minute a document that is saved over, durably;
//! each two minutes a photo, not synced; each 30 seconds a file of the last ones is read. Work that is done is not waited
//! for twice: an event begins at its time, or when the one before has ended.

use super::RunOptions;
use super::phase::{Done, Phase, measure};
use brindle_sim::Random;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// A thing that happens on a home server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Log,
    Mail,
    Document,
    Photo,
    Read,
}

/// Events, the time between two of a kind, and of the first one, in seconds.
const EVENTS: [(Event, u64, u64); 5] = [
    (Event::Log, 10, 0),
    (Event::Mail, 20, 3),
    (Event::Document, 60, 7),
    (Event::Photo, 120, 11),
    (Event::Read, 30, 17),
];
/// Bytes of a line of the log, a mail, a document and a photo.
const LINE_BYTES: usize = 200;
const MAIL_BYTES: usize = 12 << 10;
const DOCUMENT_BYTES: usize = 60 << 10;
const PHOTO_BYTES: usize = 3_000_000;
/// Documents that are saved over in turn.
const DOCUMENTS: usize = 5;

/// Events of a while, in the order of their times.
fn schedule(seconds: u64) -> Vec<(u64, Event)> {
    let of = |(event, each, first): (Event, u64, u64)| {
        (first..seconds).step_by(usize::try_from(each).unwrap_or(1)).map(move |second| (second, event))
    };
    let mut events: Vec<_> = EVENTS.into_iter().flat_map(of).collect();
    events.sort_unstable();
    events
}

/// Runs a home server; `wait_until` waits until a time after the beginning.
pub(super) fn home(
    place: &Path,
    options: &RunOptions,
    wait_until: &(dyn Fn(Instant) + Sync),
) -> io::Result<Vec<Phase>> {
    let time = options.time.unwrap_or(Duration::ZERO);
    let live = |_: u64| {
        let (begin, mut server) = (Instant::now(), Server::new(place, options)?);
        let mut done = Done::default();
        for (second, event) in schedule(time.as_secs().max(1)) {
            wait_until(begin + Duration::from_secs(second));
            let begin = Instant::now();
            let bytes = server.act(event)?;
            done.add(bytes, begin);
        }
        wait_until(begin + time);
        Ok(done)
    };
    Ok(vec![measure("hour", options, live, super::phase::nothing)?])
}

struct Server<'a> {
    place: &'a Path,
    log: File,
    contents: Vec<u8>,
    random: Random,
    files: Vec<String>,
    saved: usize,
}

impl<'a> Server<'a> {
    fn new(place: &'a Path, options: &RunOptions) -> io::Result<Self> {
        let mut random = Random::new(options.seed);
        let mut contents = vec![0; PHOTO_BYTES];
        random.fill(&mut contents);
        let log = File::create(place.join("log"))?;
        Ok(Self { place, log, contents, random, files: Vec::new(), saved: 0 })
    }

    /// Does it, and tells the bytes.
    fn act(&mut self, event: Event) -> io::Result<u64> {
        let number = self.files.len();
        match event {
            Event::Log => {
                self.log.write_all(&self.contents[..LINE_BYTES])?;
                self.log.sync_data()?;
                Ok(LINE_BYTES as u64)
            }
            Event::Mail => self.put(format!("mail{number}"), MAIL_BYTES, true),
            Event::Document => {
                self.saved += 1;
                self.put(format!("document{}", self.saved % DOCUMENTS), DOCUMENT_BYTES, true)
            }
            Event::Photo => self.put(format!("photo{number}"), PHOTO_BYTES, false),
            Event::Read => match self.files.last() {
                Some(_) => {
                    let recent = self.files.len().saturating_sub(8);
                    let index = recent + self.random.index(self.files.len() - recent);
                    Ok(fs::read(self.place.join(&self.files[index]))?.len() as u64)
                }
                None => Ok(0),
            },
        }
    }

    fn put(&mut self, name: String, length: usize, is_durable: bool) -> io::Result<u64> {
        let new = self.place.join("new");
        let mut file = File::create(&new)?;
        file.write_all(&self.contents[..length])?;
        if is_durable {
            file.sync_all()?;
        }
        fs::rename(&new, self.place.join(&name))?;
        self.files.push(name);
        Ok(length as u64)
    }
}

/// Waits for a moment.
pub(super) fn sleep_until(moment: Instant) {
    std::thread::sleep(moment.saturating_duration_since(Instant::now()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::options;

    #[test]
    fn an_hour_has_its_events_in_order() {
        let events = schedule(3600);
        assert!(events.is_sorted());
        let number = |event| events.iter().filter(|(_, other)| *other == event).count();
        let numbers = [Event::Log, Event::Mail, Event::Document, Event::Photo, Event::Read].map(number);
        assert_eq!(numbers, [360, 180, 60, 30, 120]);
        assert_eq!(schedule(1), [(0, Event::Log)]);
    }

    #[test]
    fn home_server_does_what_its_schedule_says_and_waits_to_the_end() {
        let scratch = tempfile::tempdir().expect("room");
        let time = Some(Duration::from_secs(300));
        let options = RunOptions { time, jobs: 1, ..options(scratch.path()) };
        let latest = std::sync::Mutex::new(Instant::now());
        let begin = Instant::now();
        let wait = |moment: Instant| *latest.lock().expect("alone") = moment;
        let phases = home(scratch.path(), &options, &wait).expect("room");
        assert_eq!(phases[0].operations, schedule(300).len() as u64);
        assert!(*latest.lock().expect("alone") >= begin + Duration::from_secs(300));
        let names = fs::read_dir(scratch.path()).expect("there").count();
        assert_eq!(names, 1 + 15 + 5 + 3, "the log, mails, documents, photos");
        assert_eq!(fs::metadata(scratch.path().join("log")).expect("there").len(), 30 * 200);
    }
}

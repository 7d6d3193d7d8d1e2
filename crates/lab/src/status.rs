//! State of a running disk, and commands to it, as text: a line for each value, a line a command.

use crate::{CutMode, CutReport};
use brindle_sim::{DriveCounts, Lateness, Load};
use std::path::PathBuf;

/// State of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Line of its model.
    pub model: String,
    /// Number of the process that serves it.
    pub process: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// The loop device that was attached.
    pub loop_device: Option<PathBuf>,
    /// True unless the power is cut.
    pub is_on: bool,
    /// True if the platters stand still.
    pub is_asleep: bool,
    /// Requests without an answer.
    pub in_flight: u64,
    /// Writes that a cut could take.
    pub unflushed_writes: u64,
    /// Bytes of these.
    pub unflushed_bytes: u64,
    /// Counts of the drive.
    pub counts: DriveCounts,
    /// Load of the drive.
    pub load: Load,
    /// Lateness of its answers.
    pub lateness: Lateness,
    /// The last power cut.
    pub cut: Option<Cut>,
}

/// A power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The way in which it took writes.
    pub mode: CutMode,
    /// Its seed.
    pub seed: u64,
    /// Its consequences.
    pub report: CutReport,
}

/// A command to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Sets all counts to 0.
    Reset,
    /// Cuts the power, with a seed.
    Cut(CutMode, u64),
    /// Turns it on.
    Restore,
    /// Begins to note times and places of requests anew.
    Observe,
}

/// A number of a status.
type Number = fn(&mut Status) -> &mut u64;

/// Numbers, by their names.
const NUMBERS: [(&str, Number); 23] = [
    ("process", |status| &mut status.process),
    ("size", |status| &mut status.size_bytes),
    ("in_flight", |status| &mut status.in_flight),
    ("unflushed_writes", |status| &mut status.unflushed_writes),
    ("unflushed_bytes", |status| &mut status.unflushed_bytes),
    ("reads", |status| &mut status.counts.reads),
    ("read_bytes", |status| &mut status.counts.read_bytes),
    ("writes", |status| &mut status.counts.writes),
    ("written_bytes", |status| &mut status.counts.written_bytes),
    ("flushes", |status| &mut status.counts.flushes),
    ("discards", |status| &mut status.counts.discards),
    ("discarded_bytes", |status| &mut status.counts.discarded_bytes),
    ("seeks", |status| &mut status.counts.seeks),
    ("wake_ups", |status| &mut status.counts.wake_ups),
    ("bands", |status| &mut status.counts.bands),
    ("elapsed_ns", |status| &mut status.load.elapsed_ns),
    ("busy_ns", |status| &mut status.load.busy_ns),
    ("queued_ns", |status| &mut status.load.queued_ns),
    ("in_flight_max", |status| &mut status.load.most),
    ("answers", |status| &mut status.lateness.answers),
    ("late_answers", |status| &mut status.lateness.late),
    ("lateness_total_ns", |status| &mut status.lateness.total_ns),
    ("lateness_max_ns", |status| &mut status.lateness.max_ns),
];

impl Status {
    fn empty() -> Self {
        Self {
            model: String::new(),
            process: 0,
            size_bytes: 0,
            loop_device: None,
            is_on: false,
            is_asleep: false,
            in_flight: 0,
            unflushed_writes: 0,
            unflushed_bytes: 0,
            counts: DriveCounts::default(),
            load: Load::default(),
            lateness: Lateness::default(),
            cut: None,
        }
    }

    /// Its lines.
    pub fn to_text(&self) -> String {
        let mut text = format!("model {}\npower {}\nasleep {}\n", self.model, self.is_on, self.is_asleep);
        if let Some(device) = &self.loop_device {
            text.push_str(&format!("loop {}\n", device.display()));
        }
        if let Some(Cut { mode, seed, report: CutReport { kept, lost, torn } }) = self.cut {
            text.push_str(&format!("cut {} {seed} {kept} {lost} {torn}\n", mode.name()));
        }
        let mut copy = self.clone();
        for (name, number) in NUMBERS {
            text.push_str(&format!("{name} {}\n", number(&mut copy)));
        }
        text
    }

    /// Reads its lines.
    ///
    /// # Errors
    /// The line that is not understood.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut status = Self::empty();
        for line in text.lines() {
            status.parse_line(line).ok_or_else(|| line.to_owned())?;
        }
        Ok(status)
    }

    fn parse_line(&mut self, line: &str) -> Option<()> {
        let (name, value) = line.split_once(' ')?;
        match name {
            "model" => self.model = value.to_owned(),
            "power" => self.is_on = value.parse().ok()?,
            "asleep" => self.is_asleep = value.parse().ok()?,
            "loop" => self.loop_device = Some(value.into()),
            "cut" => {
                let mut words = value.split(' ');
                let mode = words.next()?.parse().ok()?;
                let mut number = || words.next()?.parse().ok();
                let seed = number()?;
                let report = CutReport { kept: number()?, lost: number()?, torn: number()? };
                self.cut = Some(Cut { mode, seed, report });
            }
            name => {
                let (_, number) = NUMBERS.iter().find(|(known, _)| *known == name)?;
                *number(self) = value.parse().ok()?;
            }
        }
        Some(())
    }
}

impl Command {
    /// Its line.
    pub fn to_line(self) -> String {
        match self {
            Self::Reset => "reset\n".to_owned(),
            Self::Cut(mode, seed) => format!("cut {} {seed}\n", mode.name()),
            Self::Restore => "restore\n".to_owned(),
            Self::Observe => "observe\n".to_owned(),
        }
    }

    /// Reads its line.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?.trim_end_matches('\n');
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["reset"] => Some(Self::Reset),
            ["cut", mode, seed] => Some(Self::Cut(mode.parse().ok()?, seed.parse().ok()?)),
            ["restore"] => Some(Self::Restore),
            ["observe"] => Some(Self::Observe),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_read_as_it_was_written() {
        let mut status = Status { model: "hdd,rpm=5400".to_owned(), is_on: true, ..Status::empty() };
        assert_eq!(Status::parse(&status.to_text()), Ok(status.clone()));
        for (value, (_, number)) in (1..).zip(NUMBERS) {
            *number(&mut status) = value;
        }
        status.is_asleep = true;
        status.loop_device = Some("/dev/loop7".into());
        let report = CutReport { kept: 1, lost: 2, torn: 3 };
        status.cut = Some(Cut { mode: CutMode::Torn, seed: 9, report });
        assert_eq!(Status::parse(&status.to_text()), Ok(status));
        for line in ["novelty 1", "power maybe", "reads", "cut torn 1 2", "cut half 1 2 3 4"] {
            assert_eq!(Status::parse(line), Err(line.to_owned()));
        }
    }

    #[test]
    fn command_is_read_as_it_was_written() {
        let cuts = CutMode::ALL.map(|(mode, _)| Command::Cut(mode, u64::MAX));
        for command in cuts.into_iter().chain([Command::Reset, Command::Restore, Command::Observe]) {
            assert_eq!(Command::parse(command.to_line().as_bytes()), Some(command));
        }
        for line in ["", "cut", "cut lost", "cut lost -1", "cut lost 1 2", "reset now", "\u{ff}"] {
            assert_eq!(Command::parse(line.as_bytes()), None, "{line}");
        }
    }
}

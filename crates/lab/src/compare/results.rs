//! Results of a comparison: a file of JSON lines, of which the first tells the plan and the machine, and each other one a step.
//! A line is written when its step has ended, so a comparison that was interrupted goes on where it was.

use super::plan::{Plan, Step};
use super::{CompareError, DiskKind};
use crate::RunRecord;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

/// The first line: what was compared, and on which machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Name of the plan.
    pub plan: String,
    /// Rounds.
    pub rounds: u64,
    /// Seed of contents and places.
    pub seed: u64,
    /// Works, each with the command that does the same.
    pub works: BTreeMap<String, String>,
    /// Model lines of the disks, and their sizes in bytes.
    pub disks: BTreeMap<String, (String, u64)>,
    /// Version of brindle.
    pub version: String,
    /// Commit of its sources, if it is known.
    pub commit: Option<String>,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Processors of the machine.
    pub processors: u64,
    /// Its memory, in bytes.
    pub memory_bytes: u64,
}

/// A step that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Name of its work.
    pub work: String,
    /// Name of its configuration.
    pub configuration: String,
    /// Its round.
    pub round: u64,
    /// Seconds since 1970 when it began.
    pub began: u64,
    /// Its time with all preparations and checks, in nanoseconds.
    pub elapsed_ns: u64,
    /// Load of the machine when it ended: processes that ran or waited for a disk, the average of a minute.
    pub load: f64,
    /// Programs that were run.
    pub commands: Vec<String>,
    /// Output of the run.
    pub run: Option<RunRecord>,
    /// Checks of the filesystem after it.
    pub checks: Vec<CheckRecord>,
    /// The error that ended it.
    pub error: Option<String>,
}

/// A check of a filesystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckRecord {
    /// The program.
    pub command: String,
    /// True if nothing is wrong.
    pub passed: bool,
    /// The end of what it said.
    pub output: String,
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line {
    Plan(Head),
    Step(StepRecord),
}

impl StepRecord {
    /// Returns true if its figures count: it ran to its end, and every check has passed.
    pub fn is_valid(&self) -> bool {
        self.error.is_none() && self.run.is_some() && self.checks.iter().all(|check| check.passed)
    }

    /// Returns true if it need not be done again: it ran, whatever the checks said.
    pub fn is_done(&self) -> bool {
        self.error.is_none() && self.run.is_some()
    }

    /// Returns true if it is this step.
    pub fn is_of(&self, step: &Step<'_>) -> bool {
        self.work == step.work.name
            && self.configuration == step.configuration.name
            && self.round == step.round
    }
}

impl Head {
    /// Returns true if steps of both can be compared: the same work on the same disks by the same program.
    fn continues(&self, other: &Self) -> bool {
        let is_same_work =
            |(name, words): (&String, &String)| other.works.get(name).is_none_or(|known| known == words);
        self.plan == other.plan
            && self.seed == other.seed
            && self.disks == other.disks
            && (&self.version, &self.commit, &self.kernel) == (&other.version, &other.commit, &other.kernel)
            && self.works.iter().all(is_same_work)
    }

    /// Model line of a disk.
    pub fn model(&self, kind: DiskKind) -> &str {
        self.disks.get(kind.name()).map_or("", |(model, _)| model)
    }
}

/// Results that were read.
#[derive(Clone, Debug)]
pub struct Results {
    /// The plan and the machine.
    pub head: Head,
    /// Steps in the order in which they ended.
    pub steps: Vec<StepRecord>,
}

impl Results {
    /// Reads results. A last line that is not whole is left out.
    ///
    /// # Errors
    /// [`CompareError::Line`] for a file of something else; those of the host.
    pub fn read(path: &Path) -> Result<Self, CompareError> {
        let bytes = std::fs::read(path).map_err(|source| CompareError::results(path, source))?;
        Self::parse(path, &bytes[..whole_lines(&bytes)])
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<Self, CompareError> {
        let wrong = |number: usize, why: String| CompareError::Line { path: path.to_owned(), number, why };
        let mut head = None;
        let mut steps = Vec::new();
        for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
            if line.is_empty() {
                continue;
            }
            let line = serde_json::from_slice(line).map_err(|error| wrong(number, error.to_string()))?;
            match (line, &head) {
                (Line::Plan(first), None) => head = Some(first),
                (Line::Step(step), Some(_)) => steps.push(step),
                (Line::Plan(_), Some(_)) => return Err(wrong(number, "a second plan".to_owned())),
                (Line::Step(_), None) => return Err(wrong(number, "a step without a plan".to_owned())),
            }
        }
        let head = head.ok_or_else(|| wrong(1, "no plan".to_owned()))?;
        Ok(Self { head, steps })
    }

    /// The last record of each step that is done.
    pub fn done(&self) -> impl Iterator<Item = &StepRecord> {
        let is_last = |(index, step): &(usize, &StepRecord)| {
            let same = |other: &StepRecord| {
                (&other.work, &other.configuration, other.round)
                    == (&step.work, &step.configuration, step.round)
            };
            !self.steps[index + 1..].iter().any(|other| other.is_done() && same(other))
        };
        self.steps.iter().enumerate().filter(|(_, step)| step.is_done()).filter(is_last).map(|(_, step)| step)
    }
}

/// Length of the whole lines at the beginning.
fn whole_lines(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1)
}

/// The file of results, while it grows.
#[derive(Debug)]
pub(super) struct ResultsFile {
    file: File,
    pub(super) results: Results,
}

impl ResultsFile {
    /// Begins a file, or goes on with one of the same plan.
    pub(super) fn open(path: &Path, head: &Head) -> Result<Self, CompareError> {
        let failed = |source| CompareError::results(path, source);
        let found = Self::read(path, head)?;
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        let Some((results, whole)) = found else {
            file.set_len(0).map_err(failed)?;
            let mut results = Self { file, results: Results { head: head.clone(), steps: Vec::new() } };
            results.append(&Line::Plan(head.clone())).map_err(failed)?;
            return Ok(results);
        };
        file.set_len(whole as u64).map_err(failed)?;
        Ok(Self { file, results })
    }

    /// Results of a file and the length of its whole lines, in bytes; none of a file that is yet to be begun.
    pub(super) fn read(path: &Path, head: &Head) -> Result<Option<(Results, usize)>, CompareError> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(CompareError::results(path, error)),
        };
        let whole = whole_lines(&bytes);
        if whole == 0 {
            if !bytes.is_empty() && serde_json::from_slice::<serde_json::Value>(&bytes).is_ok() {
                return Err(CompareError::Line {
                    path: path.to_owned(),
                    number: 1,
                    why: "no plan".to_owned(),
                });
            }
            return Ok(None);
        }
        let results = Results::parse(path, &bytes[..whole])?;
        if !head.continues(&results.head) {
            return Err(CompareError::OtherPlan(path.to_owned()));
        }
        Ok(Some((results, whole)))
    }

    fn append(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_string(line).map_err(io::Error::other)?;
        text.push('\n');
        self.file.write_all(text.as_bytes())?;
        self.file.sync_data()
    }

    /// Adds a step, durably.
    pub(super) fn add(&mut self, path: &Path, step: &StepRecord) -> Result<(), CompareError> {
        self.append(&Line::Step(step.clone())).map_err(|source| CompareError::results(path, source))?;
        self.results.steps.push(step.clone());
        Ok(())
    }

    /// Steps of a plan that are not done yet.
    pub(super) fn left<'a>(&self, plan: &'a Plan) -> Vec<Step<'a>> {
        let is_left =
            |step: &Step<'_>| !self.results.steps.iter().any(|done| done.is_done() && done.is_of(step));
        plan.steps().into_iter().filter(is_left).collect()
    }

    /// Time that the steps will take: that of the same work on the same configuration before, else the mean of the same
    /// work, else of all. None before the first step has ended.
    pub(super) fn time_left(&self, left: &[Step<'_>]) -> Option<Duration> {
        let mean = |is: &dyn Fn(&StepRecord) -> bool| {
            let times: Vec<_> = self
                .results
                .steps
                .iter()
                .filter(|step| step.is_done() && is(step))
                .map(|step| step.elapsed_ns)
                .collect();
            let sum: u64 = times.iter().sum();
            sum.checked_div(times.len() as u64)
        };
        let all = mean(&|_| true)?;
        let of = |step: &Step<'_>| {
            let same = |done: &StepRecord| done.work == step.work.name;
            mean(&|done| same(done) && done.configuration == step.configuration.name)
                .or_else(|| mean(&same))
                .unwrap_or(all)
        };
        Some(Duration::from_nanos(left.iter().map(of).sum()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::{head, step};

    fn file(path: &Path, plan: &Plan) -> Result<ResultsFile, CompareError> {
        ResultsFile::open(path, &head(plan))
    }

    #[test]
    fn comparison_goes_on_where_it_was_interrupted() {
        let scratch = tempfile::tempdir().expect("room");
        let path = scratch.path().join("results");
        let plan = Plan::find("smoke").expect("a plan");
        let all = plan.steps();
        let mut results = file(&path, &plan).expect("room");
        assert_eq!(results.left(&plan).len(), all.len());
        assert_eq!(results.time_left(&all), None);
        for done in &all[..3] {
            results.add(&path, &step(done, 2.0)).expect("room");
        }
        let failed = StepRecord { error: Some("no room".to_owned()), run: None, ..step(&all[3], 1.0) };
        results.add(&path, &failed).expect("room");
        drop(results);
        // The machine stopped within a line.
        let mut torn = OpenOptions::new().append(true).open(&path).expect("there");
        torn.write_all(b"{\"kind\":\"step\",\"work\":\"upg").expect("room");
        let mut results = file(&path, &plan).expect("the same plan");
        let left: Vec<_> = results.left(&plan);
        assert_eq!(left.len(), all.len() - 3, "a step that failed is done again");
        assert!(failed.is_of(&left[0]));
        results.add(&path, &step(&all[3], 4.0)).expect("room");
        drop(results);
        let results = Results::read(&path).expect("whole");
        assert_eq!((results.steps.len(), results.done().count()), (5, 4));
    }

    #[test]
    fn results_of_another_plan_or_program_are_not_continued() {
        let scratch = tempfile::tempdir().expect("room");
        let path = scratch.path().join("results");
        let plan = Plan::find("smoke").expect("a plan");
        drop(file(&path, &plan).expect("room"));
        let mut more = plan.clone();
        more.rounds = 9;
        file(&path, &more).expect("further rounds are welcome");
        let other = Head { commit: Some("feed".to_owned()), ..head(&plan) };
        let error = ResultsFile::open(&path, &other).expect_err("another program");
        assert!(matches!(error, CompareError::OtherPlan(_)), "{error}");
        let quick = Plan::find("quick").expect("a plan");
        assert!(matches!(file(&path, &quick), Err(CompareError::OtherPlan(_))));
        std::fs::write(&path, "a letter\n").expect("room");
        let error = file(&path, &plan).expect_err("something else").to_string();
        assert!(error.contains("line 1"), "{error}");
        assert_eq!(std::fs::read(&path).expect("there"), b"a letter\n");
    }

    #[test]
    fn a_failed_check_voids_a_figure_and_is_not_done_again() {
        let plan = Plan::find("smoke").expect("a plan");
        let mut record = step(&plan.steps()[0], 1.0);
        assert!(record.is_valid() && record.is_done());
        let output = "1 error".to_owned();
        record.checks.push(CheckRecord { command: "e2fsck".to_owned(), passed: false, output });
        assert!(!record.is_valid() && record.is_done());
    }

    #[test]
    fn time_left_is_that_of_the_same_work_before() {
        let scratch = tempfile::tempdir().expect("room");
        let path = scratch.path().join("results");
        let plan = Plan::find("smoke").expect("a plan");
        let all = plan.steps();
        let mut results = file(&path, &plan).expect("room");
        results.add(&path, &step(&all[0], 8.0)).expect("room");
        results.add(&path, &step(&all[1], 2.0)).expect("room");
        let seconds = |steps: &[Step<'_>]| results.time_left(steps).expect("known").as_secs_f64();
        assert_eq!(seconds(&all[..1]), 8.0, "it was done before");
        assert_eq!(seconds(&all[2..3]), 5.0, "the mean of its work");
        assert_eq!(seconds(&[all[0], all[2], all[14]]), 18.0);
    }
}

//! Model and target, side by side.

use super::hoist::hoist;
use super::{Generator, Mix, Operation, Target, compare, shrink};
use crate::model::{Errno, Model};
use std::fmt::Write;

/// A run of random operations on a model and a target at once.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Seed of the operations.
    pub seed: u64,
    /// Number of operations.
    pub operations: usize,
    /// Their kinds.
    pub mix: Mix,
    /// After how many of them the trees are compared; they are at the end in any case, and after each remount.
    pub compare_every: usize,
}

/// First difference between model and target.
#[derive(Clone, Debug)]
pub struct Disagreement {
    /// Number of operations before it.
    pub step: usize,
    /// The kind of operation that was answered otherwise, and the answers; `None` if it was the tree that differed.
    pub kind: Option<String>,
    /// Behaviour of the target.
    pub what: String,
}

/// Number of attempts to reproduce a failure with fewer operations.
const SHRINK_BUDGET: usize = 2000;

impl Trial {
    /// A trial of this seed, or of the one in the environment's `BRINDLE_SEED`.
    #[must_use]
    pub fn new(seed: u64, operations: usize, mix: Mix) -> Self {
        let seed = std::env::var("BRINDLE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(seed);
        Self { seed, operations, mix, compare_every: 25 }
    }

    /// Does the trial on a new target.
    ///
    /// # Panics
    /// If model and target disagree, with the fewest operations that still show it.
    pub fn run<T: Target>(&self, mut new_target: impl FnMut() -> T) {
        let mut operations = Vec::new();
        let mut generator = Generator::new(self.seed, self.mix.clone());
        let mut side = Side::new(new_target(), self.compare_every);
        let mut disagreement = None;
        for _ in 0..self.operations {
            let operation = generator.next(&side.model);
            operations.push(operation.clone());
            disagreement = side.step(&operation).err();
            if disagreement.is_some() {
                break;
            }
        }
        if let Some(first) = disagreement.or_else(|| side.end().err()) {
            // Another disagreement is not this one with fewer operations.
            let mut fails = |some: &[Operation]| {
                replay(some, new_target(), 0).is_err_and(|other| other.kind == first.kind)
            };
            let fewest = shrink(&operations, SHRINK_BUDGET, &mut fails);
            let fewest = hoist(fewest, SHRINK_BUDGET, &mut fails);
            let fewest = shrink(&fewest, SHRINK_BUDGET, &mut fails);
            let last = replay(&fewest, new_target(), 0).err().map_or(first.what, |last| last.what);
            panic!("{}", self.message(&fewest, &last));
        }
    }

    fn message(&self, fewest: &[Operation], what: &str) -> String {
        let mut text = format!("BRINDLE_SEED={}: after {} operations: {what}\n", self.seed, fewest.len());
        for operation in fewest {
            let _ = writeln!(text, "    {operation:?},");
        }
        text
    }
}

/// Does these operations on a model and a target, and compares the trees after each `compare_every` of them.
pub fn replay<T: Target>(
    operations: &[Operation],
    target: T,
    compare_every: usize,
) -> Result<(), Disagreement> {
    let mut side = Side::new(target, compare_every);
    operations.iter().try_for_each(|operation| side.step(operation))?;
    side.end()
}

/// A model and a target that went through the same.
struct Side<T> {
    model: Model,
    target: T,
    step: usize,
    compare_every: usize,
}

impl<T: Target> Side<T> {
    fn new(target: T, compare_every: usize) -> Self {
        Self { model: Model::new(), target, step: 0, compare_every }
    }

    fn step(&mut self, operation: &Operation) -> Result<(), Disagreement> {
        self.step += 1;
        let disagree = |what: String| {
            let (operation, answers) = what.rsplit_once(" gave ").unwrap_or((&what, ""));
            let name = operation.split(' ').next().unwrap_or_default();
            Disagreement { step: self.step, kind: Some(format!("{name}: {answers}")), what }
        };
        let _ = apply_both(&mut self.model, &mut self.target, operation).map_err(disagree)?;
        let is_due = self.compare_every > 0 && self.step % self.compare_every == 0;
        if is_due || *operation == Operation::Remount { self.end() } else { Ok(()) }
    }

    fn end(&mut self) -> Result<(), Disagreement> {
        compare(&self.model, &mut self.target).map_err(|what| Disagreement {
            step: self.step,
            kind: None,
            what,
        })
    }
}

/// Does one operation on both, which must answer the same; says how the target answered.
pub fn apply_both(
    model: &mut Model,
    target: &mut impl Target,
    operation: &Operation,
) -> Result<Result<(), Errno>, String> {
    let before = target.may_be_full().then(|| model.clone());
    let expected = model.apply(operation);
    let answer = target.apply(operation);
    if let (Some(before), Err(Errno::NoSpace)) = (before, answer) {
        *model = before;
        if let (true, Some(path)) = (operation.changes_contents(), operation.path()) {
            if let Some(bytes) = target.contents(path) {
                // A file that can't be written any more was not written either.
                let _ = model.adopt(path, &bytes);
            }
        }
        return Ok(answer);
    }
    if answer == expected || (answer == Err(Errno::Unknown) && expected.is_err()) {
        return Ok(answer);
    }
    let words =
        |result: Result<(), Errno>| result.map_or_else(|errno| errno.to_string(), |()| "success".to_owned());
    Err(format!("{operation:?} gave {} instead of {}", words(answer), words(expected)))
}

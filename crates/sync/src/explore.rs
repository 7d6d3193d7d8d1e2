//! Runs of a scenario under many schedules.
//!
//! A schedule that fails is printed as text; the same test with it in `BRINDLE_REPLAY` goes through it again.
//! `BRINDLE_SCHEDULES` is the number of schedules of each kind.

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Stack of each task, in bytes: what is called is no small test.
const STACK_BYTES: usize = 4 << 20;
/// Preemptions that a schedule of the second kind has at the most.
const PREEMPTIONS: usize = 3;
/// Seed of all schedules.
const SEED: u64 = 0x0062_7269_6e64_6c65;

/// Runs `scenario` under `schedules` random schedules, and under as many with few preemptions at random places, which
/// find the errors that random ones hide: a thread that is held up for long. Panics with the first that fails.
pub fn explore(schedules: usize, scenario: impl Fn() + Send + Sync + 'static) {
    let scenario = Arc::new(scenario);
    if let Ok(schedule) = env::var("BRINDLE_REPLAY") {
        return shuttle::replay(move || scenario(), &schedule);
    }
    let wanted = env::var("BRINDLE_SCHEDULES").ok().and_then(|number| number.parse().ok());
    let schedules = wanted.unwrap_or(schedules);
    run("random", RandomScheduler::new_from_seed(SEED, schedules), &scenario);
    run("few preemptions", PctScheduler::new_from_seed(SEED, PREEMPTIONS, schedules), &scenario);
}

/// Runs what a scenario begins with, once.
pub fn once<T: Send + 'static>(act: impl Fn() -> T + Send + Sync + 'static) -> T {
    let made = Arc::new(std::sync::Mutex::new(None));
    let keep = Arc::clone(&made);
    let only = RandomScheduler::new_from_seed(SEED, 1);
    Runner::new(only, config()).run(move || *keep.lock().expect("one thread") = Some(act()));
    made.lock().expect("it has ended").take().expect("it has run")
}

fn run<F: Fn() + Send + Sync + 'static>(kind: &str, scheduler: impl Scheduler + 'static, scenario: &Arc<F>) {
    let (begun, scenario) = (Arc::new(AtomicUsize::new(0)), Arc::clone(scenario));
    let count = Arc::clone(&begun);
    let counted = move || {
        count.fetch_add(1, Ordering::Relaxed);
        scenario();
    };
    let runner = Runner::new(scheduler, config());
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| runner.run(counted))) {
        eprintln!("schedule {} ({kind}) fails", begun.load(Ordering::Relaxed));
        resume_unwind(panic);
    }
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::Print;
    // What the process keeps ends with each exploration; no destructor of it matters.
    config.silence_warnings = true;
    config
}

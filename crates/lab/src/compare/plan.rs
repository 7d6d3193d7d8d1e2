//! Plans: works on configurations, in rounds.

use super::{Configuration, DiskKind};
use crate::{RunOptions, Suite};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A suite with its sizes, on some configurations.
#[derive(Clone, Debug)]
pub struct Work {
    /// Name.
    pub name: &'static str,
    /// The suite.
    pub suite: Suite,
    /// Operations of each job.
    pub count: Option<u64>,
    /// Jobs that run side by side.
    pub jobs: Option<u64>,
    /// Size of the large file, in bytes.
    pub file_bytes: Option<u64>,
    /// Time after which a phase ends, in seconds.
    pub seconds: Option<u64>,
    /// True if files of packages are synced.
    pub syncs: bool,
    /// True if the file that was overwritten is defragmented, and read again.
    pub defragments: bool,
    /// Directory of packages for dpkg.
    pub packages: Option<PathBuf>,
    /// Its configurations.
    pub configurations: Vec<&'static Configuration>,
}

/// A plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name.
    pub name: &'static str,
    /// Rounds, in each of which every work is done once on each of its configurations.
    pub rounds: u64,
    /// Size of a hard disk, in bytes.
    pub hdd_bytes: u64,
    /// Size of an SSD, in bytes.
    pub ssd_bytes: u64,
    /// The works.
    pub works: Vec<Work>,
}

/// A work on a configuration, once.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The work.
    pub work: &'a Work,
    /// The configuration.
    pub configuration: &'static Configuration,
    /// The round, from 1 on.
    pub round: u64,
}

/// On one disk, on both, and on a disk with a cache.
const ONE_AND_BOTH: [&str; 17] = [
    "ext4-hdd",
    "xfs-hdd",
    "btrfs-hdd",
    "brindle-hdd",
    "ext4-ssd",
    "xfs-ssd",
    "btrfs-ssd",
    "brindle-ssd",
    "btrfs-ssd+hdd",
    "brindle-ssd+hdd-off",
    "brindle-ssd+hdd-sync",
    "brindle-ssd+hdd-all",
    "brindle-ssd+hdd-small",
    "ext4-cache",
    "xfs-cache",
    "btrfs-cache",
    "brindle-cache",
];
/// A few of them.
const FEW: [&str; 10] = [
    "ext4-hdd",
    "btrfs-hdd",
    "brindle-hdd",
    "btrfs-ssd",
    "brindle-ssd",
    "btrfs-ssd+hdd",
    "brindle-ssd+hdd-sync",
    "brindle-ssd+hdd-small",
    "ext4-cache",
    "brindle-cache",
];
/// Those of btrfs on which a file that was torn is read from a hard disk.
const TORN: [&str; 4] = ["btrfs-hdd", "brindle-hdd", "btrfs-ssd+hdd", "brindle-ssd+hdd-off"];
/// Three copies.
const COPIES: [&str; 4] = ["btrfs-3hdd", "brindle-3hdd", "btrfs-ssd+2hdd", "brindle-ssd+2hdd"];
/// One of each kind.
const SMOKE: [&str; 7] = [
    "ext4-ssd",
    "xfs-ssd",
    "btrfs-ssd",
    "btrfs-ssd+hdd",
    "brindle-ssd+hdd-sync",
    "ext4-cache",
    "brindle-cache",
];

fn work(name: &'static str, suite: Suite, configurations: &[&str]) -> Work {
    let configurations = configurations.iter().filter_map(|name| Configuration::find(name)).collect();
    Work {
        name,
        suite,
        count: None,
        jobs: None,
        file_bytes: None,
        seconds: None,
        syncs: true,
        defragments: false,
        packages: None,
        configurations,
    }
}

impl Work {
    fn count(self, count: u64) -> Self {
        Self { count: Some(count), ..self }
    }

    fn jobs(self, jobs: u64) -> Self {
        Self { jobs: Some(jobs), ..self }
    }

    fn mebibytes(self, mebibytes: u64) -> Self {
        Self { file_bytes: Some(mebibytes << 20), ..self }
    }

    fn seconds(self, seconds: u64) -> Self {
        Self { seconds: Some(seconds), ..self }
    }

    fn without_syncs(self) -> Self {
        Self { syncs: false, ..self }
    }

    fn defragmented(self) -> Self {
        Self { defragments: true, ..self }
    }

    /// Options of its run.
    pub fn options(&self, directory: PathBuf, seed: u64) -> RunOptions {
        let defaults = RunOptions::of(self.suite, directory);
        RunOptions {
            count: self.count.unwrap_or(defaults.count),
            jobs: self.jobs.unwrap_or(defaults.jobs),
            file_bytes: self.file_bytes.unwrap_or(defaults.file_bytes),
            time: self.seconds.map(Duration::from_secs).or(defaults.time),
            syncs: self.syncs,
            packages: self.packages.clone(),
            seed,
            ..defaults
        }
    }

    /// The words of `brindle lab run` that do the same.
    pub fn words(&self, seed: u64) -> String {
        let mut words = format!("brindle lab run {} --seed {seed}", self.suite);
        let numbers = [
            ("count", self.count),
            ("jobs", self.jobs),
            ("size", self.file_bytes),
            ("seconds", self.seconds),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                words.push_str(&format!(" --{name} {number}"));
            }
        }
        if !self.syncs {
            words.push_str(" --no-sync");
        }
        if self.defragments {
            words.push_str(" --defragment");
        }
        if let Some(packages) = &self.packages {
            words.push_str(&format!(" --packages {}", packages.display()));
        }
        words + " --drop-caches --keep"
    }
}

impl Plan {
    /// All plans.
    pub fn all() -> [Self; 3] {
        [Self::smoke(), Self::quick(), Self::full()]
    }

    /// The plan of a name.
    pub fn find(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|plan| plan.name == name)
    }

    /// Everything once, as small as can be: shows that all programs are there, and that nothing is wrong.
    fn smoke() -> Self {
        let works = vec![
            work("upgrade", Suite::Upgrade, &SMOKE).count(2),
            work("untar", Suite::Untar, &SMOKE).count(60),
            work("dpkg", Suite::Dpkg, &SMOKE).count(2),
            work("pgbench", Suite::Pgbench, &["ext4-ssd", "brindle-ssd+hdd-sync"])
                .count(4)
                .jobs(2)
                .mebibytes(16),
            work("rados", Suite::Rados, &["xfs-ssd", "brindle-ssd+hdd-sync"]).jobs(2).seconds(1),
            work("overwrites", Suite::Overwrites, &SMOKE).count(64).mebibytes(2),
            work("defragment", Suite::Overwrites, &["btrfs-ssd", "brindle-ssd+hdd-sync"])
                .count(64)
                .mebibytes(2)
                .defragmented(),
        ];
        Self { name: "smoke", rounds: 1, hdd_bytes: 4 << 30, ssd_bytes: 1 << 30, works }
    }

    /// Under five minutes.
    fn quick() -> Self {
        let works = vec![
            work("upgrade", Suite::Upgrade, &FEW).count(4),
            work("untar", Suite::Untar, &FEW).count(800),
            work("overwrites", Suite::Overwrites, &FEW).count(400).mebibytes(24),
        ];
        Self { name: "quick", rounds: 2, hdd_bytes: 16 << 30, ssd_bytes: 4 << 30, works }
    }

    /// All published experiments; the disks are as large as the published ones.
    fn full() -> Self {
        let works = vec![
            work("upgrade", Suite::Upgrade, &ONE_AND_BOTH).count(60),
            work("upgrade-nosync", Suite::Upgrade, &ONE_AND_BOTH).count(60).without_syncs(),
            work("dpkg", Suite::Dpkg, &ONE_AND_BOTH).count(60),
            work("dpkg-nosync", Suite::Dpkg, &ONE_AND_BOTH).count(60).without_syncs(),
            work("pgbench", Suite::Pgbench, &ONE_AND_BOTH).count(250).jobs(8).mebibytes(256),
            work("untar", Suite::Untar, &ONE_AND_BOTH).count(20_000),
            work("walk", Suite::Walk, &ONE_AND_BOTH).count(20_000),
            work("files", Suite::Files, &ONE_AND_BOTH).count(50_000),
            work("mail", Suite::Mail, &ONE_AND_BOTH).count(400),
            work("mail-8", Suite::Mail, &ONE_AND_BOTH).count(100).jobs(8),
            work("threads", Suite::Threads, &ONE_AND_BOTH).count(200).seconds(60),
            work("overwrites", Suite::Overwrites, &ONE_AND_BOTH).count(8_000).mebibytes(512),
            work("objects-1", Suite::Objects, &ONE_AND_BOTH).count(300),
            work("objects-4", Suite::Objects, &ONE_AND_BOTH).count(150).jobs(4),
            work("objects-16", Suite::Objects, &ONE_AND_BOTH).count(75).jobs(16),
            work("rados-1", Suite::Rados, &ONE_AND_BOTH).jobs(1).seconds(10),
            work("rados-4", Suite::Rados, &ONE_AND_BOTH).jobs(4).seconds(10),
            work("rados-16", Suite::Rados, &ONE_AND_BOTH).jobs(16).seconds(10),
            work("reads-1", Suite::Reads, &COPIES).count(400).mebibytes(1024),
            work("reads-8", Suite::Reads, &COPIES).count(100).jobs(8).mebibytes(1024),
            work("home", Suite::Home, &ONE_AND_BOTH).seconds(120),
            work("cases", Suite::Cases, &ONE_AND_BOTH).count(1000).seconds(5).mebibytes(128),
            work("defragment", Suite::Overwrites, &TORN).count(8_000).mebibytes(512).defragmented(),
        ];
        Self { name: "full", rounds: 5, hdd_bytes: 230 << 30, ssd_bytes: 20 << 30, works }
    }

    /// Size of a disk, in bytes.
    pub fn disk_bytes(&self, kind: DiskKind) -> u64 {
        match kind {
            DiskKind::Hdd => self.hdd_bytes,
            DiskKind::Ssd => self.ssd_bytes,
        }
    }

    /// Keeps the works and configurations of these names; all where there are none.
    ///
    /// # Errors
    /// A name that the plan does not have.
    pub fn choose(&mut self, works: &[String], configurations: &[String]) -> Result<(), String> {
        let unknown = |name: &String| !self.works.iter().any(|work| work.name == name);
        if let Some(name) = works.iter().find(|name| unknown(name)) {
            let names: Vec<_> = self.works.iter().map(|work| work.name).collect();
            return Err(format!("the plan {} has no work {name}; it has {}", self.name, names.join(", ")));
        }
        let known: Vec<_> = self.configurations();
        if let Some(name) = configurations.iter().find(|name| !known.contains(&name.as_str())) {
            let known = known.join(", ");
            return Err(format!("the plan {} has no configuration {name}; it has {known}", self.name));
        }
        self.works.retain(|work| works.is_empty() || works.iter().any(|name| name == work.name));
        for work in &mut self.works {
            let is_chosen =
                |name: &str| configurations.is_empty() || configurations.iter().any(|other| other == name);
            work.configurations.retain(|configuration| is_chosen(configuration.name));
        }
        self.works.retain(|work| !work.configurations.is_empty());
        Ok(())
    }

    /// Gives dpkg the packages of a directory.
    pub fn take_packages(&mut self, directory: &Path) {
        for work in self.works.iter_mut().filter(|work| work.suite == Suite::Dpkg) {
            (work.packages, work.count) = (Some(directory.to_owned()), None);
        }
    }

    /// Names of its configurations, each once.
    pub fn configurations(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for configuration in self.works.iter().flat_map(|work| &work.configurations) {
            if !names.contains(&configuration.name) {
                names.push(configuration.name);
            }
        }
        names
    }

    /// Its steps: configurations take turns within each work, and each round begins with another one, so that whatever changes
    /// on the machine meets all alike.
    pub fn steps(&self) -> Vec<Step<'_>> {
        let mut steps = Vec::new();
        for round in 1..=self.rounds {
            for work in &self.works {
                let mut configurations = work.configurations.clone();
                let turn = usize::try_from(round - 1).unwrap_or(0) % configurations.len().max(1);
                configurations.rotate_left(turn);
                steps.extend(configurations.into_iter().map(|configuration| Step {
                    work,
                    configuration,
                    round,
                }));
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_round_does_every_work_once_on_each_of_its_configurations() {
        for plan in Plan::all() {
            let steps = plan.steps();
            let keys: BTreeSet<_> =
                steps.iter().map(|step| (step.work.name, step.configuration.name, step.round)).collect();
            let each: usize = plan.works.iter().map(|work| work.configurations.len()).sum();
            let rounds = usize::try_from(plan.rounds).expect("few");
            assert_eq!((keys.len(), steps.len()), (each * rounds, each * rounds), "{}", plan.name);
        }
        assert_eq!(FEW.map(|name| Configuration::find(name).is_some()), [true; 10]);
        assert_eq!(ONE_AND_BOTH.map(|name| Configuration::find(name).is_some()), [true; 17]);
        assert_eq!(TORN.map(|name| Configuration::find(name).is_some()), [true; 4]);
    }

    #[test]
    fn rounds_begin_with_different_configurations() {
        let plan = Plan::find("quick").expect("a plan");
        let steps = plan.steps();
        let first = |round| steps.iter().find(|step| step.round == round).map(|step| step.configuration.name);
        assert_eq!((first(1), first(2)), (Some("ext4-hdd"), Some("btrfs-hdd")));
    }

    #[test]
    fn works_and_configurations_can_be_chosen() {
        let mut plan = Plan::find("full").expect("a plan");
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        plan.choose(&words(&["untar", "reads-8"]), &words(&["ext4-ssd"])).expect("it has them");
        let steps: Vec<_> =
            plan.steps().iter().map(|step| (step.work.name, step.configuration.name)).collect();
        assert_eq!(steps, [("untar", "ext4-ssd"); 5]);
        let error = plan.choose(&words(&["walk"]), &[]).expect_err("it is gone");
        assert_eq!(error, "the plan full has no work walk; it has untar");
        let error = plan.choose(&[], &words(&["fat"])).expect_err("no such one");
        assert!(error.ends_with("no configuration fat; it has ext4-ssd"));
    }

    #[test]
    fn a_work_is_told_as_a_command() {
        let plan = Plan::find("full").expect("a plan");
        let words: Vec<_> = plan.works.iter().map(|work| work.words(7)).collect();
        let expected = "brindle lab run upgrade --seed 7 --count 60 --no-sync --drop-caches --keep";
        assert_eq!(words[1], expected);
        assert!(
            words[19].starts_with("brindle lab run reads --seed 7 --count 100 --jobs 8 --size 1073741824")
        );
        let last = words.last().expect("works");
        assert!(last.ends_with("--size 536870912 --defragment --drop-caches --keep"), "{last}");
        let mut plan = plan;
        plan.take_packages(Path::new("/debs"));
        let words = plan.works[3].words(7);
        assert_eq!(words, "brindle lab run dpkg --seed 7 --no-sync --packages /debs --drop-caches --keep");
        assert_eq!(plan.works[3].options("/mnt".into(), 7).packages, Some("/debs".into()));
    }
}

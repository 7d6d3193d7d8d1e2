//! The report of a comparison: one page of HTML that asks for nothing else, and Markdown of the same words and figures.
//!
//! [`figures`] makes medians of the rounds, [`sections`] blocks of words, tables and drawings of these; `document` and `html` write
//! the blocks. Nothing here runs anything: the same results give the same report.

mod document;
mod figures;
mod html;
mod plots;
mod published;
mod sections;

use crate::compare::Results;
use document::Block;

/// A report.
#[derive(Clone, Debug)]
pub struct Report {
    blocks: Vec<Block>,
}

impl Report {
    /// The report of some results.
    pub fn new(results: &Results) -> Self {
        let figures = figures::figures(results);
        let blocks = [
            sections::method(results),
            sections::verdicts(&figures),
            sections::published(&figures),
            sections::cases(&figures),
            sections::works(results, &figures),
        ];
        Self { blocks: blocks.concat() }
    }

    /// Markdown, without the drawings.
    pub fn to_markdown(&self) -> String {
        document::to_markdown(&self.blocks)
    }

    /// A page of HTML, with the drawings.
    pub fn to_html(&self) -> String {
        html::to_html("Filesystems on modelled disks", &self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::{head, step};
    use crate::compare::{CheckRecord, Plan, StepRecord};
    use std::path::Path;

    #[test]
    fn stored_results_give_the_stored_report() {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/report/sample");
        let results = Results::read(&data.join("results.jsonl")).expect("ours");
        let report = Report::new(&results);
        let golden = std::fs::read_to_string(data.join("report.md")).expect("ours");
        assert_eq!(report.to_markdown(), golden, "brindle lab report --markdown writes it anew");
        let html = report.to_html();
        assert!(html.contains("<svg") && html.matches("<table>").count() > 5);
    }

    fn results(plan: &Plan, steps: Vec<StepRecord>) -> Results {
        Results { head: head(plan), steps }
    }

    #[test]
    fn void_and_failed_steps_are_told_and_have_no_figures() {
        let plan = Plan::find("smoke").expect("a plan");
        let all = plan.steps();
        let mut void = step(&all[0], 2.0);
        let output = "block 7 is lost".to_owned();
        void.checks.push(CheckRecord { command: "e2fsck -fn".to_owned(), passed: false, output });
        let failed = StepRecord { run: None, error: Some("no room".to_owned()), ..step(&all[1], 1.0) };
        let text = Report::new(&results(&plan, vec![void, failed, step(&all[2], 4.0)])).to_markdown();
        assert!(
            text.contains("**Void**: upgrade on ext4-ssd, round 1; `e2fsck -fn` found: block 7 is lost"),
            "{text}"
        );
        assert!(text.contains("**Failed**: upgrade on xfs-ssd, round 1: no room"), "{text}");
        assert!(!text.contains("| ext4-ssd | 1.00") && !text.contains("All "), "{text}");
        assert!(text.contains("| btrfs-ssd | 2.00 |"), "{text}");
    }

    #[test]
    fn defragmentation_is_told_beside_the_torn_file() {
        let plan = Plan::find("smoke").expect("a plan");
        let steps = plan.steps();
        let mut torn = step(steps.iter().find(|step| step.work.defragments).expect("there is one"), 2.0);
        let run = torn.run.as_mut().expect("a run");
        let phase = run.phases[0].clone();
        run.phases =
            [("read new", 100), ("read overwritten", 40), ("defragment", 1), ("read defragmented", 90)]
                .map(|(name, mebibytes)| crate::PhaseRecord {
                    name: name.to_owned(),
                    bytes_per_second: f64::from(mebibytes << 20),
                    ..phase.clone()
                })
                .to_vec();
        let text = Report::new(&results(&plan, vec![torn])).to_markdown();
        let row = "| btrfs-ssd | 100 | 40.0 | 1.00 | 90.0 | 90 % | - / - / - |";
        assert!(text.contains(row) && !text.contains("None was done here"), "{text}");
    }

    #[test]
    fn an_empty_comparison_has_a_report() {
        let plan = Plan::find("smoke").expect("a plan");
        let text = Report::new(&results(&plan, Vec::new())).to_markdown();
        assert!(text.starts_with("# Filesystems on modelled disks\n"));
    }
}

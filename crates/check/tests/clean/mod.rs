//! Pools made by the kernel are clean.

use brindle_check::{CheckOptions, NoProgress, Report, check};
use brindle_device::Device;
use brindle_testing::golden::{Golden, names};
use std::sync::Arc;

fn examine(golden: &Golden, options: &CheckOptions) -> Report {
    let devices = golden.devices.iter().map(|device| Arc::new(device.clone()) as Arc<dyn Device>);
    check(devices.collect(), options, &NoProgress).expect("the pool opens")
}

#[test]
fn every_golden_image_is_clean() {
    let options = CheckOptions { check_data_csum: true, ..CheckOptions::default() };
    let mut wrong = Vec::new();
    for name in names() {
        let report = examine(&Golden::load(&name), &options);
        wrong.extend(report.findings().map(|(pass, finding)| format!("{name}: {pass}: {finding}")));
        let skipped = report.passes.iter().filter_map(|pass| pass.skipped.as_ref());
        let skipped = skipped.filter(|why| *why != "quotas are off");
        wrong.extend(skipped.map(|why| format!("{name}: skipped: {why}")));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

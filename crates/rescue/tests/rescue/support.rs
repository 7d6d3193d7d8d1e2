//! Damaged pools on devices in memory.

use brindle_check::{CheckOptions, NoProgress, Report, check};
use brindle_device::{Device, DeviceClass, WritableDevice};
use brindle_rescue::Patient;
use brindle_rescue::repair::{Rehearsal, rehearse};
use brindle_sim::{Image, ImageDevice};
use brindle_testing::damage::Victim;
use std::sync::Arc;

/// Contents of the devices of a pool.
pub(crate) fn images(victim: &Victim) -> Vec<Image> {
    let image = |sparse: &brindle_testing::golden::SparseImage| {
        let mut image = Image::new(sparse.size_bytes());
        for (offset, block) in sparse.blocks() {
            let left = usize::try_from(sparse.size_bytes() - offset).expect("small");
            image.write(offset, &block[..left.min(block.len())]);
        }
        image
    };
    victim.images().iter().map(image).collect()
}

/// Devices with these contents.
pub(crate) fn devices(images: &[Image]) -> Vec<Arc<ImageDevice>> {
    let device = |(number, image): (usize, &Image)| {
        Arc::new(ImageDevice::new(format!("memory{number}"), image.clone(), DeviceClass::Unknown))
    };
    images.iter().enumerate().map(device).collect()
}

pub(crate) fn writable(devices: &[Arc<ImageDevice>]) -> Vec<Arc<dyn WritableDevice>> {
    devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect()
}

/// Examines a pool, data included.
pub(crate) fn examine(devices: &[Arc<dyn WritableDevice>]) -> Report {
    let devices = devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
    check(devices, &options(), &NoProgress).expect("the pool opens")
}

pub(crate) fn options() -> CheckOptions {
    CheckOptions { check_data_csum: true, all_copies: true, ..CheckOptions::default() }
}

/// Findings as text.
pub(crate) fn findings(report: &Report) -> Vec<String> {
    report.findings().map(|(_, finding)| finding.to_string()).collect()
}

/// Rehearses a repair.
pub(crate) fn rehearsed(devices: &[Arc<dyn WritableDevice>]) -> (Patient, Rehearsal) {
    let mut patient = Patient::new(devices.to_vec()).expect("no lease");
    let rehearsal = rehearse(&mut patient, &options(), &NoProgress).unwrap_or_else(|error| panic!("{error}"));
    (patient, rehearsal)
}

/// Panics unless devices hold these contents.
pub(crate) fn assert_contents(devices: &[Arc<ImageDevice>], expected: &[Image], what: &str) {
    for (number, (device, expected)) in devices.iter().zip(expected).enumerate() {
        let difference = device.image().first_difference(expected);
        assert_eq!(difference, None, "{what}: device {number}");
    }
}

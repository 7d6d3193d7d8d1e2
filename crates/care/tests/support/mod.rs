//! Pools in memory.

pub(crate) mod files;
pub(crate) mod operations;
pub(crate) mod told;

use brindle_care::mkfs::{MkfsError, MkfsOptions, MkfsReport, NewDevice, mkfs};
use brindle_check::{CheckOptions, NoProgress, Report};
use brindle_device::{Device, DeviceClass, SparseDevice, WritableDevice};
use brindle_ondisk::Uuid;
use std::sync::Arc;

pub(crate) const FSID: Uuid = Uuid([0x5e; 16]);
pub(crate) const MIB: u64 = 1 << 20;

/// Options that always give the same pool.
pub(crate) fn options() -> MkfsOptions {
    MkfsOptions::new(FSID, [9; 16], 1_700_000_000)
}

/// A pool in memory.
pub(crate) struct MadePool {
    pub(crate) devices: Vec<Arc<SparseDevice>>,
    pub(crate) report: MkfsReport,
}

/// Devices in memory of these sizes and classes.
pub(crate) fn devices(of: &[(u64, DeviceClass)]) -> Vec<Arc<SparseDevice>> {
    let device = |(index, (size, class)): (usize, &(u64, DeviceClass))| {
        Arc::new(SparseDevice::new(format!("memory{index}"), *size, *class))
    };
    of.iter().enumerate().map(device).collect()
}

/// Input of mkfs, of devices in memory.
pub(crate) fn given(devices: &[Arc<SparseDevice>]) -> Vec<NewDevice> {
    let new = |device: &Arc<SparseDevice>| NewDevice::new(Arc::clone(device) as Arc<dyn WritableDevice>);
    devices.iter().map(new).collect()
}

impl MadePool {
    /// Makes a pool of `count` devices of 256 MiB.
    pub(crate) fn make(count: usize, options: &MkfsOptions) -> Result<Self, MkfsError> {
        Self::make_of(&vec![(256 * MIB, DeviceClass::Unknown); count], options)
    }

    /// Makes a pool of devices of these sizes and classes.
    pub(crate) fn make_of(of: &[(u64, DeviceClass)], options: &MkfsOptions) -> Result<Self, MkfsError> {
        let devices = devices(of);
        let report = mkfs(&given(&devices), options)?;
        Ok(Self { devices, report })
    }

    /// The devices, to be read.
    pub(crate) fn readable(&self) -> Vec<Arc<dyn Device>> {
        self.devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect()
    }

    /// Report of a full check, every copy of every block read.
    pub(crate) fn examine(&self) -> Report {
        examine(self.readable())
    }
}

/// Report of a full check of a pool, every copy of every block read.
pub(crate) fn examine(devices: Vec<Arc<dyn Device>>) -> Report {
    let options =
        CheckOptions { all_copies: true, check_data_csum: true, threads: Some(1), ..CheckOptions::default() };
    brindle_check::check(devices, &options, &NoProgress).expect("there is a pool to examine")
}

/// Panics with the findings, if there is any.
pub(crate) fn assert_clean(what: &str, report: &Report) {
    let findings: Vec<String> =
        report.findings().map(|(pass, finding)| format!("{pass}: {finding}")).collect();
    assert!(report.is_clean(), "{what}: {findings:#?}");
    let is_skipped = |why: &String| why != "quotas are off";
    let skipped: Vec<_> =
        report.passes.iter().filter(|pass| pass.skipped.as_ref().is_some_and(is_skipped)).collect();
    assert!(skipped.is_empty(), "{what}: not all passes ran: {skipped:?}");
}

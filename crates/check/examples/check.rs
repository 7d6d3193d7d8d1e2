//! Examines a pool and prints what each pass found: `check [--data] [--all-copies] DEVICE...`.

use brindle_check::{CheckOptions, NoProgress};
use brindle_device::{Device, FileDevice};
use std::path::Path;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = CheckOptions::default();
    let mut devices: Vec<Arc<dyn Device>> = Vec::new();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--data" => options.check_data_csum = true,
            "--all-copies" => options.all_copies = true,
            path => devices.push(Arc::new(FileDevice::open(Path::new(path))?)),
        }
    }
    let report = brindle_check::check(devices, &options, &NoProgress)?;
    for pass in &report.passes {
        let counts = pass.statistics;
        println!(
            "{:13} {:8.3} s {:8} blocks {:12} bytes {:10} items  {} errors{}",
            pass.name,
            pass.elapsed.as_secs_f64(),
            counts.blocks,
            counts.bytes,
            counts.items,
            pass.errors.count,
            pass.skipped.as_ref().map(|why| format!("  skipped: {why}")).unwrap_or_default()
        );
        for note in &pass.notes {
            println!("    note: {note}");
        }
        for finding in &pass.errors.list {
            println!("    {finding}");
        }
    }
    std::process::exit(i32::from(!report.is_clean()))
}

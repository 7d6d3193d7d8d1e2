//! Damages, each with the finding that must be among those reported.

mod extents;
mod files;
mod fuzz;
mod parity;
mod pool;
mod structure;

use brindle_check::CheckOptions;
use pool::Pool;

/// One way to break a pool.
struct Damage {
    /// Name of the damage.
    name: &'static str,
    /// The golden image that is damaged.
    image: &'static str,
    /// The damage.
    mutate: fn(&mut Pool),
    /// The pass that must report it.
    pass: &'static str,
    /// A part of what it must say.
    says: &'static str,
}

/// Breaks pools and reads what is reported; a damage in one place must not be taken for many.
fn try_out(damages: &[Damage]) {
    const MOST_FINDINGS: u64 = 40;
    let options = CheckOptions { check_data_csum: true, all_copies: true, ..CheckOptions::default() };
    let mut wrong = Vec::new();
    for damage in damages {
        println!("{}", damage.name);
        let mut pool = Pool::load(damage.image);
        (damage.mutate)(&mut pool);
        let report = pool.check(&options);
        let is_it = |(pass, finding): (&str, &brindle_check::Finding)| {
            pass == damage.pass && finding.to_string().contains(damage.says)
        };
        if !report.findings().any(is_it) || report.error_count() > MOST_FINDINGS {
            let found: Vec<String> =
                report.findings().map(|(pass, finding)| format!("    {pass}: {finding}")).collect();
            let (name, count) = (damage.name, report.error_count());
            wrong.push(format!("{name} ({}): {count} findings:\n{}", damage.image, found.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

//! A mount whose requests come by `io_uring`. The whole suite runs so with `BRINDLE_TEST_IO_URING=on`, where it is switched on.

use crate::support::{Written, can_mount, noise, run, writable_options};
use brindle_fs::WriteOptions;
use brindle_fuse::{MountOptions, RingUse};
use std::path::Path;
use std::process::Command;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// The kernel offers rings until this is dropped.
struct SwitchedOn {
    before: String,
}

impl SwitchedOn {
    /// `None` for a kernel that has no rings.
    fn new() -> Option<Self> {
        let before = std::fs::read_to_string(SWITCH).ok()?;
        std::fs::write(SWITCH, "Y").expect("root may");
        Some(Self { before })
    }
}

impl Drop for SwitchedOn {
    fn drop(&mut self) {
        std::fs::write(SWITCH, &self.before).ok();
    }
}

fn copy_directly(from: &Path, to: &Path) {
    let (from, to) = (format!("if={}", from.display()), format!("of={}", to.display()));
    run(Command::new("dd").args([&from, &to, "bs=1M", "iflag=direct", "oflag=direct"]));
}

#[test]
fn requests_by_rings_are_answered() {
    const BYTES: usize = 5 << 20;
    if !can_mount() {
        return;
    }
    let Some(_switched_on) = SwitchedOn::new() else {
        eprintln!("skipped: this kernel has no FUSE over io_uring");
        return;
    };
    let options = MountOptions { rings: RingUse::On, ..writable_options() };
    let mut ours = Written::make_with("512M", &WriteOptions::default(), &options);
    let contents = noise(BYTES, 11);
    // Pages that are written back, answers that come later (direct writes), and names from several processors at once.
    std::fs::write(ours.root().join("file"), &contents).expect("room");
    copy_directly(&ours.root().join("file"), &ours.root().join("direct"));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let directory = ours.root().join(format!("{thread}"));
            scope.spawn(move || {
                std::fs::create_dir(&directory).expect("room");
                for number in 0..100 {
                    std::fs::write(directory.join(format!("{number}")), b"small").expect("room");
                }
                for number in 0..50 {
                    let old = directory.join(format!("{number}"));
                    std::fs::rename(&old, directory.join(format!("new-{number}"))).expect("it is there");
                }
            });
        }
    });
    ours.unmount();
    ours.mount_with(&WriteOptions::default(), &options);
    for name in ["file", "direct"] {
        assert!(std::fs::read(ours.root().join(name)).expect("it is there") == contents, "{name}");
    }
    for thread in 0..4 {
        let directory = ours.root().join(format!("{thread}"));
        assert_eq!(std::fs::read_dir(&directory).expect("a listing").count(), 100);
        assert_eq!(std::fs::read(directory.join("new-49")).expect("it is there"), b"small");
        assert!(std::fs::read(directory.join("49")).is_err());
    }
    ours.finish();
}

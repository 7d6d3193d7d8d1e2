//! Failures of writes, which a host tells once.

use brindle_device::{Batch, FileDevice, WritableDevice, WriteRequest};
use std::path::{Path, PathBuf};
use std::process::Command;

const BLOCK: u64 = 4096;

/// A loop device whose image lies in a filesystem that has less room than it has.
struct Full {
    directory: tempfile::TempDir,
    device: PathBuf,
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("it is installed");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

impl Full {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "CI has root");
            eprintln!("skipped: loop devices need root");
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().to_str().expect("of letters");
        run("mount", &["-t", "tmpfs", "-o", "size=1M", "none", place]);
        let image = directory.path().join("image");
        std::fs::File::create(&image).and_then(|file| file.set_len(8 << 20)).expect("an image");
        let device = run("losetup", &["-f", "--show", image.to_str().expect("of letters")]).into();
        Some(Self { directory, device })
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let detach = |program: &str, place: &Path| Command::new(program).args(["-d"]).arg(place).status();
        let _ = detach("losetup", &self.device);
        let _ = Command::new("umount").arg("-l").arg(self.directory.path()).status();
    }
}

fn batch<'a>(fill: impl FnOnce(&mut Batch<'a>)) -> Vec<bool> {
    let mut batch = Batch::default();
    fill(&mut batch);
    batch.run().into_iter().map(|answer| answer.is_ok()).collect()
}

#[test]
fn a_failure_that_another_request_was_told_fails_the_next_flush() {
    let Some(full) = Full::new() else { return };
    let device = FileDevice::open_writable(&full.device).expect("it is there");
    device.write_at(0, &[1; 4096]).expect("there is room");
    device.flush().expect("there is room");
    let lose = || {
        for block in 0..1024 {
            device.write_at((block + 16) * BLOCK, &[2; 4096]).expect("the host has room");
        }
        // Another descriptor than that of the device.
        assert_eq!(batch(|batch| device.submit_write_out(batch)), [false], "there is no room");
    };
    let durable_write = || {
        let write = WriteRequest { offset: 0, pieces: vec![&[3; 4096]], is_durable: true };
        batch(|batch| device.submit_write(write, batch))
    };
    lose();
    assert_eq!(durable_write(), [false], "it is told of the other writes");
    device.flush().expect_err("it is told as well");
    device.flush().expect("all is told");
    lose();
    device.flush().expect_err("it is told");
    assert_eq!(durable_write(), [true], "all is told");
    lose();
    let both = batch(|batch| {
        device.submit_write(WriteRequest { offset: 0, pieces: vec![&[4; 4096]], is_durable: true }, batch);
        device.submit_flush(batch);
    });
    assert!(!both[1], "the flush, whichever of them the host told: {both:?}");
    device.flush().expect("all is told");
}

//! An image can be opened to be written as soon as the process that wrote it has ended, whatever reads it left behind.

use brindle_device::{Device, FileDevice, ReadRequest};
use std::path::{Path, PathBuf};
use std::process::Command;

const PATH: &str = "BRINDLE_TEST_IMAGE";
const PIECE_BYTES: usize = 1 << 20;
/// More than a process has read when it ends, and few enough for a slow disk to read them before the image is given up.
const PIECES: usize = 16;

/// Does nothing but in a process that the test below starts: there it opens the image, and ends with reads under way.
#[test]
fn process_that_ends_with_reads_under_way() {
    let Some(path) = std::env::var_os(PATH).map(PathBuf::from) else { return };
    let device = FileDevice::open_writable(&path).expect("its last user has ended");
    let pieces = (0..PIECES).map(|piece| (piece * PIECE_BYTES) as u64);
    let requests: Vec<ReadRequest> = pieces.map(|offset| ReadRequest::new(offset, PIECE_BYTES)).collect();
    drop(device.submit_reads(&requests));
    std::process::exit(0);
}

#[test]
fn image_is_free_as_soon_as_its_writer_has_ended() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("image");
    std::fs::write(&path, vec![1; PIECES * PIECE_BYTES]).expect("room");
    for round in 0..10 {
        forget_contents(&path);
        let mut process = Command::new(std::env::current_exe().expect("it runs"));
        process.args(["--exact", "process_that_ends_with_reads_under_way"]).env(PATH, &path);
        let output = process.output().expect("it starts");
        assert!(output.status.success(), "{round}: {}", String::from_utf8_lossy(&output.stderr));
        FileDevice::open_writable(&path).unwrap_or_else(|error| panic!("{round}: {error}"));
    }
}

/// Has the host forget what it holds of a file in memory, so that reads take their time.
fn forget_contents(path: &Path) {
    let file = std::fs::File::open(path).expect("there");
    file.sync_all().expect("room");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("a file");
}

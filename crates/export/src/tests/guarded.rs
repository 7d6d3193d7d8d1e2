//! The guard of a device whose server is there again: asked before the first repeated write, behind the last one, and between.

use super::client::{BLOCK, Forgetful, place, serve, uri};
use crate::Server;
use brindle_device::{
    Batch, Device, DeviceError, NbdDevice, ReconnectError, ReconnectGuard, WritableDevice, WriteRequest,
};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A guard that grants some looks and refuses the next one, and notes how many blocks are on the disk at each.
#[derive(Debug)]
struct Scripted {
    disk: Arc<Forgetful>,
    granted: usize,
    consent: Duration,
    looks: Mutex<Vec<usize>>,
}

impl ReconnectGuard for Scripted {
    fn admit(&self, device: &dyn Device) -> Result<Duration, ReconnectError> {
        device.read_at(0, &mut [0; BLOCK])?;
        let mut looks = self.looks.lock().expect("no panic");
        looks.push(self.disk.blocks());
        match looks.len() > self.granted {
            true => Err(ReconnectError::Refused { why: "it is another's".to_owned() }),
            false => Ok(self.consent),
        }
    }
}

/// A device with a guard, whose server has ended and forgotten everything.
struct Lost {
    disk: Arc<Forgetful>,
    device: NbdDevice,
    guard: Arc<Scripted>,
    socket: PathBuf,
    _place: tempfile::TempDir,
}

impl Lost {
    /// After writes of these lengths, in blocks.
    fn after(writes: &[usize], granted: usize, consent: Duration) -> Self {
        let (place, socket) = place();
        let disk = Forgetful::new();
        let server = serve(&disk, &socket);
        let device = NbdDevice::open_writable(&uri(&socket, 600)).expect("served");
        let looks = Mutex::default();
        let guard = Arc::new(Scripted { disk: Arc::clone(&disk), granted, consent, looks });
        device.guard_reconnects(Arc::clone(&guard) as Arc<dyn ReconnectGuard>);
        let mut at = 0;
        for blocks in writes {
            device.write_at((at * BLOCK) as u64, &vec![1; blocks * BLOCK]).expect("served");
            at += blocks;
        }
        drop(server);
        disk.cut_power();
        Self { disk, device, guard, socket, _place: place }
    }

    fn serve(&self) -> Server {
        serve(&self.disk, &self.socket)
    }

    /// Blocks on the disk at each look.
    fn looks(&self) -> Vec<usize> {
        self.guard.looks.lock().expect("no panic").clone()
    }

    /// Checks that the device has failed for good.
    fn assert_failed(&self) {
        for _ in 0..2 {
            let error = self.device.flush().expect_err("another's").to_string();
            assert!(error.contains("nothing is written any more: it is another's"), "{error}");
        }
        self.device.write_at(0, &[9; BLOCK]).expect_err("for good");
    }
}

const EVER: Duration = Duration::from_secs(3600);

#[test]
fn guard_that_refuses_at_once_has_nothing_written() {
    let lost = Lost::after(&[1; 5], 0, EVER);
    let _server = lost.serve();
    lost.assert_failed();
    assert_eq!((lost.looks(), lost.disk.blocks()), (vec![0], 0));
}

#[test]
fn guard_that_refuses_after_the_last_write_fails_the_device() {
    let lost = Lost::after(&[1; 5], 1, EVER);
    let _server = lost.serve();
    lost.assert_failed();
    assert_eq!(lost.looks(), [0, 5]);
}

#[test]
fn writes_are_repeated_between_two_consents() {
    let lost = Lost::after(&[1; 5], usize::MAX, Duration::ZERO);
    let _server = lost.serve();
    lost.device.flush().expect("its own");
    assert_eq!((lost.looks(), lost.disk.blocks()), (vec![0, 1, 2, 3, 4, 5], 5));
    // A long one in pieces of 256 KiB.
    let lost = Lost::after(&[150], usize::MAX, Duration::ZERO);
    let _server = lost.serve();
    lost.device.flush().expect("its own");
    assert_eq!(lost.looks(), [0, 64, 128, 150]);
    // Without writes, once.
    let lost = Lost::after(&[], usize::MAX, Duration::ZERO);
    let _server = lost.serve();
    lost.device.flush().expect("its own");
    assert_eq!(lost.looks(), [0]);
}

#[test]
fn guard_that_refuses_in_between_has_no_further_write_repeated() {
    let lost = Lost::after(&[1; 5], 3, Duration::ZERO);
    let _server = lost.serve();
    lost.assert_failed();
    assert_eq!((lost.looks(), lost.disk.blocks()), (vec![0, 1, 2, 3], 3));
}

/// A write without an answer may have waited for long: it is made between two consents, too, and answered after the second.
#[test]
fn writes_without_an_answer_are_made_between_two_consents() {
    for granted in [usize::MAX, 1] {
        let lost = Lost::after(&[1; 2], granted, EVER);
        let mut batch = Batch::default();
        let bytes = [2; 3 * BLOCK];
        let write = WriteRequest { offset: 2 * BLOCK as u64, pieces: vec![&bytes], is_durable: true };
        lost.device.submit_write(write, &mut batch);
        let _server = lost.serve();
        let answers = batch.run();
        assert_eq!(lost.looks(), [0, 5]);
        match &answers[..] {
            [Ok(())] if granted > 1 => lost.device.flush().expect("its own"),
            [Err(DeviceError::Write { .. })] if granted == 1 => lost.assert_failed(),
            other => panic!("{other:?}"),
        }
    }
}

//! A holder whose connection to a device was lost, and comes back.

use super::claim::{Claim, PlaceGuard};
use super::tests::Bench;
use super::*;
use brindle_device::{
    Device, DeviceClass, DeviceError, ReconnectError, ReconnectGuard, SparseDevice, WritableDevice,
    open_device_to_write,
};
use brindle_export::{Export, Listener, Server};
use brindle_ondisk::{LEASE_BYTES, LEASE_OFFSET, LeaseProcess, LeaseRecord};
use std::path::PathBuf;

/// Place of data on a device.
const DATA: u64 = 2 << 20;

/// The first device of a bench, which the first machine has over a connection, and others straight.
struct Connected {
    bench: Bench,
    directory: tempfile::TempDir,
    /// The places of the first machine.
    places: Vec<Place>,
    server: Option<Server>,
}

impl Connected {
    fn new() -> Self {
        let (bench, directory) = (Bench::new(), tempfile::tempdir().expect("temporary directory"));
        let mut connected = Self { bench, directory, places: Vec::new(), server: None };
        connected.serve();
        let uri = format!("nbd+unix:///disk?socket={}&x-timeout=600", connected.socket().display());
        let device = open_device_to_write(&PathBuf::from(uri)).expect("served");
        connected.places.push(Place { identity: connected.bench.places[0].identity, device });
        connected.places.extend_from_slice(&connected.bench.places[1..]);
        connected
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn serve(&mut self) {
        let export = Export::writable("disk", Arc::clone(self.straight())).expect("a name");
        let listener = Listener::unix(&self.socket()).expect("a socket");
        self.server = Some(Server::start(listener, export).expect("threads"));
    }

    fn straight(&self) -> &Arc<dyn WritableDevice> {
        &self.bench.places[0].device
    }

    fn data(&self) -> [u8; 4096] {
        let mut bytes = [0; 4096];
        self.straight().read_at(DATA, &mut bytes).expect("in memory");
        bytes
    }

    fn take(&self, stop: &StopReason) -> Lease {
        let options = self.bench.options(1, 10);
        admit(&self.places, &options).expect("free");
        Lease::take(self.places.clone(), &options, Arc::clone(stop)).expect("free").expect("there is room")
    }
}

#[test]
fn a_holder_that_still_has_the_lease_repeats_its_writes() {
    let (mut connected, stop) = (Connected::new(), StopReason::default());
    let lease = connected.take(&stop);
    let device = Arc::clone(&connected.places[0].device);
    device.write_at(DATA, &[1; 4096]).expect("served");
    lease.renew().expect("its own");
    connected.server = None;
    // The server has forgotten the write.
    connected.straight().write_at(DATA, &[0; 4096]).expect("in memory");
    connected.bench.world.pass(LEASE_INTERVAL * 5);
    connected.serve();
    device.flush().expect("its own");
    assert_eq!(connected.data(), [1; 4096]);
    lease.check().expect("its own");
    // Once it was given up, too.
    device.write_at(DATA, &[2; 4096]).expect("served");
    lease.release();
    connected.server = None;
    connected.straight().write_at(DATA, &[0; 4096]).expect("in memory");
    connected.serve();
    device.flush().expect("no other has come");
    assert_eq!(connected.data(), [2; 4096]);
    assert!(stop.get().is_none());
}

#[test]
fn a_holder_that_was_outlived_while_it_had_no_connection_repeats_nothing() {
    let (mut connected, stop) = (Connected::new(), StopReason::default());
    let lease = connected.take(&stop);
    let device = Arc::clone(&connected.places[0].device);
    device.write_at(DATA, &[1; 4096]).expect("served");
    connected.server = None;
    let second = connected.bench.open(&connected.bench.options(2, 20)).expect("it is outlived");
    connected.straight().write_at(DATA, &[2; 4096]).expect("in memory");
    connected.serve();
    // Also while the holder waits for the device with all its locks.
    let error = lease.renew().expect_err("another's").to_string();
    assert!(error.contains("machine2, process 20 has taken the lease of the pool"), "{error}");
    let error = device.write_at(DATA, &[3; 4096]).expect_err("for ever").to_string();
    assert!(error.contains("the connection was lost, and nothing is written any more"), "{error}");
    assert!(error.contains("machine2, process 20 has taken the lease of the pool (nbd+unix://"), "{error}");
    device.flush().expect_err("for ever");
    assert!(stop.get().is_some_and(|why| why.contains("machine2")), "the pool is read-only at once");
    assert_eq!(connected.data(), [2; 4096]);
    assert_eq!(connected.bench.held_by(), vec![Some("machine2".to_owned()); 3]);
    second.verify().expect("its own");
    lease.release();
    second.verify().expect("the loser gives nothing up");
}

#[test]
fn a_holder_that_gave_up_writes_nothing_over_the_next_one() {
    let (mut connected, stop) = (Connected::new(), StopReason::default());
    let lease = connected.take(&stop);
    let device = Arc::clone(&connected.places[0].device);
    lease.release();
    device.write_at(DATA, &[1; 4096]).expect("served");
    connected.server = None;
    connected.straight().write_at(DATA, &[2; 4096]).expect("in memory");
    let second = connected.bench.open(&connected.bench.options(2, 20)).expect("free");
    connected.serve();
    device.flush().expect_err("another's");
    assert_eq!(connected.data(), [2; 4096]);
    assert!(stop.get().is_none(), "it had ended");
    second.verify().expect("its own");
}

/// Answer of a guard to contents of the record's place, and whether the lease is lost by it.
fn judged(
    connected: &Connected,
    later: Duration,
    contents: &[u8; LEASE_BYTES],
) -> (Result<(), String>, bool) {
    let options = connected.bench.options(1, 10);
    let stop = StopReason::default();
    let claim = Arc::new(Claim::new([7; 16], Arc::clone(&options.host), Arc::clone(&stop)));
    claim.is_valid_from(options.host.now(), LEASE_INTERVAL);
    connected.bench.world.pass(later);
    let place = &connected.bench.places[0];
    place.device.write_at(LEASE_OFFSET, contents).expect("in memory");
    let guard = PlaceGuard { claim: Arc::clone(&claim), identity: place.identity };
    let admitted = guard.admit(place.device.as_ref() as &dyn Device);
    (admitted.map(drop).map_err(|error| error.to_string()), stop.get().is_some() && claim.check().is_err())
}

#[test]
fn a_guard_tells_its_own_record_from_all_others() {
    let connected = Connected::new();
    let identity = connected.bench.places[0].identity;
    let record = |holder: [u8; 16], is_held| {
        let mut record = LeaseRecord::new(LeaseProcess::new([0; 16], [0; 16], 0, 33, 0), "third");
        (record.fsid, record.dev_uuid, record.holder) = (identity.fsid, identity.uuid, holder);
        record.set_held(is_held);
        record
    };
    let (now, late) = (Duration::ZERO, LEASE_INTERVAL * 3);
    let own = record([7; 16], true);
    assert_eq!(judged(&connected, late, &own.sealed()), (Ok(()), false));
    let (answer, is_lost) = judged(&connected, now, &record([8; 16], true).sealed());
    assert!(answer.is_err_and(|why| why.contains("third, process 33")) && is_lost);
    for holder in [[7; 16], [8; 16]] {
        let (answer, is_lost) = judged(&connected, now, &record(holder, false).sealed());
        assert!(answer.is_err_and(|why| why.contains("broken, or taken and given up")) && is_lost);
    }
    // Other contents are another device: the pool may go on without it.
    let mut elsewhere = own;
    elsewhere.fsid.0[0] ^= 1;
    for contents in [elsewhere.sealed(), [0; LEASE_BYTES], [0xeb; LEASE_BYTES]] {
        let (answer, is_lost) = judged(&connected, now, &contents);
        assert!(answer.is_err_and(|why| why.contains("other contents")) && !is_lost);
    }
    let mut torn = own.sealed();
    torn[2048] ^= 1;
    assert_eq!(judged(&connected, now, &torn), (Ok(()), false));
    let (answer, is_lost) = judged(&connected, late, &torn);
    assert!(answer.is_err_and(|why| why.contains("torn")) && is_lost);
}

#[test]
fn a_guard_that_cannot_read_is_asked_again() {
    let connected = Connected::new();
    let options = connected.bench.options(1, 10);
    let claim = Arc::new(Claim::new([7; 16], options.host, StopReason::default()));
    let guard = PlaceGuard { claim, identity: connected.bench.places[0].identity };
    let short = SparseDevice::new("short", 4096, DeviceClass::Unknown);
    let answer = guard.admit(&short);
    assert!(matches!(answer, Err(ReconnectError::Unreadable(DeviceError::BeyondEnd { .. }))), "{answer:?}");
}

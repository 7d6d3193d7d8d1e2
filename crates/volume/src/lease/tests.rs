use super::places::write;
use super::*;
use crate::{VolumeError, WriteError};
use brindle_device::{DeviceClass, SparseDevice, WritableDevice};
use brindle_ondisk::{DevId, LEASE_OFFSET, LeaseDevice, LeasePlace, LeaseProcess, LeaseRecord, Uuid};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Events elsewhere while a host waits.
type Meanwhile = Box<dyn FnMut(Duration) + Send>;

/// Time that all machines share, though none tells another.
#[derive(Default)]
pub(super) struct World {
    ms: AtomicU64,
    running: Mutex<BTreeSet<u32>>,
    meanwhile: Mutex<Option<Meanwhile>>,
}

impl World {
    pub(super) fn pass(&self, time: Duration) {
        self.ms.fetch_add(milliseconds(time), Relaxed);
        let meanwhile = self.meanwhile.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut meanwhile) = meanwhile {
            meanwhile(time);
            self.meanwhile.lock().expect("no panic").get_or_insert(meanwhile);
        }
    }

    fn while_others_wait(&self, act: impl FnMut(Duration) + Send + 'static) {
        *self.meanwhile.lock().expect("no panic") = Some(Box::new(act));
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).expect("short")
}

/// A process of a machine, by numbers.
#[derive(Clone)]
struct Machine {
    world: Arc<World>,
    machine: u8,
    pid: u32,
    /// The clock of each machine begins elsewhere.
    begins_ms: u64,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "machine {}", self.machine)
    }
}

impl LeaseHost for Machine {
    fn name(&self) -> String {
        format!("machine{}", self.machine)
    }

    fn process(&self) -> LeaseProcess {
        LeaseProcess::new([1; 16], [self.machine; 16], 1, self.pid, 1)
    }

    fn is_running(&self, process: &LeaseProcess) -> Option<bool> {
        let is_here = process.boot_id == [self.machine; 16];
        is_here.then(|| self.world.running.lock().expect("no panic").contains(&process.pid.get()))
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.begins_ms + self.world.ms.load(Relaxed))
    }

    fn wait(&self, time: Duration) {
        self.world.pass(time);
    }

    fn random(&self) -> [u8; 16] {
        let mut bytes = [self.machine; 16];
        bytes[..8].copy_from_slice(&self.world.ms.fetch_add(1, Relaxed).to_le_bytes());
        bytes
    }

    fn seconds(&self) -> u64 {
        1_800_000_000
    }

    fn has_threads(&self) -> bool {
        false
    }
}

pub(super) struct Bench {
    pub(super) world: Arc<World>,
    pub(super) places: Vec<Place>,
}

impl Bench {
    pub(super) fn new() -> Self {
        let place = |number: u64| {
            let device = SparseDevice::new(format!("shared{number}"), 64 << 20, DeviceClass::Unknown);
            let uuid = Uuid([u8::try_from(number).expect("few"); 16]);
            let identity = LeaseDevice { fsid: Uuid([9; 16]), devid: DevId::new(number), uuid };
            Place { identity, device: Arc::new(device) as Arc<dyn WritableDevice> }
        };
        Self { world: Arc::default(), places: (1..=3).map(place).collect() }
    }

    /// Options of a process, which runs.
    pub(super) fn options(&self, machine: u8, pid: u32) -> LeaseOptions {
        self.world.running.lock().expect("no panic").insert(pid);
        let begins_ms = u64::from(machine) * 1_000_003;
        let host = Arc::new(Machine { world: Arc::clone(&self.world), machine, pid, begins_ms });
        LeaseOptions { mode: LeaseMode::Always, host, ..LeaseOptions::default() }
    }

    pub(super) fn open(&self, options: &LeaseOptions) -> Result<Lease, VolumeError> {
        admit(&self.places, options)?;
        Ok(Lease::take(self.places.clone(), options, StopReason::default())?.expect("there is room"))
    }

    fn dies(&self, pid: u32) {
        self.world.running.lock().expect("no panic").remove(&pid);
    }

    pub(super) fn held_by(&self) -> Vec<Option<String>> {
        let found = find_all(&self.places);
        found
            .into_iter()
            .map(|record| record.filter(LeaseRecord::is_held).map(|record| record.host()))
            .collect()
    }
}

fn find_all(places: &[Place]) -> Vec<Option<LeaseRecord>> {
    places.iter().map(|place| place.record().expect("in memory").map(|record| *record)).collect()
}

fn is_held(error: &VolumeError) -> bool {
    matches!(error, VolumeError::Held { .. })
}

#[test]
fn a_lease_is_taken_by_one_given_up_and_taken_by_the_next() {
    let bench = Bench::new();
    let first = Keeper::new(bench.open(&bench.options(1, 10)).expect("free")).expect("no thread");
    assert_eq!(bench.held_by(), vec![Some("machine1".to_owned()); 3]);
    drop(first);
    assert_eq!(bench.held_by(), vec![None; 3]);
    let before = bench.world.ms.load(Relaxed);
    let _second = bench.open(&bench.options(2, 20)).expect("free");
    assert!(bench.world.ms.load(Relaxed) - before < 1000, "nothing is watched");
}

#[test]
fn a_holder_of_another_machine_that_renews_is_found_and_one_that_is_gone_is_outlived() {
    let bench = Bench::new();
    let first = Arc::new(bench.open(&bench.options(1, 10)).expect("free"));
    let renewing = Arc::clone(&first);
    let mut passed = Duration::ZERO;
    bench.world.while_others_wait(move |time| {
        passed += time;
        if passed >= LEASE_INTERVAL {
            passed = Duration::ZERO;
            renewing.renew().expect("its own");
        }
    });
    let error = bench.open(&bench.options(2, 20)).expect_err("held");
    assert!(is_held(&error) && error.to_string().contains("machine1, process 10"), "{error}");
    bench.world.while_others_wait(|_| ());
    first.check().expect("its own");
    // Its machine hangs.
    let before = bench.world.ms.load(Relaxed);
    let second = bench.open(&bench.options(2, 20)).expect("stale");
    assert!(bench.world.ms.load(Relaxed) - before >= 3 * milliseconds(LEASE_INTERVAL));
    // And goes on.
    let error = first.check().expect_err("another's").to_string();
    assert!(error.contains("machine2, process 20, has taken") || error.contains("machine2"), "{error}");
    first.verify().expect_err("for good");
    second.verify().expect("its own");
    drop(Keeper::new(Arc::into_inner(first).expect("the closure is gone")));
    assert_eq!(bench.held_by(), vec![Some("machine2".to_owned()); 3], "the loser gives nothing up");
}

#[test]
fn a_process_of_this_machine_is_asked_for_and_not_watched() {
    let bench = Bench::new();
    let _first = bench.open(&bench.options(1, 10)).expect("free");
    let before = bench.world.ms.load(Relaxed);
    assert!(is_held(&bench.open(&bench.options(1, 11)).expect_err("it runs")));
    assert!(bench.world.ms.load(Relaxed) - before < 2 * milliseconds(PATIENCE));
    bench.dies(10);
    let before = bench.world.ms.load(Relaxed);
    let _second = bench.open(&bench.options(1, 11)).expect("it has ended");
    assert!(bench.world.ms.load(Relaxed) - before < 1000);
}

#[test]
fn of_two_that_take_it_at_once_one_at_most_has_it() {
    for delay in 0..8 {
        let bench = Bench::new();
        let (one, other) = (bench.options(1, 10), bench.options(2, 20));
        admit(&bench.places, &one).expect("free");
        admit(&bench.places, &other).expect("free");
        // The other one comes to write while the first waits, or has read back.
        let (places, late) = (bench.places.clone(), Arc::new(Mutex::new(None)));
        let result = Arc::clone(&late);
        let mut waits = 0;
        bench.world.while_others_wait(move |_| {
            if waits == delay {
                let taken = Lease::take(places.clone(), &other, StopReason::default());
                *result.lock().expect("no panic") = Some(taken.map(|lease| lease.expect("room")));
            }
            waits += 1;
        });
        let first = Lease::take(bench.places.clone(), &one, StopReason::default());
        let second = late.lock().expect("no panic").take();
        let valid = |lease: &Lease| lease.verify().is_ok();
        let firsts = first.as_ref().is_ok_and(|lease| valid(lease.as_ref().expect("room")));
        let seconds = second.as_ref().is_some_and(|taken| taken.as_ref().is_ok_and(valid));
        assert!(!(firsts && seconds), "both, at {delay}");
        assert!(firsts || seconds, "neither, at {delay}");
    }
}

#[test]
fn a_holder_that_could_not_renew_looks_before_it_goes_on() {
    let bench = Bench::new();
    let lease = bench.open(&bench.options(1, 10)).expect("free");
    bench.world.pass(LEASE_INTERVAL * 2 - Duration::from_secs(1));
    lease.check().expect("in time");
    let sequence = || find_all(&bench.places)[0].map(|record| record.sequence.get());
    assert_eq!(sequence(), Some(1));
    bench.world.pass(LEASE_INTERVAL);
    lease.check().expect("nobody else came");
    assert_eq!(sequence(), Some(2), "it is renewed by that");
    bench.world.pass(LEASE_INTERVAL * 3);
    let devices: Vec<_> = bench.places.iter().map(|place| Arc::clone(&place.device)).collect();
    // Of devices without a superblock there are no leases to break.
    assert!(break_leases(&devices).expect("in memory").is_empty());
    let mut broken = find_all(&bench.places)[0].expect("held");
    broken.set_held(false);
    assert!(write(&bench.places.iter().collect::<Vec<_>>(), &broken).iter().all(Result::is_ok));
    let error = lease.check().expect_err("broken");
    assert!(matches!(&error, WriteError::LeaseLost { why } if why.contains("broken")), "{error}");
}

#[test]
fn places_that_others_use_are_left_alone_and_torn_records_are_watched() {
    let bench = Bench::new();
    bench.places[0].device.write_at(LEASE_OFFSET, &[0xeb; 4096]).expect("in memory");
    let lease = Keeper::new(bench.open(&bench.options(1, 10)).expect("two have room")).expect("no thread");
    lease.lease().renew().expect("its own");
    assert_eq!(bench.held_by(), [None, Some("machine1".to_owned()), Some("machine1".to_owned())]);
    assert_eq!(bench.places[0].read().expect("in memory"), LeasePlace::Foreign);
    // A boot loader is installed in the midst.
    bench.places[1].device.write_at(LEASE_OFFSET, &[0xeb; 4096]).expect("in memory");
    lease.lease().renew().expect("one is left");
    assert_eq!(bench.places[1].read().expect("in memory"), LeasePlace::Foreign);
    drop(lease);
    bench.places[2].device.write_at(LEASE_OFFSET + 2048, &[1; 512]).expect("in memory");
    let before = bench.world.ms.load(Relaxed);
    let _next = bench.open(&bench.options(2, 20)).expect("nobody renews it");
    assert!(bench.world.ms.load(Relaxed) - before >= 3 * milliseconds(LEASE_INTERVAL));
}

#[test]
fn devices_that_join_get_the_record() {
    let bench = Bench::new();
    let (old, new) = bench.places.split_at(2);
    let options = bench.options(1, 10);
    let lease = Lease::take(old.to_vec(), &options, StopReason::default()).expect("free").expect("room");
    assert!(find_all(new)[0].is_none());
    lease.follow(&bench.places);
    assert_eq!(bench.held_by(), vec![Some("machine1".to_owned()); 3]);
    lease.follow(&bench.places[1..]);
    lease.renew().expect("its own");
    let sequences: Vec<u64> =
        find_all(&bench.places).into_iter().flatten().map(|it| it.sequence.get()).collect();
    assert_eq!(sequences, [1, 2, 2]);
    assert!(bench.places[0].device.size_bytes() > 0);
}

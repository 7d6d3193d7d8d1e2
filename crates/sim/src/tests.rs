//! Recorder, losses and replay together, against a plain list of writes.

use crate::{
    Change, CrashState, Event, EventKind, Fault, FaultyDevice, Image, ImageDevice, LossMode, Random,
    Recorder, Recording, WriteOutcome,
};
use brindle_device::{Device, DeviceClass, DeviceError, WritableDevice};
use std::collections::HashSet;
use std::sync::Arc;

const SIZE: u64 = 64 << 10;

/// Random writes, discards and flushes on two devices.
fn record(seed: u64) -> Recording {
    let recorder = Recorder::new();
    let mut random = Random::new(seed);
    let image = |fill: u8| {
        let mut image = Image::new(SIZE);
        image.write(0, &vec![fill; 8192]);
        image
    };
    let devices =
        [("a", 1), ("b", 2)].map(|(name, fill)| recorder.device(name, image(fill), DeviceClass::Solid));
    for _ in 0..60 {
        let device = random.pick(&devices);
        let offset = random.below(SIZE - 9000);
        match random.below(8) {
            0 => device.flush().expect("works"),
            1 => assert!(device.discard(offset, random.below(9000)).expect("works")),
            _ => {
                let mut bytes = vec![0; 1 + random.index(9000)];
                random.fill(&mut bytes);
                device.write_at(offset, &bytes).expect("works");
            }
        }
    }
    let recording = recorder.recording();
    let mut end = recording.replay();
    end.advance_to(recorder.position());
    let seen: Vec<Image> = devices.iter().map(|device| device.image()).collect();
    assert_eq!(end.state(LossMode::Nothing, &mut random).images(), seen, "what was read is what was written");
    recording
}

/// The bytes of a device at a crash point, by the plainest way: all writes up to its last flush, then what follows
/// so long as `keeps` says so.
fn plainly(recording: &Recording, device: usize, point: usize, keeps: impl Fn(usize) -> bool) -> Vec<u8> {
    let events = &recording.events()[..point];
    let is_flush = |event: &Event| event.device == device && matches!(event.kind, EventKind::Flush);
    let flushed = events.iter().rposition(is_flush).unwrap_or(0);
    let mut image = Image::new(SIZE);
    image.write(0, &vec![u8::try_from(device + 1).expect("small"); 8192]);
    for (number, event) in events.iter().enumerate() {
        if let (true, EventKind::Change(change)) = (event.device == device, &event.kind) {
            if number < flushed || keeps(number) {
                change.apply(&mut image);
            }
        }
    }
    image.to_vec()
}

fn bytes(state: &CrashState, device: usize) -> Vec<u8> {
    state.images()[device].to_vec()
}

#[test]
fn nothing_and_everything_are_the_two_ends() {
    let recording = record(1);
    let mut replay = recording.replay();
    for point in recording.crash_points() {
        replay.advance_to(point);
        let mut random = Random::new(0);
        let (kept, lost) =
            (replay.state(LossMode::Nothing, &mut random), replay.state(LossMode::Everything, &mut random));
        for device in 0..2 {
            assert_eq!(bytes(&kept, device), plainly(&recording, device, point, |_| true), "point {point}");
            assert_eq!(bytes(&lost, device), plainly(&recording, device, point, |_| false), "point {point}");
        }
        assert_eq!((kept.losses.len(), lost.losses.len()), (0, replay.pending()));
    }
}

#[test]
fn a_state_follows_from_point_mode_and_seed() {
    let recording = record(2);
    let mut replay = recording.replay();
    for point in recording.crash_points() {
        replay.advance_to(point);
        for mode in LossMode::ALL {
            let straight = replay.state(mode, &mut Random::new(point as u64));
            let afresh = recording.state_at(point, mode, &mut Random::new(point as u64));
            assert_eq!(straight.images(), afresh.images(), "{mode:?} at {point}");
        }
    }
}

#[test]
fn flushed_writes_are_never_lost() {
    let recording = record(3);
    let mut replay = recording.replay();
    for point in recording.crash_points() {
        replay.advance_to(point);
        let durable = replay.state(LossMode::Everything, &mut Random::new(0));
        for (mode, seed) in LossMode::ALL.into_iter().flat_map(|mode| (0..4).map(move |seed| (mode, seed))) {
            let state = replay.state(mode, &mut Random::new(seed));
            for device in 0..2 {
                let mut touched = vec![false; usize::try_from(SIZE).expect("small")];
                for change in pending(&recording, device, point) {
                    let start = usize::try_from(change.offset()).expect("small");
                    touched[start..start + usize::try_from(change.length()).expect("small")].fill(true);
                }
                let (found, safe) = (bytes(&state, device), bytes(&durable, device));
                let lost = (0..found.len()).find(|at| found[*at] != safe[*at] && !touched[*at]);
                assert_eq!(lost, None, "{mode:?} with seed {seed} at {point}");
            }
        }
    }
}

fn pending(recording: &Recording, device: usize, point: usize) -> Vec<Arc<Change>> {
    let mut pending = Vec::new();
    for event in recording.events()[..point].iter().filter(|event| event.device == device) {
        match &event.kind {
            EventKind::Change(change) => pending.push(Arc::clone(change)),
            _ => pending.clear(),
        }
    }
    pending
}

#[test]
fn each_mode_takes_what_it_says() {
    let recording = record(4);
    let mut replay = recording.replay();
    replay.advance_to(30);
    while replay.pending() < 6 {
        replay.advance_to(replay.point() + 1);
    }
    let names =
        |state: &CrashState| state.losses.iter().map(|loss| loss.device.clone()).collect::<HashSet<_>>();
    let mut torn = 0;
    for seed in 0..200 {
        let state = |mode: LossMode| replay.state(mode, &mut Random::new(seed));
        assert_eq!(state(LossMode::LoseOne).losses.len(), 1);
        let kept = replay.pending() - state(LossMode::KeepOne).losses.len();
        assert!(kept <= 1, "one is kept, or torn");
        assert!(names(&state(LossMode::OneDevice)).len() <= 1);
        let behind = state(LossMode::OneDeviceBehind);
        assert!(
            names(&behind).len() == 1 && behind.losses.iter().all(|loss| loss.fate == WriteOutcome::Lost)
        );
        let scattered = state(LossMode::Scattered);
        torn += scattered.losses.iter().filter(|loss| matches!(loss.fate, WriteOutcome::Torn(_))).count();
    }
    assert!(torn > 50, "{torn} writes torn");
}

#[test]
fn a_later_write_is_kept_where_an_earlier_one_is_lost() {
    let recorder = Recorder::new();
    let device = recorder.device("a", Image::new(SIZE), DeviceClass::Unknown);
    for fill in 1..=3 {
        device.write_at(0, &[fill; 512]).expect("works");
    }
    device.write_at(512, &[4; 512]).expect("works");
    let recording = recorder.recording();
    let ends = |seed| {
        let state = recording.state_at(4, LossMode::Scattered, &mut Random::new(seed));
        let mut bytes = [0; 1024];
        state.devices[0].read_at(0, &mut bytes).expect("within");
        (bytes[0], bytes[512])
    };
    let seen: HashSet<(u8, u8)> = (0..300).map(ends).collect();
    let all = (0..=3).flat_map(|first| [(first, 0), (first, 4)]).collect();
    assert_eq!(seen, all);
}

#[test]
fn states_of_the_same_contents_have_one_fingerprint() {
    let recorder = Recorder::new();
    let devices = ["a", "b"].map(|name| recorder.device(name, Image::new(SIZE), DeviceClass::Unknown));
    devices[0].write_at(0, &[1; 512]).expect("works");
    devices[0].flush().expect("works");
    devices[1].write_at(0, &[1; 512]).expect("works");
    devices[1].write_at(512, &[2; 512]).expect("works");
    let recording = recorder.recording();
    let fingerprint = |point, mode| recording.state_at(point, mode, &mut Random::new(1)).fingerprint;
    // The flush takes nothing and adds nothing; a write that is lost was not made.
    let (kept, lost) = (LossMode::Nothing, LossMode::Everything);
    assert_eq!(fingerprint(1, kept), fingerprint(2, kept));
    assert_eq!(fingerprint(2, kept), fingerprint(4, lost));
    let all: HashSet<u64> =
        [(0, kept), (1, kept), (3, kept), (4, kept)].map(|(point, mode)| fingerprint(point, mode)).into();
    assert_eq!(all.len(), 4, "contents differ, by device and by bytes");
}

#[test]
fn sectors_are_as_large_as_they_are_said_to_be() {
    let recorder = Recorder::new();
    let device = recorder.device("a", Image::new(SIZE), DeviceClass::Unknown);
    device.write_at(0, &[1; 4096]).expect("works");
    let untorn = recorder.recording().with_sectors_of(4096);
    let is_torn = |recording: &Recording, seed| {
        let state = recording.state_at(1, LossMode::LoseOne, &mut Random::new(seed));
        matches!(state.losses[0].fate, WriteOutcome::Torn(_))
    };
    assert!(!(0..50).any(|seed| is_torn(&untorn, seed)));
    assert!((0..50).any(|seed| is_torn(&recorder.recording(), seed)));
}

fn faulty(faults: Vec<Fault>) -> FaultyDevice {
    let inner = ImageDevice::new("inner", Image::new(SIZE), DeviceClass::Rotating);
    FaultyDevice::with(Arc::new(inner), faults)
}

fn code(result: Result<(), DeviceError>) -> Option<i32> {
    match result {
        Ok(()) => None,
        Err(
            DeviceError::Read { source, .. }
            | DeviceError::Write { source, .. }
            | DeviceError::Flush { source, .. }
            | DeviceError::SetSize { source, .. },
        ) => source.raw_os_error(),
        Err(other) => panic!("{other}"),
    }
}

const EIO: Option<i32> = Some(5);
const ENODEV: Option<i32> = Some(19);
const ENOSPC: Option<i32> = Some(28);
const EROFS: Option<i32> = Some(30);

#[test]
fn a_faulty_device_fails_as_its_script_says() {
    let write = |device: &FaultyDevice| code(device.write_at(4096, &[7; 4096]));
    let flush = |device: &FaultyDevice| code(device.flush());
    let read = |device: &FaultyDevice, at| code(device.read_at(at, &mut [0; 512]));

    let device = faulty(vec![Fault::Write { number: 1 }, Fault::Flush { number: 0 }]);
    assert_eq!([write(&device), write(&device), write(&device)], [None, EIO, None]);
    assert_eq!([flush(&device), flush(&device)], [EIO, None]);
    let device = faulty(vec![Fault::WritesFrom { number: 1 }, Fault::FlushesFrom { number: 1 }]);
    assert_eq!([write(&device), write(&device), write(&device)], [None, EIO, EIO]);
    assert_eq!([flush(&device), flush(&device)], [None, EIO]);
    let device = faulty(vec![Fault::FullFrom { number: 1 }, Fault::ReadsWithin(1000..1001)]);
    assert_eq!([write(&device), write(&device)], [None, ENOSPC]);
    assert_eq!([read(&device, 0), read(&device, 512), read(&device, 1024)], [None, EIO, None]);
    let device = faulty(vec![Fault::WritesWithin(0..4096)]);
    assert_eq!([write(&device), code(device.write_at(4095, &[0; 2]))], [None, EIO]);
    let device = faulty(vec![Fault::ReadOnly]);
    assert_eq!([write(&device), code(device.set_size(1)), flush(&device)], [EROFS, EROFS, None]);
    let device = faulty(vec![Fault::VanishAfter { calls: 2 }]);
    assert_eq!(
        [write(&device), read(&device, 0), flush(&device), read(&device, 0)],
        [None, None, ENODEV, ENODEV]
    );
    assert_eq!(device.counts().faults, 2);
    device.heal();
    assert_eq!(read(&device, 0), None);
    device.vanish();
    assert_eq!(write(&device), ENODEV);
}

#[test]
fn a_short_write_writes_its_first_bytes_and_a_lying_read_one_wrong_byte() {
    let device = faulty(vec![Fault::ShortWrite { number: 0, bytes: 512 }]);
    assert_eq!(code(device.write_at(0, &[7; 1024])), EIO);
    let mut bytes = [0; 1024];
    device.read_at(0, &mut bytes).expect("works");
    assert!(bytes[..512].iter().all(|byte| *byte == 7) && bytes[512..].iter().all(|byte| *byte == 0));
    device.inject(Fault::WrongReadsWithin(100..200));
    device.read_at(64, &mut bytes[..512]).expect("says that it works");
    assert_eq!(bytes[..448].iter().position(|byte| *byte != 7), Some(36));
}

#[test]
fn random_faults_strike_within_the_run() {
    let mut random = Random::new(5);
    for _ in 0..100 {
        let fault = Fault::any(&mut random, 10, 10);
        let device = faulty(vec![fault.clone()]);
        let struck = (0..10).any(|_| device.write_at(0, &[1; 512]).is_err() | device.flush().is_err());
        assert!(struck, "{fault:?}");
    }
}

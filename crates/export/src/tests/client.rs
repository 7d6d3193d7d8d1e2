//! The client of the crate `device` and this server, and servers that end, forget and hang.

use crate::{Export, Listener, Server};
use brindle_device::{
    Batch, Device, DeviceClass, DeviceError, NbdDevice, ReadRequest, ReconnectError, ReconnectGuard,
    WritableDevice, WriteRequest,
};
use brindle_nbd::*;
use brindle_sim::Random;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

pub(super) const SIZE: usize = 1 << 20;
pub(super) const BLOCK: usize = 4096;

/// A disk in memory that loses what was not flushed when its power is cut.
#[derive(Debug, Default)]
pub(super) struct Forgetful {
    contents: Mutex<Contents>,
    pub(super) is_broken: AtomicBool,
    /// True if the next flush fails, and no other.
    fails_a_flush: AtomicBool,
    /// True if space is not given back, so that zeros have to be written.
    pub(super) keeps_space: AtomicBool,
    /// Number of writes.
    pub(super) writes: AtomicUsize,
}

#[derive(Debug, Default)]
struct Contents {
    durable: Vec<u8>,
    seen: Vec<u8>,
}

impl Forgetful {
    pub(super) fn new() -> Arc<Self> {
        let contents = Contents { durable: vec![0; SIZE], seen: vec![0; SIZE] };
        Arc::new(Self { contents: Mutex::new(contents), ..Self::default() })
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().expect("no panic")
    }

    /// Number of blocks that are not zeros.
    pub(super) fn blocks(&self) -> usize {
        self.contents().seen.chunks(BLOCK).filter(|block| block.iter().any(|byte| *byte != 0)).count()
    }

    pub(super) fn cut_power(&self) {
        let mut contents = self.contents();
        contents.seen = contents.durable.clone();
    }
}

impl Device for Forgetful {
    fn name(&self) -> &str {
        "forgetful"
    }

    fn size_bytes(&self) -> u64 {
        SIZE as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let at = usize::try_from(offset).expect("small");
        buffer.copy_from_slice(&self.contents().seen[at..at + buffer.len()]);
        Ok(())
    }

    fn class(&self) -> DeviceClass {
        DeviceClass::Rotating
    }
}

impl WritableDevice for Forgetful {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        if self.is_broken.load(SeqCst) {
            let (device, length) = ("forgetful".to_owned(), bytes.len() as u64);
            let source = std::io::Error::other("broken");
            return Err(DeviceError::Write { device, offset, length, source });
        }
        let at = usize::try_from(offset).expect("small");
        self.contents().seen[at..at + bytes.len()].copy_from_slice(bytes);
        self.writes.fetch_add(1, SeqCst);
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        if self.fails_a_flush.swap(false, SeqCst) {
            let source = std::io::Error::other("broken");
            return Err(DeviceError::Flush { device: "forgetful".to_owned(), source });
        }
        let mut contents = self.contents();
        contents.durable = contents.seen.clone();
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        if self.keeps_space.load(SeqCst) {
            return Ok(false);
        }
        let at = usize::try_from(offset).expect("small");
        self.contents().seen[at..at + usize::try_from(length).expect("small")].fill(0);
        Ok(true)
    }

    fn set_size(&self, _: u64) -> Result<(), DeviceError> {
        Err(DeviceError::FixedSize { device: "forgetful".to_owned() })
    }
}

pub(super) fn serve(disk: &Arc<Forgetful>, socket: &Path) -> Server {
    let device: Arc<dyn WritableDevice> = Arc::clone(disk) as _;
    let export = Export::writable("disk", device).expect("a name");
    Server::start(Listener::unix(socket).expect("a socket"), export).expect("threads")
}

pub(super) fn uri(socket: &Path, seconds: u64) -> NbdUri {
    let timeout = Some(Duration::from_secs(seconds));
    NbdUri { address: NbdAddress::Unix(socket.to_owned()), export: "disk".to_owned(), timeout, tls: None }
}

/// A directory, and the path of a socket in it.
pub(super) fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("temporary directory");
    let socket = directory.path().join("socket");
    (directory, socket)
}

fn bytes_of(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![1; SIZE];
    device.read_at(0, &mut bytes).expect("served");
    bytes
}

#[test]
fn a_failure_that_a_disk_tells_once_is_told_to_each_client_that_was_there() {
    let (_place, socket) = place();
    let disk = Forgetful::new();
    let _server = serve(&disk, &socket);
    let [one, other] = [(), ()].map(|()| NbdDevice::open_writable(&uri(&socket, 60)).expect("served"));
    let write = |device: &NbdDevice, is_durable| {
        let write = WriteRequest { offset: 0, pieces: vec![&[7; BLOCK]], is_durable };
        let mut batch = Batch::default();
        device.submit_write(write, &mut batch);
        batch.run().pop().expect("an answer")
    };
    write(&one, false).expect("nothing fails");
    write(&other, false).expect("nothing fails");
    disk.fails_a_flush.store(true, SeqCst);
    write(&one, true).expect_err("its flush fails");
    other.flush().expect_err("its write may be lost, too");
    other.flush().expect("it was told");
    one.flush().expect_err("a flush covers more than the write that was told");
    one.flush().expect("it was told");
    NbdDevice::open_writable(&uri(&socket, 60)).expect("served").flush().expect("it has written nothing");
}

#[test]
fn device_reads_writes_zeros_and_flushes() {
    let (_place, socket) = place();
    let disk = Forgetful::new();
    let _server = serve(&disk, &socket);
    let device = NbdDevice::open_writable(&uri(&socket, 60)).expect("served");
    assert_eq!((device.size_bytes(), device.class()), (SIZE as u64, DeviceClass::Rotating));
    let mut model = vec![0; SIZE];
    device.write_pieces_at(100, &[&[1; 50], &[2; 5000]]).expect("served");
    model[100..150].fill(1);
    model[150..5150].fill(2);
    assert!(device.discard(120, 10).expect("served"));
    model[120..130].fill(0);
    device.zero(200, 4096).expect("served");
    model[200..4296].fill(0);
    assert!(bytes_of(&device) == model);
    let requests = [(0, 4096), (100, 60), (SIZE as u64 - 1, 2), (4096, 100_000)];
    let requests = requests.map(|(offset, length)| ReadRequest::new(offset, length));
    let answers: Vec<_> =
        device.submit_reads(&requests).into_iter().map(brindle_device::PendingRead::wait).collect();
    assert!(answers[1].as_ref().expect("served")[..] == model[100..160]);
    assert!(matches!(answers[2], Err(DeviceError::BeyondEnd { .. })));
    assert_eq!(answers[3].as_ref().expect("served").len(), 100_000);
    assert!(disk.contents().durable.iter().all(|byte| *byte == 0));
    device.flush().expect("served");
    assert!(disk.contents().durable == model);
}

#[test]
fn exports_that_cannot_be_written_or_are_not_there_are_refused_by_name() {
    let (_place, socket) = place();
    let open = |uri: &NbdUri| NbdDevice::open_writable(uri).expect_err("refused").to_string();
    assert!(open(&uri(&socket, 3)).contains("cannot open nbd+unix:///disk?socket="));
    let export = Export::read_only("disk", Forgetful::new()).expect("a name");
    let server = Server::start(Listener::unix(&socket).expect("a socket"), export).expect("threads");
    assert!(open(&uri(&socket, 60)).ends_with("the server has the export read-only"));
    NbdDevice::open(&uri(&socket, 60)).expect("to read");
    let another = NbdUri { export: "other".to_owned(), ..uri(&socket, 60) };
    assert!(open(&another).contains("the server has no export \"other\""));
    drop(server);
}

/// A guard whose consent is over at once.
#[derive(Debug)]
struct Consenting;

impl ReconnectGuard for Consenting {
    fn admit(&self, _: &dyn Device) -> Result<Duration, ReconnectError> {
        Ok(Duration::ZERO)
    }
}

/// Writes, flushes and reads while servers are killed with all that they did not make durable; the contents are those of
/// a plain vector, and what was flushed is durable at once.
#[test]
fn nothing_is_lost_by_servers_that_forget() {
    for seed in 0..4 {
        let (_place, socket) = place();
        let disk = Forgetful::new();
        let mut server = Some(serve(&disk, &socket));
        let device = Arc::new(NbdDevice::open_writable(&uri(&socket, 600)).expect("served"));
        if seed % 2 == 1 {
            device.guard_reconnects(Arc::new(Consenting));
        }
        let mut random = Random::new(seed);
        let mut model = vec![0u8; SIZE];
        for round in 0..200u32 {
            let mut pick = |below: usize| usize::try_from(random.below(below as u64)).expect("small");
            match pick(10) {
                0 => {
                    // While a write is under way, of which the answer may be lost.
                    let (at, fill) = (pick(SIZE / BLOCK) * BLOCK, round.to_le_bytes()[0]);
                    std::thread::scope(|scope| {
                        let write = scope.spawn(|| device.write_at(at as u64, &[fill; BLOCK]));
                        drop(server.take());
                        disk.cut_power();
                        server = Some(serve(&disk, &socket));
                        write.join().expect("no panic").expect("repeated");
                    });
                    model[at..at + BLOCK].fill(fill);
                }
                1 => {
                    device.flush().expect("served");
                    assert!(disk.contents().durable == model, "seed {seed}, round {round}");
                }
                2 => {
                    let at = pick(SIZE / BLOCK - 4) * BLOCK;
                    assert!(device.discard(at as u64, 4 * BLOCK as u64).expect("served"));
                    model[at..at + 4 * BLOCK].fill(0);
                }
                3 => assert!(bytes_of(&*device) == model, "seed {seed}, round {round}"),
                _ => {
                    // Few places, so that writes in memory overlap.
                    let (at, length) = (pick(40) * 1000, 1 + pick(9000));
                    let fill = round.to_le_bytes()[0];
                    device.write_at(at as u64, &vec![fill; length]).expect("served");
                    model[at..at + length].fill(fill);
                }
            }
        }
        device.flush().expect("served");
        assert!(disk.contents().durable == model, "seed {seed}");
    }
}

#[test]
fn write_that_cannot_be_repeated_fails_the_device() {
    let (_place, socket) = place();
    let disk = Forgetful::new();
    let server = serve(&disk, &socket);
    let device = NbdDevice::open_writable(&uri(&socket, 600)).expect("served");
    device.write_at(0, &[1; BLOCK]).expect("served");
    drop(server);
    disk.cut_power();
    disk.is_broken.store(true, SeqCst);
    let _server = serve(&disk, &socket);
    let error = device.flush().expect_err("the write is lost").to_string();
    assert!(error.contains("a write could not be repeated"), "{error}");
    disk.is_broken.store(false, SeqCst);
    let error = device.write_at(0, &[1; BLOCK]).expect_err("it has failed for good").to_string();
    assert!(error.contains("a write could not be repeated"), "{error}");
    assert!(matches!(device.flush(), Err(DeviceError::Flush { .. })));
}

#[test]
fn error_of_the_server_is_that_of_its_request_alone() {
    let (_place, socket) = place();
    let disk = Forgetful::new();
    let _server = serve(&disk, &socket);
    let device = NbdDevice::open_writable(&uri(&socket, 600)).expect("served");
    disk.is_broken.store(true, SeqCst);
    match device.write_at(8192, &[1; BLOCK]) {
        Err(DeviceError::Write { offset: 8192, length: 4096, .. }) => {}
        other => panic!("{other:?}"),
    }
    disk.is_broken.store(false, SeqCst);
    device.write_at(8192, &[2; BLOCK]).expect("served");
    device.flush().expect("served");
    assert!(disk.contents().durable[8192..8192 + BLOCK] == [2; BLOCK]);
}

#[test]
fn export_that_is_another_one_after_a_restart_fails_the_device() {
    let (_place, socket) = place();
    let server = serve(&Forgetful::new(), &socket);
    let device = NbdDevice::open_writable(&uri(&socket, 600)).expect("served");
    drop(server);
    let small = brindle_device::SparseDevice::new("small", 4096, DeviceClass::Unknown);
    let export = Export::writable("disk", Arc::new(small)).expect("a name");
    let _server = Server::start(Listener::unix(&socket).expect("a socket"), export).expect("threads");
    let error = device.read_at(0, &mut [0; BLOCK]).expect_err("another export").to_string();
    assert!(error.contains("the export is shorter now"), "{error}");
}

#[test]
fn export_that_grows_is_used_to_its_end_by_all_that_ask() {
    let (_place, socket) = place();
    let disk = Arc::new(brindle_device::SparseDevice::new("disk", 1 << 20, DeviceClass::Unknown));
    let export = Export::writable("disk", Arc::clone(&disk) as _).expect("a name");
    let _server = Server::start(Listener::unix(&socket).expect("a socket"), export).expect("threads");
    let device = NbdDevice::open_writable(&uri(&socket, 600)).expect("served");
    device.write_at(0, &[1; BLOCK]).expect("served");
    disk.set_size(2 << 20).expect("memory");
    assert_eq!(device.size_bytes(), 1 << 20, "the protocol tells no client");
    assert!(matches!(device.write_at(1 << 20, &[2; BLOCK]), Err(DeviceError::BeyondEnd { .. })));
    assert_eq!(device.refresh_size().expect("served"), 2 << 20);
    // Not flushed before, the first one is written again on the connection that has the new size.
    device.write_at((2 << 20) - BLOCK as u64, &[2; BLOCK]).expect("served");
    device.flush().expect("served");
    let mut found = [0; BLOCK];
    for (offset, fill) in [(0, 1), ((2 << 20) - BLOCK as u64, 2)] {
        disk.read_at(offset, &mut found).expect("memory");
        assert_eq!(found, [fill; BLOCK]);
    }
    disk.set_size(1 << 20).expect("memory");
    let error = device.refresh_size().expect_err("it is shorter").to_string();
    assert!(error.contains("1048576 bytes now, and had 2097152"), "{error}");
    assert_eq!(device.size_bytes(), 2 << 20);
}

/// A server by hand: takes the options of each client, and then does as `act` says.
pub(super) fn by_hand(socket: &Path, act: impl Fn(UnixStream) + Send + 'static) {
    let listener = UnixListener::bind(socket).expect("a socket");
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(mut client) = client else { return };
            let shown = client.write_all(&greeting(HandshakeFlags::all()));
            let mut chosen = [0; 4 + OPTION_HEADER_BYTES + 12];
            if shown.and_then(|()| client.read_exact(&mut chosen)).is_err() {
                continue;
            }
            let flags = ExportFlags::HAS_FLAGS | ExportFlags::SEND_FLUSH;
            let fact = information(&Information::Export { size_bytes: SIZE as u64, flags });
            let reply = option_reply(OptionKind::Go, OptionReplyKind::Info, &fact);
            let ack = option_reply(OptionKind::Go, OptionReplyKind::Ack, b"");
            if client.write_all(&reply).and_then(|()| client.write_all(&ack)).is_ok() {
                act(client);
            }
        }
    });
}

#[test]
fn server_that_hangs_fails_the_device_within_the_timeout() {
    let (_place, socket) = place();
    let kept = Mutex::new(Vec::new());
    by_hand(&socket, move |client| kept.lock().expect("no panic").push(client));
    let device = NbdDevice::open_writable(&uri(&socket, 4)).expect("served");
    let begun = Instant::now();
    let error = device.read_at(0, &mut [0; BLOCK]).expect_err("no answer").to_string();
    // Far above the timeout: no part of it is for ever.
    assert!(begun.elapsed() < Duration::from_secs(60), "{error}");
    assert!(device.write_at(0, &[0; BLOCK]).is_err() && device.flush().is_err());
}

#[test]
fn server_that_is_gone_fails_the_device_within_the_timeout() {
    let (_place, socket) = place();
    let server = serve(&Forgetful::new(), &socket);
    let device = NbdDevice::open_writable(&uri(&socket, 4)).expect("served");
    device.write_at(0, &[1; BLOCK]).expect("served");
    drop(server);
    assert!(matches!(device.flush(), Err(DeviceError::Flush { .. })));
    assert!(matches!(device.read_at(0, &mut [0; BLOCK]), Err(DeviceError::Read { .. })));
}

#[test]
fn server_that_answers_nonsense_is_given_up_without_a_panic() {
    for seed in 0..4 {
        let (_place, socket) = place();
        by_hand(&socket, move |mut client| {
            let mut random = Random::new(seed);
            let mut nonsense = vec![0u8; 64];
            nonsense.iter_mut().for_each(|byte| *byte = random.below(256).to_le_bytes()[0]);
            // Half of them begin well.
            if seed % 2 == 0 {
                nonsense[..16].copy_from_slice(&simple_reply(random.below(3), None));
            }
            let _ = client.write_all(&nonsense);
        });
        let device = NbdDevice::open_writable(&uri(&socket, 2)).expect("served");
        let _ = device.read_at(0, &mut [0; 16]);
        let _ = device.write_at(0, &[0; BLOCK]);
    }
}

#[test]
fn writes_without_a_flush_take_limited_memory() {
    let (_place, socket) = place();
    let disk = Forgetful::new();
    let _server = serve(&disk, &socket);
    let device = NbdDevice::open_writable(&uri(&socket, 600)).expect("served");
    let bytes = vec![7; SIZE];
    for _ in 0..70 {
        device.write_at(0, &bytes).expect("served");
    }
    assert!(disk.contents().durable == bytes, "a flush was made for room");
}

//! Writes that a device makes again on a further connection: their order, their answers, and the guard that is asked.

use super::client::{BLOCK, Forgetful, SIZE, by_hand, place, serve, uri};
use brindle_device::{
    Batch, Device, DeviceError, NbdDevice, ReadRequest, ReconnectError, ReconnectGuard, WritableDevice,
    WriteRequest,
};
use brindle_nbd::*;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A client of a server by hand.
struct Client(UnixStream);

impl Client {
    /// The next request, without its payload; `None` if the client has left.
    fn next(&mut self) -> Option<Request> {
        let mut bytes = [0; REQUEST_BYTES];
        self.0.read_exact(&mut bytes).ok()?;
        let request = Request::decode(&bytes).expect("a request");
        if request.command == Command::Write {
            self.0.read_exact(&mut vec![0; request.length as usize]).expect("a payload");
        }
        Some(request)
    }

    fn write(&mut self) -> Request {
        let request = self.next().expect("a write");
        assert_eq!(request.command, Command::Write);
        request
    }

    fn answer(&mut self, request: &Request, error: Option<ReplyError>) {
        self.0.write_all(&simple_reply(request.cookie, error)).expect("it is read");
    }

    /// Answers everything until the client has left.
    fn serve(&mut self) {
        while let Some(request) = self.next() {
            self.answer(&request, None);
        }
    }
}

/// A server by hand, of which each connection does as `act` says of its number; the next one begins when that is over.
fn scripted(act: impl Fn(usize, Client) + Send + 'static) -> (tempfile::TempDir, NbdDevice) {
    let (place, socket) = place();
    let number = AtomicUsize::new(0);
    by_hand(&socket, move |client| act(number.fetch_add(1, SeqCst), Client(client)));
    let device = NbdDevice::open_writable(&uri(&socket, 60)).expect("served");
    (place, device)
}

/// A server that answers some writes, and then loses the connection with all that it had.
fn lost_after(writes: usize, mut client: Client) {
    for _ in 0..writes {
        let write = client.write();
        client.answer(&write, None);
    }
}

#[test]
fn writes_that_overlap_are_never_on_their_way_together() {
    const SILENCE: Duration = Duration::from_millis(200);
    let (tell, told) = channel();
    let (_place, device) = scripted(move |number, mut client| match number {
        0 => lost_after(3, client),
        _ => {
            // Two at once, and the third when they are answered.
            let (first, second) = (client.write(), client.write());
            client.0.set_read_timeout(Some(SILENCE)).expect("a timeout");
            let more = client.0.read(&mut [0]).map_err(|error| error.kind());
            client.0.set_read_timeout(None).expect("a timeout");
            client.answer(&second, None);
            client.answer(&first, None);
            let third = client.write();
            client.answer(&third, None);
            tell.send((more, [first.offset, second.offset, third.offset])).expect("awaited");
            client.serve();
        }
    });
    for offset in [0, 2 * BLOCK, BLOCK] {
        device.write_at(offset as u64, &[1; BLOCK + 1]).expect("answered");
    }
    device.flush().expect("repeated");
    let block = BLOCK as u64;
    assert_eq!(told.recv().expect("it was"), (Err(ErrorKind::WouldBlock), [0, 2 * block, block]));
}

#[test]
fn server_that_is_about_to_end_has_refused_nothing() {
    let (_place, device) = scripted(|number, mut client| match number {
        0 => lost_after(1, client),
        1 => {
            let write = client.write();
            client.answer(&write, Some(ReplyError::Shutdown));
        }
        _ => client.serve(),
    });
    device.write_at(0, &[1; BLOCK]).expect("answered");
    device.flush().expect("repeated by the next server");
}

#[test]
fn write_of_which_one_piece_is_refused_is_refused() {
    let (_place, device) = scripted(|number, mut client| match number {
        0 => lost_after(1, client),
        _ => {
            let (first, second) = (client.write(), client.write());
            assert_eq!(second.offset, u64::from(first.length));
            client.answer(&first, Some(ReplyError::Io));
            client.answer(&second, None);
            client.serve();
        }
    });
    device.write_at(0, &[1; 300 << 10]).expect("answered");
    let error = device.flush().expect_err("a piece is lost").to_string();
    assert!(error.contains("a write could not be repeated"), "{error}");
}

#[test]
fn answer_that_comes_twice_is_not_that_of_another_write() {
    let (tell, told) = channel();
    let (_place, device) = scripted(move |number, mut client| match number {
        0 => lost_after(2, client),
        1 => {
            let (first, _) = (client.write(), client.write());
            client.answer(&first, None);
            client.answer(&first, None);
            // Taken for the answers of both, the connection would be used.
            client.0.set_read_timeout(Some(Duration::from_secs(50))).expect("a timeout");
            assert!(client.next().is_none(), "the connection is used");
        }
        _ => {
            let writes = [client.write(), client.write()];
            writes.iter().for_each(|write| client.answer(write, None));
            tell.send(writes.map(|write| write.offset)).expect("awaited");
            client.serve();
        }
    });
    for offset in [0, 2 * BLOCK] {
        device.write_at(offset as u64, &[1; BLOCK]).expect("answered");
    }
    device.flush().expect("repeated once more");
    assert_eq!(told.recv().expect("it was"), [0, 2 * BLOCK as u64]);
}

/// A guard that consents for a time, and does something before.
struct Consenting<F>(Duration, F);

impl<F> std::fmt::Debug for Consenting<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Consenting({:?})", self.0)
    }
}

impl<F: Fn() -> Result<(), ReconnectError> + Send + Sync> ReconnectGuard for Consenting<F> {
    fn admit(&self, _: &dyn Device) -> Result<Duration, ReconnectError> {
        (self.1)().map(|()| self.0)
    }
}

const EVER: Duration = Duration::from_secs(3600);

#[test]
fn answers_in_any_order_are_each_that_of_its_write() {
    let (tell, told) = channel();
    let (_place, device) = scripted(move |number, mut client| match number {
        // Neither is answered.
        0 => drop([client.write(), client.write()]),
        1 => {
            let (first, second) = (client.write(), client.write());
            client.answer(&second, Some(ReplyError::Io));
            client.answer(&first, None);
            client.next();
        }
        _ => {
            // The one that was refused is not repeated.
            let first = client.write();
            client.answer(&first, None);
            let second = client.next().expect("a flush");
            client.answer(&second, None);
            tell.send((first.offset, second.command)).expect("awaited");
            client.serve();
        }
    });
    device.guard_reconnects(Arc::new(Consenting(EVER, || Ok(()))));
    let mut batch = Batch::default();
    let bytes = [1; BLOCK];
    for offset in [0, 2 * BLOCK as u64] {
        device.submit_write(WriteRequest { offset, pieces: vec![&bytes], is_durable: false }, &mut batch);
    }
    match &batch.run()[..] {
        [Ok(()), Err(DeviceError::Write { offset, .. })] => assert_eq!(*offset, 2 * BLOCK as u64),
        other => panic!("{other:?}"),
    }
    // The server answers it on the connection after.
    device.flush().expect("it has not failed");
    assert_eq!(told.recv().expect("it was"), (0, Command::Flush));
}

#[test]
fn zeros_that_were_quick_are_written_when_they_are_repeated() {
    for has_guard in [false, true] {
        let (_place, socket) = place();
        let disk = Forgetful::new();
        let server = serve(&disk, &socket);
        let device = NbdDevice::open_writable(&uri(&socket, 60)).expect("served");
        if has_guard {
            device.guard_reconnects(Arc::new(Consenting(EVER, || Ok(()))));
        }
        device.write_at(0, &[1; BLOCK]).and_then(|()| device.flush()).expect("served");
        assert!(device.discard(0, BLOCK as u64).expect("served"));
        drop(server);
        disk.cut_power();
        assert_eq!(disk.blocks(), 1);
        disk.keeps_space.store(true, SeqCst);
        let _server = serve(&disk, &socket);
        device.flush().expect("repeated");
        assert_eq!(disk.blocks(), 0);
        // One that was not answered yet may still be declined.
        assert!(!device.discard(0, BLOCK as u64).expect("declined"));
    }
}

#[test]
fn zeros_without_an_answer_may_still_be_declined() {
    let (tell, told) = channel();
    let (_place, socket) = place();
    let disk = Forgetful::new();
    disk.keeps_space.store(true, SeqCst);
    let server = serve(&disk, &socket);
    let device = NbdDevice::open_writable(&uri(&socket, 60)).expect("served");
    device.guard_reconnects(Arc::new(Consenting(EVER, move || {
        let _ = tell.send(());
        Ok(())
    })));
    device.write_at(0, &[1; BLOCK]).expect("served");
    drop(server);
    std::thread::scope(|scope| {
        let declined = scope.spawn(|| device.discard(BLOCK as u64, BLOCK as u64));
        let _server = serve(&disk, &socket);
        told.recv().expect("it is asked");
        assert!(!declined.join().expect("no panic").expect("no error"));
        device.flush().expect("served");
    });
    assert_eq!(disk.writes.load(SeqCst), 2, "no zeros were written");
}

/// A look that fails says nothing of the owner: it is made again on the next connection.
#[test]
fn guard_that_cannot_read_is_asked_again() {
    let (_place, socket) = place();
    let disk = Forgetful::new();
    let server = serve(&disk, &socket);
    let device = NbdDevice::open_writable(&uri(&socket, 60)).expect("served");
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looks);
    device.guard_reconnects(Arc::new(Consenting(EVER, move || match counted.fetch_add(1, SeqCst) {
        0 | 2 => Err(DeviceError::FixedSize { device: "any error".to_owned() }.into()),
        _ => Ok(()),
    })));
    device.write_at(0, &[1; BLOCK]).expect("served");
    drop(server);
    disk.cut_power();
    let _server = serve(&disk, &socket);
    device.flush().expect("its own");
    // In vain; before the write; in vain behind it; and both once more.
    assert_eq!((looks.load(SeqCst), disk.blocks(), disk.writes.load(SeqCst)), (5, 1, 3));
}

/// A consent counts from the begin of the look: one that takes longer than its consent covers a single piece.
#[test]
fn consent_that_took_too_long_is_over() {
    const CONSENT: Duration = Duration::from_millis(50);
    let (_place, socket) = place();
    let disk = Forgetful::new();
    let server = serve(&disk, &socket);
    let device = NbdDevice::open_writable(&uri(&socket, 60)).expect("served");
    let looks = Arc::new(Mutex::new(Vec::new()));
    let (noted, seen) = (Arc::clone(&looks), Arc::clone(&disk));
    device.guard_reconnects(Arc::new(Consenting(CONSENT, move || {
        noted.lock().expect("no panic").push(seen.blocks());
        let begun = Instant::now();
        while begun.elapsed() <= CONSENT {
            std::thread::yield_now();
        }
        Ok(())
    })));
    for block in 0..3 {
        device.write_at((block * BLOCK) as u64, &[1; BLOCK]).expect("served");
    }
    drop(server);
    disk.cut_power();
    let _server = serve(&disk, &socket);
    device.flush().expect("its own");
    assert_eq!(*looks.lock().expect("no panic"), [0, 1, 2, 3]);
}

/// Reads and flushes without an answer are left to the connection that follows; each write is made once.
#[test]
fn writes_alone_are_made_before_the_connection_is_used() {
    let (_place, socket) = place();
    let disk = Forgetful::new();
    let server = serve(&disk, &socket);
    let device = NbdDevice::open_writable(&uri(&socket, 60)).expect("served");
    device.guard_reconnects(Arc::new(Consenting(EVER, || Ok(()))));
    device.write_at(0, &[1; BLOCK]).expect("served");
    drop(server);
    disk.cut_power();
    let written = disk.writes.load(SeqCst);
    let mut batch = Batch::default();
    let bytes = [2; BLOCK];
    let write = WriteRequest { offset: BLOCK as u64, pieces: vec![&bytes], is_durable: false };
    let reads = device.submit_reads(&[ReadRequest::new(0, BLOCK), ReadRequest::new(SIZE as u64 / 2, BLOCK)]);
    device.submit_write(write, &mut batch);
    device.submit_flush(&mut batch);
    let _server = serve(&disk, &socket);
    assert!(batch.run().iter().all(Result::is_ok));
    let read: Vec<_> = reads.into_iter().map(|read| read.wait().expect("served")[0]).collect();
    assert_eq!((read, disk.blocks(), disk.writes.load(SeqCst) - written), (vec![1, 0], 2, 2));
}

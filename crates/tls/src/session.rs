//! A connection after its handshake.
//!
//! The state of the cipher is one for both directions, so each use of it holds a lock, and no wait for the peer does: a thread that
//! reads waits for bytes first and deciphers them then, a thread that writes enciphers a piece first and sends it then. Records must
//! leave in the order in which they were enciphered, so the lock for sending is held over both.

use rustix::net::SendFlags;
use rustls::Connection;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes that are read from the socket at once.
const RECEIVED_BYTES: usize = 64 << 10;
/// Bytes that are enciphered at once.
const PIECE_BYTES: usize = 64 << 10;

/// Keys and state of a connection. Each call is given its socket, which must be the one of the handshake.
#[derive(Debug)]
pub struct Session {
    state: Mutex<Connection>,
    /// Held by the thread that reads.
    received: Mutex<Received>,
    /// Enciphered bytes; held by the thread that sends.
    sending: Mutex<Vec<u8>>,
}

/// Bytes of the socket that are not deciphered yet.
#[derive(Debug)]
struct Received {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Session {
    /// Makes the handshake of a connection.
    pub(crate) fn shake_hands(
        mut connection: Connection,
        socket: &mut (impl Read + Write),
    ) -> io::Result<Self> {
        // A piece is sent before the next one is enciphered.
        connection.set_buffer_limit(None);
        while connection.is_handshaking() || connection.wants_write() {
            connection.complete_io(socket)?;
        }
        let received = Received { bytes: vec![0; RECEIVED_BYTES].into(), start: 0, end: 0 };
        let state = Mutex::new(connection);
        Ok(Self { state, received: Mutex::new(received), sending: Mutex::default() })
    }

    /// Reads what is there, or waits for something; 0 at the end. A connection that was cut off ends like one that was closed: the
    /// protocol inside has an end of its own.
    ///
    /// # Errors
    /// Those of the socket, after which it may be called again; bytes that were tampered with, an alert of the peer.
    pub fn read<S>(&self, socket: &S, buffer: &mut [u8]) -> io::Result<usize>
    where
        for<'s> &'s S: Read,
    {
        if buffer.is_empty() {
            return Ok(0);
        }
        let mut received = held(&self.received);
        loop {
            if let Some(length) = self.decipher(&mut received, buffer)? {
                return Ok(length);
            }
            let mut socket = socket;
            let length = socket.read(&mut received.bytes)?;
            if length == 0 {
                return Ok(0);
            }
            (received.start, received.end) = (0, length);
        }
    }

    /// Fills a buffer from what was received; `None` if the socket has to be read.
    fn decipher(&self, received: &mut Received, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let mut state = held(&self.state);
        loop {
            match state.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read.map(Some),
            }
            let mut rest = &received.bytes[received.start..received.end];
            if rest.is_empty() {
                return Ok(None);
            }
            received.start += state.read_tls(&mut rest)?;
            state.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }

    /// Writes all bytes.
    ///
    /// # Errors
    /// Those of the socket. The peer may have a part of a record then: the connection is of no more use.
    pub fn write_all<S>(&self, socket: &S, bytes: &[u8]) -> io::Result<()>
    where
        for<'s> &'s S: Write,
    {
        let mut sending = held(&self.sending);
        for piece in bytes.chunks(PIECE_BYTES) {
            sending.clear();
            {
                let mut state = held(&self.state);
                state.writer().write_all(piece)?;
                while state.wants_write() {
                    state.write_tls(&mut *sending)?;
                }
            }
            let mut socket = socket;
            socket.write_all(&sending)?;
        }
        Ok(())
    }

    /// Tells the peer that nothing more will be sent, or of the error that was found, if the socket takes that at once.
    pub fn close(&self, socket: impl AsFd) {
        // In mid-record there is nothing to tell.
        let Ok(mut sending) = self.sending.try_lock() else { return };
        sending.clear();
        let mut state = held(&self.state);
        state.send_close_notify();
        while state.wants_write() && state.write_tls(&mut *sending).is_ok() {}
        drop(state);
        let _ = rustix::net::send(socket, &sending, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

/// A lock. A thread that panicked has left no half of a change: rustls makes each call whole.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

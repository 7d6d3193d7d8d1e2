//! A connection to a server: a socket, in the clear or with TLS.

use brindle_tls::Session;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A connection. One thread reads while others write.
#[derive(Debug)]
pub(super) struct Wire {
    /// Any stream socket: no call is made that those of unix have alone.
    socket: UnixStream,
    /// Set by the handshake, and never taken back.
    session: Option<Session>,
}

impl Wire {
    /// A connection in the clear.
    pub(super) fn plain(socket: UnixStream) -> Self {
        Self { socket, session: None }
    }

    /// Has everything that follows pass by a session of TLS.
    pub(super) fn secure(&mut self, session: Session) {
        assert!(self.session.is_none(), "TLS begins once");
        self.session = Some(session);
    }

    pub(super) fn set_read_timeout(&self, limit: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(limit))
    }

    /// Ends the connection, for all its threads.
    pub(super) fn end(&self) {
        if let Some(session) = &self.session {
            session.close(&self.socket);
        }
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl Read for &Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.session {
            Some(session) => session.read(&self.socket, buffer),
            None => (&self.socket).read(buffer),
        }
    }
}

impl Write for &Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.session {
            Some(session) => session.write_all(&self.socket, bytes).map(|()| bytes.len()),
            None => (&self.socket).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

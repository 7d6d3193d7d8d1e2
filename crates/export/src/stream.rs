//! Sockets: unix sockets and ports of this host.

use crate::{Encryption, ExportError};
use brindle_nbd::{NbdAddress, NbdTls, NbdUri};
use brindle_tls::Session;
use rustix::fs::Mode;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// A connection, in the clear until it has a session of TLS.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: Socket,
    session: OnceLock<Session>,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => { stream }.read(buffer),
            Socket::Tcp(stream) => { stream }.read(buffer),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => { stream }.write(bytes),
            Socket::Tcp(stream) => { stream }.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Stream {
    fn new(socket: Socket) -> Self {
        Self { socket, session: OnceLock::new() }
    }

    /// Has everything that follows pass by a session of TLS.
    pub(crate) fn secure(&self, session: Session) {
        self.session.set(session).expect("TLS begins once");
    }

    /// Returns true if TLS has begun.
    pub(crate) fn is_secure(&self) -> bool {
        self.session.get().is_some()
    }

    pub(crate) fn set_read_timeout(&self, limit: Duration) -> io::Result<()> {
        // Zero would mean for ever.
        let limit = Some(limit.max(Duration::from_millis(1)));
        match &self.socket {
            Socket::Unix(stream) => stream.set_read_timeout(limit),
            Socket::Tcp(stream) => stream.set_read_timeout(limit),
        }
    }

    pub(crate) fn set_write_timeout(&self, limit: Duration) -> io::Result<()> {
        match &self.socket {
            Socket::Unix(stream) => stream.set_write_timeout(Some(limit)),
            Socket::Tcp(stream) => stream.set_write_timeout(Some(limit)),
        }
    }

    /// Ends the connection, for all its threads; or what is read of it.
    pub(crate) fn shutdown(&self, how: Shutdown) {
        if let (Some(session), Shutdown::Both) = (self.session.get(), how) {
            session.close(&self.socket);
        }
        let _ = match &self.socket {
            Socket::Unix(stream) => stream.shutdown(how),
            Socket::Tcp(stream) => stream.shutdown(how),
        };
    }

    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.session.get() {
            Some(session) => session.read(&self.socket, buffer),
            None => (&self.socket).read(buffer),
        }
    }

    pub(crate) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self.session.get() {
            Some(session) => session.write_all(&self.socket, bytes),
            None => (&self.socket).write_all(bytes),
        }
    }
}

/// A place where clients connect. A unix socket is removed when it is dropped.
#[derive(Debug)]
pub struct Listener {
    kind: Kind,
    encryption: Encryption,
}

#[derive(Debug)]
enum Kind {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener, u16),
}

impl Listener {
    /// A unix socket, for the user that runs the server alone. One that a killed server left is replaced.
    ///
    /// # Errors
    /// [`ExportError::Used`], and those of bind(2).
    pub fn unix(path: &Path) -> Result<Self, ExportError> {
        let place = || path.display().to_string();
        let mut bound = bind_private(path);
        if bound.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse) {
            match UnixStream::connect(path) {
                // A file that is no socket refuses as well.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && is_socket(path) => {
                    bound = std::fs::remove_file(path).and_then(|()| bind_private(path));
                }
                _ => return Err(ExportError::Used { place: place() }),
            }
        }
        let listener = bound.map_err(|source| ExportError::Listen { place: place(), source })?;
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Ok(Self::new(Kind::Unix(listener, path)))
    }

    /// A port of the loopback address, which all users of this host can connect to; 0 for any that is free.
    ///
    /// # Errors
    /// Those of bind(2).
    pub fn port(port: u16) -> Result<Self, ExportError> {
        let failed = |source| ExportError::Listen { place: format!("port {port} of 127.0.0.1"), source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        Ok(Self::new(Kind::Tcp(listener, port)))
    }

    fn new(kind: Kind) -> Self {
        Self { kind, encryption: Encryption::Off }
    }

    /// Has clients turn to TLS, or lets them.
    #[must_use]
    pub fn encrypted(mut self, encryption: Encryption) -> Self {
        self.encryption = encryption;
        self
    }

    pub(crate) fn encryption(&self) -> &Encryption {
        &self.encryption
    }

    /// URI of an export that is shown here: of TLS, where that is served.
    pub fn uri(&self, export: &str) -> NbdUri {
        let address = match &self.kind {
            Kind::Unix(_, path) => NbdAddress::Unix(path.clone()),
            Kind::Tcp(_, port) => NbdAddress::Tcp(Ipv4Addr::LOCALHOST.to_string(), *port),
        };
        let tls = self.encryption.credentials().map(|_| NbdTls::default());
        NbdUri { address, export: export.to_owned(), timeout: None, tls }
    }

    pub(crate) fn accept(&self) -> io::Result<Stream> {
        match &self.kind {
            Kind::Unix(listener, _) => Ok(Stream::new(Socket::Unix(listener.accept()?.0))),
            Kind::Tcp(listener, _) => {
                let stream = listener.accept()?.0;
                stream.set_nodelay(true)?;
                Ok(Stream::new(Socket::Tcp(stream)))
            }
        }
    }
}

fn is_socket(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket())
}

/// Binds a socket that no other user can connect to, at no moment.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let before = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    bound
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            Kind::Unix(listener, _) => listener.as_fd(),
            Kind::Tcp(listener, _) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Kind::Unix(_, path) = &self.kind {
            let _ = std::fs::remove_file(path);
        }
    }
}

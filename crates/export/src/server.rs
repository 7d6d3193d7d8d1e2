//! The server: connections, their number, and the end of all.

use crate::budget::Budget;
use crate::connection::Connection;
use crate::handshake::negotiate;
use crate::stream::{Listener, Stream};
use crate::{Encryption, Export, ExportError};
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most connections at once; a further one is closed.
pub const CONNECTIONS_MAX: usize = 32;
/// Memory of the requests of all connections, in bytes.
const BUDGET_BYTES: usize = 256 << 20;
/// Longest handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(30);
/// Longest wait for a connection that is closed in mid-handshake.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);
/// Longest pause of a client in mid-request.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// Longest wait for a client to take an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Longest time for requests under way when the server ends.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Pause after a connection that could not be had.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A server that runs. Dropped, it ends as by [`end`](Self::end).
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    /// Closed to wake the thread that accepts.
    waker: Option<UnixStream>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    export: Arc<Export>,
    encryption: Encryption,
    budget: Arc<Budget>,
    connections: Mutex<Connections>,
    left: Condvar,
    handshake_limit: Duration,
}

#[derive(Debug, Default)]
struct Connections {
    open: Vec<Open>,
    is_over: bool,
}

/// A connection.
#[derive(Debug)]
struct Open {
    stream: Arc<Stream>,
    /// True once the handshake is done, with TLS and a certificate where that is asked for.
    is_ready: bool,
}

impl Server {
    /// Starts to serve.
    ///
    /// # Errors
    /// [`ExportError::Start`].
    pub fn start(listener: Listener, export: Export) -> Result<Self, ExportError> {
        Self::start_with(listener, export, HANDSHAKE_LIMIT)
    }

    pub(crate) fn start_with(
        listener: Listener,
        export: Export,
        handshake_limit: Duration,
    ) -> Result<Self, ExportError> {
        let shared = Arc::new(Shared {
            export: Arc::new(export),
            encryption: listener.encryption().clone(),
            budget: Budget::new(BUDGET_BYTES),
            connections: Mutex::default(),
            left: Condvar::new(),
            handshake_limit,
        });
        let (waker, woken) = UnixStream::pair().map_err(ExportError::Start)?;
        let acceptor = {
            let shared = Arc::clone(&shared);
            let accept = move || shared.accept(&listener, &woken);
            std::thread::Builder::new().name("nbd accepts".to_owned()).spawn(accept)
        };
        let acceptor = Some(acceptor.map_err(ExportError::Start)?);
        Ok(Self { shared, waker: Some(waker), acceptor })
    }

    /// Number of connections.
    pub fn connections(&self) -> usize {
        self.shared.connections().open.len()
    }

    /// Takes no more connections and requests, answers those that are under way, and makes durable what was written.
    ///
    /// # Errors
    /// That of the last flush.
    pub fn end(mut self) -> Result<(), brindle_device::DeviceError> {
        self.stop();
        self.shared.export.writable_device().map_or(Ok(()), brindle_device::WritableDevice::flush)
    }

    fn stop(&mut self) {
        self.waker = None;
        if let Some(acceptor) = self.acceptor.take() {
            // A panic of that thread has been reported, and leaves nothing to do.
            let _ = acceptor.join();
        }
        let mut connections = self.shared.connections();
        connections.is_over = true;
        connections.open.iter().for_each(|open| open.stream.shutdown(Shutdown::Read));
        let is_served = |connections: &mut Connections| !connections.open.is_empty();
        let waited = self.shared.left.wait_timeout_while(connections, END_LIMIT, is_served);
        let connections = waited.unwrap_or_else(PoisonError::into_inner).0;
        // A client that goes on sending over TCP is not heard any more, and is told so.
        connections.open.iter().for_each(|open| open.stream.shutdown(Shutdown::Both));
        drop(self.shared.left.wait_while(connections, is_served).unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A connection that is counted. Dropped, it is counted no more.
struct Counted<'s>(&'s Shared, &'s Arc<Stream>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.1.shutdown(Shutdown::Both);
        self.0.connections().open.retain(|open| !Arc::ptr_eq(&open.stream, self.1));
        self.0.left.notify_all();
    }
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts connections until the other end of `woken` is closed.
    fn accept(self: &Arc<Self>, listener: &Listener, woken: &UnixStream) {
        loop {
            let mut awaited =
                [PollFd::new(listener, PollFlags::IN), PollFd::new(woken, PollFlags::IN | PollFlags::HUP)];
            match poll(&mut awaited, None) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return tracing::error!("no more connections are accepted: {error}"),
                Ok(_) if !awaited[1].revents().is_empty() => return,
                Ok(_) => {}
            }
            if let Err(error) = listener.accept().and_then(|stream| self.admit(stream)) {
                tracing::warn!("a connection could not be accepted: {error}");
                // Descriptors or threads are short, and may be back soon.
                std::thread::sleep(ACCEPT_PAUSE);
            }
        }
    }

    /// The connections; if they are as many as may be, the oldest one in mid-handshake is closed first. So clients that never come to
    /// an end of it, and need no certificate for that, keep no other client out.
    fn with_room(&self) -> MutexGuard<'_, Connections> {
        let connections = self.connections();
        if connections.open.len() < CONNECTIONS_MAX {
            return connections;
        }
        let Some(oldest) = connections.open.iter().find(|open| !open.is_ready) else { return connections };
        tracing::warn!(
            "{CONNECTIONS_MAX} connections are open: one in mid-handshake is closed for another one"
        );
        oldest.stream.shutdown(Shutdown::Both);
        let is_full = |connections: &mut Connections| connections.open.len() >= CONNECTIONS_MAX;
        let waited = self.left.wait_timeout_while(connections, LEAVE_LIMIT, is_full);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Gives a connection its first thread.
    fn admit(self: &Arc<Self>, stream: Stream) -> io::Result<()> {
        let stream = Arc::new(stream);
        {
            let mut connections = self.with_room();
            if connections.is_over || connections.open.len() >= CONNECTIONS_MAX {
                tracing::warn!("{CONNECTIONS_MAX} connections are open: another one is refused");
                return Ok(());
            }
            connections.open.push(Open { stream: Arc::clone(&stream), is_ready: false });
        }
        let (shared, own) = (Arc::clone(self), Arc::clone(&stream));
        let serve = move || {
            let _counted = Counted(&shared, &own);
            if let Err(error) = shared.serve(&own) {
                tracing::info!("{}: a handshake failed: {error}", shared.export.name());
            }
        };
        let spawned = std::thread::Builder::new().name("nbd".to_owned()).spawn(serve);
        spawned.map(drop).inspect_err(|_| drop(Counted(self, &stream)))
    }

    fn serve(&self, stream: &Arc<Stream>) -> io::Result<()> {
        stream.set_write_timeout(ANSWER_LIMIT)?;
        let deadline = Instant::now() + self.handshake_limit;
        self.export.refresh_size();
        let Some(mode) = negotiate(stream, &self.export, &self.encryption, deadline)? else { return Ok(()) };
        let is_own = |open: &&mut Open| Arc::ptr_eq(&open.stream, stream);
        if let Some(own) = self.connections().open.iter_mut().find(is_own) {
            own.is_ready = true;
        }
        stream.set_read_timeout(REQUEST_LIMIT)?;
        let (export, budget) = (Arc::clone(&self.export), Arc::clone(&self.budget));
        Arc::new(Connection::new(Arc::clone(stream), export, budget, mode)).serve();
        Ok(())
    }
}

//! Both sides of a handshake, by the certificates of `pki/`, and what passes between them then.

use crate::{ClientCredentials, ServerCredentials, Session, TlsError};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn pki(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("pki").join(name)
}

fn client(name: &str) -> ClientCredentials {
    ClientCredentials::load(Some(&pki(name))).expect("they are there")
}

fn server(name: &str, verifies_clients: bool) -> ServerCredentials {
    ServerCredentials::load(&pki(name), verifies_clients).expect("they are there")
}

fn sockets() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    for socket in [&ours, &theirs] {
        // A test that fails is not one that hangs.
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    }
    (ours, theirs)
}

/// An end of a connection.
#[derive(Debug)]
struct End {
    session: Session,
    socket: UnixStream,
}

impl End {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.session.read(&self.socket, buffer)
    }

    fn read_exact(&self, length: usize) -> Vec<u8> {
        let (mut bytes, mut filled) = (vec![0; length], 0);
        while filled < length {
            let read = self.read(&mut bytes[filled..]).expect("it is sent");
            assert!(read > 0, "the end after {filled} bytes");
            filled += read;
        }
        bytes
    }

    fn write(&self, bytes: &[u8]) {
        self.session.write_all(&self.socket, bytes).expect("it is read");
    }
}

/// Shakes hands; the client's result is that of its first read, of one byte that the server sends.
fn meet(
    client: &ClientCredentials,
    host: &str,
    server: &ServerCredentials,
) -> (io::Result<End>, io::Result<End>) {
    let (mut ours, mut theirs) = sockets();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(move || {
            let session = server.accept(&mut theirs)?;
            session.write_all(&theirs, b"x")?;
            Ok(End { session, socket: theirs })
        });
        let connected = client.connect(host, &mut ours).and_then(|session| {
            let end = End { session, socket: ours };
            // Of TLS 1.3, the client has shaken hands before the server has looked at its certificate.
            match end.read(&mut [0])? {
                1 => Ok(end),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            }
        });
        (connected, accepted.join().expect("no panic"))
    })
}

fn met() -> (End, End) {
    let (client, server) = meet(&client("client"), "localhost", &server("server", true));
    (client.expect("trusted"), server.expect("trusted"))
}

#[test]
fn peers_that_trust_each_other_meet() {
    for (name, host, verifies) in
        [("client", "localhost", true), ("client", "127.0.0.1", false), ("bare", "::1", false)]
    {
        let (client, server) = meet(&client(name), host, &server("server", verifies));
        assert!(client.is_ok() && server.is_ok(), "{name}, {host}: {client:?}, {server:?}");
    }
}

#[test]
fn peers_that_are_not_trusted_are_refused_with_the_reason() {
    let refused = |name, host, of: &str, verifies| {
        let (client, server) = meet(&client(name), host, &server(of, verifies));
        (client.expect_err("refused").to_string(), server.err().map(|error| error.to_string()))
    };
    let (said, _) = refused("client", "example.com", "server", false);
    assert!(said.contains("not valid for name \"example.com\""), "{said}");
    let (said, told) = refused("client", "localhost", "stranger", false);
    assert!(said.contains("invalid peer certificate: UnknownIssuer"), "{said}");
    assert!(told.expect("it fails as well").contains("UnknownCA"));
    let (said, told) = refused("bare", "localhost", "server", true);
    assert!(said.contains("CertificateRequired"), "{said}");
    assert!(told.expect("it refuses").contains("peer sent no certificates"));
    let (said, _) = refused("revoking", "localhost", "server", false);
    assert!(said.contains("invalid peer certificate: Revoked"), "{said}");
    let (_, told) = refused("client", "localhost", "revoking", true);
    assert!(told.expect("it refuses").contains("invalid peer certificate: Revoked"));
    // A client whose authority is another one: it would take the server, and the server does not take it.
    let directory = Mixed::new(&[
        ("server", "ca-cert.pem"),
        ("stranger", "client-cert.pem"),
        ("stranger", "client-key.pem"),
    ]);
    let credentials = ClientCredentials::load(Some(&directory.0)).expect("whole");
    let (_, told) = meet(&credentials, "localhost", &server("server", true));
    assert!(told.expect_err("refused").to_string().contains("UnknownIssuer"));
}

/// A directory of files of several ones.
struct Mixed(PathBuf);

impl Mixed {
    fn new(files: &[(&str, &str)]) -> Self {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("brindle-tls-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).expect("a new directory");
        for (from, file) in files {
            std::fs::copy(pki(from).join(file), directory.join(file)).expect("they are there");
        }
        Self(directory)
    }
}

impl Drop for Mixed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn bytes_pass_both_ways_at_once() {
    const LENGTH: usize = 3_000_000;
    let (client, server) = met();
    let bytes: Vec<u8> = (0..LENGTH).map(|at| (at % 251).to_le_bytes()[0]).collect();
    std::thread::scope(|scope| {
        for end in [&client, &server] {
            let bytes = &bytes;
            scope.spawn(move || end.write(bytes));
            scope.spawn(move || assert!(end.read_exact(LENGTH) == *bytes));
        }
    });
    client.write(b"");
    client.write(b"last");
    assert_eq!(server.read_exact(4), b"last");
}

#[test]
fn several_threads_write_whole_pieces() {
    const PIECE: usize = 100_000;
    let (client, server) = met();
    std::thread::scope(|scope| {
        for fill in 0..8 {
            let client = &client;
            scope.spawn(move || client.write(&[fill; PIECE]));
        }
        let bytes = server.read_exact(8 * PIECE);
        assert!(bytes.chunks(PIECE).all(|piece| piece.iter().all(|byte| *byte == piece[0])));
    });
}

#[test]
fn wait_that_is_too_long_is_no_end() {
    let (client, server) = met();
    client.socket.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout");
    let error = client.read(&mut [0; 4]).expect_err("nothing is sent");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    server.write(b"late");
    client.socket.set_read_timeout(None).expect("a timeout");
    assert_eq!(client.read_exact(4), b"late");
}

#[test]
fn end_of_a_peer_is_the_end() {
    let (client, server) = met();
    server.write(b"rest");
    server.session.close(&server.socket);
    assert_eq!(client.read_exact(4), b"rest");
    assert_eq!(client.read(&mut [0; 4]).expect("told"), 0);
    let (client, server) = met();
    server.socket.shutdown(Shutdown::Both).expect("open");
    assert_eq!(client.read(&mut [0; 4]).expect("cut off"), 0);
}

#[test]
fn plain_bytes_are_never_taken() {
    let credentials = server("server", false);
    for bytes in [&b"IHAVEOPT\0\0\0\x03\0\0\0\0"[..], &[0; 64], &[0x17; 64]] {
        let (client, server) = met();
        (&client.socket).write_all(bytes).expect("room");
        let error = server.read(&mut [0; 64]).expect_err("no record");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        // In front of a handshake as well.
        let (mut ours, mut theirs) = sockets();
        ours.write_all(bytes).expect("room");
        ours.shutdown(Shutdown::Write).expect("open");
        credentials.accept(&mut theirs).expect_err("no handshake");
    }
    // Between two records.
    let (client, server) = met();
    client.write(b"good");
    assert_eq!(server.read_exact(4), b"good");
    (&client.socket).write_all(b"plain").expect("room");
    client.write(b"good");
    assert!(server.read(&mut [0; 4]).is_err());
}

#[test]
fn bytes_that_were_changed_on_their_way_are_refused() {
    let (client, server) = met();
    // The record, seen by a middleman.
    let (mut middle, end) = sockets();
    client.session.write_all(&end, b"contents").expect("room");
    let mut record = vec![0; 4096];
    let length = middle.read(&mut record).expect("sent");
    record.truncate(length);
    *record.last_mut().expect("a record") ^= 1;
    (&client.socket).write_all(&record).expect("room");
    assert!(server.read(&mut [0; 64]).expect_err("changed").to_string().contains("cannot decrypt"));
}

#[test]
fn credentials_that_cannot_be_used_are_refused_by_name() {
    let of_client = |directory: &Path| ClientCredentials::load(Some(directory)).map(drop);
    let of_server = |directory: &Path| ServerCredentials::load(directory, true).map(drop);
    let said = |result: Result<(), TlsError>| result.expect_err("refused").to_string();
    assert!(said(of_client(Path::new("/nowhere"))).starts_with("/nowhere/ca-cert.pem: "));
    assert!(said(of_server(&pki("client"))).contains("client/server-cert.pem: "));
    let half = Mixed::new(&[("client", "ca-cert.pem"), ("client", "client-cert.pem")]);
    assert!(said(of_client(&half.0)).contains("client-key.pem: "));
    let strange = Mixed::new(&[("server", "server-cert.pem"), ("stranger", "server-key.pem")]);
    let told = said(ServerCredentials::load(&strange.0, false).map(drop));
    assert!(told.contains("the certificates can't be used: keys may not be consistent"), "{told}");
    std::fs::copy(pki("server").join("server-key.pem"), strange.0.join("server-key.pem")).expect("room");
    assert!(said(of_server(&strange.0)).contains("ca-cert.pem: "));
    std::fs::write(strange.0.join("ca-cert.pem"), "no certificate").expect("room");
    assert!(said(of_server(&strange.0)).contains("ca-cert.pem: it has no certificate"));
    std::fs::copy(pki("server").join("server-key.pem"), strange.0.join("ca-cert.pem")).expect("room");
    assert!(said(of_server(&strange.0)).contains("ca-cert.pem: it has no certificate"));
    std::fs::copy(pki("server").join("ca-cert.pem"), strange.0.join("ca-cert.pem")).expect("room");
    of_server(&strange.0).expect("whole");
    std::fs::write(strange.0.join("ca-crl.pem"), "").expect("room");
    assert!(said(of_server(&strange.0)).contains("ca-crl.pem: it has no revocation list"));
}

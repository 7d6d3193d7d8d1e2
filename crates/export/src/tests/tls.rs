//! Clients with TLS and without, of servers that have it, want it or lack it.

use super::client::{BLOCK, Forgetful, place, uri};
use crate::{Encryption, Export, Listener, Server, ServerCredentials};
use brindle_device::{Device, NbdDevice, ReadRequest, WritableDevice};
use brindle_nbd::*;
use brindle_tls::ClientCredentials;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

fn pki(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/pki").join(name)
}

fn credentials(verifies_clients: bool) -> ServerCredentials {
    ServerCredentials::load(&pki("server"), verifies_clients).expect("they are there")
}

fn serve(disk: &Arc<Forgetful>, socket: &Path, encryption: Encryption) -> Server {
    let device: Arc<dyn WritableDevice> = Arc::clone(disk) as _;
    let export = Export::writable("disk", device).expect("a name");
    let listener = Listener::unix(socket).expect("a socket").encrypted(encryption);
    Server::start(listener, export).expect("threads")
}

/// The URI of a client with the certificates of a directory.
fn secure(socket: &Path, directory: &str) -> NbdUri {
    let tls = Some(NbdTls { certificates: Some(pki(directory)), hostname: None });
    NbdUri { tls, ..uri(socket, 600) }
}

fn refused(uri: &NbdUri) -> String {
    NbdDevice::open_writable(uri).expect_err("refused").to_string()
}

#[test]
fn device_is_used_by_tls_where_it_is_offered_or_required() {
    for encryption in [Encryption::Offered(credentials(false)), Encryption::Required(credentials(true))] {
        let (_place, socket) = place();
        let disk = Forgetful::new();
        let _server = serve(&disk, &socket, encryption);
        let device = NbdDevice::open_writable(&secure(&socket, "client")).expect("served");
        let bytes: Vec<u8> = (0..700_000u32).map(|at| (at % 253).to_le_bytes()[0]).collect();
        device.write_at(BLOCK as u64, &bytes).expect("served");
        device.flush().expect("served");
        let requests: Vec<_> = (0..100).map(|at| ReadRequest::new((1 + at) * BLOCK as u64, BLOCK)).collect();
        for (at, read) in device.submit_reads(&requests).into_iter().enumerate() {
            assert!(read.wait().expect("served")[..] == bytes[at * BLOCK..(at + 1) * BLOCK]);
        }
        let mut seen = vec![0; bytes.len()];
        device.read_at(BLOCK as u64, &mut seen).expect("served");
        assert!(seen == bytes);
    }
}

#[test]
fn several_threads_use_one_connection_of_tls() {
    let (_place, socket) = place();
    let disk = Forgetful::new();
    let _server = serve(&disk, &socket, Encryption::Required(credentials(true)));
    let device = NbdDevice::open_writable(&secure(&socket, "client")).expect("served");
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let device = &device;
            scope.spawn(move || {
                for round in 0..20u8 {
                    let at = u64::from(thread) * 25 * BLOCK as u64;
                    let bytes = vec![thread ^ round; 20 * BLOCK];
                    device.write_at(at, &bytes).expect("served");
                    let mut seen = vec![0; bytes.len()];
                    device.read_at(at, &mut seen).expect("served");
                    assert!(seen == bytes, "{thread}, {round}");
                }
            });
        }
    });
}

#[test]
fn each_side_that_wants_tls_refuses_the_other_without_it_by_name() {
    let (_place, socket) = place();
    let server = serve(&Forgetful::new(), &socket, Encryption::Required(credentials(false)));
    let said = refused(&uri(&socket, 60));
    assert!(said.contains("the server wants TLS: its URI begins with nbds://"), "{said}");
    drop(server);
    let server = serve(&Forgetful::new(), &socket, Encryption::Off);
    let said = refused(&secure(&socket, "client"));
    assert!(said.contains("the server has no TLS, and nbds:// does without it never"), "{said}");
    drop(server);
    // Where it is offered alone, both are served.
    let _server = serve(&Forgetful::new(), &socket, Encryption::Offered(credentials(false)));
    NbdDevice::open_writable(&uri(&socket, 60)).expect("in the clear");
    NbdDevice::open_writable(&secure(&socket, "bare")).expect("by TLS");
}

#[test]
fn peers_that_are_not_trusted_are_refused_with_the_reason() {
    let (_place, socket) = place();
    let _server = serve(&Forgetful::new(), &socket, Encryption::Required(credentials(true)));
    let said = refused(&secure(&socket, "stranger"));
    assert!(said.contains("TLS: invalid peer certificate: UnknownIssuer"), "{said}");
    let said = refused(&secure(&socket, "bare"));
    assert!(said.contains("CertificateRequired"), "{said}");
    let elsewhere = NbdTls { certificates: Some(pki("client")), hostname: Some("disks.example".to_owned()) };
    let said = refused(&NbdUri { tls: Some(elsewhere), ..uri(&socket, 60) });
    assert!(said.contains("not valid for name \"disks.example\""), "{said}");
    let said = refused(&NbdUri {
        tls: Some(NbdTls { certificates: Some("/nowhere".into()), hostname: None }),
        ..uri(&socket, 60)
    });
    assert!(said.contains("/nowhere/ca-cert.pem"), "{said}");
}

#[test]
fn nothing_is_lost_by_a_server_that_forgets_behind_tls() {
    let (_place, socket) = place();
    let disk = Forgetful::new();
    let mut server = Some(serve(&disk, &socket, Encryption::Required(credentials(true))));
    let device = NbdDevice::open_writable(&secure(&socket, "client")).expect("served");
    for round in 1..=20u8 {
        let at = u64::from(round) * BLOCK as u64;
        device.write_at(at, &[round; BLOCK]).expect("served");
        drop(server.take());
        disk.cut_power();
        server = Some(serve(&disk, &socket, Encryption::Required(credentials(true))));
        device.flush().expect("repeated");
        disk.cut_power();
        let mut seen = [0; BLOCK];
        device.read_at(at, &mut seen).expect("served");
        assert!(seen == [round; BLOCK]);
    }
}

/// A server that comes back without TLS gets nothing, and one with TLS is found again.
#[test]
fn connection_that_is_made_again_is_never_in_the_clear() {
    let (_place, socket) = place();
    let disk = Forgetful::new();
    let server = serve(&disk, &socket, Encryption::Required(credentials(false)));
    let device = NbdDevice::open_writable(&secure(&socket, "client")).expect("served");
    device.write_at(0, &[1; BLOCK]).expect("served");
    drop(server);
    disk.cut_power();
    let other = Forgetful::new();
    let (came, coming) = std::sync::mpsc::channel();
    // It agrees to everything, until it is asked for TLS twice.
    let listener = UnixListener::bind(&socket).expect("a socket");
    let impostor = std::thread::spawn(move || {
        for _ in 0..2 {
            let mut client = listener.accept().expect("it comes").0;
            let mut seen = [0; 4 + OPTION_HEADER_BYTES];
            client.write_all(&greeting(HandshakeFlags::all())).expect("open");
            client.read_exact(&mut seen).expect("an option");
            assert_eq!(OptionHeader::decode(&seen[4..]).expect("an option").kind, OptionKind::StartTls);
            let no = option_reply(OptionKind::StartTls, OptionReplyKind::Unsupported, b"");
            client.write_all(&no).expect("open");
            let mut rest = Vec::new();
            let _ = client.read_to_end(&mut rest);
            assert!(rest.is_empty(), "told in the clear: {rest:?}");
        }
        came.send(()).expect("awaited");
    });
    coming.recv_timeout(Duration::from_secs(100)).expect("it tries again");
    impostor.join().expect("nothing was told");
    assert_eq!(other.blocks(), 0);
    let _server = serve(&disk, &socket, Encryption::Required(credentials(false)));
    device.flush().expect("repeated");
    assert_eq!(disk.blocks(), 1);
}

/// A client by hand, behind the greeting.
struct Client {
    socket: UnixStream,
    flags: ClientFlags,
}

impl Client {
    fn connect(path: &Path) -> Self {
        let mut socket = UnixStream::connect(path).expect("the server listens");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        let mut greeted = [0; GREETING_BYTES];
        socket.read_exact(&mut greeted).expect("a greeting");
        let flags = parse_greeting(&greeted).expect("a greeting");
        socket.write_all(&flags.bits().to_be_bytes()).expect("read");
        Self { socket, flags }
    }

    fn option(&mut self, kind: OptionKind, contents: &[u8]) -> io::Result<OptionReplyKind> {
        self.socket.write_all(&option_header(kind, u32::try_from(contents.len()).expect("short")))?;
        self.socket.write_all(contents)?;
        let mut header = [0; OPTION_REPLY_HEADER_BYTES];
        self.socket.read_exact(&mut header)?;
        let reply = OptionReply::decode(&header).expect("a reply");
        self.socket.read_exact(&mut vec![0; reply.length as usize])?;
        assert_eq!(reply.option, kind);
        Ok(reply.kind)
    }

    fn is_cut_off(&mut self) -> bool {
        self.socket.read_to_end(&mut Vec::new()).is_ok_and(|_| true)
    }
}

#[test]
fn server_that_requires_tls_tells_nothing_before() {
    let (_place, socket) = place();
    let _server = serve(&Forgetful::new(), &socket, Encryption::Required(credentials(true)));
    let mut client = Client::connect(&socket);
    let export = export_request("disk");
    for (kind, contents) in [
        (OptionKind::List, &b""[..]),
        (OptionKind::Info, &export),
        (OptionKind::Go, &export),
        (OptionKind::StructuredReply, b""),
        (OptionKind::ListMetaContext, b"\0\0\0\x04disk\0\0\0\0"),
        (OptionKind::Other(77), b"x"),
    ] {
        assert_eq!(client.option(kind, contents).expect("told"), OptionReplyKind::TlsRequired, "{kind:?}");
    }
    assert_eq!(client.option(OptionKind::StartTls, b"x").expect("told"), OptionReplyKind::Invalid);
    assert_eq!(client.option(OptionKind::Abort, b"").expect("told"), OptionReplyKind::Ack);
    assert!(client.is_cut_off());
    // The option that has no way to say no.
    let mut client = Client::connect(&socket);
    client.socket.write_all(&option_header(OptionKind::ExportName, 4)).expect("open");
    client.socket.write_all(b"disk").expect("open");
    assert!(client.is_cut_off());
}

#[test]
fn bytes_in_the_clear_behind_the_option_of_tls_end_the_connection() {
    let (_place, socket) = place();
    let disk = Forgetful::new();
    let _server = serve(&disk, &socket, Encryption::Offered(credentials(false)));
    // Options that a middleman puts behind it, and a handshake that follows.
    let mut client = Client::connect(&socket);
    let injected =
        [&option_header(OptionKind::StartTls, 0)[..], &option_header(OptionKind::StructuredReply, 0)]
            .concat();
    client.socket.write_all(&injected).expect("open");
    let mut reply = [0; OPTION_REPLY_HEADER_BYTES];
    client.socket.read_exact(&mut reply).expect("told");
    assert_eq!(OptionReply::decode(&reply).expect("a reply").kind, OptionReplyKind::Ack);
    let credentials = ClientCredentials::load(Some(&pki("client"))).expect("they are there");
    credentials.connect("localhost", &mut client.socket).expect_err("the server has left");
    // And no way back: once TLS has begun, bytes in the clear are no requests.
    let mut client = Client::connect(&socket);
    assert_eq!(client.option(OptionKind::StartTls, b"").expect("told"), OptionReplyKind::Ack);
    let session = credentials.connect("localhost", &mut client.socket).expect("trusted");
    let go = export_request("disk");
    session
        .write_all(&client.socket, &option_header(OptionKind::Go, u32::try_from(go.len()).expect("short")))
        .expect("open");
    session.write_all(&client.socket, &go).expect("open");
    while session.read(&client.socket, &mut [0; 4096]).expect("facts") == 4096 {}
    let write =
        Request { flags: CommandFlags::empty(), command: Command::Write, cookie: 1, offset: 0, length: 4096 };
    client.socket.write_all(&write.encode()).expect("open");
    let _ = client.socket.write_all(&[1; BLOCK]);
    client.is_cut_off();
    assert_eq!(disk.blocks(), 0);
}

/// Choices in the clear may be those of a middleman.
#[test]
fn choices_of_a_client_before_tls_are_forgotten() {
    let (_place, socket) = place();
    let _server = serve(&Forgetful::new(), &socket, Encryption::Offered(credentials(false)));
    let mut client = Client::connect(&socket);
    assert_eq!(client.option(OptionKind::StructuredReply, b"").expect("told"), OptionReplyKind::Ack);
    assert_eq!(client.option(OptionKind::StartTls, b"").expect("told"), OptionReplyKind::Ack);
    let credentials = ClientCredentials::load(Some(&pki("client"))).expect("they are there");
    let session = credentials.connect("localhost", &mut client.socket).expect("trusted");
    let read = |length: usize| {
        let (mut bytes, mut filled) = (vec![0; length], 0);
        while filled < length {
            filled += session.read(&client.socket, &mut bytes[filled..]).expect("sent");
        }
        bytes
    };
    // A second begin is refused, and the connection goes on.
    session.write_all(&client.socket, &option_header(OptionKind::StartTls, 0)).expect("open");
    let reply = OptionReply::decode(&read(OPTION_REPLY_HEADER_BYTES)).expect("a reply");
    assert_eq!(reply.kind, OptionReplyKind::Invalid);
    read(reply.length as usize);
    session.write_all(&client.socket, &option_header(OptionKind::ExportName, 4)).expect("open");
    session.write_all(&client.socket, b"disk").expect("open");
    let told = read(export_name_reply(0, ExportFlags::empty(), client.flags).len());
    let flags = ExportFlags::from_bits_retain(u16::from_be_bytes([told[8], told[9]]));
    assert!(!flags.contains(ExportFlags::SEND_DF), "{flags:?}");
    let flush =
        Request { flags: CommandFlags::empty(), command: Command::Flush, cookie: 9, offset: 0, length: 0 };
    session.write_all(&client.socket, &flush.encode()).expect("open");
    assert_eq!(read(SIMPLE_REPLY_BYTES), simple_reply(9, None));
}

/// A client that begins a handshake and stops is disconnected, in the time of a handshake.
#[test]
fn handshake_that_stops_is_ended() {
    let (_place, socket) = place();
    let export = Export::writable("disk", Forgetful::new()).expect("a name");
    let listener =
        Listener::unix(&socket).expect("a socket").encrypted(Encryption::Required(credentials(false)));
    // Long enough for a client that does not stop, on a machine that has a lot else to do.
    let _server = Server::start_with(listener, export, Duration::from_secs(3)).expect("threads");
    let mut client = Client::connect(&socket);
    assert_eq!(client.option(OptionKind::StartTls, b"").expect("told"), OptionReplyKind::Ack);
    assert!(client.is_cut_off());
}

/// A server that injects bytes behind its consent to TLS is not taken for the one that was asked for.
#[test]
fn answers_in_the_clear_behind_the_consent_are_refused() {
    let (_place, socket) = place();
    let listener = UnixListener::bind(&socket).expect("a socket");
    let server = std::thread::spawn(move || {
        let mut client = listener.accept().expect("it comes").0;
        client.write_all(&greeting(HandshakeFlags::all())).expect("open");
        client.read_exact(&mut [0; 4 + OPTION_HEADER_BYTES]).expect("an option");
        let flags = ExportFlags::HAS_FLAGS | ExportFlags::SEND_FLUSH;
        let fact = information(&Information::Export { size_bytes: 1 << 20, flags });
        let bytes = [
            option_reply(OptionKind::StartTls, OptionReplyKind::Ack, b""),
            option_reply(OptionKind::Go, OptionReplyKind::Info, &fact),
            option_reply(OptionKind::Go, OptionReplyKind::Ack, b""),
        ];
        client.write_all(&bytes.concat()).expect("open");
        let _ = client.read_to_end(&mut Vec::new());
    });
    let said = refused(&secure(&socket, "client"));
    assert!(said.contains("TLS: "), "{said}");
    server.join().expect("no panic");
}

//! A server and clients that say what they like.

use crate::{CONNECTIONS_MAX, Export, Listener, Server};
use brindle_device::{DeviceClass, FileDevice, SparseDevice, WritableDevice};
use brindle_nbd::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const SIZE: u64 = 8 << 20;

struct Set {
    _directory: tempfile::TempDir,
    socket: PathBuf,
    server: Server,
}

fn served(export: Export) -> Set {
    served_within(export, Duration::from_secs(30))
}

fn served_within(export: Export, handshake_limit: Duration) -> Set {
    let directory = tempfile::tempdir().expect("temporary directory");
    let socket = directory.path().join("socket");
    let listener = Listener::unix(&socket).expect("a socket");
    let server = Server::start_with(listener, export, handshake_limit).expect("threads");
    Set { _directory: directory, socket, server }
}

fn memory() -> Export {
    let device = SparseDevice::new("memory", SIZE, DeviceClass::Rotating);
    Export::writable("disk", Arc::new(device)).expect("a name")
}

/// A client without manners.
struct Client(UnixStream);

impl Client {
    fn connect(set: &Set) -> Self {
        let stream = UnixStream::connect(&set.socket).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        let mut client = Self(stream);
        let flags = parse_greeting(&client.read(GREETING_BYTES)).expect("a greeting");
        client.send(&flags.bits().to_be_bytes());
        client
    }

    /// A client in the phase of requests.
    fn ready(set: &Set, is_structured: bool) -> (Self, ExportFlags) {
        let mut client = Self::connect(set);
        if is_structured {
            assert_eq!(client.option(OptionKind::StructuredReply, b"").0, OptionReplyKind::Ack);
            let contexts =
                [&b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0f"[..], ALLOCATION_CONTEXT.as_bytes()].concat();
            let (kind, context) = client.option(OptionKind::SetMetaContext, &contexts);
            assert_eq!((kind, &context[..4]), (OptionReplyKind::MetaContext, &[0, 0, 0, 1][..]));
            assert_eq!(client.option_reply().0, OptionReplyKind::Ack);
        }
        let mut found = None;
        let mut reply = client.option(OptionKind::Go, &export_request("disk"));
        while reply.0 == OptionReplyKind::Info {
            if let Information::Export { flags, .. } = Information::decode(&reply.1).expect("a fact") {
                found = Some(flags);
            }
            reply = client.option_reply();
        }
        assert_eq!(reply.0, OptionReplyKind::Ack);
        (client, found.expect("the fact of the export"))
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the server reads");
    }

    fn read(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).expect("the server answers");
        bytes
    }

    fn option(&mut self, kind: OptionKind, contents: &[u8]) -> (OptionReplyKind, Vec<u8>) {
        self.send(&option_header(kind, u32::try_from(contents.len()).expect("short")));
        self.send(contents);
        self.option_reply()
    }

    fn option_reply(&mut self) -> (OptionReplyKind, Vec<u8>) {
        let reply = OptionReply::decode(&self.read(OPTION_REPLY_HEADER_BYTES)).expect("a reply");
        (reply.kind, self.read(reply.length as usize))
    }

    fn ask(&mut self, command: Command, flags: CommandFlags, offset: u64, length: u32) {
        self.send(&Request { flags, command, cookie: 7, offset, length }.encode());
    }

    /// Asks, and returns the error of the answer.
    fn error(
        &mut self,
        command: Command,
        flags: CommandFlags,
        offset: u64,
        length: u32,
    ) -> Option<ReplyError> {
        self.ask(command, flags, offset, length);
        self.answer()
    }

    fn answer(&mut self) -> Option<ReplyError> {
        let reply = SimpleReply::decode(&self.read(SIMPLE_REPLY_BYTES)).expect("a reply");
        assert_eq!(reply.cookie, 7);
        reply.error
    }

    /// Returns true if the server has ended the connection.
    fn is_cut_off(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

const NONE: CommandFlags = CommandFlags::empty();

#[test]
fn writes_are_read_back_and_wrong_requests_get_the_right_error() {
    let set = served(memory());
    let (mut client, flags) = Client::ready(&set, false);
    assert!(
        flags.contains(ExportFlags::ROTATIONAL | ExportFlags::SEND_FAST_ZERO | ExportFlags::CAN_MULTI_CONN)
    );
    assert!(!flags.intersects(ExportFlags::READ_ONLY | ExportFlags::SEND_DF));
    client.ask(Command::Write, CommandFlags::FUA, 1000, 5);
    client.send(b"12345");
    assert_eq!(client.answer(), None);
    client.ask(Command::Read, NONE, 998, 9);
    assert_eq!(client.answer(), None);
    assert_eq!(client.read(9), b"\0\x0012345\0\0");
    assert_eq!(client.error(Command::WriteZeroes, CommandFlags::NO_HOLE, 1000, 4), None);
    assert_eq!(client.error(Command::WriteZeroes, CommandFlags::FAST_ZERO, 0, 500), None);
    let slow = CommandFlags::FAST_ZERO | CommandFlags::NO_HOLE;
    assert_eq!(client.error(Command::WriteZeroes, slow, 0, 500), Some(ReplyError::Unsupported));
    client.ask(Command::Read, NONE, 1000, 5);
    assert_eq!((client.answer(), client.read(5)), (None, b"\0\0\0\x005".to_vec()));
    for (command, expected) in [
        (Command::Read, ReplyError::Invalid),
        (Command::WriteZeroes, ReplyError::NoSpace),
        (Command::Trim, ReplyError::Invalid),
        (Command::BlockStatus, ReplyError::Invalid),
        (Command::Other(99), ReplyError::Invalid),
    ] {
        for offset in [SIZE - 511, u64::MAX] {
            assert_eq!(client.error(command, NONE, offset, 512), Some(expected), "{command:?}");
        }
    }
    assert_eq!(client.error(Command::Read, NONE, 0, u32::MAX), Some(ReplyError::Overflow));
    assert_eq!(client.error(Command::Read, CommandFlags::DF, 0, 1), Some(ReplyError::Invalid));
    assert_eq!(client.error(Command::Trim, NONE, 0, 4096), None);
    assert_eq!(client.error(Command::Flush, NONE, 0, 0), None);
    // A payload is taken before it is refused, so the next request is understood.
    client.ask(Command::Write, NONE, SIZE, 3);
    client.send(b"abc");
    assert_eq!(client.answer(), Some(ReplyError::NoSpace));
    client.ask(Command::Disconnect, NONE, 0, 0);
    assert!(client.is_cut_off());
    set.server.end().expect("a flush of memory");
}

#[test]
fn read_only_export_refuses_writes() {
    let device = SparseDevice::new("memory", SIZE, DeviceClass::Solid);
    let set = served(Export::read_only("disk", Arc::new(device)).expect("a name"));
    let (mut client, flags) = Client::ready(&set, false);
    assert!(flags.contains(ExportFlags::READ_ONLY) && !flags.contains(ExportFlags::SEND_TRIM));
    for command in [Command::Trim, Command::WriteZeroes] {
        assert_eq!(client.error(command, NONE, 0, 512), Some(ReplyError::Permission));
    }
    client.ask(Command::Write, NONE, 0, 1);
    client.send(b"x");
    assert_eq!(client.answer(), Some(ReplyError::Permission));
    assert_eq!(client.error(Command::Flush, NONE, 0, 0), None);
    assert_eq!(client.error(Command::Cache, NONE, 0, 512), None);
}

#[test]
fn structured_answers_tell_holes() {
    let image = tempfile::NamedTempFile::new().expect("temporary file");
    image.as_file().set_len(SIZE).expect("room");
    let device = FileDevice::open_writable(image.path()).expect("open");
    device.write_at(1 << 20, &[9; 1 << 20]).expect("room");
    let set = served(Export::writable("disk", Arc::new(device)).expect("a name").host_cached());
    let (mut client, flags) = Client::ready(&set, true);
    assert!(flags.contains(ExportFlags::SEND_DF));
    client.ask(Command::Read, CommandFlags::DF, (2 << 20) - 2, 4);
    let answer = client.read(CHUNK_HEADER_BYTES + 8 + 4);
    assert_eq!(answer[..CHUNK_HEADER_BYTES], chunk(ChunkKind::OffsetData, 7, 12));
    assert_eq!(answer[CHUNK_HEADER_BYTES + 8..], [9, 9, 0, 0]);
    let extent = |length, is_hole| BlockStatus {
        length,
        flags: if is_hole { StatusFlags::all() } else { StatusFlags::empty() },
    };
    let mib = 1 << 20;
    for (flags, expected) in [
        (NONE, vec![extent(mib, true), extent(mib, false), extent(mib, true)]),
        (CommandFlags::REQ_ONE, vec![extent(mib, true)]),
    ] {
        client.ask(Command::BlockStatus, flags, 0, 3 * mib);
        let expected = status_chunk(7, 1, &expected);
        assert_eq!(client.read(expected.len()), expected);
    }
    client.ask(Command::Read, NONE, SIZE, 1);
    assert_eq!(client.read(26), error_chunk(7, ReplyError::Invalid));
}

#[test]
fn options_are_answered_in_any_order() {
    let set = served(memory());
    let mut client = Client::connect(&set);
    assert_eq!(client.option(OptionKind::List, b"").0, OptionReplyKind::Server);
    assert_eq!(client.option_reply().0, OptionReplyKind::Ack);
    for (kind, contents, expected) in [
        (OptionKind::List, &b"x"[..], OptionReplyKind::Invalid),
        (OptionKind::StartTls, b"", OptionReplyKind::Policy),
        (OptionKind::Other(11), b"", OptionReplyKind::Unsupported),
        (OptionKind::Go, &export_request("another"), OptionReplyKind::Unknown),
        (OptionKind::Go, b"\xff\xff\xff\xff", OptionReplyKind::Invalid),
        (OptionKind::SetMetaContext, b"\0\0\0\0\0\0\0\0", OptionReplyKind::Invalid),
        (OptionKind::StructuredReply, b"", OptionReplyKind::Ack),
        (OptionKind::SetMetaContext, b"\0\0\0\0\0\0\0\0", OptionReplyKind::Ack),
    ] {
        assert_eq!(client.option(kind, contents).0, expected, "{kind:?}");
    }
    let listed = client.option(OptionKind::ListMetaContext, b"\0\0\0\0\0\0\0\0");
    assert_eq!(listed, (OptionReplyKind::MetaContext, context_reply(0, ALLOCATION_CONTEXT)));
    assert_eq!(client.option_reply().0, OptionReplyKind::Ack);
    assert_eq!(client.option(OptionKind::Abort, b"").0, OptionReplyKind::Ack);
    assert!(client.is_cut_off());
    let mut old = Client::connect(&set);
    old.send(&option_header(OptionKind::ExportName, 4));
    old.send(b"disk");
    let reply = export_name_reply(SIZE, memory().flags(false), ClientFlags::all());
    assert_eq!(old.read(reply.len()), reply);
    assert_eq!(old.error(Command::Flush, NONE, 0, 0), None);
}

#[test]
fn client_that_is_out_of_step_or_stalls_is_cut_off_and_others_are_served() {
    let set = served(memory());
    let (mut good, _) = Client::ready(&set, false);
    let mut flags = Client(UnixStream::connect(&set.socket).expect("the server listens"));
    flags.send(&[0xff; 4]);
    assert!(flags.is_cut_off());
    let mut option = Client::connect(&set);
    option.send(&[0; 16]);
    assert!(option.is_cut_off());
    let mut long = Client::connect(&set);
    assert_eq!(
        {
            long.send(&option_header(OptionKind::Go, u32::MAX));
            long.option_reply().0
        },
        OptionReplyKind::TooBig
    );
    assert!(long.is_cut_off());
    let hasty = served_within(memory(), Duration::from_secs(3));
    let mut silent = Client::connect(&hasty);
    assert!(silent.is_cut_off());
    let (mut request, _) = Client::ready(&set, false);
    request.send(&[0; REQUEST_BYTES]);
    assert!(request.is_cut_off());
    let (mut payload, _) = Client::ready(&set, false);
    payload.ask(Command::Write, NONE, 0, PAYLOAD_BYTES_MAX + 1);
    assert!(payload.is_cut_off());
    let (mut half, _) = Client::ready(&set, false);
    half.ask(Command::Write, NONE, 0, 1000);
    half.send(&[1; 500]);
    half.0.shutdown(std::net::Shutdown::Write).expect("open");
    assert!(half.is_cut_off());
    assert_eq!(good.error(Command::Flush, NONE, 0, 0), None);
    good.ask(Command::Read, NONE, 0, 4);
    assert_eq!((good.answer(), good.read(4)), (None, vec![0; 4]), "half a payload is not written");
}

#[test]
fn connections_are_limited_and_come_back() {
    let set = served(memory());
    let mut clients: Vec<Client> = (0..CONNECTIONS_MAX).map(|_| Client::ready(&set, false).0).collect();
    let mut refused = Client(UnixStream::connect(&set.socket).expect("it listens"));
    assert!(refused.is_cut_off());
    let mut gone = clients.pop().expect("many");
    gone.0.shutdown(std::net::Shutdown::Write).expect("open");
    assert!(gone.is_cut_off());
    // It is counted no more soon after.
    while set.server.connections() == CONNECTIONS_MAX {
        std::thread::yield_now();
    }
    let (mut client, _) = Client::ready(&set, false);
    assert_eq!(client.error(Command::Flush, NONE, 0, 0), None);
    set.server.end().expect("a flush of memory");
}

#[test]
fn many_requests_in_flight_are_each_answered_once() {
    let set = served(memory());
    let (mut client, _) = Client::ready(&set, false);
    let request = |command, cookie: u32, length| Request {
        flags: NONE,
        command,
        cookie: cookie.into(),
        offset: u64::from(cookie) * 4096,
        length,
    };
    const COUNT: u32 = 500;
    let mut sender = client.0.try_clone().expect("descriptors");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for cookie in 0..COUNT {
                sender.write_all(&request(Command::Write, cookie, 4096).encode()).expect("read");
                sender.write_all(&vec![cookie.to_le_bytes()[0]; 4096]).expect("read");
            }
            for cookie in 0..COUNT {
                sender.write_all(&request(Command::Flush, COUNT + cookie, 0).encode()).expect("read");
            }
        });
        let mut seen = vec![0; 2 * COUNT as usize];
        for _ in 0..2 * COUNT {
            let reply = SimpleReply::decode(&client.read(SIMPLE_REPLY_BYTES)).expect("a reply");
            seen[usize::try_from(reply.cookie).expect("ours")] += 1;
            assert_eq!(reply.error, None);
        }
        assert!(seen.iter().all(|count| *count == 1));
    });
    for cookie in 0..COUNT {
        client.ask(Command::Read, NONE, u64::from(cookie) * 4096, 4096);
        assert_eq!((client.answer(), client.read(4096)), (None, vec![cookie.to_le_bytes()[0]; 4096]));
    }
}

#[test]
fn sockets_of_others_are_left_alone_and_dead_ones_are_replaced() {
    let set = served(memory());
    let error = Listener::unix(&set.socket).expect_err("it is used").to_string();
    assert!(error.contains("another server"), "{error}");
    let dead = set.socket.with_file_name("dead");
    drop(std::os::unix::net::UnixListener::bind(&dead).expect("room"));
    drop(Listener::unix(&dead).expect("replaced"));
    assert!(!dead.exists());
    let plain = set.socket.with_file_name("plain");
    std::fs::write(&plain, "precious").expect("room");
    assert!(Listener::unix(&plain).is_err() && plain.exists());
    let port = Listener::port(0).expect("a free port");
    assert!(port.uri("a b").to_string().starts_with("nbd://127.0.0.1:"));
    assert!(port.uri("a b").to_string().ends_with("/a%20b"));
}

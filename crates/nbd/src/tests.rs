//! Messages come back as they were, and bytes of any peer are taken or refused.

use crate::*;
use proptest::prelude::*;
use std::time::Duration;

fn parse(text: &str) -> Result<NbdUri, UriError> {
    NbdUri::parse(text).expect("a URI of NBD")
}

#[test]
fn messages_are_those_of_the_protocol() {
    let request = Request {
        flags: CommandFlags::FUA,
        command: Command::Write,
        cookie: 0x0102_0304_0506_0708,
        offset: 0x1000,
        length: 512,
    };
    let bytes =
        [0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 2, 0];
    assert_eq!(request.encode(), bytes);
    assert_eq!(greeting(HandshakeFlags::all()), *b"NBDMAGICIHAVEOPT\0\x03");
    let reply = [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 9];
    assert_eq!(simple_reply(9, Some(ReplyError::NoSpace)), reply);
    let chunk =
        [0x66, 0x8e, 0x33, 0xef, 0, 1, 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 6, 0, 0, 0, 95, 0, 0];
    assert_eq!(error_chunk(7, ReplyError::Unsupported), chunk);
    let status = BlockStatus { length: 4096, flags: StatusFlags::all() };
    assert_eq!(status_chunk(7, 1, &[status])[16..], [0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0x10, 0, 0, 0, 0, 3]);
    let option = option_header(OptionKind::Go, 3);
    assert_eq!(option, *b"IHAVEOPT\0\0\0\x07\0\0\0\x03");
}

#[test]
fn messages_come_back() {
    let request = ExportRequest::decode(&export_request("name")).expect("our own");
    assert_eq!(request, ExportRequest { name: "name".to_owned(), wants_block_sizes: true });
    let facts = [
        Information::Export { size_bytes: 1 << 40, flags: ExportFlags::all() },
        Information::BlockSizes(BlockSizes { minimum: 1, preferred: 4096, maximum: 1 << 25 }),
    ];
    for fact in facts {
        assert_eq!(Information::decode(&information(&fact)), Ok(fact));
    }
    for kind in [OptionReplyKind::Ack, OptionReplyKind::TooBig, OptionReplyKind::Other(77)] {
        let bytes = option_reply(OptionKind::Go, kind, b"abc");
        let reply = OptionReply { option: OptionKind::Go, kind, length: 3 };
        assert_eq!(OptionReply::decode(&bytes[..OPTION_REPLY_HEADER_BYTES]), Ok(reply));
        assert_eq!(kind.is_error(), kind == OptionReplyKind::TooBig);
    }
    assert_eq!(parse_greeting(&greeting(HandshakeFlags::all())), Ok(ClientFlags::all()));
    let old = parse_greeting(&greeting(HandshakeFlags::NO_ZEROES));
    assert_eq!(old, Err(WireError::Dialect { found: 2 }));
    let short = export_name_reply(5, ExportFlags::HAS_FLAGS, ClientFlags::all());
    assert_eq!(
        (short.len(), export_name_reply(5, ExportFlags::HAS_FLAGS, ClientFlags::empty()).len()),
        (10, 134)
    );
}

#[test]
fn wrong_messages_are_refused_with_the_reason() {
    assert!(matches!(Request::decode(&[0; 28]), Err(WireError::Magic { what: "request", found: 0 })));
    assert!(matches!(SimpleReply::decode(&[0; 3]), Err(WireError::Short { found: 3, .. })));
    let mut long = export_request("x");
    long.push(0);
    assert!(matches!(ExportRequest::decode(&long), Err(WireError::Long { found: 1, .. })));
    assert!(matches!(ExportRequest::decode(b"\0\0\0\x02a\0\0\0"), Err(WireError::Text { found: 2, .. })));
    let endless = [&[0, 0, 0, 0][..], &[0xff; 4], &[0; 8]].concat();
    assert!(matches!(ContextRequest::decode(&endless), Err(WireError::Short { .. })));
    assert!(parse_export_name(&[b'a'; NAME_BYTES_MAX + 1]).is_err());
}

#[test]
fn uris_are_read() {
    let tcp = |host: &str, port, export: &str| NbdUri {
        address: NbdAddress::Tcp(host.to_owned(), port),
        export: export.to_owned(),
        timeout: None,
        tls: None,
    };
    assert_eq!(parse("nbd://example.com"), Ok(tcp("example.com", PORT, "")));
    assert_eq!(parse("nbd://example.com:9//disk"), Ok(tcp("example.com", 9, "/disk")));
    assert_eq!(parse("nbd://[::1]:9/a%20b"), Ok(tcp("::1", 9, "a b")));
    let zone = parse("nbd://[fe80::1%25eth0]/a").expect("an address with a zone");
    assert_eq!(zone, tcp("fe80::1%eth0", PORT, "a"));
    assert_eq!(zone.to_string(), "nbd://[fe80::1%25eth0]:10809/a");
    assert_eq!(parse(&zone.to_string()), Ok(zone));
    let unix = parse("nbd+unix:///pool/a?socket=/tmp/a%26b&x-timeout=5").expect("a socket");
    assert_eq!(unix.address, NbdAddress::Unix("/tmp/a&b".into()));
    assert_eq!((unix.export.as_str(), unix.timeout), ("pool/a", Some(Duration::from_secs(5))));
    assert!(NbdUri::parse("/dev/nbd0").is_none() && NbdUri::parse("a.img:fast").is_none());
}

#[test]
fn uris_of_tls_say_which_certificates_are_used() {
    let plain = parse("nbds://example.com/a").expect("a host");
    assert_eq!(
        (plain.to_string().as_str(), &plain.tls),
        ("nbds://example.com:10809/a", &Some(NbdTls::default()))
    );
    let text =
        "nbds+unix:///a?socket=/s&tls-certificates=/etc/my%20disks&tls-hostname=disks.example&x-timeout=5";
    let unix = parse(text).expect("a socket");
    let (certificates, hostname) = (Some("/etc/my disks".into()), Some("disks.example".to_owned()));
    assert_eq!(unix.tls, Some(NbdTls { certificates, hostname }));
    assert_eq!(unix.to_string(), text);
    let address = parse("nbds://h/?tls-hostname=::1").expect("an address");
    assert_eq!(address.tls.and_then(|tls| tls.hostname).as_deref(), Some("::1"));
}

#[test]
fn wrong_uris_are_refused() {
    for text in [
        "nbd://",
        "nbd:///x",
        "nbd://h:99999/x",
        "nbd://h:0",
        "nbd://[::1/x",
        "nbd://h/%4",
        "nbd://h/%ff",
        "nbd://h/%00",
        "nbd+unix:///x",
        "nbd+unix://h/x?socket=/s",
        "nbd+unix:///x?socket=",
        "nbd://h/x?socket=/s",
        "nbd://h/x?timeout=3",
        "nbd://h/x?x-timeout=0",
        "nbd://u@h/x",
        "nbd://a%2fb/x",
        "nbd://a%3ab/x",
        "nbd://a%25b/x",
        "nbd://[::1%2f]/x",
        "nbd://h/x#f",
        "nbd://h/x?tls-certificates=/c",
        "nbd+unix:///x?socket=/s&tls-hostname=h",
        "nbds://h/x?tls-certificates=",
        "nbds://h/x?tls-hostname=",
        "nbds://h/x?tls-hostname=a/b",
        "nbds://h/x?tls-psk-file=/f",
        "nbds://h/x?tls-verify-peer=false",
        "nbds://u@h/x",
        "nbds+unix://u@/x?socket=/s",
        "nbds+unix:///x?tls-certificates=/c",
    ] {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.starts_with(text) && error.len() > text.len() + 5, "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn requests_and_uris_come_back(
        (flags, command, cookie, offset, length) in any::<(u16, u16, u64, u64, u32)>(),
        export in "[^\0]{0,20}", socket in "[^\0]{1,20}", seconds in proptest::option::of(1..9u64),
        directory in proptest::option::of("[^\0]{1,20}"),
    ) {
        let mut bytes = Request { flags: CommandFlags::empty(), command: Command::Read, cookie, offset, length }.encode();
        bytes[4..6].copy_from_slice(&flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&(command % 16).to_be_bytes());
        prop_assert_eq!(Request::decode(&bytes).map(|request| request.encode()), Ok(bytes));
        let timeout = seconds.map(Duration::from_secs);
        let tls = directory.map(|path| NbdTls { certificates: Some(path.into()), hostname: None });
        let uri = NbdUri { address: NbdAddress::Unix(socket.into()), export, timeout, tls };
        prop_assert_eq!(parse(&uri.to_string()), Ok(uri));
    }
}

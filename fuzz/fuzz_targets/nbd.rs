//! Messages of NBD from a peer that sends anything. What is taken and can be encoded comes back as it was.
//!
//! The first byte of an input chooses the message.

#![no_main]

use brindle_nbd::{
    ContextRequest, ExportRequest, Information, NbdUri, OptionHeader, OptionReply, Request, SimpleReply,
    information, option_header, parse_export_name, parse_greeting, simple_reply,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 9 {
        0 => drop(parse_greeting(bytes)),
        1 => {
            if let Ok(header) = OptionHeader::decode(bytes) {
                assert_eq!(option_header(header.kind, header.length), bytes);
            }
        }
        2 => drop(ExportRequest::decode(bytes)),
        3 => drop(ContextRequest::decode(bytes)),
        4 => drop(OptionReply::decode(bytes)),
        5 => {
            if let Ok(fact) = Information::decode(bytes) {
                assert!(bytes.starts_with(&information(&fact)));
            }
        }
        6 => {
            if let Ok(request) = Request::decode(bytes) {
                assert_eq!(request.encode(), bytes);
            }
        }
        7 => {
            if let Ok(reply) = SimpleReply::decode(bytes) {
                assert_eq!(simple_reply(reply.cookie, reply.error), bytes);
            }
            drop(parse_export_name(bytes));
        }
        _ => {
            if let Some(Ok(uri)) = std::str::from_utf8(bytes).ok().and_then(NbdUri::parse) {
                assert_eq!(NbdUri::parse(&uri.to_string()), Some(Ok(uri)));
            }
        }
    }
});

//! Entries of a ring of a kernel that fills them with anything: a thread of a ring serves each, as it does behind `io_uring`. Each is
//! answered at once, by a head that agrees with the payload. An entry whose lengths agree is answered like the same message by
//! `/dev/fuse`.
//!
//! An input is a list of entries: an operation, the number of bytes of its own part, that of the payload in two bytes, one byte that
//! says how far the length of the payload is off, one for the length of the message, both parts. An operation of 255 stands for a
//! head that is any bytes: the own part, laid over the head of the answer before.

#![no_main]

use brindle_transport::RingThread;
use kernel::{ANSWER_HEADER_BYTES, BATCH_FORGET, FORGET, INTERRUPT, REQUEST_BYTES, Reader, header, send};
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use std::sync::Arc;

#[path = "../kernel.rs"]
#[allow(dead_code, reason = "shared with another target")]
mod kernel;

/// Place of the operation's own part in the head, and room for it.
const OPERATION_AT: usize = 128;
const OPERATION_BYTES_MAX: usize = 128;
/// Place of the number by which the kernel knows the request, and behind it that of the length of the payload.
const COMMIT_AT: usize = 264;
const HEAD_BYTES: usize = 288;
const RAW: u8 = u8::MAX;

thread_local! {
    static THREAD: RefCell<RingThread<Reader>> = {
        let (kernel, channel) = kernel::mount();
        std::mem::forget(kernel);
        RefCell::new(RingThread::new(&channel, &Arc::new(Reader)))
    };
}

/// Serves an entry; the error, the number and the bytes of the answer.
fn serve(head: &[u8], payload: &[u8]) -> (i32, u64, Vec<u8>) {
    let (head, bytes) = THREAD.with_borrow_mut(|thread| thread.serve(head, payload));
    let (error, unique) = kernel::answer(&head, ANSWER_HEADER_BYTES + bytes.len());
    assert!((-4095..=0).contains(&error) && (error == 0 || bytes.is_empty()), "{error}, {} bytes", bytes.len());
    assert!(bytes.len() <= REQUEST_BYTES as usize);
    (error, unique, bytes)
}

fuzz_target!(|data: &[u8]| {
    const ENTRIES_MAX: u64 = 16;
    let mut rest = data;
    for unique in 1..=ENTRIES_MAX {
        let [code, own, low, high, payload_off, message_off, behind @ ..] = rest else { return };
        let own_bytes = usize::from(*own).min(behind.len());
        let (own, behind) = behind.split_at(own_bytes);
        let payload_bytes = usize::from(u16::from_le_bytes([*low, *high])).min(behind.len());
        let (payload, behind) = behind.split_at(payload_bytes);
        rest = behind;
        if *code == RAW {
            let _ = serve(own, payload);
            continue;
        }
        let own = &own[..own.len().min(OPERATION_BYTES_MAX)];
        let length = (40 + own.len() + payload.len()) as u32;
        let mut head = [0; HEAD_BYTES];
        head[..40].copy_from_slice(&header((*code).into(), unique, length.wrapping_add((*message_off).into())));
        head[OPERATION_AT..][..own.len()].copy_from_slice(own);
        head[COMMIT_AT..][..8].copy_from_slice(&unique.to_ne_bytes());
        let told = (payload.len() as u32).wrapping_add((*payload_off).into());
        head[COMMIT_AT + 8..][..4].copy_from_slice(&told.to_ne_bytes());
        let (error, answered, bytes) = serve(&head, payload);
        assert_eq!(answered, unique);
        let is_notice = matches!((*code).into(), FORGET | BATCH_FORGET | INTERRUPT);
        if (*payload_off, *message_off) == (0, 0) && !is_notice {
            let kernel = kernel::served();
            send(kernel, (*code).into(), unique, &[own, payload].concat(), 0);
            let mut body = Vec::new();
            assert_eq!(kernel::receive(kernel, &mut body), (error, unique), "operation {code}");
            assert!(body == bytes, "operation {code}: {} bytes, {} by the ring", body.len(), bytes.len());
        }
    }
});

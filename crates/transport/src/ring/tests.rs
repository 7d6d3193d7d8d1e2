//! Messages and answers by a slot, and slots that change hands, without a kernel.

use super::*;
use crate::wire::{InHeader, RingHead, opcode};
use rustix::io::Errno;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// A slot with a request in it, as the kernel would put it there.
fn requested(queue: u16, operation: &[u8], payload: &[u8], length: usize) -> Slot {
    let mut head = RingHead { commit: 9, ..RingHead::default() };
    let length = u32::try_from(length).expect("small");
    let header = InHeader { length, opcode: opcode::WRITE, unique: 9, ..InHeader::default() };
    head.in_out.as_mut_bytes()[..size_of::<InHeader>()].copy_from_slice(header.as_bytes());
    head.operation.as_mut_bytes()[..operation.len()].copy_from_slice(operation);
    head.payload_bytes = u32::try_from(payload.len()).expect("small");
    let mut slot = Slot::new(queue, 8192);
    slot.payload(payload.len()).copy_from_slice(payload);
    slot.put_head(head);
    slot.receive();
    slot
}

#[test]
fn a_message_is_put_together_as_by_the_device() {
    let length = size_of::<InHeader>() + 40 + 3;
    let mut slot = requested(0, &[7; 40], b"abc", length);
    let message = slot.message();
    assert_eq!(message.len(), length);
    assert_eq!((&message[40..80], &message[80..]), (&[7; 40][..], &b"abc"[..]));
    // Lengths that contradict each other stay so, and the decoder refuses the message.
    for length in [0, 40, 1 << 20] {
        assert_ne!(requested(0, &[7; 40], b"abc", length).message().len(), length);
    }
}

#[test]
fn answers_are_the_threads_own_or_later_or_the_request_is_taken() {
    let crew = Arc::new(Crew::new(1, 1, 8192));
    let desk = Desk::new(Arc::clone(&crew));
    let request = || requested(0, &[], b"", 40);
    desk.put(request());
    desk.answer(9, Ok(&[b"done"]));
    assert!(matches!(desk.leave(None), Left::Answered(slot) if slot.commit() == Some(9)));
    // The slot is with the thread.
    desk.answer(9, Ok(&[b"done"]));
    let Left::Answered(mut slot) = desk.leave(Some(request())) else { panic!("it is answered") };
    assert_eq!(slot.payload(4), b"done");
    // It is lent.
    desk.put(request());
    let mut lent = desk.lend().expect("it is here");
    lent.payload(4).copy_from_slice(b"read");
    lent.answer(9, Ok(4));
    let Left::Answered(mut slot) = desk.leave(None) else { panic!("it is answered") };
    assert_eq!(slot.payload(4), b"read");
    // The caller is killed.
    desk.put(request());
    assert!(desk.can_be_left());
    desk.interrupt(9);
    assert!(matches!(desk.leave(None), Left::Taken));
    assert_eq!(crew.next().expect("it waits for a thread").commit(), Some(9));
    crew.returned();
    // The answer comes later, and a substitute is due until then.
    let later = Desk::new(Arc::clone(&crew));
    later.put(request());
    assert!(matches!(later.leave(None), Left::Later));
    assert_eq!(crew.later(0).expect("a substitute").commit(), None);
    later.answer(9, Err(Errno::IO));
    assert_eq!(crew.next().expect("it waits for a thread").commit(), Some(9));
    let last = Desk::new(Arc::clone(&crew));
    last.put(request());
    assert!(matches!(last.leave(None), Left::Later));
    assert!(crew.later(0).is_none(), "there is one too many already");
    crew.end();
    last.answer(9, Ok(&[]));
    assert!(crew.next().is_none(), "the mount has ended");
}

#[test]
fn processors_are_counted_by_the_last() {
    assert_eq!(["0-1\n", "0", "0-3,8-11\n"].map(count), [Some(2), Some(1), Some(12)]);
    assert_eq!(["", "x", "65535"].map(count), [None; 3]);
}

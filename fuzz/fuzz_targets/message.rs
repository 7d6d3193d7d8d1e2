//! Messages of a kernel that sends anything: at the other end of a socket a server reads every name and byte of what it is
//! handed, and answers as large as it may. Each message that is not a notice is answered once, and serving goes on.
//!
//! An input is a list of messages: an operation, the number of bytes of the body, one byte that says how far the length in
//! the header is off, the body.

#![no_main]

use kernel::{BATCH_FORGET, FORGET, INTERRUPT, send};
use libfuzzer_sys::fuzz_target;

#[path = "../kernel.rs"]
#[allow(dead_code, reason = "shared with another target")]
mod kernel;

const STATFS: u32 = 17;
const EAGAIN: i32 = 11;
/// Number of the message that comes after those of an input.
const LAST: u64 = u64::MAX;

fuzz_target!(|data: &[u8]| {
    const MESSAGES_MAX: u64 = 16;
    let kernel = kernel::served();
    let mut rest = data;
    let mut expected = Vec::new();
    let mut body = Vec::new();
    // Interruptions that are too many are given back.
    let mut receive = || loop {
        let (error, unique) = kernel::receive(kernel, &mut body);
        if error != -EAGAIN {
            return unique;
        }
    };
    while let [opcode, low, high, off, behind @ ..] = rest
        && (expected.len() as u64) < MESSAGES_MAX
    {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(behind.len());
        let (body, behind) = behind.split_at(length);
        let (opcode, unique) = (u32::from(*opcode), expected.len() as u64 + 1);
        send(kernel, opcode, unique, body, *off);
        // Notices have no answer, but for one whose length is wrong.
        let is_notice =
            matches!(opcode, FORGET | BATCH_FORGET) || opcode == INTERRUPT && body.len() >= size_of::<u64>();
        expected.push(!is_notice || *off != 0);
        if expected.last() == Some(&true) {
            assert_eq!(receive(), unique);
        }
        rest = behind;
    }
    send(kernel, STATFS, LAST, &[], 0);
    assert_eq!(receive(), LAST);
});

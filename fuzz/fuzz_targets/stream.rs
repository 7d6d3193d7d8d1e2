//! Commands of a send stream from a sender that sends anything, checksums put right. What is taken comes back as it was when
//! it is written and read again.
//!
//! An input is a byte for the version, and commands: number and length, two bytes each, and the attributes.

#![no_main]

use brindle_stream::{StreamReader, StreamWriter};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((version, mut rest)) = data.split_first() else { return };
    let version = u32::from(version % 3);
    let mut stream = b"btrfs-stream\0".to_vec();
    stream.extend(version.to_le_bytes());
    while let Some((header, behind)) = rest.split_first_chunk::<4>() {
        let length = usize::from(u16::from_le_bytes([header[2], header[3]])).min(behind.len());
        let (attributes, next) = behind.split_at(length);
        let mut command = u32::try_from(length).expect("16 bits").to_le_bytes().to_vec();
        command.extend(&header[..2]);
        let crc = crc32c::crc32c_append(!0, &command);
        let crc = crc32c::crc32c_append(crc, &[0; 4]);
        let crc = !crc32c::crc32c_append(crc, attributes);
        command.extend(crc.to_le_bytes());
        stream.extend(command);
        stream.extend(attributes);
        rest = next;
    }
    let Ok(mut reader) = StreamReader::new(&stream[..]) else { return };
    while let Ok(Some(placed)) = reader.next() {
        assert!(!placed.command.to_string().is_empty());
        let mut writer = StreamWriter::new(Vec::new(), version).expect("memory takes all");
        writer.write(&placed.command).expect("what was read fits");
        let written = writer.into_inner();
        let mut again = StreamReader::new(&written[..]).expect("a stream");
        let command = again.next().expect("a command").expect("one command").command;
        assert_eq!(command, placed.command);
    }
});

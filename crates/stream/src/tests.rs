//! Streams of the kernel, streams that are damaged, and random commands there and back.

use crate::{
    COMMAND_BYTES_MAX, Command, CommandNumber, EncodedWrite, Origin, StreamError, StreamProblem,
    StreamReader, StreamTime, StreamWriter, Uuid,
};
use proptest::prelude::*;

const FULL: &[u8] = include_bytes!("../golden/full.v1");
const ENCODED: &[u8] = include_bytes!("../golden/full.v2");
const INCREMENTAL: &[u8] = include_bytes!("../golden/incremental.v1");

/// Reads a stream to its end, and writes what it says.
fn again(stream: &[u8]) -> Result<(Vec<u8>, Vec<String>), StreamError> {
    let mut reader = StreamReader::new(stream)?;
    let mut writer = StreamWriter::new(Vec::new(), reader.version())?;
    let mut lines = Vec::new();
    while let Some(placed) = reader.next()? {
        assert_eq!(placed.offset, writer.offset());
        lines.push(placed.command.to_string());
        writer.write(&placed.command)?;
    }
    Ok((writer.into_inner(), lines))
}

#[test]
fn streams_of_the_kernel_are_read_and_written_to_the_byte() {
    for stream in [FULL, ENCODED, INCREMENTAL] {
        let (written, lines) = again(stream).expect("a stream");
        assert_eq!(lines.last().map(String::as_str), Some("end"));
        assert!(written == stream, "{lines:#?}");
    }
}

#[test]
fn lines_are_those_of_btrfs_progs() {
    let (_, lines) = again(FULL).expect("a stream");
    let has =
        |name: &str, rest: &str| lines.iter().any(|line| line.starts_with(name) && line.ends_with(rest));
    assert!(has("subvol          ./one ", " transid=7"), "{lines:#?}");
    assert!(has("mkfile          ./o257-7-0", ""), "{lines:#?}");
    assert!(has("rename          ./o257-7-0 ", " dest=./file"), "{lines:#?}");
    assert!(has("set_xattr       ./file ", " name=user.comment data=value len=5"), "{lines:#?}");
    assert!(has("mknod ", " mode=20644 dev=0x103"), "{lines:#?}");
    let (_, lines) = again(ENCODED).expect("a stream");
    let encoded = " offset=0 len=4096 unencoded_file_len=12288 unencoded_len=12288 unencoded_offset=0 \
                   compression=2 encryption=0";
    assert!(lines.iter().any(|line| line.ends_with(encoded)), "{lines:#?}");
}

#[test]
fn a_stream_that_is_cut_off_names_the_place() {
    for length in 0..INCREMENTAL.len() {
        match again(&INCREMENTAL[..length]) {
            Ok((written, lines)) => {
                assert_eq!(written.len(), length, "whole commands");
                assert_ne!(lines.last().map(String::as_str), Some("end"));
            }
            Err(error) => {
                let StreamProblem::Truncated { found, expected } = error.problem else {
                    panic!("{length}: {error}");
                };
                assert!(found < expected && error.offset <= length.try_into().expect("small"), "{error}");
            }
        }
    }
}

#[test]
fn a_flipped_bit_is_found() {
    for bit in 0..INCREMENTAL.len() * 8 {
        let mut damaged = INCREMENTAL.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let error = again(&damaged).expect_err("it is damaged");
        let version = matches!(error.problem, StreamProblem::Version { .. });
        // Version 2, in which version 1 is written, has another form of data.
        assert!(bit / 8 < 17 || !version, "{bit}: {error}");
    }
}

fn raw(version: u32, number: u16, payload: &[u8]) -> Vec<u8> {
    let mut stream = b"btrfs-stream\0".to_vec();
    stream.extend(version.to_le_bytes());
    let mut header = [0; 10];
    header[..4].copy_from_slice(&u32::try_from(payload.len()).expect("short").to_le_bytes());
    header[4..6].copy_from_slice(&number.to_le_bytes());
    let checksum = crate::reader::checksum_of(&header, payload);
    header[6..].copy_from_slice(&checksum.to_le_bytes());
    stream.extend(header);
    stream.extend(payload);
    stream
}

fn problem_of(stream: &[u8]) -> StreamProblem {
    again(stream).expect_err("no stream").problem
}

#[test]
fn nonsense_is_refused_with_its_name() {
    assert!(matches!(problem_of(b"not a stream at all"), StreamProblem::Magic { .. }));
    assert!(matches!(problem_of(&raw(3, 21, b"")), StreamProblem::Version { found: 3 }));
    assert!(matches!(problem_of(&raw(0, 21, b"")), StreamProblem::Version { found: 0 }));
    for (version, number) in [(1, 0), (1, 23), (1, 25), (2, 26), (2, 999)] {
        let problem = problem_of(&raw(version, number, b""));
        assert!(matches!(problem, StreamProblem::Unknown { .. }), "{number}: {problem}");
    }
    let missing = problem_of(&raw(1, 3, b""));
    assert!(matches!(missing, StreamProblem::Missing { attribute: "path" }), "{missing}");
    let beyond = problem_of(&raw(1, 3, &[15, 0, 9, 0, b'a']));
    assert!(matches!(beyond, StreamProblem::Overrun { attribute: "path", length: 9 }), "{beyond}");
    let odd = problem_of(&raw(1, 3, &[15, 0, 1]));
    assert!(matches!(odd, StreamProblem::Overrun { .. }), "{odd}");
    let size = problem_of(&raw(1, 17, &[15, 0, 1, 0, b'a', 4, 0, 2, 0, 1, 1]));
    assert!(matches!(size, StreamProblem::Length { attribute: "size", found: 2, expected: 8 }), "{size}");
    let error = again(&raw(2, 17, &[15, 0, 1, 0, b'a'])).expect_err("no size");
    assert_eq!(error.to_string(), "the stream, at offset 17, truncate: the attribute size is missing");
}

#[test]
fn a_length_takes_no_memory_before_its_bytes_are_there() {
    let mut stream = raw(1, 3, b"");
    stream[17..21].copy_from_slice(&(COMMAND_BYTES_MAX + 1).to_le_bytes());
    assert!(matches!(problem_of(&stream), StreamProblem::TooLong { .. }));
    stream[17..21].copy_from_slice(&COMMAND_BYTES_MAX.to_le_bytes());
    assert!(matches!(problem_of(&stream), StreamProblem::Truncated { found: 0, .. }));
}

#[test]
fn unknown_attributes_are_passed_over() {
    let stream = raw(1, 11, &[77, 0, 1, 0, 9, 15, 0, 1, 0, b'a']);
    assert_eq!(again(&stream).expect("a stream").1, ["unlink          ./a"]);
}

#[test]
fn a_value_that_is_too_long_for_an_attribute_is_refused() {
    let long = vec![7; 70_000];
    let write = Command::Write { path: b"a", offset: 0, data: &long };
    let mut writer = StreamWriter::new(Vec::new(), 1).expect("a stream");
    let error = writer.write(&write).expect_err("too long");
    assert!(matches!(error.problem, StreamProblem::NoRoom { attribute: "data", length: 70_000 }), "{error}");
    let mut writer = StreamWriter::new(Vec::new(), 2).expect("a stream");
    writer.write(&write).expect("room");
    assert_eq!(again(&writer.into_inner()).expect("a stream").1[0].split(' ').next_back(), Some("len=70000"));
}

#[test]
fn streams_may_follow_each_other() {
    let both = [INCREMENTAL, FULL].concat();
    let mut reader = StreamReader::new(&both[..]).expect("a stream");
    while reader.next().expect("a command").expect("an end").command != Command::End {}
    let mut second = reader.next_stream().expect("a header").expect("a second stream");
    assert_eq!(second.offset(), u64::try_from(INCREMENTAL.len()).expect("small") + 17);
    while second.next().expect("a command").expect("an end").command != Command::End {}
    assert!(second.next_stream().expect("the end").is_none());
}

fn origin() -> impl Strategy<Value = Origin> {
    (any::<[u8; 16]>(), any::<u64>()).prop_map(|(uuid, transid)| Origin { uuid: Uuid(uuid), transid })
}

fn time() -> impl Strategy<Value = StreamTime> {
    (any::<i64>(), 0..1_000_000_000u32).prop_map(|(seconds, nanoseconds)| StreamTime { seconds, nanoseconds })
}

/// Parts of any command.
type Parts = (Vec<u8>, Vec<u8>, Vec<u8>, [u64; 4], [u32; 2], [Origin; 2], [StreamTime; 4], u8);

fn parts() -> impl Strategy<Value = Parts> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
    let origins = [origin(), origin()];
    let times = [time(), time(), time(), time()];
    (bytes(), bytes(), bytes(), any::<[u64; 4]>(), any::<[u32; 2]>(), origins, times, 0..25u8)
}

fn command(parts: &Parts) -> Command<'_> {
    let (path, other, data, [a, b, c, d], [e, f], [origin, source], times, which) = parts;
    let (path, name, data) = (path.as_slice(), other.as_slice(), data.as_slice());
    let (origin, parent) = (*origin, *source);
    let [accessed, modified, changed, created] = *times;
    match which {
        0 => Command::Subvolume { path, origin },
        1 => Command::Snapshot { path, origin, parent },
        2 => Command::MakeFile { path, inode: *a },
        3 => Command::MakeDirectory { path, inode: *a },
        4 => Command::MakeNode { path, inode: *a, mode: *b, device: *c },
        5 => Command::MakeFifo { path, inode: *a, mode: *b, device: *c },
        6 => Command::MakeSocket { path, inode: *a, mode: *b, device: *c },
        7 => Command::Symlink { path, inode: *a, target: name },
        8 => Command::Rename { path, to: name },
        9 => Command::Link { path, target: name },
        10 => Command::Unlink { path },
        11 => Command::RemoveDirectory { path },
        12 => Command::SetXattr { path, name, value: data },
        13 => Command::RemoveXattr { path, name },
        14 => Command::Write { path, offset: *a, data },
        15 => Command::Clone {
            path,
            offset: *a,
            length: *b,
            source: parent,
            source_path: name,
            source_offset: *c,
        },
        16 => Command::Truncate { path, size: *a },
        17 => Command::Chmod { path, mode: *a },
        18 => Command::Chown { path, uid: *a, gid: *b },
        19 => Command::Times { path, accessed, modified, changed, created: Some(created) },
        20 => Command::UpdateExtent { path, offset: *a, length: *b },
        21 => Command::Allocate { path, mode: *e, offset: *a, length: *b },
        22 => Command::Flags { path, flags: *a },
        23 => Command::EncodedWrite(EncodedWrite {
            path,
            offset: *a,
            length: *b,
            decoded_length: *c,
            decoded_offset: *d,
            compression: *e,
            encryption: *f,
            data,
        }),
        _ => Command::End,
    }
}

proptest! {
    #[test]
    fn each_command_is_read_as_it_was_written(list in proptest::collection::vec(parts(), 1..8)) {
        let mut writer = StreamWriter::new(Vec::new(), 2).expect("a stream");
        for parts in &list {
            writer.write(&command(parts)).expect("room");
        }
        let bytes = writer.into_inner();
        let mut reader = StreamReader::new(&bytes[..]).expect("a stream");
        for parts in &list {
            let read = reader.next().expect("a command").expect("not the end");
            prop_assert_eq!(read.command, command(parts));
        }
        prop_assert!(reader.next().expect("the end").is_none());
    }

    #[test]
    fn any_payload_is_read_or_refused(version in 1..3u32, number in 0..30u16, payload: Vec<u8>) {
        let _ = again(&raw(version, number, &payload));
        prop_assert_eq!(CommandNumber(number).to_string().is_empty(), false);
    }
}

//! Refusals, early ends, comparison and sharing.

use super::{Pool, difference, dump};
use crate::support::FSID;
use brindle_care::job::Control;
use brindle_care::send::{SendError, SendEvent, SendOptions, send};
use brindle_device::{Device, SparseDevice, WritableDevice};
use brindle_fs::{Filesystem, FsError, InodeId, OpenOptions, RangePair, RootId};
use brindle_stream::{StreamError, StreamProblem};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::Arc;

const FILE: u32 = 0o100_644;
const NODESIZE: usize = 16384;

/// A target that is full after a number of bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn writable_subvolumes_are_refused_and_nothing_is_written() {
    let pool = Pool::with_source();
    let snapshot = pool.snapshot("s");
    let refused = |options: &SendOptions| {
        let (stream, sent) = pool.send(options);
        assert!(stream.is_empty(), "{}", dump(&stream));
        sent.expect_err("refused")
    };
    let writable = pool.find("source").tree;
    assert!(matches!(refused(&SendOptions::whole(writable)), SendError::Writable(path) if path == b"source"));
    assert!(matches!(refused(&difference(snapshot, writable)), SendError::Writable(_)));
    let source = SendOptions { sources: vec![writable], ..SendOptions::whole(snapshot) };
    assert!(matches!(refused(&source), SendError::Writable(_)));
    assert!(matches!(refused(&SendOptions::whole(RootId::FS_TREE)), SendError::TopLevel));
    assert!(matches!(refused(&SendOptions::whole(RootId::new(999))), SendError::NoSubvolume(_)));
    let version = SendOptions { version: 3, ..SendOptions::whole(snapshot) };
    assert!(matches!(refused(&version), SendError::Version(3)));
    let compressed = SendOptions { compressed: true, ..SendOptions::whole(snapshot) };
    assert!(matches!(refused(&compressed), SendError::NotCompressed));
}

#[test]
fn a_refused_stream_leaves_a_writable_subvolume_free() {
    let pool = Pool::with_source();
    let (snapshot, writable) = (pool.snapshot("s"), pool.find("source").tree);
    let (filesystem, root) = (&pool.filesystem, pool.filesystem.root());
    let source = SendOptions { sources: vec![writable], ..SendOptions::whole(snapshot) };
    for options in [SendOptions::whole(writable), difference(snapshot, writable), source] {
        assert!(matches!(pool.send(&options).1, Err(SendError::Writable(_))));
        filesystem.set_subvolume_read_only(writable, true).expect("nothing holds it");
        filesystem.set_subvolume_read_only(writable, false).expect("nothing holds it");
    }
    assert!(filesystem.hold_subvolume(writable).expect("it is there").is_none());
    filesystem.delete_subvolume(root, b"source").expect("nothing holds it");
}

#[test]
fn a_target_that_fails_is_an_error_wherever_it_fails() {
    let pool = Pool::with_source();
    pool.make("source/file", FILE);
    pool.write("source/file", 0, &[7; 5000]);
    let id = pool.snapshot("s");
    let (stream, _) = pool.send_whole(&SendOptions::whole(id));
    for length in (0..stream.len()).step_by(13) {
        let sent =
            send(&pool.filesystem, &SendOptions::whole(id), &mut Full(length), &mut |_| Control::Continue);
        let Err(SendError::Stream(StreamError { problem: StreamProblem::Io(error), .. })) = sent else {
            panic!("{length} of {} bytes: {sent:?}", stream.len());
        };
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
    let mut left = 5;
    let mut cut = Vec::new();
    let sent = send(&pool.filesystem, &SendOptions::whole(id), &mut cut, &mut |event| {
        left -= usize::from(matches!(event, SendEvent::Command { .. }));
        if left == 0 { Control::Cancel } else { Control::Continue }
    });
    assert!(matches!(sent, Err(SendError::Cancelled)) && !dump(&cut).ends_with("\nend"));
}

#[test]
fn corrupt_blocks_and_data_are_errors_and_the_stream_has_no_end() {
    let pool = Pool::with_source();
    for number in 0..300 {
        pool.make(&format!("source/file{number}"), FILE);
    }
    pool.write("source/file299", 0, &[0x6b; 100_000]);
    let id = pool.snapshot("s");
    pool.filesystem.shutdown().expect("works");
    let Pool { made, filesystem } = pool;
    drop(filesystem);
    let (mut broken, mut whole) = (0, 0);
    for victim in leaves_of(&made.devices, id).into_iter().map(Some).chain([None]) {
        let damaged: Vec<Arc<dyn Device>> =
            made.devices.iter().map(|device| Arc::new(damaged(device, victim)) as Arc<dyn Device>).collect();
        let filesystem = Filesystem::open(damaged, &OpenOptions::default()).expect("files are damaged alone");
        let mut stream = Vec::new();
        let sent = send(&filesystem, &SendOptions::whole(id), &mut stream, &mut |_| Control::Continue);
        match (sent, victim) {
            (Err(error), None) => assert!(error.to_string().contains("offset "), "{error}"),
            (Err(error), Some(_)) => assert!(error.to_string().contains("logical"), "{error}"),
            (Ok(_), victim) => {
                assert!(victim.is_some() && dump(&stream).ends_with("\nend"), "data is damaged");
                whole += 1;
                continue;
            }
        }
        broken += 1;
        assert!(!dump(&stream).ends_with("\nend"));
    }
    assert!(broken > 3, "{broken} {whole}");
}

/// Blocks of a device that were written, each with its offset.
fn blocks(device: &SparseDevice) -> Vec<(u64, Vec<u8>)> {
    let size = NODESIZE as u64;
    let starts: BTreeSet<u64> = device.written().iter().map(|(offset, _)| offset - offset % size).collect();
    let block = |start: u64| {
        let mut bytes = vec![0; NODESIZE];
        device.read_at(start, &mut bytes).expect("memory");
        (start, bytes)
    };
    starts.into_iter().map(block).collect()
}

/// Addresses of the leaves that are of the source or of a snapshot of it, old ones among them.
fn leaves_of(devices: &[Arc<SparseDevice>], snapshot: RootId) -> BTreeSet<u64> {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let is_leaf = |block: &Vec<u8>| {
        let is_of_them = (256..=snapshot.get()).contains(&number(&block[88..96]));
        block[32..48] == FSID.0 && is_of_them && block[100] == 0
    };
    let blocks = devices.iter().flat_map(|device| blocks(device)).map(|(_, block)| block);
    blocks.filter(is_leaf).map(|block| number(&block[48..56])).collect()
}

/// A copy of a device, with a leaf damaged wherever it lies, or all data.
fn damaged(device: &SparseDevice, leaf: Option<u64>) -> SparseDevice {
    let copy = SparseDevice::new(device.name(), device.size_bytes(), device.class());
    for (offset, mut block) in blocks(device) {
        match leaf {
            Some(leaf) if block[32..48] == FSID.0 && block[48..56] == leaf.to_le_bytes() => block[200] ^= 1,
            None => {
                block.chunks_mut(4096).filter(|sector| **sector == [0x6b; 4096]).for_each(|it| it[50] ^= 1);
            }
            Some(_) => {}
        }
        copy.write_at(offset, &block).expect("memory");
    }
    copy
}

#[test]
fn the_comparison_reads_what_differs_alone() {
    let pool = Pool::with_source();
    for number in 0..4000 {
        pool.make(&format!("source/a file with a long name, number {number}"), FILE);
    }
    let before = pool.snapshot("before");
    pool.write("source/a file with a long name, number 2000", 0, b"changed");
    let after = pool.snapshot("after");
    let (stream, sent) = pool.send_whole(&difference(after, before));
    let said = dump(&stream);
    assert!(said.contains("write ") && said.lines().count() < 8, "{said}");
    // A root and a leaf on either side; the rest is shared.
    assert!(sent.compared.read <= 8 && sent.compared.shared > 20, "{sent:?}");
    assert_eq!(sent.inodes, 1, "{sent:?}");
    let (_, same) = pool.send_whole(&difference(pool.snapshot("same"), after));
    assert_eq!((same.compared.read, same.inodes), (2, 0), "the two roots: {same:?}");
}

/// Shares all of one file's contents with another.
fn share(pool: &Pool, from: InodeId, to: InodeId, length: u64) {
    let [source, target] = [from, to].map(|id| pool.filesystem.open_file(id).expect("a file"));
    let pair = RangePair { source: &source, source_offset: 0, target: &target, target_offset: 0, length };
    pool.filesystem.clone_range(&pair).expect("works");
    pool.filesystem.close_file(source).and_then(|()| pool.filesystem.close_file(target)).expect("closes");
}

#[test]
fn shared_extents_are_cloned_from_what_the_receiver_has() {
    let (pool, receiver) = (Pool::with_source(), Pool::new());
    let contents: Vec<u8> = (0..200_000u32).map(|at| at.to_le_bytes()[at as usize % 3]).collect();
    let first = pool.make("source/first", FILE);
    pool.write("source/first", 0, &contents);
    pool.filesystem.sync().expect("works");
    share(&pool, first, pool.make("source/second", FILE), 0);
    let before = pool.snapshot("before");
    let (stream, _) = pool.send_whole(&SendOptions::whole(before));
    receiver.receive(&stream);
    let said = dump(&stream);
    assert!(
        said.contains("clone           ./second") && said.contains("from=first clone_offset=0"),
        "{said}"
    );
    // Of the parent, at another place.
    share(&pool, first, pool.make("source/third", FILE), 0);
    let after = pool.snapshot("after");
    let (stream, _) = pool.send_whole(&difference(after, before));
    receiver.receive(&stream);
    assert!(
        dump(&stream).contains("clone           ./third") && !dump(&stream).contains("write "),
        "{}",
        dump(&stream)
    );
    for name in ["first", "second", "third"] {
        assert!(receiver.contents(&format!("after/{name}")) == contents, "{name}");
    }
    // Of a further subvolume that the receiver has, for one that is sent whole.
    let options = SendOptions { sources: vec![before], ..SendOptions::whole(after) };
    assert!(!dump(&pool.send_whole(&options).0).contains("write "));
}

#[test]
fn subvolumes_of_one_stream_build_on_each_other() {
    let (pool, receiver) = (Pool::with_source(), Pool::new());
    let ids: Vec<RootId> = (0..3)
        .map(|number| {
            pool.make(&format!("source/f{number}"), FILE);
            pool.write(&format!("source/f{number}"), 0, &[number; 3000]);
            pool.snapshot(&format!("s{number}"))
        })
        .collect();
    for one_stream in [false, true] {
        let options = SendOptions { subvolumes: ids.clone(), one_stream, ..SendOptions::whole(ids[0]) };
        let (stream, sent) = pool.send(&options);
        let parents: Vec<_> = sent.expect("sent").iter().map(|one| one.parent).collect();
        assert_eq!(parents, [None, Some(ids[0]), Some(ids[1])]);
        if one_stream {
            assert_eq!(dump(&stream).matches("\nend").count(), 1);
            receiver.receive(&stream);
        }
    }
    assert!(receiver.contents("s2/f2") == [2; 3000] && receiver.contents("s2/f0") == [0; 3000]);
}

#[test]
fn subvolumes_stay_as_they_are_while_they_are_sent() {
    let pool = Pool::with_source();
    pool.make("source/file", FILE);
    let before = pool.snapshot("before");
    pool.write("source/file", 0, b"text");
    let after = pool.snapshot("after");
    let (filesystem, root) = (&pool.filesystem, pool.filesystem.root());
    let mut refused = 0;
    let mut stream = Vec::new();
    let sent = send(filesystem, &difference(after, before), &mut stream, &mut |_| {
        for (id, name) in [(before, &b"before"[..]), (after, b"after")] {
            let writable = filesystem.set_subvolume_read_only(id, false);
            assert!(matches!(writable, Err(FsError::HeldSubvolume(held)) if held == id), "{writable:?}");
            let deleted = filesystem.delete_subvolume(root, name);
            assert!(matches!(deleted, Err(FsError::HeldSubvolume(held)) if held == id), "{deleted:?}");
        }
        refused += 1;
        Control::Continue
    });
    assert!(sent.is_ok() && refused > 3, "{}", dump(&stream));
    filesystem.set_subvolume_read_only(before, false).expect("it has been sent");
    filesystem.delete_subvolume(root, b"after").expect("it has been sent");
}

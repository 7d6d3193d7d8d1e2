use super::*;
use crate::DIRECT_ALIGNMENT;
use std::cell::Cell;
use std::io::Write;
use std::rc::Rc;

#[test]
fn reads_where_it_is_told_and_refuses_beyond_the_end() {
    let mut image = tempfile::NamedTempFile::new().expect("temporary file");
    image.write_all(b"0123456789").expect("write");
    let device = FileDevice::open(image.path()).expect("open");
    let mut buffer = [0; 4];
    device.read_at(3, &mut buffer).expect("read");
    assert_eq!(&buffer, b"3456");
    assert!(matches!(device.read_at(7, &mut buffer), Err(DeviceError::BeyondEnd { .. })));
    assert!(matches!(device.read_at(u64::MAX, &mut buffer), Err(DeviceError::BeyondEnd { .. })));
}

#[test]
fn holes_are_told_and_zeros_are_written() {
    let image = tempfile::NamedTempFile::new().expect("temporary file");
    image.as_file().set_len(4 << 20).expect("room");
    let device = FileDevice::open_writable(image.path()).expect("open");
    device.write_at(1 << 20, &[7; 1 << 20]).expect("room");
    let at = |offset, length| device.extent_at(offset, length).map(|found| (found.length, found.is_hole));
    // A filesystem without holes says that all is data.
    if at(0, 4096).expect("within").1 {
        assert_eq!(at(0, 4 << 20).expect("within"), (1 << 20, true));
        assert_eq!(at(1 << 20, 3 << 20).expect("within"), (1 << 20, false));
        assert_eq!(at((1 << 20) + 4096, 512).expect("within"), (512, false));
        assert_eq!(at(2 << 20, 2 << 20).expect("within"), (2 << 20, true));
    }
    assert!(matches!(at(4 << 20, 1), Err(DeviceError::BeyondEnd { .. })));
    device.zero((1 << 20) + 100, 5000).expect("within");
    let mut found = vec![1; 1 << 20];
    device.read_at(1 << 20, &mut found).expect("within");
    assert!(
        found.iter().enumerate().all(|(at, byte)| *byte == if (100..5100).contains(&at) { 0 } else { 7 })
    );
    assert!(matches!(device.zero((4 << 20) - 1, 2), Err(DeviceError::BeyondEnd { .. })));
    let memory = crate::SparseDevice::new("memory", 4 << 20, DeviceClass::Unknown);
    memory.write_at(0, &[7; 2 << 20]).expect("within");
    memory.zero(1, (1 << 20) + 5).expect("within");
    assert_eq!(memory.written().iter().filter(|(_, bytes)| bytes.contains(&0)).count(), 2);
}

#[test]
fn a_batch_is_answered_but_for_what_lies_beyond_the_end() {
    let mut image = tempfile::NamedTempFile::new().expect("temporary file");
    image.write_all(b"0123456789").expect("write");
    let device = FileDevice::open(image.path()).expect("open");
    let places = [(0, 2), (8, 4), (3, 5), (u64::MAX, 1), (9, 1)];
    let requests = places.map(|(offset, length)| ReadRequest::new(offset, length));
    let mut answers = device.submit_reads(&requests).into_iter().map(PendingRead::wait);
    let mut next = || answers.next().expect("an answer to each").map(|buffer| buffer.to_vec());
    assert_eq!(next().expect("inside"), b"01");
    assert!(matches!(next(), Err(DeviceError::BeyondEnd { offset: 8, length: 4, .. })));
    assert_eq!(next().expect("inside"), b"34567");
    assert!(matches!(next(), Err(DeviceError::BeyondEnd { offset: u64::MAX, .. })));
    assert_eq!(next().expect("inside"), b"9");
}

#[test]
fn a_directory_is_no_device() {
    let directory = tempfile::tempdir().expect("temporary directory");
    assert!(matches!(FileDevice::open(directory.path()), Err(DeviceError::NotADevice { .. })));
}

#[test]
fn written_bytes_are_read_and_discarded_ranges_are_zero() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("image");
    let device = FileDevice::create(&path, 1 << 20).expect("create");
    device.write_at(8192, &[7; 8192]).expect("write");
    assert!(matches!(device.write_at((1 << 20) - 1, &[0; 2]), Err(DeviceError::BeyondEnd { .. })));
    if device.discard(8192, 4096).expect("discard") {
        let mut buffer = [1; 8192];
        device.read_at(8192, &mut buffer).expect("read");
        assert!(buffer[..4096].iter().all(|byte| *byte == 0));
        assert!(buffer[4096..].iter().all(|byte| *byte == 7));
    }
    device.set_size(4 << 20).expect("an image can grow");
    device.flush().expect("flush");
    assert_eq!(FileDevice::open(&path).expect("open").size_bytes(), 4 << 20);
}

#[test]
fn pieces_are_written_one_behind_the_other() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let device = FileDevice::create(&directory.path().join("image"), 1 << 20).expect("create");
    let bytes: Vec<u8> = (0..5000u32).map(|number| number.to_le_bytes()[0] | 1).collect();
    let mut pieces: Vec<&[u8]> = bytes.chunks(3).collect();
    pieces.insert(0, &[]);
    pieces.insert(1030, &[]);
    device.write_pieces_at(100, &pieces).expect("write");
    let mut found = vec![0; 5002];
    device.read_at(99, &mut found).expect("read");
    assert!(found[1..5001] == bytes && found[0] == 0 && found[5001] == 0);
    assert!(matches!(
        device.write_pieces_at((1 << 20) - 3, &pieces[1..4]),
        Err(DeviceError::BeyondEnd { .. })
    ));
}

#[test]
fn bytes_written_around_the_cache_are_read_like_others() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let device = FileDevice::create(&directory.path().join("image"), 1 << 20).expect("create");
    device.write_at(0, &vec![1; 1 << 20]).expect("write");
    device.bypass_cache();
    let mut buffer = vec![0; 600_000];
    let front = buffer.as_ptr().align_offset(DIRECT_ALIGNMENT);
    for (at, byte) in buffer.iter_mut().enumerate() {
        *byte = at.to_le_bytes()[0] | 2;
    }
    let aligned = &buffer[front..front + (512 << 10)];
    let (first, second) = aligned.split_at(64 << 10);
    let goes_around = || device.direct_for(4096, &[first, second]).is_some();
    let can_go_around = goes_around();
    device.bypass_cache();
    device.return_to_cache();
    assert_eq!(goes_around(), can_go_around, "one of two has returned");
    for offset in [4096, (1 << 20) - (512 << 10), 256 << 10, 100] {
        device.write_pieces_at(offset, &[first, second]).expect("write");
        let mut found = vec![0; aligned.len()];
        device.read_at(offset, &mut found).expect("read");
        assert!(found == aligned, "at {offset}");
    }
    device.write_pieces_at(8192, &[&buffer[front + 1..front + 4097]]).expect("not aligned in memory");
    device.flush().expect("flush");
    let mut found = vec![0; 4096];
    device.read_at(8192, &mut found).expect("read");
    assert!(found == buffer[front + 1..front + 4097]);
    device.return_to_cache();
    assert!(!goes_around(), "all have returned");
}

#[test]
fn a_range_that_the_host_does_not_have_is_read_past_its_cache() {
    let image = tempfile::NamedTempFile::new().expect("temporary file");
    let bytes: Vec<u8> = (0..1u32 << 20).map(|at| (at / 4096 * 7 + at % 251).to_le_bytes()[0]).collect();
    let device = FileDevice::open_writable(image.path()).expect("open");
    device.set_size(1 << 20).expect("room");
    device.write_at(0, &bytes).expect("write");
    let Some(cached) = device.cached_bytes(0, 1 << 20) else {
        return println!("skipped: no way past the cache");
    };
    assert_eq!(cached, 1 << 20, "what was written is there, durable or not");
    let read = |offset: u64, length| {
        let request = ReadRequest { bypasses_cache: true, ..ReadRequest::new(offset, length) };
        let pending = device.submit_reads(&[request, ReadRequest::new(offset + 1, length), request]);
        let answers: Vec<_> = pending.into_iter().map(|read| read.wait().expect("within")).collect();
        let at = usize::try_from(offset).expect("small");
        for (answer, at) in answers.iter().zip([at, at + 1, at]) {
            assert!(**answer == bytes[at..at + length], "{length} at {at}");
        }
    };
    read(8192, 65536);
    device.flush().expect("flush");
    device.forget_cached(0, 1 << 20);
    // Not every filesystem forgets.
    if device.cached_bytes(512 << 10, 128 << 10) == Some(0) {
        let past = ReadRequest { bypasses_cache: true, ..ReadRequest::new(512 << 10, 128 << 10) };
        let answer = device.submit_reads(&[past]).remove(0).wait().expect("within");
        assert!(*answer == bytes[512 << 10..640 << 10]);
        assert_eq!(device.cached_bytes(512 << 10, 128 << 10), Some(0), "the host was not asked");
    }
    for (offset, length) in [(8192, 65536), (100, 4096), (4096, 100)] {
        read(offset, length);
    }
}

#[test]
fn an_image_has_one_writer() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("image");
    let first = FileDevice::create(&path, 4096).expect("create");
    assert!(matches!(FileDevice::open_writable(&path), Err(DeviceError::Busy { .. })));
    assert!(matches!(FileDevice::create(&path, 4096), Err(DeviceError::Open { .. })));
    drop(first);
    FileDevice::open_writable(&path).expect("nobody has it any more");
}

#[test]
fn a_thread_is_told_before_its_read_waits_and_only_then() {
    let mut image = tempfile::NamedTempFile::new().expect("temporary file");
    image.write_all(&[7; 1 << 16]).expect("write");
    let device = FileDevice::open(image.path()).expect("open");
    rustix::fs::fsync(&device.file).expect("written");
    fadvise(&device.file, 0, None, Advice::DontNeed).expect("forgotten");
    let told = Rc::new(Cell::new(0));
    let count = Rc::clone(&told);
    wait::before_wait(move || count.set(count.get() + 1));
    let mut buffer = [0; 4096];
    let is_at_hand = |offset| device.read_at_hand(offset, &mut [0; 1]) == Ok(1);
    // Not every filesystem forgets, or says so. To ask may fetch what was asked for, so another place is asked for.
    if !is_at_hand(60 << 10) {
        device.read_at(0, &mut buffer).expect("read");
        assert!(told.get() == 1 && buffer == [7; 4096]);
    }
    if is_at_hand(0) {
        let before = told.get();
        device.read_at(0, &mut buffer).expect("read");
        assert!(told.get() == before && buffer == [7; 4096]);
    }
}

use super::file_extent::{Contents, DiskPart, FileExtent};
use super::map::ExtentMap;
use super::*;
use crate::attributes::InodeId;
use brindle_interval::Interval;
use brindle_ondisk::item::Compression;
use brindle_ondisk::{Generation, Logical, ObjectId, RootId, to_usize};
use proptest::prelude::*;

const FILE: InodeId = InodeId { tree: RootId::FS_TREE, number: ObjectId::new(257) };
const SIZE: u64 = 64;

/// State of a byte of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Byte {
    Nothing,
    Hole,
    Preallocated,
    Data,
}

fn extent(start: u64, length: u64, byte: Byte) -> FileExtent {
    let generation = Generation::new(7);
    if byte == Byte::Hole {
        return FileExtent::hole(start, length, generation);
    }
    let is_prealloc = byte == Byte::Preallocated;
    // Data lies on disk in the order of the file, each extent in one of its own.
    let disk = Logical::new(1000 + start);
    let part = DiskPart { is_prealloc, disk, disk_length: length, offset: 0, length };
    let (compression, contents) = (Compression::None, Contents::OnDisk(part));
    FileExtent { start, generation, ram_bytes: length, compression, contents }
}

fn map(range: Range<u64>, extents: Vec<FileExtent>) -> ExtentMap {
    ExtentMap::of(range, extents, 1)
}

fn parts() -> impl Strategy<Value = Vec<(u64, u64, Byte)>> {
    let kind = prop_oneof![Just(Byte::Hole), Just(Byte::Preallocated), Just(Byte::Data)];
    prop::collection::vec((0..4u64, 1..9u64, kind), 0..12).prop_map(|parts| {
        let mut at = 0;
        let placed = parts.into_iter().map(|(gap, length, kind)| {
            let start = at + gap;
            at = start + length;
            (start, length, kind)
        });
        placed.filter(|(start, length, _)| start + length <= SIZE).collect()
    })
}

proptest! {
    #[test]
    fn a_map_is_a_table_of_bytes(parts in parts(), from in 0..SIZE, length in 1..SIZE) {
        let mut bytes = [Byte::Nothing; 64];
        for (start, length, kind) in &parts {
            bytes[to_usize(*start)..to_usize(start + length)].fill(*kind);
        }
        let range = from..SIZE.min(from + length);
        let extents = parts.iter().map(|(start, length, kind)| extent(*start, *length, *kind));
        let in_range = extents.filter(|extent| extent.start < range.end && extent.end(1) > range.start);
        let map = map(range.clone(), in_range.collect());
        let at = |is_it: fn(Byte) -> bool| -> Vec<u64> {
            range.clone().filter(|at| is_it(bytes[to_usize(*at)])).collect()
        };
        let all = |intervals: Vec<Interval>| -> Vec<u64> {
            intervals.into_iter().flat_map(|interval| interval.start..interval.end).collect()
        };
        prop_assert_eq!(all(map.without_item()), at(|byte| byte == Byte::Nothing));
        prop_assert_eq!(all(map.without_space()), at(|byte| matches!(byte, Byte::Nothing | Byte::Hole)));
        prop_assert!(map.covers(range.start) && !map.covers(range.end));

        let data = map.for_reading(FILE).expect("nothing overlaps");
        let read = data.from(range.start).iter();
        let read = read.map(|extent| Interval { start: extent.start, end: extent.contents_end() });
        let read = read.map(|interval| interval.intersection(&range.clone().into()));
        prop_assert_eq!(all(read.collect()), at(|byte| byte == Byte::Data));
    }
}

#[test]
fn data_that_overlaps_is_refused_unless_it_is_the_same() {
    let first = extent(0, 20, Byte::Data);
    let same = first.part(8, 12);
    let map_of = |second: FileExtent| map(0..100, vec![first.clone(), second, extent(30, 5, Byte::Data)]);
    let joined = map_of(same).for_reading(FILE).expect("it is in both for a moment");
    assert_eq!(joined.extents().iter().map(|extent| extent.start).collect::<Vec<_>>(), [0, 30]);
    let elsewhere = FileExtent { start: 9, ..first.part(8, 12) };
    let error = map_of(elsewhere).for_reading(FILE).expect_err("it lies elsewhere");
    assert!(error.to_string().contains("begins before the previous one ends"), "{error}");
    map_of(extent(8, 4, Byte::Hole)).for_reading(FILE).expect("a hole holds no data");
}

#[test]
fn extents_that_no_reader_can_take_are_refused() {
    let refused = |change: fn(&mut FileExtent)| {
        let mut extent = extent(0, 10, Byte::Data);
        change(&mut extent);
        map(0..100, vec![extent]).for_reading(FILE).expect_err("refused").to_string()
    };
    let far = refused(|extent| {
        let Contents::OnDisk(part) = &mut extent.contents else { panic!("it is on disk") };
        part.disk = Logical::new(u64::MAX - 5);
    });
    assert!(far.contains("passes the end of the logical space"), "{far}");
    let large = refused(|extent| {
        (extent.compression, extent.ram_bytes) = (Compression::Zstd, COMPRESSED_MAX_BYTES + 1);
    });
    assert!(large.contains("compressed extent is too large"), "{large}");
    let inline = refused(|extent| {
        (extent.contents, extent.ram_bytes) = (Contents::Inline(vec![1]), COMPRESSED_MAX_BYTES + 1);
        extent.compression = Compression::Zlib;
    });
    assert!(inline.contains("inline extent is too large"), "{inline}");
}

#[test]
fn checksums_are_of_data_alone() {
    let data = extent(0, 20, Byte::Data).part(5, 9);
    let range = |extent: &FileExtent| extent.checksummed().map(|range| (range.start.get(), range.length));
    assert_eq!(range(&data), Some((1005, 4)));
    let compressed = FileExtent { compression: Compression::Lzo, ..data };
    assert_eq!(range(&compressed), Some((1000, 20)), "all of it is decompressed");
    assert_eq!(range(&extent(0, 20, Byte::Preallocated)), None);
    assert_eq!(range(&extent(0, 20, Byte::Hole)), None);
}

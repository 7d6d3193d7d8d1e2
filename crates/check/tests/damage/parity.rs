//! Damage to rows of raid5 and raid6: the finding names the device with the wrong bytes, and no other.

use super::pool::Pool;
use brindle_check::CheckOptions;
use brindle_device::Device;
use brindle_ondisk::{BlockGroupType, KeyType, Logical, Profile, RootId, to_u64, to_usize};

/// Bytes on one stripe before the next one's turn.
const STRIP_BYTES: u64 = 64 << 10;
const SECTOR_BYTES: u64 = 4096;

/// The part of a row at one offset of its strips.
struct Row {
    /// Logical addresses of the data.
    data: Vec<Logical>,
    /// Device and physical address of the data, then of P, then of Q.
    places: Vec<(usize, u64)>,
}

/// The row that holds an address, by the format's own rule: column `c` of row `r` lies on stripe `(c + r) mod k`.
fn row(pool: &Pool, at: Logical) -> Row {
    let chunk = pool.chunk(at);
    let parities = match chunk.kind.profile() {
        Some(Profile::Raid5) => 1,
        Some(Profile::Raid6) => 2,
        other => panic!("{other:?} has no parity"),
    };
    let stripes = to_u64(chunk.stripes.len());
    let columns = stripes - parities;
    let (strip, within) = ((at - chunk.start) / STRIP_BYTES, (at - chunk.start) % STRIP_BYTES);
    let row = strip / columns;
    let place = |column: u64| {
        let stripe = &chunk.stripes[to_usize((column + row) % stripes)];
        let devid = stripe.devid.get();
        let device = pool.devices.iter().position(|device| device.devid() == devid);
        (device.expect("the device is there"), stripe.physical.get() + row * STRIP_BYTES + within)
    };
    let address = |column| chunk.start + (row * columns + column) * STRIP_BYTES + within;
    Row { data: (0..columns).map(address).collect(), places: (0..stripes).map(place).collect() }
}

/// Device and physical address of the data at an address.
pub(crate) fn data_place(pool: &Pool, at: Logical) -> (usize, u64) {
    let row = row(pool, at);
    let column = row.data.iter().position(|data| *data == at);
    row.places[column.expect("the row holds the address")]
}

/// Ranges of data that have checksums.
fn summed(pool: &Pool) -> Vec<(Logical, u64)> {
    let sum_bytes = 4;
    let items = pool.items(RootId::CSUM_TREE).into_iter();
    let range = |place: super::pool::Place| {
        let sectors = to_u64(place.data.len()) / sum_bytes;
        (Logical::new(place.key.offset()), sectors * SECTOR_BYTES)
    };
    items.filter(|place| place.key.item_type == KeyType::EXTENT_CSUM).map(range).collect()
}

fn has_checksum(summed: &[(Logical, u64)], at: Logical) -> bool {
    summed.iter().any(|(start, length)| at.distance_from(*start).is_some_and(|offset| offset < *length))
}

/// Row in which `wanted` holds of the numbers of data sectors with checksums.
fn find_row(pool: &Pool, wanted: impl Fn(usize, usize) -> bool) -> Row {
    let summed = summed(pool);
    let sectors = summed.iter().flat_map(|(start, length)| {
        (0..length / SECTOR_BYTES).map(move |sector| *start + sector * SECTOR_BYTES)
    });
    let is_data = |at: &Logical| pool.chunk(*at).kind.contains(BlockGroupType::DATA);
    let rows = sectors.filter(is_data).map(|at| row(pool, at));
    let is_it = |row: &Row| {
        let count = row.data.iter().filter(|at| has_checksum(&summed, **at)).count();
        wanted(count, row.data.len())
    };
    rows.into_iter().find(is_it).expect("the image has such a row")
}

/// Findings about data after bytes of some columns of a row have changed.
fn damage(
    image: &str,
    wanted: impl Fn(usize, usize) -> bool,
    columns: &[usize],
) -> (Vec<String>, Vec<String>) {
    let mut pool = Pool::load(image);
    let row = find_row(&pool, wanted);
    let mut places = Vec::new();
    for column in columns {
        let (device, offset) = row.places[*column];
        let mut bytes = [0; 16];
        pool.devices[device].read_at(offset + 100, &mut bytes).expect("within the device");
        bytes.iter_mut().for_each(|byte| *byte ^= 0x5a);
        pool.devices[device].write_at(offset + 100, &bytes).expect("within the device");
        places.push(format!("({} at {offset})", pool.devices[device].name()));
    }
    let report = pool.check(&CheckOptions { check_data_csum: true, ..CheckOptions::default() });
    (report.findings().map(|(pass, finding)| format!("{pass}: {finding}")).collect(), places)
}

fn all(count: usize, columns: usize) -> bool {
    count == columns
}

/// The columns of a row of an image, without parity.
fn columns(image: &str) -> usize {
    find_row(&Pool::load(image), all).data.len()
}

#[test]
fn damaged_parity_is_reported_once_and_on_its_own_device() {
    for (image, parities) in [("raid5", 1), ("raid5-wide", 1), ("raid6", 2), ("raid6-wide", 2)] {
        let data = columns(image);
        for (index, name) in ["P", "Q"].into_iter().enumerate().take(parities) {
            let (found, places) = damage(image, all, &[data + index]);
            assert_eq!(found.len(), 1, "{image} {name}: {found:#?}");
            let expected = format!("parity {name} {}", places[0]);
            assert!(found[0].contains(&expected), "{image}: {found:#?} lacks {expected}");
        }
    }
}

#[test]
fn damaged_data_is_reported_on_its_own_device_and_parity_is_not_blamed() {
    for image in ["raid5", "raid5-wide", "raid6", "raid6-wide"] {
        for column in 0..columns(image) {
            let (found, places) = damage(image, all, &[column]);
            assert_eq!(found.len(), 1, "{image}, column {column}: {found:#?}");
            assert!(found[0].contains(&places[0]), "{image}, column {column}: {found:#?}");
            assert!(!found[0].contains("parity"), "{image}, column {column}: {found:#?}");
        }
    }
}

#[test]
fn both_parities_of_a_row_are_reported() {
    let data = columns("raid6");
    let (found, places) = damage("raid6", all, &[data, data + 1]);
    assert_eq!(found.len(), 2, "{found:#?}");
    for (name, place) in ["P", "Q"].into_iter().zip(&places) {
        let expected = format!("parity {name} {place}");
        assert!(found.iter().any(|finding| finding.contains(&expected)), "{found:#?} lacks {expected}");
    }
}

#[test]
fn parity_of_a_row_with_data_that_has_no_checksum_is_reported_with_that_doubt() {
    let some = |count, columns| count > 0 && count < columns;
    let data = find_row(&Pool::load("raid5"), some).data.len();
    let (found, places) = damage("raid5", some, &[data]);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].contains(&format!("parity P {}", places[0])), "{found:#?}");
    assert!(found[0].contains("no checksum"), "{found:#?}");
}

#[test]
fn data_that_neither_is_right_nor_can_be_rebuilt_is_reported_in_both_ways() {
    let data = columns("raid5");
    let (found, places) = damage("raid5", all, &[0, data]);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found.iter().all(|finding| finding.contains(places[0].trim_matches(['(', ')']))), "{found:#?}");
    assert!(found.iter().any(|finding| finding.contains("rebuilt")), "{found:#?}");
}

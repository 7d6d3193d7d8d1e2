//! Stripes of the beginning of a chunk, as bytes.
//!
//! Striped profiles deal strips of 64 KiB to their stripes, a row of them at a time. With parity, the columns of
//! data of a row are followed by P and (raid6) Q, and all of it is rotated by the row's number: column `c` of
//! row `r` lies on stripe `(c + r) mod stripes`. P is the sum (XOR) of the data, Q the sum of the data each
//! multiplied by a power of 2 in GF(2^8) over 0x11d.

use brindle_ondisk::Profile;
use brindle_policy::placement::STRIP_BYTES;
use brindle_volume::syndromes;

const STRIP: usize = brindle_ondisk::to_usize(STRIP_BYTES);

/// The beginning of each stripe of a chunk that begins with `bytes`. With parity, whole rows are made, for
/// parity covers all of a row: what lies behind `bytes` in the last one is zero.
pub(crate) fn spread(profile: Profile, stripes: usize, bytes: &[u8]) -> Vec<Vec<u8>> {
    let attributes = profile.attributes();
    match profile {
        Profile::Single | Profile::Dup | Profile::Raid1 | Profile::Raid1c3 | Profile::Raid1c4 => {
            vec![bytes.to_vec(); stripes]
        }
        Profile::Raid0 | Profile::Raid10 => {
            let copies = usize::from(attributes.ncopies);
            let columns = deal(bytes, stripes / copies);
            columns.into_iter().flat_map(|column| vec![column; copies]).collect()
        }
        Profile::Raid5 | Profile::Raid6 => with_parity(bytes, stripes, attributes.nparity.into()),
    }
}

/// Strips dealt in turn.
fn deal(bytes: &[u8], columns: usize) -> Vec<Vec<u8>> {
    let mut dealt = vec![Vec::new(); columns];
    for (number, strip) in bytes.chunks(STRIP).enumerate() {
        dealt[number % columns].extend_from_slice(strip);
    }
    dealt
}

fn with_parity(bytes: &[u8], stripes: usize, parities: usize) -> Vec<Vec<u8>> {
    let columns = stripes - parities;
    let mut spread = vec![Vec::new(); stripes];
    for (row, data) in bytes.chunks(STRIP * columns).enumerate() {
        let mut strips = vec![vec![0; STRIP]; columns];
        for (strip, data) in strips.iter_mut().zip(data.chunks(STRIP)) {
            strip[..data.len()].copy_from_slice(data);
        }
        let columns: Vec<&[u8]> = strips.iter().map(Vec::as_slice).collect();
        let (p, q) = syndromes(&columns);
        strips.extend([p, q].into_iter().take(parities));
        for (column, strip) in strips.into_iter().enumerate() {
            spread[(column + row) % stripes].extend(strip);
        }
    }
    spread
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strip(fill: u8) -> Vec<u8> {
        vec![fill; STRIP]
    }

    #[test]
    fn mirrors_are_equal_and_strips_are_dealt() {
        assert_eq!(spread(Profile::Raid1c3, 3, b"abc"), vec![b"abc".to_vec(); 3]);
        let bytes = [strip(1), strip(2), strip(3), vec![4; 10]].concat();
        let raid0 = spread(Profile::Raid0, 3, &bytes);
        assert_eq!(raid0, [[strip(1), vec![4; 10]].concat(), strip(2), strip(3)]);
        let raid10 = spread(Profile::Raid10, 4, &bytes);
        assert_eq!(raid10[0], [strip(1), strip(3)].concat());
        assert_eq!((&raid10[0], &raid10[2]), (&raid10[1], &raid10[3]));
    }

    #[test]
    fn parity_rotates_and_covers_whole_rows() {
        let bytes = [strip(1), strip(2), vec![4; 10]].concat();
        let raid5 = spread(Profile::Raid5, 3, &bytes);
        let mut tail = strip(0);
        tail[..10].fill(4);
        // Row 0 is 1, 2, P; row 1 begins one stripe later.
        assert_eq!(raid5[0], [strip(1), tail.clone()].concat());
        assert_eq!(raid5[1], [strip(2), tail.clone()].concat());
        assert_eq!(raid5[2], [strip(3), strip(0)].concat());
        let raid6 = spread(Profile::Raid6, 4, &bytes);
        assert_eq!(raid6[3][..STRIP], strip(1 ^ 4), "Q is D0 + 2 D1");
        assert!(raid6.iter().all(|stripe| stripe.len() == 2 * STRIP));
    }
}

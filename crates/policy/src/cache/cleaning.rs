//! Cleaning: dirty blocks are written to the disk in its order, in long runs.

/// Number of dirty blocks that are to be cleaned now, so that no more than `percent` of `capacity` are dirty. What is begun
/// goes a tenth below the threshold: cleaning in small portions would cost a seek each.
pub fn excess(dirty: u64, capacity: u64, percent: u64) -> u64 {
    let limit = part(capacity, percent);
    if dirty <= limit { 0 } else { dirty - (limit - limit / 10) }
}

/// `percent` of a number, without overflow.
fn part(of: u64, percent: u64) -> u64 {
    let product = u128::from(of) * u128::from(percent.min(100)) / 100;
    u64::try_from(product).expect("no more than the whole")
}

/// Runs of adjacent blocks in a sorted list, as index and length, each of `longest` blocks at most.
pub fn runs(blocks: &[u64], longest: usize) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        match runs.last_mut() {
            Some((_, length)) if *length < longest && blocks[index - 1].checked_add(1) == Some(*block) => {
                *length += 1;
            }
            _ => runs.push((index, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleaning_begins_at_the_threshold_and_goes_below_it() {
        assert_eq!([199, 200, 201, 1000].map(|dirty| excess(dirty, 1000, 20)), [0, 0, 21, 820]);
        assert_eq!(excess(u64::MAX, u64::MAX, 100), 0);
        assert_eq!(excess(5, 0, 20), 5);
        assert_eq!(excess(512, 512, 0), 512, "everything");
    }

    #[test]
    fn adjacent_blocks_are_one_run() {
        assert_eq!(runs(&[], 4), []);
        assert_eq!(runs(&[3, 4, 5, 9, 10, u64::MAX], 4), [(0, 3), (3, 2), (5, 1)]);
        assert_eq!(runs(&[0, 1, 2, 3, 4, 5], 4), [(0, 4), (4, 2)]);
    }
}

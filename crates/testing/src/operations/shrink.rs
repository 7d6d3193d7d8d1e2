//! From many operations to the few that matter.

/// The fewest of these, in order, for which `fails` still holds, as far as taking out runs of them finds. Each call
/// of `fails` must begin anew; it is called `budget` times at most.
pub fn shrink<T: Clone>(items: &[T], mut budget: usize, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut kept = items.to_vec();
    let mut run = kept.len().div_ceil(2);
    while run > 0 && budget > 0 {
        let mut start = 0;
        let mut has_shrunk = false;
        while start < kept.len() && budget > 0 {
            let end = (start + run).min(kept.len());
            let fewer = [&kept[..start], &kept[end..]].concat();
            budget -= 1;
            if fails(&fewer) {
                kept = fewer;
                has_shrunk = true;
            } else {
                start = end;
            }
        }
        // Single ones are tried until none can go: each that went may have been what another one was there for.
        if run > 1 || !has_shrunk {
            run /= 2;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shrinking_leaves_only_operations_that_matter() {
        let numbers: Vec<u32> = (0..200).collect();
        let matter = [3, 77, 78, 199];
        let fails = |some: &[u32]| matter.iter().all(|number| some.contains(number));
        assert_eq!(shrink(&numbers, 10_000, fails), matter);
    }

    #[test]
    fn the_budget_is_kept() {
        let mut calls = 0;
        let kept = shrink(&[1; 100], 7, |_| {
            calls += 1;
            false
        });
        assert_eq!((kept.len(), calls), (100, 7));
    }
}

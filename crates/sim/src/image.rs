//! Bytes that are cheap to copy: what two images have in common is in memory once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The unit in which images share memory, in bytes.
pub const PAGE_BYTES: usize = 4096;

/// One page.
pub(crate) type Page = [u8; PAGE_BYTES];

/// Pages that are copied together, the pointers that is, when one of them changes in a shared image.
const PAGES_PER_GROUP: usize = 256;

const PAGE: u64 = PAGE_BYTES as u64;

/// Bytes of a fixed size, zero where nothing was written. A clone costs a few pointers, and takes memory only
/// for the pages that are changed after it.
#[derive(Clone)]
pub struct Image {
    size_bytes: u64,
    groups: BTreeMap<u64, Arc<Group>>,
}

/// Pages of a range; a missing one is zero.
#[derive(Clone)]
struct Group {
    pages: [Option<Arc<Page>>; PAGES_PER_GROUP],
}

/// A part of a range that lies within one page.
pub(crate) struct PageSpan {
    pub(crate) page: u64,
    pub(crate) within: usize,
    pub(crate) length: usize,
}

/// A range, cut at the bounds of pages.
pub(crate) fn spans(offset: u64, length: usize) -> impl Iterator<Item = PageSpan> {
    let mut at = offset;
    let mut left = length;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let within = small(at % PAGE);
        let span = PageSpan { page: at / PAGE, within, length: left.min(PAGE_BYTES - within) };
        at += span.length as u64;
        left -= span.length;
        Some(span)
    })
}

impl Image {
    /// All zeros.
    #[must_use]
    pub fn new(size_bytes: u64) -> Self {
        Self { size_bytes, groups: BTreeMap::new() }
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Fills `buffer` from `offset` on.
    ///
    /// # Panics
    /// If the range passes the end.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) {
        self.assert_within(offset, buffer.len() as u64);
        let mut rest = buffer;
        for span in spans(offset, rest.len()) {
            let (target, after) = rest.split_at_mut(span.length);
            match self.page(span.page) {
                Some(page) => target.copy_from_slice(&page[span.within..span.within + span.length]),
                None => target.fill(0),
            }
            rest = after;
        }
    }

    /// Writes `bytes` from `offset` on.
    ///
    /// # Panics
    /// If the range passes the end.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.assert_within(offset, bytes.len() as u64);
        let mut rest = bytes;
        for span in spans(offset, bytes.len()) {
            let (source, after) = rest.split_at(span.length);
            let page = self.slot(span.page).get_or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(page)[span.within..span.within + span.length].copy_from_slice(source);
            rest = after;
        }
    }

    /// Zeros a range, and gives back its memory.
    ///
    /// # Panics
    /// If the range passes the end.
    pub fn zero(&mut self, offset: u64, length: u64) {
        self.assert_within(offset, length);
        let end = offset + length;
        let first = offset / PAGE;
        let last = end.div_ceil(PAGE);
        let groups = first / GROUP..last.div_ceil(GROUP);
        let numbers: Vec<u64> = self.groups.range(groups).map(|(number, _)| *number).collect();
        for number in numbers {
            for page in (number * GROUP).max(first)..((number + 1) * GROUP).min(last) {
                if self.page(page).is_some() {
                    self.zero_page(page, offset.max(page * PAGE), end.min((page + 1) * PAGE));
                }
            }
        }
    }

    /// Makes it this long: what is cut off is lost, what is added is zero.
    pub fn set_size(&mut self, size_bytes: u64) {
        if size_bytes < self.size_bytes {
            self.zero(size_bytes, self.size_bytes - size_bytes);
        }
        self.size_bytes = size_bytes;
    }

    /// The offset of the first byte that `other` has otherwise; where one is longer, the end of the shorter, unless
    /// an earlier byte differs.
    #[must_use]
    pub fn first_difference(&self, other: &Self) -> Option<u64> {
        let common = self.size_bytes.min(other.size_bytes);
        let numbers = self.groups.keys().chain(other.groups.keys());
        let bytes = numbers.filter_map(|number| self.difference_in_group(other, *number)).min();
        let sizes = (self.size_bytes != other.size_bytes).then_some(common);
        bytes.filter(|at| *at < common).or(sizes)
    }

    /// All its bytes; for small images.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let length = usize::try_from(self.size_bytes).expect("an image that fits memory");
        let mut bytes = vec![0; length];
        self.read(0, &mut bytes);
        bytes
    }

    /// Number of pages it holds, shared ones among them.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.groups.values().map(|group| group.pages.iter().flatten().count()).sum()
    }

    /// Puts a whole page where it belongs without a copy.
    pub(crate) fn set_page(&mut self, number: u64, page: &Arc<Page>) {
        self.assert_within(number * PAGE, PAGE);
        *self.slot(number) = Some(Arc::clone(page));
    }

    /// A page, if it is not all zeros for want of a write.
    pub(crate) fn page(&self, number: u64) -> Option<&Arc<Page>> {
        self.groups.get(&(number / GROUP))?.pages[small(number % GROUP)].as_ref()
    }

    fn slot(&mut self, number: u64) -> &mut Option<Arc<Page>> {
        let group = self.groups.entry(number / GROUP).or_insert_with(|| Arc::new(Group::empty()));
        &mut Arc::make_mut(group).pages[small(number % GROUP)]
    }

    fn zero_page(&mut self, number: u64, from: u64, to: u64) {
        let slot = self.slot(number);
        let (from, to) = (small(from - number * PAGE), small(to - number * PAGE));
        if from == 0 && to == PAGE_BYTES {
            *slot = None;
        } else if let Some(page) = slot {
            Arc::make_mut(page)[from..to].fill(0);
        }
    }

    fn difference_in_group(&self, other: &Self, number: u64) -> Option<u64> {
        if let (Some(ours), Some(theirs)) = (self.groups.get(&number), other.groups.get(&number)) {
            if Arc::ptr_eq(ours, theirs) {
                return None;
            }
        }
        let zeros: &Page = &[0; PAGE_BYTES];
        (number * GROUP..(number + 1) * GROUP).find_map(|page| {
            let (ours, theirs) = (self.page(page), other.page(page));
            if let (Some(ours), Some(theirs)) = (ours, theirs) {
                if Arc::ptr_eq(ours, theirs) {
                    return None;
                }
            }
            let (ours, theirs) = (ours.map_or(zeros, |page| page), theirs.map_or(zeros, |page| page));
            let at = ours.iter().zip(theirs).position(|(a, b)| a != b)?;
            Some(page * PAGE + at as u64)
        })
    }

    fn assert_within(&self, offset: u64, length: u64) {
        let within = offset.checked_add(length).is_some_and(|end| end <= self.size_bytes);
        assert!(within, "{length} bytes at {offset} lie beyond the end at {}", self.size_bytes);
    }
}

const GROUP: u64 = PAGES_PER_GROUP as u64;

impl Group {
    fn empty() -> Self {
        Self { pages: [const { None }; PAGES_PER_GROUP] }
    }
}

impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        self.first_difference(other).is_none()
    }
}

impl Eq for Image {}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages = self.pages();
        f.debug_struct("Image").field("size_bytes", &self.size_bytes).field("pages", &pages).finish()
    }
}

/// An offset within a page, or a number within a group.
fn small(value: u64) -> usize {
    usize::try_from(value).expect("less than a page")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Spans two groups, with an odd end.
    const SIZE: usize = PAGE_BYTES * (PAGES_PER_GROUP + 3) + 77;

    #[derive(Clone, Debug)]
    enum Step {
        Write(usize, usize, u8),
        Zero(usize, usize),
        SetSize(usize),
        Keep,
    }

    fn step() -> impl Strategy<Value = Step> {
        let start = prop_oneof![0..3 * PAGE_BYTES, SIZE - 6 * PAGE_BYTES..SIZE];
        let length = prop_oneof![1..600usize, 4000..9000usize, Just(SIZE)];
        prop_oneof![
            4 => (start.clone(), length.clone(), 1..=255u8).prop_map(|(at, length, fill)| Step::Write(at, length, fill)),
            2 => (start.clone(), length).prop_map(|(at, length)| Step::Zero(at, length)),
            1 => start.prop_map(Step::SetSize),
            1 => Just(Step::Keep),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn an_image_and_its_clones_are_plain_vectors(steps in prop::collection::vec(step(), 1..20)) {
            let mut image = Image::new(SIZE as u64);
            let mut model = vec![0u8; SIZE];
            let mut kept = Vec::new();
            for step in steps {
                let clip = |at: usize, length: usize| at.min(model.len())..(at.saturating_add(length)).min(model.len());
                match step {
                    Step::Write(at, length, fill) => {
                        let range = clip(at, length);
                        image.write(range.start as u64, &vec![fill; range.len()]);
                        model[range].fill(fill);
                    }
                    Step::Zero(at, length) => {
                        let range = clip(at, length);
                        image.zero(range.start as u64, range.len() as u64);
                        model[range].fill(0);
                    }
                    Step::SetSize(size) => {
                        image.set_size(size as u64);
                        model.resize(size, 0);
                    }
                    Step::Keep => kept.push((image.clone(), model.clone())),
                }
                prop_assert_eq!(image.to_vec(), &model[..]);
            }
            for (clone, then) in &kept {
                prop_assert_eq!(clone.to_vec(), &then[..]);
                let first = clone.to_vec().iter().zip(&model).position(|(a, b)| a != b);
                let ends = (then.len() != model.len()).then(|| then.len().min(model.len()));
                prop_assert_eq!(clone.first_difference(&image), first.or(ends).map(|at| at as u64));
            }
        }
    }

    #[test]
    fn a_clone_takes_memory_only_for_what_changes() {
        let mut image = Image::new(1 << 40);
        image.write((1 << 40) - 4096, &[1; 4096]);
        image.write(0, &[1; 8192]);
        let mut clone = image.clone();
        clone.write(4096, &[2]);
        assert!(Arc::ptr_eq(image.page(0).expect("written"), clone.page(0).expect("written")));
        assert!(!Arc::ptr_eq(image.page(1).expect("written"), clone.page(1).expect("written")));
        clone.zero(0, 1 << 40);
        assert_eq!((image.pages(), clone.pages()), (3, 0));
    }
}

//! Faults that follow each other, of the same kind of content, with the same problem and the same files, as one: a device that
//! lacks a gigabyte has not as many problems as sectors.

use super::Fault;
use brindle_volume::{Content, ScrubFault};
use std::ops::RangeInclusive;

/// A fault, or several that follow each other.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    first: ScrubFault,
    /// Number of faults.
    count: u64,
    /// Bytes of all.
    length: u64,
    /// Addresses of all on the device.
    physical: RangeInclusive<u64>,
    /// Their logical addresses.
    logical: RangeInclusive<u64>,
    /// Paths of the files, with the offsets of all in each.
    files: Vec<(Vec<u8>, RangeInclusive<u64>)>,
    /// True if the problems differ by their numbers.
    is_mixed: bool,
}

impl Joined {
    /// A fault, with its files and the offset in each.
    pub(crate) fn new(fault: &ScrubFault, files: Vec<(Vec<u8>, u64)>) -> Self {
        let (physical, logical) = (fault.physical.get(), fault.logical.get());
        Self {
            first: fault.clone(),
            count: 1,
            length: fault.length,
            physical: physical..=physical,
            logical: logical..=logical,
            files: files.into_iter().map(|(path, offset)| (path, offset..=offset)).collect(),
            is_mixed: false,
        }
    }

    /// In words, without the files. `name` is that of the device.
    fn text(&self, name: &str) -> String {
        let content = match self.first.content {
            Content::Data => "data",
            Content::Metadata => "metadata",
            Content::Parity => "parity",
        };
        let (physical, logical) = (span(&self.physical), span(&self.logical));
        let amount = match self.count {
            1 => format!("{} bytes", self.length),
            count => format!("{count} pieces of {} bytes in all", self.length),
        };
        let order = if self.is_mixed { "of the first, " } else { "" };
        let problem = &self.first.problem;
        format!("{name} offset {physical}: {content} at logical {logical}, {amount}: {order}{problem}")
    }

    /// In words, with the files.
    pub(crate) fn in_words(&self, name: &str) -> String {
        let text = self.text(name);
        let file = |(path, offsets): &(Vec<u8>, RangeInclusive<u64>)| {
            format!("{} at {}", String::from_utf8_lossy(path), span(offsets))
        };
        let files: Vec<String> = self.files.iter().map(file).collect();
        if files.is_empty() { text } else { format!("{text} ({})", files.join(", ")) }
    }

    /// The fault that is kept of them.
    pub(super) fn fault(&self, name: &str) -> Fault {
        let files = self.files.iter().map(|(path, offsets)| (path.clone(), *offsets.start())).collect();
        Fault { text: self.text(name), files, errors: self.count }
    }

    /// Takes over the next one; returns false for one that is not of the same kind.
    fn take(&mut self, next: &Self) -> bool {
        let (one, other) = (&self.first, &next.first);
        let same_kind = (one.devid, one.content, one.is_lost, one.is_silent)
            == (other.devid, other.content, other.is_lost, other.is_silent);
        let same_files = self.files.iter().map(|(path, _)| path).eq(next.files.iter().map(|(path, _)| path));
        if !same_kind || !same_files || !is_alike(&one.problem, &other.problem) {
            return false;
        }
        self.is_mixed |= next.is_mixed || one.problem != other.problem;
        self.count += next.count;
        self.length += next.length;
        self.physical = cover(&self.physical, &next.physical);
        self.logical = cover(&self.logical, &next.logical);
        for ((_, offsets), (_, more)) in self.files.iter_mut().zip(&next.files) {
            *offsets = cover(offsets, more);
        }
        true
    }
}

/// Faults in their order, of which those are joined that belong together.
#[derive(Debug, Default)]
pub(crate) struct Joining(Option<Joined>);

impl Joining {
    /// Adds the next one; returns those before it, unless it was joined with them.
    pub(crate) fn add(&mut self, next: Joined) -> Option<Joined> {
        let is_joined = self.0.as_mut().is_some_and(|last| last.take(&next));
        if is_joined { None } else { self.0.replace(next) }
    }

    /// The last ones.
    pub(crate) fn end(&mut self) -> Option<Joined> {
        self.0.take()
    }
}

/// The first and the last of some addresses, or the only one.
fn span(addresses: &RangeInclusive<u64>) -> String {
    let (first, last) = (addresses.start(), addresses.end());
    if first == last { first.to_string() } else { format!("{first} to {last}") }
}

fn cover(one: &RangeInclusive<u64>, other: &RangeInclusive<u64>) -> RangeInclusive<u64> {
    *one.start().min(other.start())..=*one.end().max(other.end())
}

/// Returns true if problems differ by words with digits alone: addresses and checksums.
fn is_alike(one: &str, other: &str) -> bool {
    let has_digit = |word: &&str| word.contains(|it: char| it.is_ascii_digit());
    let (mut one, mut other) = (one.split_whitespace(), other.split_whitespace());
    loop {
        match (one.next(), other.next()) {
            (None, None) => return true,
            (Some(a), Some(b)) if a == b || (has_digit(&a) && has_digit(&b)) => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_ondisk::{DevId, Logical, Physical};

    /// The fault of a sector of a file.
    fn of_file(sector: u64, path: &str, problem: &str) -> Joined {
        let at = sector * 4096;
        let fault = ScrubFault {
            logical: Logical::new((1 << 30) + at),
            length: 4096,
            devid: DevId::new(1),
            physical: Physical::new((1 << 20) + at),
            content: Content::Data,
            problem: problem.to_owned(),
            is_lost: true,
            is_silent: false,
        };
        let files = if path.is_empty() { Vec::new() } else { vec![(path.as_bytes().to_vec(), at)] };
        Joined::new(&fault, files)
    }

    fn joined(faults: Vec<Joined>) -> Vec<String> {
        let mut joining = Joining::default();
        let mut all: Vec<Joined> = faults.into_iter().filter_map(|it| joining.add(it)).collect();
        all.extend(joining.end());
        all.iter().map(|it| it.in_words("disk")).collect()
    }

    #[test]
    fn a_single_fault_is_told_with_its_addresses() {
        assert_eq!(
            joined(vec![of_file(1, "/a", "device is missing")]),
            ["disk offset 1052672: data at logical 1073745920, 4096 bytes: device is missing (/a at 4096)"]
        );
        assert!(joined(vec![]).is_empty());
    }

    #[test]
    fn faults_of_a_file_with_the_same_problem_are_one_line() {
        let missing = |sector, path| of_file(sector, path, "device is missing");
        let faults = (0..1000).map(|sector| missing(sector, "/a")).chain([missing(1000, "/b")]);
        let rest = [missing(1001, "/a"), of_file(1002, "/a", "no"), missing(1003, ""), missing(1005, "")];
        let lines = joined(faults.chain(rest).collect());
        assert_eq!(
            lines[0],
            "disk offset 1048576 to 5140480: data at logical 1073741824 to 1077833728, 1000 pieces of 4096000 bytes in all: \
             device is missing (/a at 0 to 4091904)"
        );
        assert!(lines[1].ends_with("(/b at 4096000)") && lines[2].ends_with("(/a at 4100096)"), "{lines:?}");
        assert!(lines[3].ends_with("4096 bytes: no (/a at 4104192)"), "{lines:?}");
        assert!(lines[4].contains("2 pieces of 8192 bytes in all: device is missing"), "{lines:?}");
        assert_eq!(lines.len(), 5);
    }

    #[test]
    fn problems_that_differ_by_numbers_are_told_by_the_first() {
        let wrong =
            |sector| of_file(sector, "/a", &format!("checksum 0x{sector:08x} expected 0x00000000; so"));
        let lines = joined((1..4).map(wrong).collect());
        let end = "3 pieces of 12288 bytes in all: of the first, checksum 0x00000001 expected 0x00000000; so (/a at 4096 to 12288)";
        assert!(lines.len() == 1 && lines[0].ends_with(end), "{lines:?}");
        assert!(!is_alike("cannot read", "cannot read 4096") && !is_alike("read 1 of sda", "read 1 of sdb"));
    }

    #[test]
    fn faults_of_another_kind_are_apart() {
        let of = |change: fn(&mut ScrubFault)| {
            let mut fault = of_file(1, "", "no").first;
            change(&mut fault);
            Joined::new(&fault, Vec::new())
        };
        let all = vec![
            of(|_| {}),
            of(|it| it.content = Content::Parity),
            of(|it| it.is_lost = false),
            of(|it| it.is_silent = true),
            of(|it| it.devid = DevId::new(2)),
        ];
        assert_eq!(joined(all).len(), 5);
    }
}

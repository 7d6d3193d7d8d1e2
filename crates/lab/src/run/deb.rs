//! Debian packages as files: an archive of `ar` with the version of the format, then an archive of `tar` with control files, then one
//! with contents.

use std::io;

/// Length of a header, and unit of contents, of `tar`.
const BLOCK_BYTES: usize = 512;
/// Place of the checksum in a header of `tar`.
const SUM: std::ops::Range<usize> = 148..156;
/// Place of the length in a header of `tar`.
const LENGTH: std::ops::Range<usize> = 124..136;
/// First line of an archive of `ar`.
const MAGIC: &[u8] = b"!<arch>\n";
/// Length of a header of `ar`.
const HEADER_BYTES: usize = 60;
/// End of a header of `ar`.
const HEADER_END: &[u8] = b"`\n";
/// Time of all files of packages that are made here: none depends on the clock.
const TIME: u64 = 1_700_000_000;
/// Control files that would be run, or make a trigger of another package be run.
const SCRIPTS: [&str; 7] = ["config", "postinst", "postrm", "preinst", "prerm", "templates", "triggers"];

/// An archive of `tar`, while it grows.
#[derive(Default)]
pub(super) struct Tar {
    bytes: Vec<u8>,
}

impl Tar {
    /// Adds a directory. Its name ends with a slash.
    pub(super) fn directory(&mut self, name: &str) {
        self.header(name, 0o755, b'5', 0);
    }

    /// Adds a file.
    pub(super) fn file(&mut self, name: &str, contents: &[u8]) {
        self.header(name, 0o644, b'0', contents.len());
        self.bytes.extend_from_slice(contents);
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK_BYTES), 0);
    }

    fn header(&mut self, name: &str, mode: u32, kind: u8, length: usize) {
        let mut header = [0; BLOCK_BYTES];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        assert!(name.len() < 100, "{name}: names of packages that are made here are short");
        put(0, name.as_bytes());
        put(100, format!("{mode:07o}").as_bytes());
        put(108, b"0000000\x000000000");
        put(LENGTH.start, format!("{length:011o}").as_bytes());
        put(136, format!("{TIME:011o}").as_bytes());
        put(156, &[kind]);
        put(257, b"ustar\x0000root");
        put(297, b"root");
        put(SUM.start, b"        ");
        let sum: u32 = header.iter().copied().map(u32::from).sum();
        header[SUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend_from_slice(&header);
    }

    /// The archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK_BYTES, 0);
        self.bytes
    }
}

/// Control files of an archive of `tar`, without scripts and triggers.
pub(super) fn without_scripts(tar: &[u8]) -> io::Result<Vec<u8>> {
    let (mut kept, mut at) = (Tar::default(), 0);
    while let Some(header) = tar.get(at..at + BLOCK_BYTES).filter(|header| header[0] != 0) {
        let end = at + BLOCK_BYTES + length_of(header)?.next_multiple_of(BLOCK_BYTES);
        let member = tar.get(at..end).ok_or_else(|| wrong("control files end too early"))?;
        let name = String::from_utf8_lossy(&header[..100]);
        let name = name.trim_end_matches('\0').trim_start_matches("./");
        if !SCRIPTS.contains(&name) {
            kept.bytes.extend_from_slice(member);
        }
        at = end;
    }
    Ok(kept.finish())
}

fn length_of(header: &[u8]) -> io::Result<usize> {
    let digits = String::from_utf8_lossy(&header[LENGTH]);
    let digits = digits.trim_matches(['\0', ' ']);
    let length = usize::from_str_radix(digits, 8).ok().filter(|length| *length <= 1 << 30);
    length.ok_or_else(|| wrong("a control file has no length"))
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

/// A package of control files and contents. The name of the contents tells their compression.
pub(super) fn package(control: &[u8], (name, contents): (&str, &[u8])) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for (name, member) in [("debian-binary", &b"2.0\n"[..]), ("control.tar", control), (name, contents)] {
        let length = member.len();
        bytes.extend_from_slice(format!("{name:<16}{TIME:<12}0     0     100644  {length:<10}").as_bytes());
        bytes.extend_from_slice(HEADER_END);
        bytes.extend_from_slice(member);
        bytes.resize(bytes.len().next_multiple_of(2), b'\n');
    }
    bytes
}

/// Name and contents of the member of a package that has its files.
pub(super) fn contents(package: &[u8]) -> io::Result<(String, &[u8])> {
    let mut rest = package.strip_prefix(MAGIC).ok_or_else(|| wrong("it is no archive"))?;
    loop {
        let (header, more) =
            rest.split_at_checked(HEADER_BYTES).ok_or_else(|| wrong("it has no contents"))?;
        let text = String::from_utf8_lossy(header);
        let length = text.get(48..58).and_then(|digits| digits.trim_end().parse::<usize>().ok());
        let length =
            length.filter(|_| header.ends_with(HEADER_END)).ok_or_else(|| wrong("no header of ar"))?;
        let member = more.get(..length).ok_or_else(|| wrong("it ends too early"))?;
        let name = text.get(..16).unwrap_or_default().trim_end().trim_end_matches('/');
        if name.starts_with("data.tar") {
            return Ok((name.to_owned(), member));
        }
        rest = more.get(length.next_multiple_of(2)..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar() -> Tar {
        let mut tar = Tar::default();
        tar.directory("./");
        tar.file("./control", b"Package: piece\n");
        tar.file("./postinst", &[b'#'; 700]);
        tar.file("./md5sums", b"");
        tar
    }

    #[test]
    fn scripts_are_left_out_and_nothing_else() {
        let mut expected = Tar::default();
        expected.directory("./");
        expected.file("./control", b"Package: piece\n");
        expected.file("./md5sums", b"");
        assert_eq!(without_scripts(&tar().finish()).expect("whole"), expected.finish());
        let whole = tar().finish();
        without_scripts(&whole[..2048]).expect_err("it ends within a member");
        let mut damaged = whole;
        damaged[512 + 124..512 + 136].fill(b'9');
        without_scripts(&damaged).expect_err("no length");
    }

    #[test]
    fn contents_of_a_package_are_found_behind_members_of_any_length() {
        for length in [0, 1, 4097] {
            let (control, data) = (vec![1; length], vec![2; length + 1]);
            let made = package(&control, ("data.tar.xz", &data));
            assert_eq!(contents(&made).expect("whole"), ("data.tar.xz".to_owned(), &data[..]));
            contents(&made[..made.len() - 2]).expect_err("it ends too early");
        }
        contents(b"a letter").expect_err("no archive");
        contents(MAGIC).expect_err("no member");
        contents(&[MAGIC, &[b'0'; 60]].concat()).expect_err("no header");
    }
}

//! Modes, as `ls -l` writes them.

/// `drwxr-xr-x` and the like.
pub(crate) fn mode_text(mode: u32) -> String {
    let kind = match mode & 0o170_000 {
        0o040_000 => 'd',
        0o120_000 => 'l',
        0o020_000 => 'c',
        0o060_000 => 'b',
        0o010_000 => 'p',
        0o140_000 => 's',
        0o100_000 => '-',
        _ => '?',
    };
    let mut text = String::from(kind);
    // User, group, others; the bit that changes what execution means, and what it is then called.
    for (shift, special, name) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, false) => 'x',
            (false, false) => '-',
            (true, true) => name,
            (false, true) => name.to_ascii_uppercase(),
        });
    }
    text
}

/// Name of the inode's type in a mode, in the words of `stat`.
pub(crate) fn kind_text(mode: u32) -> &'static str {
    match mode & 0o170_000 {
        0o040_000 => "directory",
        0o120_000 => "symbolic link",
        0o020_000 => "character special file",
        0o060_000 => "block special file",
        0o010_000 => "fifo",
        0o140_000 => "socket",
        0o100_000 => "regular file",
        _ => "weird file",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_as_in_ls() {
        assert_eq!(mode_text(0o100_644), "-rw-r--r--");
        assert_eq!(mode_text(0o041_777), "drwxrwxrwt");
        assert_eq!(mode_text(0o104_755), "-rwsr-xr-x");
        assert_eq!(mode_text(0o102_640), "-rw-r-S---");
        assert_eq!(mode_text(0o120_777), "lrwxrwxrwx");
        assert_eq!(mode_text(0), "?---------");
    }
}

//! Other ways to be called: as `mount.brindle` or `mount.fuse.brindle` by mount(8), and as
//! `brindle DEVICE MOUNTPOINT -o OPTIONS` by mount.fuse3, which become `brindle mount --helper ...`; and as
//! `umount.fuse.brindle` by umount(8).

use std::ffi::{OsStr, OsString};
use std::path::Path;

const HELPER_NAMES: [&str; 4] =
    ["mount.brindle", "mount.fuse.brindle", "mount.fuse3.brindle", "mount.fuseblk.brindle"];

const UNMOUNT_NAMES: [&str; 3] = ["umount.brindle", "umount.fuse.brindle", "umount.fuseblk.brindle"];

/// The arguments in the form that the command line understands. `is_command` knows the commands by name.
pub(crate) fn rewrite(arguments: Vec<OsString>, is_command: impl Fn(&str) -> bool) -> Vec<OsString> {
    let name = arguments.first().and_then(|path| Path::new(path).file_name()).unwrap_or_default();
    if HELPER_NAMES.iter().any(|helper| name == *helper) || is_short_form(&arguments, is_command) {
        let program = arguments.first().cloned().unwrap_or_default();
        let head = [program, "mount".into(), "--helper".into()];
        return head.into_iter().chain(helper_arguments(&arguments[1..])).collect();
    }
    if UNMOUNT_NAMES.iter().any(|helper| name == *helper) {
        let program = arguments.first().cloned().unwrap_or_default();
        let head = [program, "umount".into()];
        return head.into_iter().chain(unmount_arguments(&arguments[1..])).collect();
    }
    arguments
}

/// Arguments passed by umount(8): `DIR [-flnrv] [-N NAMESPACE] [-t TYPE]`.
fn unmount_arguments(arguments: &[OsString]) -> Vec<OsString> {
    let mut rewritten = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("-t" | "-N") => drop(rest.next()),
            Some(flags) if flags.len() > 1 && flags.starts_with('-') => {
                rewritten.extend(flags.contains('l').then(|| "--lazy".into()));
                rewritten.extend(flags.contains('f').then(|| "--force".into()));
            }
            _ => rewritten.push(argument.clone()),
        }
    }
    rewritten
}

/// Returns true for `brindle DEVICE MOUNTPOINT -o OPTIONS`: no command, but a path.
fn is_short_form(arguments: &[OsString], is_command: impl Fn(&str) -> bool) -> bool {
    let [_, device, mountpoint, option, ..] = arguments else {
        return false;
    };
    let is_path = |argument: &OsStr| argument.as_encoded_bytes().contains(&b'/');
    let is_command = device.to_str().is_some_and(is_command);
    !is_command && is_path(device) && is_path(mountpoint) && option == "-o"
}

/// Arguments passed by mount(8): `DEVICE DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`.
fn helper_arguments(arguments: &[OsString]) -> Vec<OsString> {
    let mut rewritten = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("-o") => {
                rewritten.push(argument.clone());
                rewritten.extend(rest.next().cloned());
            }
            // The type is ours; another mount namespace has been entered by the caller.
            Some("-t" | "-N") => drop(rest.next()),
            Some(flags) if is_flags(flags) => {
                rewritten.extend(flags.contains('f').then(|| "--fake".into()));
                rewritten.extend(flags.contains('v').then(|| "-v".into()));
            }
            _ => rewritten.push(argument.clone()),
        }
    }
    rewritten
}

/// Sloppy, fake, no mtab, verbose.
fn is_flags(text: &str) -> bool {
    text.len() > 1
        && text.strip_prefix('-').is_some_and(|flags| flags.chars().all(|flag| "sfnv".contains(flag)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(line: &str) -> String {
        let arguments = line.split(' ').map(OsString::from).collect();
        let words = rewrite(arguments, |word| word == "mount" || word == "ls");
        words.join(OsStr::new(" ")).into_string().expect("text")
    }

    #[test]
    fn mount_calls_its_helper_so() {
        assert_eq!(
            rewritten("/sbin/mount.fuse.brindle /dev/sdb /mnt -n -o rw,nodev -t fuse.brindle"),
            "/sbin/mount.fuse.brindle mount --helper /dev/sdb /mnt -o rw,nodev"
        );
        assert_eq!(rewritten("mount.brindle a /mnt -sfv"), "mount.brindle mount --helper a /mnt --fake -v");
    }

    #[test]
    fn mount_fuse3_calls_us_so() {
        assert_eq!(
            rewritten("/bin/brindle /a.img /mnt -o rw,dev,suid"),
            "/bin/brindle mount --helper /a.img /mnt -o rw,dev,suid"
        );
    }

    #[test]
    fn umount_calls_its_helper_so() {
        assert_eq!(
            rewritten("/sbin/umount.fuse.brindle /mnt -l -t fuse.brindle"),
            "/sbin/umount.fuse.brindle umount /mnt --lazy"
        );
        assert_eq!(rewritten("umount.fuse.brindle /mnt -nv"), "umount.fuse.brindle umount /mnt");
        assert_eq!(
            rewritten("umount.fuseblk.brindle /mnt -fl"),
            "umount.fuseblk.brindle umount /mnt --lazy --force"
        );
    }

    #[test]
    fn commands_stay_as_they_are() {
        for line in ["brindle mount -o ro a.img /mnt", "brindle", "brindle ls ./a.img", "brindle lss x -o y"]
        {
            assert_eq!(rewritten(line), line);
        }
    }
}

//! Configurations: a filesystem on modelled disks, and the programs that make, mount and check it.

use std::path::Path;

/// A filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filesystem {
    /// ext4 of the kernel.
    Ext4,
    /// XFS of the kernel.
    Xfs,
    /// btrfs of the kernel.
    Btrfs,
    /// btrfs by brindle.
    Brindle,
}

/// Kind of a disk, of which the model is chosen for a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskKind {
    /// A disk that rotates.
    Hdd,
    /// A disk that does not.
    Ssd,
}

/// A filesystem on disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Name.
    pub name: &'static str,
    /// The filesystem.
    pub filesystem: Filesystem,
    /// Disks, in the order in which the filesystem is made on them.
    pub disks: &'static [DiskKind],
    /// Profile of metadata and data, for btrfs.
    pub profile: &'static str,
    /// Options of the mount beside `noatime`.
    pub options: &'static str,
    /// True if metadata is moved to the fast disks by `brindle tier apply` before the work.
    pub is_tiered: bool,
    /// True if the first disk is a write-back cache of the second one, by `brindle cache`.
    pub is_cached: bool,
}

/// A program with its arguments.
pub type CommandLine = Vec<String>;

/// Programs and places of a configuration that is set up.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// The configuration.
    pub configuration: &'a Configuration,
    /// Program of brindle.
    pub brindle: &'a Path,
    /// A device for each disk.
    pub devices: &'a [String],
    /// Directory to mount it on.
    pub mountpoint: &'a str,
    /// Directory to mount a cache on, for filesystems of the kernel.
    pub cache_mountpoint: &'a str,
    /// Device of that cache, once it is loaded.
    pub cached_device: Option<&'a str>,
}

use DiskKind::{Hdd, Ssd};
use Filesystem::{Brindle, Btrfs, Ext4, Xfs};

const fn plain(name: &'static str, filesystem: Filesystem, disks: &'static [DiskKind]) -> Configuration {
    Configuration {
        name,
        filesystem,
        disks,
        profile: "single",
        options: "",
        is_tiered: false,
        is_cached: false,
    }
}

const fn cached(name: &'static str, filesystem: Filesystem) -> Configuration {
    Configuration { is_cached: true, ..plain(name, filesystem, &[Ssd, Hdd]) }
}

/// All configurations. On both disks metadata is on the SSD, of the kernel's btrfs after `brindle tier apply`; or the SSD is a cache.
pub const CONFIGURATIONS: [Configuration; 21] = [
    plain("ext4-hdd", Ext4, &[Hdd]),
    plain("xfs-hdd", Xfs, &[Hdd]),
    plain("btrfs-hdd", Btrfs, &[Hdd]),
    plain("brindle-hdd", Brindle, &[Hdd]),
    plain("ext4-ssd", Ext4, &[Ssd]),
    plain("xfs-ssd", Xfs, &[Ssd]),
    plain("btrfs-ssd", Btrfs, &[Ssd]),
    plain("brindle-ssd", Brindle, &[Ssd]),
    Configuration { is_tiered: true, ..plain("btrfs-ssd+hdd", Btrfs, &[Ssd, Hdd]) },
    Configuration { options: "writeback=off", ..plain("brindle-ssd+hdd-off", Brindle, &[Ssd, Hdd]) },
    Configuration { options: "writeback=sync", ..plain("brindle-ssd+hdd-sync", Brindle, &[Ssd, Hdd]) },
    Configuration { options: "writeback=all", ..plain("brindle-ssd+hdd-all", Brindle, &[Ssd, Hdd]) },
    Configuration {
        options: "writeback=sync,small_files=64K",
        ..plain("brindle-ssd+hdd-small", Brindle, &[Ssd, Hdd])
    },
    cached("ext4-cache", Ext4),
    cached("xfs-cache", Xfs),
    cached("btrfs-cache", Btrfs),
    cached("brindle-cache", Brindle),
    Configuration { profile: "raid1c3", ..plain("btrfs-3hdd", Btrfs, &[Hdd, Hdd, Hdd]) },
    Configuration { profile: "raid1c3", ..plain("brindle-3hdd", Brindle, &[Hdd, Hdd, Hdd]) },
    Configuration { profile: "raid1c3", ..plain("btrfs-ssd+2hdd", Btrfs, &[Ssd, Hdd, Hdd]) },
    Configuration { profile: "raid1c3", ..plain("brindle-ssd+2hdd", Brindle, &[Ssd, Hdd, Hdd]) },
];

impl Configuration {
    /// The configuration of a name.
    pub fn find(name: &str) -> Option<&'static Self> {
        CONFIGURATIONS.iter().find(|configuration| configuration.name == name)
    }

    /// Programs that it needs.
    pub fn programs(&self) -> &'static [&'static str] {
        match self.filesystem {
            Ext4 => &["mkfs.ext4", "mount", "umount", "e2fsck"],
            Xfs => &["mkfs.xfs", "mount", "umount", "xfs_repair"],
            Btrfs => &["mkfs.btrfs", "mount", "umount", "btrfs"],
            Brindle => &["btrfs"],
        }
    }
}

impl Setup<'_> {
    fn line(&self, words: &[&str]) -> CommandLine {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// Devices of the filesystem.
    fn members(&self) -> Vec<String> {
        match (self.configuration.is_cached, self.configuration.filesystem, self.devices) {
            (true, Brindle, [ssd, disk]) => vec![format!("cache:{ssd}:{disk}")],
            (true, ..) => self.cached_device.map(str::to_owned).into_iter().collect(),
            (false, ..) => self.devices.to_vec(),
        }
    }

    /// Devices that have the whole filesystem when it is not mounted, and no cache is loaded.
    fn homes(&self) -> Vec<String> {
        match self.devices {
            [_, disk] if self.configuration.is_cached => vec![disk.clone()],
            all => all.to_vec(),
        }
    }

    fn on_members(&self, words: &[&str]) -> CommandLine {
        self.line(words).into_iter().chain(self.members()).collect()
    }

    fn on_homes(&self, words: &[&str]) -> CommandLine {
        self.line(words).into_iter().chain(self.homes()).collect()
    }

    /// Makes the cache, if there is one.
    pub fn make_cache(&self) -> Vec<CommandLine> {
        match self.devices {
            [ssd, disk] if self.configuration.is_cached => {
                vec![self.brindle(&["cache", "create", "-p", "back", "lab", ssd, disk])]
            }
            _ => Vec::new(),
        }
    }

    /// Loads a cache that is a device of its own, and prints its path. brindle uses its own.
    pub fn load_cache(&self) -> Option<CommandLine> {
        match self.devices {
            [ssd, disk] if self.has_cached_device() => {
                Some(self.brindle(&["cache", "load", "--attach", ssd, disk, self.cache_mountpoint]))
            }
            _ => None,
        }
    }

    fn has_cached_device(&self) -> bool {
        self.configuration.is_cached && self.configuration.filesystem != Brindle
    }

    /// Writes what a loaded cache has alone to the disk. The end of a mount of brindle does that.
    pub fn clean_cache(&self) -> Vec<CommandLine> {
        if self.cached_device.is_some() {
            vec![self.brindle(&["cache", "set", "do_sync=1", self.cache_mountpoint])]
        } else {
            Vec::new()
        }
    }

    /// Ends the use of a loaded cache: the disk has everything then.
    pub fn stop_cache(&self) -> Vec<CommandLine> {
        if self.cached_device.is_some() {
            vec![self.brindle(&["cache", "stop", self.cache_mountpoint])]
        } else {
            Vec::new()
        }
    }

    fn brindle(&self, words: &[&str]) -> CommandLine {
        std::iter::once(self.brindle.display().to_string()).chain(self.line(words)).collect()
    }

    /// Makes the filesystem. Nothing of it is left to be made in the background, during the work.
    pub fn make(&self) -> Vec<CommandLine> {
        let profile = self.configuration.profile;
        vec![match self.configuration.filesystem {
            Ext4 => {
                let extended = "lazy_itable_init=1,lazy_journal_init=1,nodiscard";
                self.on_members(&["mkfs.ext4", "-q", "-F", "-E", extended])
            }
            Xfs => self.on_members(&["mkfs.xfs", "-q", "-f", "-K"]),
            Btrfs => self.on_members(&["mkfs.btrfs", "-q", "-f", "-K", "-m", profile, "-d", profile]),
            Brindle => {
                let words = self.brindle(&["mkfs", "-f", "-m", profile, "-d", profile]);
                words.into_iter().chain(self.classed()).collect()
            }
        }]
    }

    /// Devices with their classes, where there are two.
    fn classed(&self) -> Vec<String> {
        if self.configuration.is_cached {
            return self.members();
        }
        let is_mixed = self.configuration.disks.contains(&Ssd) && self.configuration.disks.contains(&Hdd);
        let word = |(device, kind): (&String, &DiskKind)| match (is_mixed, kind) {
            (false, _) => device.clone(),
            (true, Ssd) => format!("{device}:fast"),
            (true, Hdd) => format!("{device}:bulk"),
        };
        self.devices.iter().zip(self.configuration.disks).map(word).collect()
    }

    /// Mounts it.
    pub fn mount(&self) -> Vec<CommandLine> {
        let members = self.members();
        let first = members.first().map_or("", String::as_str);
        let kernel = |kind: &str, options: String| {
            vec![self.line(&["mount", "-t", kind, "-o", &options, first, self.mountpoint])]
        };
        match self.configuration.filesystem {
            // Tables of inodes would be zeroed during the work.
            Ext4 => kernel("ext4", "noatime,noinit_itable".to_owned()),
            Xfs => kernel("xfs", "noatime".to_owned()),
            Btrfs => {
                let devices = members.iter().map(|device| format!(",device={device}"));
                kernel("btrfs", format!("noatime{}", devices.collect::<String>()))
            }
            Brindle => {
                let options = match self.configuration.options {
                    "" => "noatime".to_owned(),
                    more => format!("noatime,{more}"),
                };
                let words = self.brindle(&["mount", "-o", &options]);
                let last = [self.mountpoint.to_owned()];
                vec![words.into_iter().chain(members).chain(last).collect()]
            }
        }
    }

    /// Prepares it for the work, once it is mounted for the first time.
    pub fn prepare(&self) -> Vec<CommandLine> {
        if self.configuration.is_tiered {
            vec![self.brindle(&["tier", "apply", self.mountpoint])]
        } else {
            Vec::new()
        }
    }

    /// Unmounts it.
    pub fn unmount(&self) -> Vec<CommandLine> {
        vec![match self.configuration.filesystem {
            Brindle => self.brindle(&["umount", self.mountpoint]),
            _ => self.line(&["umount", self.mountpoint]),
        }]
    }

    /// Examines it when it is not mounted, and no cache is loaded. Each of these fails if anything is wrong.
    pub fn check(&self) -> Vec<CommandLine> {
        let homes = self.homes();
        let first = homes.first().map_or("", String::as_str);
        let btrfs = self.line(&["btrfs", "check", "--readonly", first]);
        match self.configuration.filesystem {
            Ext4 => vec![self.on_homes(&["e2fsck", "-fn"])],
            Xfs => vec![self.on_homes(&["xfs_repair", "-n"])],
            Btrfs => vec![btrfs],
            Brindle => {
                let ours = self.brindle(&["check"]).into_iter().chain(self.members());
                vec![ours.collect(), btrfs]
            }
        }
    }

    /// Takes it out of the kernel's memory.
    pub fn forget(&self) -> Vec<CommandLine> {
        let words = ["btrfs", "device", "scan", "--forget"];
        match self.configuration.filesystem {
            Btrfs if self.cached_device.is_some() => vec![self.on_members(&words)],
            Btrfs | Brindle => vec![self.on_homes(&words)],
            Ext4 | Xfs => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Programs that make, mount, prepare and check a configuration.
    struct Lines {
        make: Vec<String>,
        mount: Vec<String>,
        prepare: Vec<String>,
        check: Vec<String>,
        cache: Vec<String>,
        stop: Vec<String>,
    }

    fn lines(name: &str, devices: &[&str]) -> Lines {
        let configuration = Configuration::find(name).expect("there is one");
        assert_eq!(configuration.disks.len(), devices.len());
        let devices: Vec<_> = devices.iter().map(|device| (*device).to_owned()).collect();
        let brindle = Path::new("brindle");
        let cached_device =
            (configuration.is_cached && configuration.filesystem != Brindle).then_some("/dev/c");
        let (mountpoint, cache_mountpoint) = ("/mnt", "/cache");
        let devices = &devices[..];
        let setup = Setup { configuration, brindle, devices, mountpoint, cache_mountpoint, cached_device };
        let joined = |lines: Vec<CommandLine>| lines.into_iter().map(|line| line.join(" ")).collect();
        let cache = [setup.make_cache(), setup.load_cache().into_iter().collect()].concat();
        let stop = [setup.clean_cache(), setup.stop_cache()].concat();
        let [make, mount, prepare, check, cache, stop] =
            [setup.make(), setup.mount(), setup.prepare(), setup.check(), cache, stop].map(joined);
        Lines { make, mount, prepare, check, cache, stop }
    }

    #[test]
    fn configurations_have_names_of_their_own() {
        let names: BTreeSet<_> = CONFIGURATIONS.iter().map(|configuration| configuration.name).collect();
        assert_eq!(names.len(), CONFIGURATIONS.len());
        assert_eq!(Configuration::find("floppy"), None);
    }

    #[test]
    fn both_disks_have_their_classes_and_all_devices_are_mounted() {
        let both = ["/dev/a", "/dev/b"];
        let made = lines("brindle-ssd+hdd-all", &both).make;
        assert_eq!(made, ["brindle mkfs -f -m single -d single /dev/a:fast /dev/b:bulk"]);
        let mounted = lines("brindle-ssd+hdd-all", &both).mount;
        assert_eq!(mounted, ["brindle mount -o noatime,writeback=all /dev/a /dev/b /mnt"]);
        assert!(lines("brindle-ssd+hdd-all", &both).prepare.is_empty());
        let mounted = lines("brindle-ssd+hdd-small", &both).mount;
        assert_eq!(mounted, ["brindle mount -o noatime,writeback=sync,small_files=64K /dev/a /dev/b /mnt"]);
        let mounted = lines("btrfs-ssd+hdd", &both).mount;
        assert_eq!(mounted, ["mount -t btrfs -o noatime,device=/dev/a,device=/dev/b /dev/a /mnt"]);
        assert_eq!(lines("btrfs-ssd+hdd", &both).prepare, ["brindle tier apply /mnt"]);
        let made = lines("brindle-3hdd", &["a", "b", "c"]).make;
        assert_eq!(made, ["brindle mkfs -f -m raid1c3 -d raid1c3 a b c"]);
    }

    #[test]
    fn every_filesystem_is_checked_without_being_repaired() {
        for (name, expected) in [
            ("ext4-hdd", &["e2fsck -fn a"][..]),
            ("xfs-ssd", &["xfs_repair -n a"]),
            ("btrfs-hdd", &["btrfs check --readonly a"]),
            ("brindle-ssd", &["brindle check a", "btrfs check --readonly a"]),
        ] {
            assert_eq!(lines(name, &["a"]).check, expected);
        }
    }

    #[test]
    fn a_cache_lies_below_the_filesystem_and_the_disk_alone_is_checked() {
        let both = ["/dev/s", "/dev/h"];
        let found = lines("xfs-cache", &both);
        assert_eq!(found.make, ["mkfs.xfs -q -f -K /dev/c"]);
        assert_eq!(found.mount, ["mount -t xfs -o noatime /dev/c /mnt"]);
        let load = "brindle cache load --attach /dev/s /dev/h /cache";
        assert_eq!(found.cache, ["brindle cache create -p back lab /dev/s /dev/h", load]);
        assert_eq!(found.stop, ["brindle cache set do_sync=1 /cache", "brindle cache stop /cache"]);
        assert_eq!(found.check, ["xfs_repair -n /dev/h"]);
        let found = lines("btrfs-cache", &both);
        assert_eq!(found.mount, ["mount -t btrfs -o noatime,device=/dev/c /dev/c /mnt"]);
        let found = lines("brindle-cache", &both);
        assert_eq!(found.make, ["brindle mkfs -f -m single -d single cache:/dev/s:/dev/h"]);
        assert_eq!(found.mount, ["brindle mount -o noatime cache:/dev/s:/dev/h /mnt"]);
        assert_eq!(found.cache, ["brindle cache create -p back lab /dev/s /dev/h"]);
        assert!(found.stop.is_empty() && found.prepare.is_empty());
        let checks = ["brindle check cache:/dev/s:/dev/h", "btrfs check --readonly /dev/h"];
        assert_eq!(found.check, checks);
        assert!(lines("ext4-hdd", &["a"]).cache.is_empty());
    }
}

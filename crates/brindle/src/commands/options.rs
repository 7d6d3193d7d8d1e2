//! Mount options, as `-o` takes them.

use anyhow::{Context, Result, bail};
use brindle_fs::SubvolumeChoice;
use brindle_ondisk::RootId;
use std::path::PathBuf;

/// What `-o` said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MountOptions {
    /// Go on without missing devices.
    pub(crate) degraded: bool,
    /// Which subvolume is the root.
    pub(crate) subvolume: SubvolumeChoice,
    /// More devices of the pool.
    pub(crate) devices: Vec<PathBuf>,
    /// What concerns the host alone, in the order given.
    pub(crate) host: Vec<HostOption>,
}

/// An option that the host's mount understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostOption(&'static str);

/// Everything that concerns the host alone; `rw` and `ro` are told apart by the mount.
const HOST_OPTIONS: [&str; 22] = [
    "ro",
    "rw",
    "allow_other",
    "allow_root",
    "default_permissions",
    "nodev",
    "dev",
    "nosuid",
    "suid",
    "noexec",
    "exec",
    "noatime",
    "atime",
    "nodiratime",
    "diratime",
    "relatime",
    "strictatime",
    "dirsync",
    "sync",
    "async",
    "nofail",
    "_netdev",
];

/// Options of mount(8) and of the kernel's btrfs that change nothing for a mount that only reads.
const WITHOUT_EFFECT: [&str; 12] = [
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "norecovery",
    "nologreplay",
    "noacl",
    "acl",
    "ssd",
    "nossd",
];

impl HostOption {
    /// The option's name.
    pub(crate) fn name(self) -> &'static str {
        self.0
    }
}

impl std::fmt::Display for HostOption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl MountOptions {
    /// Takes the values of any number of `-o`, each a comma-separated list; what comes later wins. An unknown
    /// option is refused by its name.
    pub(crate) fn parse<S: AsRef<str>>(lists: &[S]) -> Result<Self> {
        let mut options = Self::default();
        let all = lists.iter().flat_map(|list| list.as_ref().split(','));
        for option in all.map(str::trim).filter(|option| !option.is_empty()) {
            options.add(option)?;
        }
        Ok(options)
    }

    /// Whether a host option was given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.host.iter().any(|option| option.name() == name)
    }

    fn add(&mut self, option: &str) -> Result<()> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        match (name, value) {
            ("degraded", None) => self.degraded = true,
            ("subvol", Some(path)) => self.subvolume = SubvolumeChoice::Path(path.as_bytes().to_vec()),
            ("subvolid", Some(id)) => {
                let id = id.parse().with_context(|| format!("option '{option}': the id is not a number"))?;
                self.subvolume = SubvolumeChoice::Id(RootId::new(id));
            }
            ("device", Some(path)) => self.devices.push(path.into()),
            ("subvol" | "subvolid" | "device", None) => bail!("option '{name}' needs a value: {name}=..."),
            _ => self.add_host_option(option)?,
        }
        Ok(())
    }

    fn add_host_option(&mut self, option: &str) -> Result<()> {
        if WITHOUT_EFFECT.contains(&option) || option.starts_with("x-") {
            return Ok(());
        }
        match HOST_OPTIONS.iter().find(|name| **name == option) {
            Some(name) => self.host.push(HostOption(name)),
            None => bail!("unknown option '{option}'"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_taken_apart() {
        let options = MountOptions::parse(&["ro,degraded", "subvol=a/b,nodev,,device=/dev/x,x-systemd.foo"]);
        let options = options.expect("all known");
        assert!(options.degraded && options.has("ro") && options.has("nodev") && !options.has("rw"));
        assert_eq!(options.subvolume, SubvolumeChoice::Path(b"a/b".to_vec()));
        assert_eq!(options.devices, [PathBuf::from("/dev/x")]);
    }

    #[test]
    fn unknown_options_are_refused_by_name() {
        let refused = |option: &str| MountOptions::parse(&[option]).expect_err("refused").to_string();
        assert_eq!(refused("ro,bogus=1"), "unknown option 'bogus=1'");
        assert_eq!(refused("subvol"), "option 'subvol' needs a value: subvol=...");
        assert_eq!(refused("subvolid=x"), "option 'subvolid=x': the id is not a number");
        assert_eq!(refused("degraded=1"), "unknown option 'degraded=1'");
    }
}

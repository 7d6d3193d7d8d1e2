//! Mount options, as `-o` takes them.

use crate::commands::usage::OrWrongUsage;
use crate::commands::write_options::WriteChoices;
use anyhow::{Context, Result, bail};
use brindle_fs::SubvolumeChoice;
use brindle_ondisk::RootId;
use std::path::PathBuf;

/// What `-o` said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MountOptions {
    /// Go on without missing devices.
    pub(crate) degraded: bool,
    /// The path of the subvolume that is the root.
    pub(crate) subvol: Option<Vec<u8>>,
    /// Its id. It may be given with the path, as mount tables have it; then both must mean the same.
    pub(crate) subvolid: Option<RootId>,
    /// More devices of the pool.
    pub(crate) devices: Vec<PathBuf>,
    /// What the mount table is to show as the source.
    pub(crate) source: Option<String>,
    /// How one of several copies is chosen.
    pub(crate) read_policy: Option<String>,
    /// How much memory tree blocks may take, in bytes (`metadata_memory=`).
    pub(crate) metadata_bytes: Option<usize>,
    /// The log is not to be replayed.
    leaves_log: bool,
    /// How the pool is written.
    pub(crate) write: WriteChoices,
    /// What concerns the host alone, in the order given.
    host: Vec<&'static str>,
}

/// What concerns the host alone, and changes how it is mounted. Of options that undo each other, such as `ro` and
/// `rw`, the last one counts.
const HOST_OPTIONS: [&str; 14] = [
    "ro",
    "rw",
    "allow_other",
    "default_permissions",
    "auto_unmount",
    "nodev",
    "dev",
    "nosuid",
    "suid",
    "noexec",
    "exec",
    "sync",
    "async",
    "dirsync",
];

/// Options of mount(8), FUSE and the kernel's btrfs that change nothing here.
const WITHOUT_EFFECT: [&str; 29] = [
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "norelatime",
    "lazytime",
    "nolazytime",
    "ssd",
    "nossd",
    "ssd_spread",
    "nossd_spread",
    "autodefrag",
    "noautodefrag",
    "nospace_cache",
    "clear_cache",
    "acl",
    "barrier",
    "skip_balance",
    "rescan_uuid_tree",
    "enospc_debug",
    "noenospc_debug",
    "iversion",
    "noiversion",
];

/// The same, of those that have a value or may have one.
const WITHOUT_EFFECT_VALUED: [&str; 5] =
    ["space_cache", "thread_pool", "metadata_ratio", "fatal_errors", "comment"];

/// The others that there are.
const VALUED_OR_WRITTEN: [&str; 26] = [
    "degraded",
    "norecovery",
    "nologreplay",
    "rescue",
    "subvol",
    "subvolid",
    "device",
    "read_policy",
    "metadata_memory",
    "compress",
    "compress-force",
    "nodatacow",
    "nodatasum",
    "max_inline",
    "discard",
    "nodiscard",
    "noatime",
    "relatime",
    "strictatime",
    "nodiratime",
    "ssd_metadata",
    "small_files",
    "commit",
    "metadata_defrag",
    "flushoncommit",
    "notreelog",
];

impl MountOptions {
    /// Takes the values of any number of `-o`, each a comma-separated list; what comes later wins. An unknown
    /// option is refused by its name.
    pub(crate) fn parse<S: AsRef<str>>(lists: &[S]) -> Result<Self> {
        let mut options = Self::default();
        let all = lists.iter().flat_map(|list| list.as_ref().split(','));
        for option in all.map(str::trim).filter(|option| !option.is_empty()) {
            options.add(option).or_wrong_usage()?;
        }
        Ok(options)
    }

    /// The commit interval in seconds, if it was given.
    pub(crate) fn commit_seconds(&self) -> Option<u64> {
        self.write.commit_interval.map(|interval| interval.as_secs())
    }

    /// Whether `name` was given, and `opposite` not after it.
    pub(crate) fn has(&self, name: &str, opposite: &str) -> bool {
        let last = self.host.iter().rev().find(|option| **option == name || **option == opposite);
        last.is_some_and(|option| *option == name)
    }

    /// Refuses to mount a pool to be written whose log is to stay.
    pub(crate) fn check_log(&self) -> Result<()> {
        if self.leaves_log && !self.has("ro", "rw") {
            bail!(
                "option 'nologreplay' goes with 'ro' only: a log that is not replayed is lost with the next commit"
            );
        }
        Ok(())
    }

    /// Whether a log is not to be replayed.
    pub(crate) fn leaves_log(&self) -> bool {
        self.leaves_log
    }

    /// Which subvolume is the root.
    pub(crate) fn subvolume(&self) -> SubvolumeChoice {
        match (&self.subvol, self.subvolid) {
            (Some(path), _) => SubvolumeChoice::Path(path.clone()),
            (None, Some(id)) => SubvolumeChoice::Id(id),
            (None, None) => SubvolumeChoice::default(),
        }
    }

    /// Refuses a root that is not the one that was also asked for by its id.
    pub(crate) fn check_root(&self, root: RootId) -> Result<()> {
        match (&self.subvol, self.subvolid) {
            (Some(path), Some(id)) if id != root => bail!(
                "subvol={} is subvolume {root}, and subvolid={id} is another: give one of them",
                String::from_utf8_lossy(path)
            ),
            _ => Ok(()),
        }
    }

    /// Any option that makes sense for a mount alone.
    pub(crate) fn first_host_option(&self) -> Option<&str> {
        let read = self.read_policy.as_ref().map(|_| "read_policy");
        self.host.first().copied().or(self.write.first.as_deref()).or(read)
    }

    fn add(&mut self, option: &str) -> Result<()> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        match (name, value) {
            ("degraded", None) => self.degraded = true,
            ("norecovery" | "nologreplay", None) | ("rescue", Some("nologreplay")) => self.leaves_log = true,
            ("subvol", Some(path)) => self.subvol = Some(path.as_bytes().to_vec()),
            ("subvolid", Some(id)) => {
                let number = match id.strip_prefix("0x").or_else(|| id.strip_prefix("0X")) {
                    Some(digits) => u64::from_str_radix(digits, 16),
                    None => id.parse(),
                };
                let id = number.with_context(|| format!("option '{option}': the id is not a number"))?;
                self.subvolid = Some(RootId::new(id));
            }
            ("device", Some(path)) if !path.is_empty() => self.devices.push(path.into()),
            ("fsname", Some(source)) => self.source = Some(source.to_owned()),
            ("read_policy", Some(policy)) => self.read_policy = Some(policy.to_owned()),
            ("metadata_memory", Some(mib)) => self.metadata_bytes = Some(parse_mib(mib)?),
            ("subtype" | "user", Some(_)) => {}
            ("subvol" | "subvolid" | "device" | "fsname" | "read_policy" | "metadata_memory", None)
            | ("device", Some(_)) => {
                bail!("option '{name}' needs a value: {name}=...")
            }
            _ if self.write.add(name, value)? => {}
            _ => self.add_host_option(option)?,
        }
        Ok(())
    }

    fn add_host_option(&mut self, option: &str) -> Result<()> {
        if is_without_effect(option) {
            return Ok(());
        }
        match HOST_OPTIONS.iter().find(|name| **name == option) {
            Some(name) => self.host.push(name),
            None => match similar(option) {
                Some(similar) => bail!("unknown option '{option}'; is '{similar}' meant?"),
                None => bail!("unknown option '{option}'"),
            },
        }
        Ok(())
    }
}

/// Returns true if an option is one that is taken and changes nothing.
pub(crate) fn is_without_effect(option: &str) -> bool {
    WITHOUT_EFFECT.contains(&option)
        || option.starts_with("x-")
        || option.starts_with("X-")
        || WITHOUT_EFFECT_VALUED.iter().any(|name| {
            option.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        })
}

/// The option that a word may be meant to be: one that differs in less than a third of its letters.
fn similar(option: &str) -> Option<&'static str> {
    const LETTERS_PER_EDIT: usize = 3;
    let name = option.split('=').next().unwrap_or_default();
    let known =
        HOST_OPTIONS.iter().chain(&WITHOUT_EFFECT).chain(&WITHOUT_EFFECT_VALUED).chain(&VALUED_OR_WRITTEN);
    let near = known.map(|known| (edits(name, known), *known));
    // The opposite is not meant.
    let is_opposite =
        |known: &str| name.strip_prefix("no") == Some(known) || known.strip_prefix("no") == Some(name);
    let near = near.filter(|(edits, known)| {
        *edits > 0 && *edits * LETTERS_PER_EDIT < known.len() && !is_opposite(known)
    });
    near.min_by_key(|(edits, _)| *edits).map(|(_, known)| known)
}

/// The number of letters to add, leave out, change or swap with the next that make one word of another.
fn edits(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            table[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let changed = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let least = changed.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
                let is_swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                if is_swapped { least.min(table[i - 2][j - 2] + 1) } else { least }
            };
        }
    }
    table[a.len()][b.len()]
}

fn parse_mib(value: &str) -> Result<usize> {
    const MOST_MIB: usize = 1 << 20;
    let number = value.parse::<usize>().ok().filter(|mib| (1..=MOST_MIB).contains(mib));
    let wrong = || format!("option 'metadata_memory={value}': it is a number of MiB, from 1 to {MOST_MIB}");
    Ok(number.with_context(wrong)? << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_taken_apart() {
        let options = MountOptions::parse(&["ro,degraded", "subvol=a/b,nodev,,device=/dev/x,x-systemd.foo"]);
        let options = options.expect("all known");
        assert!(options.degraded && options.has("ro", "rw") && !options.has("rw", "ro"));
        assert_eq!(options.subvolume(), SubvolumeChoice::Path(b"a/b".to_vec()));
        assert_eq!(options.devices, [PathBuf::from("/dev/x")]);
        let by_id = |option| MountOptions::parse(&[option]).expect("a number").subvolume();
        assert_eq!(by_id("subvolid=0x105"), SubvolumeChoice::Id(RootId::new(261)));
        assert_eq!(by_id("subvolid=261"), by_id("subvolid=0x105"));
    }

    #[test]
    fn memory_is_given_in_mib() {
        let bytes = |option| MountOptions::parse(&[option]).map(|options| options.metadata_bytes);
        assert_eq!(bytes("metadata_memory=64").expect("a number"), Some(64 << 20));
        assert_eq!(bytes("ro").expect("known"), None);
        for wrong in ["metadata_memory", "metadata_memory=0", "metadata_memory=1G", "metadata_memory=1048577"]
        {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_last_of_opposites_counts() {
        let options = MountOptions::parse(&["nodev,rw", "dev,ro"]).expect("all known");
        assert!(options.has("dev", "nodev") && options.has("ro", "rw"));
        assert!(!options.has("suid", "nosuid"));
    }

    #[test]
    fn a_log_stays_where_nothing_is_written() {
        let checked = |option: &str| MountOptions::parse(&[option]).expect("known").check_log();
        for option in ["norecovery", "nologreplay", "rescue=nologreplay"] {
            assert!(checked(option).is_err(), "{option}");
            assert!(checked(&format!("ro,{option}")).is_ok(), "{option}");
        }
        assert!(checked("rw").is_ok());
    }

    #[test]
    fn options_of_btrfs_that_change_nothing_here_are_taken() {
        for option in [
            "space_cache",
            "space_cache=v2",
            "nospace_cache",
            "clear_cache",
            "autodefrag",
            "acl",
            "barrier",
            "ssd_spread",
            "thread_pool=8",
            "skip_balance",
            "rescan_uuid_tree",
            "metadata_ratio=4",
            "fatal_errors=bug",
            "X-mount.mkdir",
            "comment=x",
        ] {
            assert_eq!(MountOptions::parse(&[option]).expect("taken"), MountOptions::default(), "{option}");
        }
        for refused in ["noacl", "nobarrier"] {
            let said = MountOptions::parse(&[refused]).expect_err("it would change something").to_string();
            assert_eq!(said, format!("unknown option '{refused}'"));
        }
    }

    #[test]
    fn a_similar_option_is_suggested() {
        for (typed, meant) in [
            ("degradded", "degraded"),
            ("comit=5", "commit"),
            ("subovl=a", "subvol"),
            ("noatme", "noatime"),
            ("discrad=async", "discard"),
        ] {
            let said = MountOptions::parse(&[typed]).expect_err("unknown").to_string();
            assert_eq!(said, format!("unknown option '{typed}'; is '{meant}' meant?"));
        }
    }

    #[test]
    fn unknown_options_are_refused_by_name() {
        let refused = |option: &str| MountOptions::parse(&[option]).expect_err("refused").to_string();
        assert_eq!(refused("ro,bogus=1"), "unknown option 'bogus=1'");
        assert_eq!(refused("read_policy"), "option 'read_policy' needs a value: read_policy=...");
        assert_eq!(refused("device="), "option 'device' needs a value: device=...");
        assert_eq!(refused("subvol"), "option 'subvol' needs a value: subvol=...");
        assert_eq!(refused("subvolid=x"), "option 'subvolid=x': the id is not a number");
        assert_eq!(refused("degraded=1"), "unknown option 'degraded=1'");
    }
}

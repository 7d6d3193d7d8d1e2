//! The table of mount options.

use self::Kind::{OfMount, OfPool, Refused};
use super::without_effect::{OF_BTRFS, OF_MOUNT_8, VALUED};
use super::{LeaseChoice, MountOptions, value};
use anyhow::{Context, Result, bail};
use brindle_fs::{AtimeMode, LeaseMode, PlacementMode};
use brindle_fuse::RingUse;
use brindle_policy::defragment::idle::AutoDefragment;
use rustix::mount::MountFlags;

/// A mount option.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// A second name of the same meaning, which the manual does not show.
    synonym: Option<&'static str>,
    pub(super) value: Value,
    pub(super) kind: Kind,
    /// Its text in the manual. It is empty for the opposite of a row that tells of both.
    pub(super) help: &'static str,
    pub(super) remount: Remount,
}

/// The value of an option, with its placeholder, and the way in which the option is taken.
#[derive(Clone, Copy)]
pub(super) enum Value {
    No(fn(&mut MountOptions)),
    /// The value is empty if none was given.
    Allowed(&'static str, Take),
    Needed(&'static str, Take),
}

type Take = fn(&mut MountOptions, &str) -> Result<()>;

/// The commands that an option makes sense for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Commands that open a pool.
    OfPool,
    /// A mount alone.
    OfMount,
    /// None: it would change something that can't be changed here.
    Refused,
}

/// The way of a remount with an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remount {
    /// No change.
    Fixed,
    /// A flag of the kernel's mount is set or taken away.
    Flag(MountFlags, bool),
    /// The server is told, by this name of a setting.
    Setting(&'static str),
    /// The same, of a setting that is on or off.
    Switch(&'static str, bool),
}

impl Row {
    /// An option without a value.
    const fn flag(kind: Kind, name: &'static str, help: &'static str, set: fn(&mut MountOptions)) -> Self {
        Self { name, synonym: None, value: Value::No(set), kind, help, remount: Remount::Fixed }
    }

    /// An option that must have a value.
    const fn valued(
        kind: Kind,
        (name, placeholder): (&'static str, &'static str),
        help: &'static str,
        take: Take,
    ) -> Self {
        let value = Value::Needed(placeholder, take);
        Self { name, synonym: None, value, kind, help, remount: Remount::Fixed }
    }

    /// An option that may have a value.
    const fn either(
        kind: Kind,
        (name, placeholder): (&'static str, &'static str),
        help: &'static str,
        take: Take,
    ) -> Self {
        Self {
            value: Value::Allowed(placeholder, take),
            ..Self::valued(kind, (name, placeholder), help, take)
        }
    }

    /// An option that is refused, and the reason.
    const fn refused(name: &'static str, why: &'static str) -> Self {
        Self { help: why, ..Self::flag(Refused, name, why, |_| {}) }
    }

    const fn or(self, synonym: &'static str) -> Self {
        Self { synonym: Some(synonym), ..self }
    }

    const fn on_remount(self, remount: Remount) -> Self {
        Self { remount, ..self }
    }
}

/// Reasons to refuse options.
const OWNERS: &str = "owners and modes are those that the pool stores; chown(1) and chmod(1) change them";
const TIMEOUT: &str = "what the kernel remembers is taken back when it changes, not after a time";
const TEST_OF_KERNEL: &str = "it tests the kernel's btrfs; `brindle check` examines a pool";

/// Options that have an effect, in the order of the manual.
pub(super) const ROWS: &[Row] = &[
    Row::flag(OfMount, "rw", "read and write; the default, where the pool allows it", |options| {
        options.mount.read_only = Some(false);
    })
    .on_remount(Remount::Flag(MountFlags::RDONLY, false)),
    Row::flag(
        OfMount,
        "ro",
        "only read; fsyncs after the last commit are replayed first from the log, if there is one \
         and the devices can be written, as by the kernel",
        |options| options.mount.read_only = Some(true),
    )
    .on_remount(Remount::Flag(MountFlags::RDONLY, true)),
    Row::flag(
        OfPool,
        "nologreplay",
        "with ro: the log stays as it is, nothing is written, and the last commit is shown",
        |options| options.leaves_log = true,
    )
    .or("norecovery"),
    Row::valued(
        OfPool,
        ("rescue", "WORDS"),
        "with ro: reads a damaged pool, and replays no log. Words, with colons between them: usebackuproot (the \
         newest older commit whose trees begin, if those of the last one don't), ibadroots (without trees that \
         files can be read without; without the checksum tree, data is not verified), idatacsums (data that \
         matches its checksum in no copy is served as it is), imetacsums (tree blocks likewise, if they are sound \
         otherwise), isuperflags (unknown flags of superblocks, which are no obstacle to reading here), \
         nologreplay, and all (all of these but usebackuproot); chunks (a chunk tree that can't be read is made anew in \
         memory, after a scan of the devices: see brindle rescue chunk-recover)",
        value::rescue,
    ),
    Row::flag(OfPool, "usebackuproot", "with ro: the same as rescue=usebackuproot", |options| {
        options.rescue.backup_roots = true;
    }),
    Row::either(
        OfPool,
        ("degraded", "named"),
        "go on without missing devices if everything can be read without them; with ro, whatever is lost. Missing is a \
         device that is not named, and not found among the block devices; with degraded=named all that are not named",
        value::degraded,
    ),
    Row::valued(
        OfPool,
        ("subvol", "PATH"),
        "the subvolume at PATH, from the top level, is the root",
        |options, value| {
            options.subvol = Some(value.as_bytes().to_vec());
            Ok(())
        },
    ),
    Row::valued(
        OfPool,
        ("subvolid", "ID"),
        "the subvolume of this id is the root; 5 is the top level",
        |options, value| {
            options.subvolid = Some(value::subvolume(value)?);
            Ok(())
        },
    ),
    Row::valued(
        OfPool,
        ("device", "PATH"),
        "one more device of the pool; can be given several times. Devices, here and as operands, may be said \
         to be fast or bulk, as /dev/nvme0n1:fast, for this mount: the class counts instead of what the pool \
         stores of the device, or the host says of it",
        |options, value| {
            options.devices.push(value.into());
            Ok(())
        },
    ),
    Row::valued(
        OfPool,
        ("fsname", "NAME"),
        "the source that the mount table shows; the devices unless told otherwise",
        |options, value| {
            options.source = Some(value.to_owned());
            Ok(())
        },
    ),
    Row::valued(
        OfMount,
        ("commit", "SECONDS"),
        "how often what was written is made durable; 30 on a block device (blkdev), as with the kernel's \
         btrfs, and 5 where sync(1) is not passed on. A mount on which nothing changes writes nothing",
        |options, value| {
            options.mount.commit_interval = value::commit(value)?;
            Ok(())
        },
    )
    .on_remount(Remount::Setting("commit")),
    Row::flag(
        OfMount,
        "sync",
        "every write, and every change of a name or an attribute, is durable before the call returns; for \
         single files and directories, chattr +S does that",
        |options| options.mount.sync = true,
    ),
    Row::flag(OfMount, "async", "", |options| options.mount.sync = false),
    Row::flag(
        OfMount,
        "dirsync",
        "every change of a name is durable before the call returns; for single directories, chattr +D",
        |options| options.mount.sync_names = true,
    ),
    Row::either(
        OfMount,
        ("compress", "ALGORITHM"),
        "zlib[:1 to 9], lzo or zstd[:-15 to 15] for new data of all files, as far as it shrinks; zlib unless one is \
         named",
        |options, value| {
            options.write.compression = value::compression(value, false)?;
            Ok(())
        },
    ),
    Row::either(
        OfMount,
        ("compress-force", "ALGORITHM"),
        "the same, without giving up on a file that did not shrink",
        |options, value| {
            options.write.compression = value::compression(value, true)?;
            Ok(())
        },
    ),
    Row::flag(
        OfMount,
        "nodatacow",
        "new files are overwritten in place, and have no checksums; datacow is the default",
        |options| (options.write.nodatacow, options.write.nodatasum) = (true, true),
    ),
    Row::flag(OfMount, "datacow", "", |options| options.write.nodatacow = false),
    Row::flag(OfMount, "nodatasum", "new files have no checksums; datasum is the default", |options| {
        options.write.nodatasum = true;
    }),
    Row::flag(OfMount, "datasum", "", |options| {
        // What is not copied on write can't have checksums.
        (options.write.nodatacow, options.write.nodatasum) = (false, false);
    }),
    Row::valued(
        OfMount,
        ("max_inline", "BYTES"),
        "the longest contents that are kept in the tree; 2048 unless told otherwise",
        |options, value| {
            options.write.max_inline_bytes = Some(value::inline(value)?);
            Ok(())
        },
    ),
    Row::valued(
        OfPool,
        ("metadata_memory", "MIB"),
        "what tree blocks may take of the memory, and as much again while they are written; a 32nd of the \
         machine's unless told otherwise, from 64 to 512",
        |options, value| {
            options.metadata_bytes = Some(value::memory(value)?);
            Ok(())
        },
    ),
    Row::either(
        OfMount,
        ("metadata_defrag", "always|off"),
        "while nothing is asked of the mount, tree blocks that lie scattered are written anew side by side, \
         if they lie on disks that rotate; =always wherever they lie, =off is the default",
        |options, value| {
            options.mount.auto_defragment = match value {
                "" | "rotating" => AutoDefragment::Rotating,
                "always" => AutoDefragment::Always,
                "off" => AutoDefragment::Off,
                _ => bail!("option 'metadata_defrag={value}': it is metadata_defrag, =always or =off"),
            };
            Ok(())
        },
    ),
    Row::flag(
        OfMount,
        "autodefrag",
        "files that writes of less than 64 KiB at random places have torn are laid together again in the background, 15 \
         seconds after the last one and its commit, or every 5 minutes, around these places; what snapshots or other files \
         share stays shared, sleeping disks sleep, and nothing is done on a pool that is nearly full. Not for large databases. \
         noautodefrag is the default",
        |options| options.mount.autodefrag = true,
    )
    .on_remount(Remount::Switch("autodefrag", true)),
    Row::flag(OfMount, "noautodefrag", "", |options| options.mount.autodefrag = false)
        .on_remount(Remount::Switch("autodefrag", false)),
    Row::valued(
        OfMount,
        ("io_uring", "auto|on|off"),
        "requests come by io_uring instead of by reads of /dev/fuse (Linux 6.14 and newer, \
         /sys/module/fuse/parameters/enable_uring): auto where the host allows it, on or there is no mount, off, the default, never; the space of a file that was just \
         removed may come with the commit after the next then",
        |options, value| {
            options.mount.rings = match value {
                "auto" => RingUse::Auto,
                "on" => RingUse::On,
                "off" => RingUse::Off,
                _ => bail!("option 'io_uring={value}': it is auto, on or off"),
            };
            Ok(())
        },
    ),
    Row::either(
        OfMount,
        ("discard", "async"),
        "freed space is given back to the devices; nodiscard is the default",
        |options, value| {
            match value {
                "" | "async" | "sync" => options.write.discard = true,
                _ => bail!("option 'discard={value}': it is discard, discard=async or nodiscard"),
            }
            Ok(())
        },
    ),
    Row::flag(OfMount, "nodiscard", "", |options| options.write.discard = false),
    Row::either(
        OfMount,
        ("lease", "SECONDS"),
        "other machines are kept from writing the pool, by a record on its devices that is renewed every SECONDS, from 1 to 60, \
         5 unless told otherwise; the default where a device is an export of NBD",
        |options, value| {
            options.lease = LeaseChoice { mode: LeaseMode::Always, interval: value::lease(value)? };
            Ok(())
        },
    ),
    Row::flag(
        OfMount,
        "nolease",
        "no record is made, whatever the devices; that of another machine is respected",
        |options| options.lease = LeaseChoice { mode: LeaseMode::Never, interval: None },
    ),
    Row::flag(
        OfMount,
        "relatime",
        "the time of the last access is kept where it is older than the last change, or than a day; the \
         default. atime and nostrictatime mean the same",
        |options| options.write.atime = AtimeMode::Relative,
    )
    .or("atime"),
    Row::flag(OfMount, "nostrictatime", "", |options| options.write.atime = AtimeMode::Relative),
    Row::flag(OfMount, "noatime", "it is not kept", |options| options.write.atime = AtimeMode::Never),
    Row::flag(
        OfMount,
        "strictatime",
        "it is kept at each access that the kernel tells of. The kernel reads what it remembers without \
         asking, so that only the first access by each open file is seen",
        |options| options.write.atime = AtimeMode::Strict,
    ),
    Row::flag(OfMount, "nodiratime", "it is not kept of directories; diratime is the default", |options| {
        options.mount.no_directory_atime = true;
    }),
    Row::flag(OfMount, "diratime", "", |options| options.mount.no_directory_atime = false),
    Row::either(
        OfMount,
        ("ssd_metadata", "strict"),
        "metadata goes to flash as long as there is room, data to hard disks. Here that is the default; the \
         kernel patches that have this option have it off. =strict: neither on the wrong devices, an error \
         when the right ones are full, or fewer than the copies: with one SSD, raid1 metadata gets no new \
         chunk, until a mount with ssd_metadata",
        |options, value| {
            options.write.placement = match value {
                "" | "preferred" => PlacementMode::Preferred,
                "strict" => PlacementMode::Strict,
                _ => bail!(
                    "option 'ssd_metadata={value}': it is ssd_metadata, ssd_metadata=strict or no_ssd_metadata"
                ),
            };
            Ok(())
        },
    ),
    Row::flag(
        OfMount,
        "no_ssd_metadata",
        "new chunks go to the devices with most space of any class, as the kernel places them",
        |options| options.write.placement = PlacementMode::Classic,
    ),
    Row::valued(
        OfMount,
        ("small_files", "SIZE"),
        "files up to this length, compressed, have their data on flash; 0 for none. What `brindle property \
         set MOUNTPOINT small_files` has stored, unless told otherwise",
        |options, value| {
            options.write.small_file_bytes = Some(value::small_files(value)?);
            Ok(())
        },
    ),
    Row::valued(
        OfMount,
        ("writeback", "MODE"),
        "data that lies on flash first, and is moved to the hard disks later, in long runs, in a pool of both. sync (the \
         default): what an fsync waits for; all: all new data; off: none. What `brindle property set MOUNTPOINT \
         writeback` has stored, unless told otherwise. Only where as many devices are flash as the profile of the data \
         needs, or the property writeback_profile says otherwise; `brindle tier status` tells",
        |options, value| {
            options.write.write_back =
                Some(value.parse().with_context(|| format!("option 'writeback={value}'"))?);
            Ok(())
        },
    ),
    Row::valued(
        OfMount,
        ("log_profile", "PROFILE"),
        "copies of the log, which fsyncs write between two commits, in a pool of flash of the lowest devids and hard disks, \
         where flash is not enough for all copies of metadata. metadata (the default): as many as other metadata has, so \
         that fsyncs write to hard disks; single: one, on one flash device, and with it what was fsynced since the last \
         commit is lost, and nothing else; raid1, raid1c3: two, three. What `brindle property set MOUNTPOINT log_profile` \
         has stored, unless told otherwise; `brindle tier status` tells",
        |options, value| {
            options.write.log_profile =
                Some(value.parse().with_context(|| format!("option 'log_profile={value}'"))?);
            Ok(())
        },
    ),
    Row::valued(
        OfMount,
        ("writeback_age", "SECONDS"),
        "age at which data that waits on flash is moved to the hard disks; 600 unless told otherwise",
        |options, value| {
            options.mount.destage.age = value::seconds("writeback_age", value)?;
            Ok(())
        },
    ),
    Row::valued(
        OfMount,
        ("wake_interval", "SECONDS"),
        "time between two times that hard disks are woken for that, unless flash is nearly full; 60 unless told \
         otherwise. With 3600, disks that have nothing to read or to write can sleep for an hour",
        |options, value| {
            options.mount.destage.interval = value::seconds("wake_interval", value)?;
            Ok(())
        },
    ),
    Row::valued(
        OfMount,
        ("read_policy", "POLICY"),
        "which copy is read where there are several; it can be changed by a remount and by brindle property. \
         auto (the default): the one expected to answer first, streams dealt to all; pid: by the process; \
         round-robin[:BYTES]: the next one after BYTES, 256 KiB by default; devid[:ID]: \
         that device; roundrobin: the first whose queue is not full; latency: the one that was fastest \
         lately; queue: the one with least to do",
        |options, value| {
            options.read_policy = Some(value.to_owned());
            Ok(())
        },
    )
    .on_remount(Remount::Setting("read_policy")),
    Row::flag(
        OfMount,
        "user_subvol_rm_allowed",
        "the owner of a subvolume may delete it, not only root and the mounting user",
        |options| options.mount.owners_delete_subvolumes = true,
    ),
    Row::flag(
        OfMount,
        "notreelog",
        "an fsync is a commit of everything; treelog, the default, writes to a log what has changed of its \
         file, where that is enough, and the next mount replays it after a crash",
        |options| options.write.no_tree_log = true,
    ),
    Row::flag(OfMount, "treelog", "", |options| options.write.no_tree_log = false),
    Row::flag(
        OfMount,
        "log_prepare_locked",
        "for measuring only: an fsync reads and copies what it logs while others wait to enter theirs, and not \
         before; slower, and as durable",
        |options| options.write.log_prepare_locked = true,
    ),
    Row::flag(
        OfMount,
        "flushoncommit",
        "every fsync, and every other commit that is asked for, takes the contents of all files along; \
         otherwise (noflushoncommit) only those of its file, and every commit= seconds those of all",
        |options| options.write.flush_on_commit = true,
    ),
    Row::flag(OfMount, "noflushoncommit", "", |options| options.write.flush_on_commit = false),
    Row::flag(
        OfMount,
        "allow_other",
        "other users may look inside, as far as modes and lists allow; the default of root's mounts. \
         noallow_other is the opposite. (An ordinary user may allow it only if /etc/fuse.conf says \
         user_allow_other)",
        |options| options.mount.allow_other = Some(true),
    ),
    Row::flag(OfMount, "noallow_other", "", |options| options.mount.allow_other = Some(false)),
    Row::flag(OfMount, "nonempty", "the mount point may hold something; always", |_| {}),
    Row::flag(OfMount, "default_permissions", "the kernel checks permissions; always", |_| {}),
    Row::flag(
        OfMount,
        "blkdev",
        "the mount is one on a block device (type fuseblk.brindle): the first device, or a loop device that is \
         made for an image. The kernel then passes sync(2) and syncfs(2) on, and umount(8) returns after the \
         last commit. For root, and then the default of a mount that is written, without fsname= and \
         auto_unmount; where it can't be had the mount is made without, unless blkdev asks for it. noblkdev \
         is the opposite",
        |options| options.mount.on_block_device = Some(true),
    ),
    Row::flag(OfMount, "noblkdev", "", |options| options.mount.on_block_device = Some(false)),
    Row::flag(OfMount, "auto_unmount", "the mount goes away when the serving process dies", |options| {
        options.mount.auto_unmount = true;
    }),
    Row::flag(
        OfMount,
        "dev",
        "device nodes work; for root. mount(8) asks for it unless told nodev; otherwise it is off unless \
         asked for",
        |options| options.mount.devices = Some(true),
    )
    .on_remount(Remount::Flag(MountFlags::NODEV, false)),
    Row::flag(OfMount, "nodev", "", |options| options.mount.devices = Some(false))
        .on_remount(Remount::Flag(MountFlags::NODEV, true)),
    Row::flag(
        OfMount,
        "suid",
        "set-user-id programs work; for root. mount(8) asks for it unless told nosuid; otherwise it is off \
         unless asked for",
        |options| options.mount.set_user_id = Some(true),
    )
    .on_remount(Remount::Flag(MountFlags::NOSUID, false)),
    Row::flag(OfMount, "nosuid", "", |options| options.mount.set_user_id = Some(false))
        .on_remount(Remount::Flag(MountFlags::NOSUID, true)),
    Row::flag(OfMount, "noexec", "programs can't be started", |options| options.mount.no_execute = true)
        .on_remount(Remount::Flag(MountFlags::NOEXEC, true)),
    Row::flag(OfMount, "exec", "", |options| options.mount.no_execute = false)
        .on_remount(Remount::Flag(MountFlags::NOEXEC, false)),
    Row::flag(
        OfMount,
        "remount",
        "changes a mount that is there, for root: ro, rw, commit=, read_policy=, autodefrag, dev, suid, exec and their \
         opposites. With ro all that was written is durable, and nothing more is written. Other options must \
         be those of the mount, or are refused by name. A pool that was mounted with ro stays so. mount(8) \
         without its helper (mount.fuse.brindle) tells the kernel alone: the process goes on to move and repair \
         data on the devices",
        |_| {},
    ),
    Row::refused("noacl", "ACLs are always in force"),
    Row::refused("nobarrier", "devices are always flushed"),
    Row::refused("uid", OWNERS),
    Row::refused("gid", OWNERS),
    Row::refused("umask", OWNERS),
    Row::refused("max_read", "reads are as long as they are served"),
    Row::refused("attr_timeout", TIMEOUT),
    Row::refused("entry_timeout", TIMEOUT),
    Row::refused("negative_timeout", TIMEOUT),
    Row::refused("fragment", TEST_OF_KERNEL),
    Row::refused("check_int", TEST_OF_KERNEL),
    Row::refused("check_int_data", TEST_OF_KERNEL),
    Row::refused("check_int_print_mask", TEST_OF_KERNEL),
    Row::refused("ref_verify", TEST_OF_KERNEL),
];

/// The row of a name.
pub(super) fn find(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name == name || row.synonym == Some(name))
}

/// Every name of an option.
pub(super) fn all_names() -> impl Iterator<Item = &'static str> {
    let named = ROWS.iter().flat_map(|row| [Some(row.name), row.synonym]).flatten();
    named.chain(OF_MOUNT_8).chain(OF_BTRFS).chain(VALUED)
}

/// The way of a remount with an option.
pub(crate) fn remount_of(option: &str) -> Remount {
    find(super::split(option).0).map_or(Remount::Fixed, |row| row.remount)
}

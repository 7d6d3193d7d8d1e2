//! Options that are taken and change nothing here.

use super::split;

/// Options of mount(8) that are taken and change nothing here.
pub(super) const OF_MOUNT_8: [&str; 16] = [
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
    "nolazytime",
    "silent",
    "loud",
    "mand",
    "nomand",
];

/// Options of the kernel's btrfs that are taken and change nothing here.
pub(super) const OF_BTRFS: [&str; 17] = [
    "lazytime",
    "ssd",
    "nossd",
    "ssd_spread",
    "nossd_spread",
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
    "inode_cache",
    "noinode_cache",
];

/// The same, of those that have a value or may have one.
pub(super) const VALUED: [&str; 7] =
    ["space_cache", "thread_pool", "metadata_ratio", "fatal_errors", "comment", "subtype", "user"];

/// Returns true if an option is one that is taken and changes nothing.
pub(crate) fn is_without_effect(option: &str) -> bool {
    let (name, value) = split(option);
    option.starts_with("x-")
        || option.starts_with("X-")
        || value.is_none() && (OF_MOUNT_8.contains(&name) || OF_BTRFS.contains(&name))
        || VALUED.contains(&name)
}

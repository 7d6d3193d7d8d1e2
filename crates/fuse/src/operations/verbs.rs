//! Handlers of ioctls: one for each row of the table in `brindle-uapi` that brindle serves. The table decides about
//! privileges, about a mount at rest, and about durability; a handler has a decoded argument and returns a typed answer.

use super::Operations;
use crate::flags;
use crate::permission::Caller;
use brindle_uapi::message::{VolumeArgumentsV2, text};
use brindle_uapi::verb::{self, Effect, Pace, Privilege, Row, Verb};
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

/// A request by ioctl.
#[derive(Clone, Debug)]
pub(crate) struct Ioctl {
    pub(crate) caller: Caller,
    /// The open file or directory.
    pub(crate) node: u64,
    pub(crate) command: u32,
    pub(crate) input: Vec<u8>,
}

/// Returns true if an ioctl belongs on a worker.
pub(crate) fn is_slow(command: u32) -> bool {
    Row::find(command).is_some_and(|row| row.pace == Pace::Slow)
}

/// Returns true if an ioctl changes something, so that its caller must have the result.
pub(crate) fn changes(command: u32) -> bool {
    Row::find(command).is_some_and(|row| row.effect != Effect::Nothing)
}

/// A row of the table, and its answer.
struct Service {
    row: Row,
    answer: fn(&Operations, &Ioctl) -> Result<Vec<u8>, Errno>,
}

/// Origin of a request.
#[derive(Clone, Copy)]
struct Origin {
    caller: Caller,
    node: u64,
}

impl Operations {
    /// Answers an ioctl.
    pub(crate) fn ioctl(&self, ioctl: &Ioctl) -> Result<Vec<u8>, Errno> {
        let service = SERVICES.iter().find(|service| service.row.number == ioctl.command);
        let Service { row, answer } = service.ok_or(Errno::NOTTY)?;
        self.require_awake(row.effect)?;
        if row.privilege == Privilege::Administrator {
            ioctl.caller.require_administrator()?;
        }
        let answer = answer(self, ioctl)?;
        self.settle_ioctl(row.effect)?;
        Ok(answer)
    }
}

/// An operation behind an ioctl.
type Handler<V> = fn(&Operations, Origin, <V as Verb>::Told) -> Result<<V as Verb>::Answer, Errno>;

/// Decodes the argument, and encodes the answer.
fn serve<V: Verb>(operations: &Operations, ioctl: &Ioctl, handle: Handler<V>) -> Result<Vec<u8>, Errno> {
    // An ioctl that only asks has no argument, whatever the transport hands over.
    let input = if size_of::<V::Told>() == 0 { &[] } else { ioctl.input.as_slice() };
    let told = V::Told::read_from_bytes(input).map_err(|_| Errno::INVAL)?;
    let answer = handle(operations, Origin { caller: ioctl.caller, node: ioctl.node }, told)?;
    Ok(answer.as_bytes().to_vec())
}

/// The name in arguments without flags.
fn plain_name(arguments: &VolumeArgumentsV2) -> Result<&[u8], Errno> {
    if arguments.flags == 0 { Ok(text(&arguments.name)) } else { Err(Errno::OPNOTSUPP) }
}

macro_rules! services {
    ($($verb:ident => $handle:expr;)*) => {
        /// The handlers, in the order of the table.
        const SERVICES: &[Service] = &[$(Service {
            row: verb::$verb::ROW,
            answer: |operations, ioctl| serve::<verb::$verb>(operations, ioctl, $handle),
        }),*];
    };
}

services! {
    InodeGetFlags => |mount, from, ()| mount.inode_flags(from.node).map(flags::plain);
    InodeSetFlags => |mount, from, word| mount.set_flags(from.node, |_| flags::with_plain(word));
    InodeGetExtended => |mount, from, ()| mount.inode_flags(from.node).map(flags::extended);
    InodeSetExtended => |mount, from, wanted| {
        mount.set_flags(from.node, |current| flags::with_extended(&wanted, current))
    };
    SubvolumeCreate => |mount, from, told| mount.create_subvolume(from.caller, from.node, text(&told.name));
    SubvolumeCreateV2 => |mount, from, told| {
        mount.create_subvolume(from.caller, from.node, plain_name(&told)?)
    };
    SnapshotDestroy => |mount, from, told| mount.delete_subvolume(from.caller, from.node, text(&told.name));
    SnapshotDestroyV2 => |mount, from, told| mount.delete_subvolume_v2(from.caller, from.node, &told);
    SubvolumeGetFlags => |mount, from, ()| mount.subvolume_flags(from.node);
    SubvolumeSetFlags => |mount, from, flags| mount.set_subvolume_flags(from.caller, from.node, flags);
    DefaultSubvolume => |mount, from, id| mount.set_default_subvolume(from.node, id);
    LookUpInode => |mount, from, asked| mount.lookup_inode(from.caller, from.node, asked);
    DescribeSubvolume => |mount, from, ()| mount.subvolume_info(from.node);
    Sync => |mount, _, ()| mount.sync_with_pages();
    StartSync => |mount, _, ()| mount.start_sync();
    WaitSync => |mount, _, _| mount.sync_with_pages();
    DescribeFilesystem => |mount, _, ()| Ok(mount.filesystem_info());
    DescribeDevice => |mount, _, asked| mount.device_info(&asked);
    CountDeviceErrors => |mount, from, asked| mount.device_statistics(from.caller, asked);
    GetLabel => |mount, _, ()| mount.label();
    SetLabel => |mount, _, label| mount.set_label(&label);
    Trim => |mount, _, range| mount.trim(range);
    SearchTree => |mount, _, asked| mount.search(asked);
    ControlQuotas => |mount, _, asked| mount.control_quotas(asked);
    AssignQgroup => |mount, _, asked| mount.relate_quota_groups(&asked);
    CreateQgroup => |mount, _, asked| mount.change_quota_group(&asked);
    RescanQuotas => |mount, _, _| mount.rescan_quotas();
    FollowRescan => |mount, _, ()| mount.quota_rescan();
    Snapshot => |mount, from, request| mount.snapshot(from.caller, from.node, &request);
    ListSubvolumes => |mount, _, page| mount.subvolume_page(page.after);
    DescribeServer => |mount, _, ()| Ok(mount.server_info());
    ReportSpace => |mount, _, page| mount.space_page(&page);
    ReportCommits => |mount, _, ()| Ok(mount.commits_report());
    ExplainReadOnly => |mount, _, ()| Ok(mount.read_only_reason());
    StartBalance => |mount, _, start| mount.balance.start(&mount.filesystem, &start);
    StopBalance => |mount, _, how| mount.balance.stop(&mount.filesystem, how);
    ReportBalance => |mount, _, ()| mount.balance.report(&mount.filesystem);
    StartDeviceChange => |mount, _, start| mount.devices.start(&mount.filesystem, &start);
    StopDeviceChange => |mount, _, _| mount.devices.stop();
    ReportDeviceChange => |mount, _, ()| Ok(mount.devices.report());
    StartScrub => |mount, _, start| {
        mount.scrub.start(&mount.filesystem, mount.is_written() && !mount.is_resting(), &start)
    };
    StopScrub => |mount, _, ()| mount.scrub.stop();
    LimitScrub => |mount, _, limit| mount.scrub.limit(&limit);
    ReportScrub => |mount, _, page| mount.scrub.page(&mount.filesystem, page);
    SetHint => |mount, _, request| mount.set_hint(&request);
    SetSmallFiles => |mount, _, bytes| mount.set_small_files(bytes);
    SetPlacement => |mount, _, mode| mount.set_placement(mode);
    SetWriteBack => |mount, _, request| mount.set_write_back(&request);
    ReportWriteBack => |mount, _, ()| mount.write_back_report();
    SetLogProfile => |mount, _, copies| mount.set_log_profile(copies);
    ReportLog => |mount, _, ()| mount.log_report();
    LimitQuotaGroup => |mount, from, limits| mount.limit_quota_group(from.node, &limits);
    GetSetting => |mount, _, asked| mount.setting(asked);
    SetSetting => |mount, _, wanted| mount.set_setting(&wanted);
    ReportReads => |mount, _, page| Ok(mount.reads_page(page.after_device));
    ReportTraffic => |mount, _, page| Ok(mount.traffic_page(page.after_device));
    RecordRequests => |mount, _, is_on| mount.record_requests(is_on);
    TakeRecorded => |mount, _, page| mount.take_recorded(page.devid);
    Defragment => |mount, from, piece| mount.defragment(from.node, &piece);
    DefragmentContents => |mount, from, part| mount.defragment_contents(from.caller, from.node, &part);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_that_is_served_has_one_handler_and_no_other_row_has_any() {
        let handled: Vec<&str> = SERVICES.iter().map(|service| service.row.name).collect();
        let served = verb::TABLE.iter().filter(|row| row.is_served());
        assert_eq!(handled, served.map(|row| row.name).collect::<Vec<_>>());
    }
}

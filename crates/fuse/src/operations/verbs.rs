//! Handlers of ioctls: one for each row of the table in `brindle-uapi` that brindle serves. The table decides about
//! privileges, about a mount at rest, and about durability; a handler has a decoded argument and returns a typed answer.

use super::attributes::InodeAttributes;
use super::defragment::Defragmentation;
use super::device_requests::DeviceRequests;
use super::durability::Durability;
use super::jobs::Jobs;
use super::mode::MountMode;
use super::pool_reports::PoolReports;
use super::pool_settings::PoolSettings;
use super::quotas::Quotas;
use super::server::MountServer;
use super::settings::MountSettings;
use super::streams::Streams;
use super::subvolumes::Subvolumes;
use super::tree_items::TreeItems;
use crate::control_thread::OwnThread;
use crate::flags;
use crate::permission::Caller;
use brindle_uapi::message::{VolumeArgumentsV2, text};
use brindle_uapi::verb::{self, Effect, Pace, Privilege, Row, Verb};
use rustix::io::Errno;
use std::sync::Arc;
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

/// Ioctls of fs-verity (`FS_IOC_ENABLE_VERITY`, `FS_IOC_MEASURE_VERITY`, `FS_IOC_READ_VERITY_METADATA`), which the kernel's btrfs
/// knows.
const VERITY: [u32; 3] = [0x4080_6685, 0xc004_6686, 0xc028_6687];

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
    answer: Answer,
}

/// The way to an answer.
enum Answer {
    ByAnyThread(fn(&Ioctls, &Ioctl) -> Result<Vec<u8>, Errno>),
    /// Waits for the kernel, so that its row is slow.
    ByOwnThread(fn(&Ioctls, &OwnThread, &Ioctl) -> Result<Vec<u8>, Errno>),
}

/// Origin of a request.
#[derive(Clone, Copy)]
struct Origin {
    caller: Caller,
    node: u64,
}

/// Ioctls of a mount: the parts that answer them.
#[derive(Debug)]
pub(crate) struct Ioctls {
    pub(super) mode: Arc<MountMode>,
    pub(super) durability: Arc<Durability>,
    pub(super) attributes: Arc<InodeAttributes>,
    pub(super) subvolumes: Subvolumes,
    pub(super) reports: Arc<PoolReports>,
    pub(super) pool_settings: PoolSettings,
    pub(super) tree_items: TreeItems,
    pub(super) quotas: Quotas,
    pub(super) server: MountServer,
    pub(super) jobs: Arc<Jobs>,
    pub(super) streams: Arc<Streams>,
    pub(super) settings: MountSettings,
    pub(super) device_requests: DeviceRequests,
    pub(super) defragmentation: Defragmentation,
}

impl Ioctls {
    /// Answers an ioctl; a [slow](is_slow) one by a thread of its own.
    pub(crate) fn answer(&self, own: Option<&OwnThread>, ioctl: &Ioctl) -> Result<Vec<u8>, Errno> {
        let service = SERVICES.iter().find(|service| service.row.number == ioctl.command);
        let unknown = if VERITY.contains(&ioctl.command) { Errno::OPNOTSUPP } else { Errno::NOTTY };
        let Service { row, answer } = service.ok_or(unknown)?;
        self.require_awake(row.effect)?;
        if row.privilege == Privilege::Administrator {
            ioctl.caller.require_administrator()?;
        }
        let answer = match answer {
            Answer::ByAnyThread(answer) => answer(self, ioctl),
            Answer::ByOwnThread(answer) => {
                answer(self, own.expect("a slow ioctl is answered by a thread of its own"), ioctl)
            }
        }?;
        self.durability.settle_ioctl(row.effect)?;
        Ok(answer)
    }

    /// Refuses an ioctl that would change something of a mount that rests.
    fn require_awake(&self, effect: Effect) -> Result<(), Errno> {
        if self.mode.is_resting() && effect != Effect::Nothing { Err(Errno::ROFS) } else { Ok(()) }
    }
}

/// Decodes the argument, and encodes the answer.
fn serve<V: Verb>(
    ioctls: &Ioctls,
    ioctl: &Ioctl,
    handle: impl FnOnce(&Ioctls, Origin, V::Told) -> Result<V::Answer, Errno>,
) -> Result<Vec<u8>, Errno> {
    // An ioctl that only asks has no argument, whatever the transport hands over.
    let input = if size_of::<V::Told>() == 0 { &[] } else { ioctl.input.as_slice() };
    let told = V::Told::read_from_bytes(input).map_err(|_| Errno::INVAL)?;
    let answer = handle(ioctls, Origin { caller: ioctl.caller, node: ioctl.node }, told)?;
    Ok(answer.as_bytes().to_vec())
}

/// The name in arguments without flags.
fn plain_name(arguments: &VolumeArgumentsV2) -> Result<&[u8], Errno> {
    if arguments.flags == 0 { Ok(text(&arguments.name)) } else { Err(Errno::OPNOTSUPP) }
}

macro_rules! services {
    ($($verb:ident $(by $own:ident)? => $handle:expr;)*) => {
        /// The handlers, in the order of the table.
        const SERVICES: &[Service] = &[$(Service {
            row: verb::$verb::ROW,
            answer: answer!($verb, $($own,)? $handle),
        }),*];
    };
}

/// A handler that names a thread of its own has a slow row.
macro_rules! answer {
    ($verb:ident, $handle:expr) => {
        Answer::ByAnyThread(|ioctls, ioctl| serve::<verb::$verb>(ioctls, ioctl, $handle))
    };
    ($verb:ident, $own:ident, $handle:expr) => {{
        assert!(matches!(verb::$verb::ROW.pace, Pace::Slow));
        Answer::ByOwnThread(|ioctls, $own, ioctl| serve::<verb::$verb>(ioctls, ioctl, $handle))
    }};
}

services! {
    InodeGetFlags => |mount, from, ()| mount.attributes.flags(from.node).map(flags::plain);
    InodeSetFlags => |mount, from, word| mount.attributes.set_flags(from.node, |_| flags::with_plain(word));
    InodeGetVersion => |mount, from, ()| mount.attributes.version(from.node);
    InodeGetExtended => |mount, from, ()| mount.attributes.flags(from.node).map(flags::extended);
    InodeSetExtended => |mount, from, wanted| {
        mount.attributes.set_flags(from.node, |current| flags::with_extended(&wanted, current))
    };
    SubvolumeCreate by own => |mount, from, told| mount.subvolumes.create(own, from.caller, from.node, text(&told.name));
    SubvolumeCreateV2 by own => |mount, from, told| {
        mount.subvolumes.create(own, from.caller, from.node, plain_name(&told)?)
    };
    SnapshotDestroy by own => |mount, from, told| mount.subvolumes.delete(own, from.caller, from.node, text(&told.name));
    SnapshotDestroyV2 by own => |mount, from, told| mount.subvolumes.delete_v2(own, from.caller, from.node, &told);
    SubvolumeGetFlags => |mount, from, ()| mount.subvolumes.flags(from.node);
    SubvolumeSetFlags by own => |mount, from, flags| mount.subvolumes.set_flags(own, from.caller, from.node, flags);
    DefaultSubvolume => |mount, from, id| mount.subvolumes.set_default(from.node, id);
    LookUpInode => |mount, from, asked| mount.subvolumes.lookup_inode(from.caller, from.node, asked);
    DescribeSubvolume => |mount, from, ()| mount.subvolumes.describe(from.node);
    Sync by own => |mount, _, ()| mount.durability.sync_with_pages(own);
    StartSync by own => |mount, _, ()| mount.durability.start_sync(own);
    WaitSync by own => |mount, _, _| mount.durability.sync_with_pages(own);
    DescribeFilesystem => |mount, _, ()| Ok(mount.reports.filesystem_info());
    DescribeDevice => |mount, _, asked| mount.reports.device_info(&asked);
    CountDeviceErrors => |mount, from, asked| mount.reports.device_statistics(from.caller, asked);
    GetLabel => |mount, _, ()| mount.reports.label();
    SetLabel => |mount, _, label| mount.pool_settings.set_label(&label);
    Trim => |mount, _, range| mount.pool_settings.trim(range);
    SearchTree => |mount, _, asked| mount.tree_items.search(asked);
    ControlQuotas => |mount, _, asked| mount.quotas.control(asked);
    AssignQgroup => |mount, _, asked| mount.quotas.relate(&asked);
    CreateQgroup => |mount, _, asked| mount.quotas.change(&asked);
    RescanQuotas => |mount, _, _| mount.quotas.rescan();
    FollowRescan => |mount, _, ()| mount.quotas.rescan_progress();
    Snapshot by own => |mount, from, request| mount.subvolumes.make(own, from.caller, from.node, &request);
    ListSubvolumes => |mount, _, page| mount.subvolumes.page(page.after);
    DescribeServer => |mount, _, ()| Ok(mount.server.describe());
    ReportSpace => |mount, _, page| mount.reports.space_page(&page);
    ReportCommits => |mount, _, ()| Ok(mount.reports.commits_report());
    ExplainReadOnly => |mount, _, ()| Ok(mount.server.read_only_reason());
    StartBalance => |mount, _, start| mount.jobs.balance.start(&start);
    StopBalance => |mount, _, how| mount.jobs.balance.stop(how);
    ReportBalance => |mount, _, ()| mount.jobs.balance.report();
    StartDeviceChange => |mount, _, start| mount.jobs.devices.start(&start);
    StopDeviceChange => |mount, _, _| mount.jobs.devices.stop();
    ReportDeviceChange => |mount, _, ()| Ok(mount.jobs.devices.report());
    StartScrub => |mount, _, start| {
        mount.jobs.scrub.start(&start)
    };
    StopScrub => |mount, _, ()| mount.jobs.scrub.stop();
    LimitScrub => |mount, _, limit| mount.jobs.scrub.limit(&limit);
    ReportScrub => |mount, _, page| mount.jobs.scrub.page(page);
    SetHint => |mount, _, request| mount.pool_settings.set_hint(&request);
    SetSmallFiles => |mount, _, bytes| mount.pool_settings.set_small_files(bytes);
    SetPlacement => |mount, _, mode| mount.pool_settings.set_placement(mode);
    SetWriteBack => |mount, _, request| mount.pool_settings.set_write_back(&request);
    ReportWriteBack => |mount, _, ()| mount.reports.write_back_report();
    SetLogProfile => |mount, _, copies| mount.pool_settings.set_log_profile(copies);
    ReportLog => |mount, _, ()| mount.reports.log_report();
    LimitQuotaGroup => |mount, from, limits| mount.quotas.limit(from.node, &limits);
    SetClasses => |mount, _, request| mount.pool_settings.set_classes(&request);
    GetSetting => |mount, _, asked| mount.settings.get(asked);
    SetSetting => |mount, _, wanted| mount.settings.set(&wanted);
    ReportReads => |mount, _, page| Ok(mount.device_requests.reads_page(page.after_device));
    ReportTraffic => |mount, _, page| Ok(mount.device_requests.traffic_page(page.after_device));
    RecordRequests => |mount, _, is_on| mount.device_requests.record(is_on);
    TakeRecorded => |mount, _, page| mount.device_requests.take_recorded(page.devid);
    Defragment => |mount, from, piece| mount.defragmentation.metadata(from.node, &piece);
    DefragmentContents => |mount, from, part| mount.defragmentation.contents(from.caller, from.node, &part);
    StartSend => |mount, from, start| mount.streams.send(from.caller, &start);
    StartReceive => |mount, from, start| mount.streams.receive(from.caller, from.node, &start);
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

//! Subvolumes of a mount of the kernel that a stream builds on, found by the UUIDs that the sender gave them.

use super::{subvolumes, told};
use crate::control::Mounted;
use brindle_care::receive::{ReceiveProblem, SourceState, choose};
use brindle_ondisk::{RootId, Uuid};
use brindle_stream::Origin;
use brindle_uapi::mount_table::{self, KERNEL_TYPE};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use subvolumes::SubvolumeFacts;

/// Subvolumes that were looked up.
#[derive(Debug, Default)]
pub(super) struct Known(HashMap<(Uuid, u64), Rc<Mounted>>);

impl Known {
    /// The subvolume that is what the sender knows, opened by way of some mount of the pool.
    pub(super) fn find(
        &mut self,
        directory: &Mounted,
        wanted: Origin,
    ) -> Result<Rc<Mounted>, ReceiveProblem> {
        let key = (wanted.uuid, wanted.transid);
        if let Some(known) = self.0.get(&key) {
            return Ok(Rc::clone(known));
        }
        let (mut there, _) = subvolumes::subvolumes(directory).map_err(io::Error::other)?;
        there.retain(|one| !one.is_deleted);
        let states: Vec<SourceState> = there.iter().map(state).collect();
        let id = choose(&states, wanted)?;
        let found = there.iter().find(|one| one.id == id.get()).expect("it was chosen of these");
        let opened = Rc::new(open(directory, found)?);
        self.0.insert(key, Rc::clone(&opened));
        Ok(opened)
    }
}

fn state(one: &SubvolumeFacts) -> SourceState {
    let [own, _, received] = one.uuids;
    SourceState {
        id: RootId::new(one.id),
        own: Origin { uuid: own, transid: one.contents_generation },
        received: Origin { uuid: received, transid: one.transactions[1] },
        is_read_only: one.is_read_only,
    }
}

/// Opens a subvolume of the pool that a directory is of.
fn open(directory: &Mounted, wanted: &SubvolumeFacts) -> Result<Mounted, ReceiveProblem> {
    let pool = directory.filesystem().map_err(told)?.fsid;
    let path = Path::new("/").join(OsStr::from_bytes(&wanted.path));
    let is_it = |one: &Mounted| {
        let is_of_pool = one.is_of_kernel() && one.filesystem().is_ok_and(|found| found.fsid == pool);
        let info = one.subvolume().ok().filter(|_| is_of_pool && one.is_subvolume_root());
        info.is_some_and(|info| info.id == wanted.id && info.uuid == wanted.uuids[0].0)
    };
    let mounts = mount_table::read()?;
    let shown = mounts.iter().rev().filter(|mount| mount.kind == KERNEL_TYPE).filter_map(|mount| {
        let below = path.strip_prefix(&mount.root).ok()?;
        Mounted::open(&mount.mountpoint.join(below)).ok()
    });
    shown.into_iter().find(is_it).ok_or_else(|| {
        let why = format!(
            "the subvolume {} that the stream builds on is below no mount of this pool: mount the pool with subvolid=5 as well",
            path.display()
        );
        io::Error::other(why).into()
    })
}

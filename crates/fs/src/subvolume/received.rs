//! The end of receiving a subvolume: it becomes read-only, and is known by the UUID under which it was sent.

use crate::attributes::Timestamp;
use crate::error::FsError;
use crate::subvolume::Subvolumes;
use crate::subvolume::change::with_read_only;
use crate::uuid_tree::UuidKind;
use brindle_ondisk::{Generation, RootId, Uuid};
use brindle_tree::{Need, Roots};

impl Subvolumes {
    pub(crate) fn finish_received(&self, id: RootId, uuid: Uuid, transid: u64) -> Result<(), FsError> {
        let _writing = self.core.writing()?;
        self.data.write_back_all(Some(id))?;
        let subvolume = self.core.subvolume_state(id)?;
        let mut access = subvolume.exclusive();
        subvolume.require_name()?;
        if access.is_read_only {
            return Err(FsError::ReadOnlySubvolume(id));
        }
        self.data.write_back_rest(id)?;
        // Files that were written back before, to make room, have told no one of it.
        self.data.context.check_losses(id)?;
        self.core.change(Need::items(4), |edit| {
            let (generation, now) = (edit.generation(), edit.now);
            let before = Roots::of(&edit.editor).change_item(id, |item| {
                let before = item.received_uuid;
                item.received_uuid = uuid;
                (item.stransid, item.rtransid) = (Generation::new(transid), generation);
                // A stream does not tell when it was sent.
                (item.stime, item.rtime) = (Timestamp::default().into(), now);
                item.flags.set(with_read_only(item.root_flags(), true).bits());
                before
            })?;
            if let Some(before) = before {
                edit.remove_uuid(UuidKind::Received, before, id)?;
            }
            edit.add_uuid(UuidKind::Received, uuid, id)
        })?;
        access.is_read_only = true;
        drop(access);
        self.log.commit()
    }
}

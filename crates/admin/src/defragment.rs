//! Having a mount defragment metadata or contents of files.

use crate::call;
use crate::control::{ControlError, Mounted};
use brindle_fs::{ContentsWish, DefragmentedContents};
use brindle_uapi::message::{
    CONTENTS_COMPRESS, CONTENTS_END, CONTENTS_UNSHARE, ContentsPart, DEFRAGMENT_POOL, DefragmentPiece,
    KERNEL_COMPRESS, KernelDefragment,
};
use brindle_uapi::verb;
use rustix::fs::IFlags;
use zerocopy::FromZeros;

impl Mounted {
    /// Has it defragment a piece of the subvolume of the open directory, or of all of the pool: the first one, or the one
    /// behind what it answered before. A mount of the kernel takes the subvolume as one piece, of which it tells nothing.
    ///
    /// # Errors
    /// Refusals of the mount; all of a pool that the kernel has mounted.
    pub fn defragment(
        &self,
        whole_pool: bool,
        before: Option<&DefragmentPiece>,
    ) -> Result<DefragmentPiece, ControlError> {
        let what = "defragment metadata";
        if self.is_of_kernel() && whole_pool {
            let what = "defragment all metadata";
            return Err(ControlError::KernelMount { path: self.path.clone(), what });
        }
        if self.is_of_kernel() {
            // Of a directory the kernel takes the tree, whatever the range is.
            let all = KernelDefragment { length: u64::MAX, ..KernelDefragment::new_zeroed() };
            let answer = call::set::<verb::DefragmentRange>(&self.file, all);
            let what = "defragment metadata (root may)";
            return self.explain(what, answer).map(|()| DefragmentPiece::default());
        }
        let flags = if whole_pool { DEFRAGMENT_POOL } else { 0 };
        let mut piece = DefragmentPiece { flags, ..before.copied().unwrap_or_default() };
        let answer = call::update::<verb::Defragment>(&self.file, &mut piece);
        self.explain(what, answer).map(|()| piece)
    }

    /// Returns true if the open file is overwritten in place, and so never compressed (`FS_NOCOW_FL`).
    pub fn is_nodatacow(&self) -> bool {
        rustix::fs::ioctl_getflags(&self.file).is_ok_and(|flags| flags.contains(IFlags::NOCOW))
    }

    /// Has it defragment a part of the open file, from an offset on: a mount of the kernel all that is left, of which it
    /// tells nothing, and which it takes out of all sharing.
    ///
    /// # Errors
    /// Refusals of the mount: a file of another owner, a read-only subvolume, no space.
    pub fn defragment_contents(
        &self,
        from: u64,
        wish: &ContentsWish,
    ) -> Result<DefragmentedContents, ControlError> {
        let what = "defragment contents";
        let compression = wish.compression.map(|choice| choice.algorithm as u8);
        if self.is_of_kernel() {
            let range = KernelDefragment {
                start: from,
                length: u64::MAX,
                flags: compression.map_or(0, |_| KERNEL_COMPRESS),
                extent_threshold: u32::try_from(wish.run_bytes).unwrap_or(u32::MAX),
                compression: compression.map_or(0, u32::from),
                unused: [0; 4],
            };
            let answer = call::set::<verb::DefragmentRange>(&self.file, range);
            return self.explain(what, answer).map(|()| DefragmentedContents::default());
        }
        let unshares = if wish.unshares { CONTENTS_UNSHARE } else { 0 };
        let mut part = ContentsPart {
            offset: from,
            run_bytes: wish.run_bytes,
            flags: unshares | compression.map_or(0, |_| CONTENTS_COMPRESS),
            compression: compression.map_or(0, u16::from),
            level: wish.compression.and_then(|choice| choice.level).map_or(0, i16::from),
            ..ContentsPart::default()
        };
        let answer = call::update::<verb::DefragmentContents>(&self.file, &mut part);
        self.explain(what, answer)?;
        Ok(DefragmentedContents {
            extents: part.extents,
            moved: part.moved,
            moved_bytes: part.moved_bytes,
            shared: part.shared,
            next: Some(part.offset).filter(|offset| *offset != CONTENTS_END),
        })
    }
}

//! Having a mount of ours defragment metadata.

use crate::call;
use crate::control::{ControlError, Mounted};
use brindle_uapi::message::{DEFRAGMENT_POOL, DefragmentPiece};
use brindle_uapi::verb;

impl Mounted {
    /// Has it defragment a piece of the subvolume of the open directory, or of all of the pool: the first one, or the one
    /// behind what it answered before.
    pub fn defragment(
        &self,
        whole_pool: bool,
        before: Option<&DefragmentPiece>,
    ) -> Result<DefragmentPiece, ControlError> {
        let what = "defragment metadata";
        if self.is_of_kernel() {
            return Err(ControlError::KernelMount { path: self.path.clone(), what });
        }
        let flags = if whole_pool { DEFRAGMENT_POOL } else { 0 };
        let mut piece = DefragmentPiece { flags, ..before.copied().unwrap_or_default() };
        let answer = call::update::<verb::Defragment>(&self.file, &mut piece);
        self.explain(what, answer).map(|()| piece)
    }
}

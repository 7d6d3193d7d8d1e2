//! zstd: one frame an extent; the rest of the last sector is padding.

use super::DecompressError;
use std::cell::RefCell;
use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, get_error_name};

/// The largest window that an extent can make use of (`ZSTD_BTRFS_MAX_WINDOWLOG`): a frame that wants a larger
/// one would only have memory allocated for nothing.
const WINDOW_LOG_MAX: u32 = 17;

thread_local! {
    /// A context costs more to make than a small extent to decompress.
    static CONTEXT: RefCell<DCtx<'static>> = RefCell::new(context());
}

fn context() -> DCtx<'static> {
    let mut context = DCtx::create();
    context.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX)).expect("17 is a window that zstd knows");
    context
}

pub(super) fn decompress(input: &[u8], output: &mut [u8]) -> Result<usize, DecompressError> {
    CONTEXT.with_borrow_mut(|context| {
        let failed = |code| DecompressError::Stream(get_error_name(code).to_owned());
        context.init().map_err(failed)?;
        let capacity = output.len();
        let mut target = OutBuffer::around(output);
        let mut source = InBuffer::around(input);
        loop {
            let before = (source.pos(), target.pos());
            let left = context.decompress_stream(&mut target, &mut source).map_err(failed)?;
            if left == 0 || target.pos() == capacity {
                return Ok(target.pos());
            }
            if (source.pos(), target.pos()) == before {
                return Err(DecompressError::CutOff(source.pos()));
            }
        }
    })
}

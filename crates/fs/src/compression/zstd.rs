//! zstd: one frame an extent; the rest of the last sector is padding.

use super::DecompressError;
use std::cell::RefCell;
use std::ops::RangeInclusive;
use zstd::zstd_safe::{CCtx, DCtx, DParameter, InBuffer, OutBuffer, get_error_name};

/// The largest window that an extent can make use of (`ZSTD_BTRFS_MAX_WINDOWLOG`): a frame that wants a larger
/// one would only have memory allocated for nothing.
const WINDOW_LOG_MAX: u32 = 17;

/// The levels there are, and the one taken unless told otherwise (`ZSTD_BTRFS_DEFAULT_LEVEL`).
pub(super) const LEVELS: RangeInclusive<i8> = -15..=15;
pub(super) const LEVEL_DEFAULT: i8 = 3;

thread_local! {
    static COMPRESSOR: RefCell<CCtx<'static>> = RefCell::new(CCtx::create());
    /// A context costs more to make than a small extent to decompress.
    static CONTEXT: RefCell<DCtx<'static>> = RefCell::new(context());
}

fn context() -> DCtx<'static> {
    let mut context = DCtx::create();
    context.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX)).expect("17 is a window that zstd knows");
    context
}

/// Compresses into `output`, which is empty, at most to its capacity; whether that was enough. The library takes
/// no larger a window than the input fills, so that of an extent is never too large.
pub(super) fn compress(input: &[u8], output: &mut Vec<u8>, level: i8) -> bool {
    COMPRESSOR.with_borrow_mut(|context| context.compress(output, input, level.into()).is_ok())
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

//! Streams of send, made by a mount of the kernel.

use crate::call;
use crate::control::{ControlError, Mounted};
use crate::streams::SendOrder;
use brindle_uapi::message::{
    KERNEL_SEND_COMPRESSED, KERNEL_SEND_NO_DATA, KERNEL_SEND_NO_END, KERNEL_SEND_NO_HEADER,
    KERNEL_SEND_VERSION, KernelSend, SubvolumeInfo,
};
use brindle_uapi::verb;
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use zerocopy::FromZeros;

/// The call that has the kernel send.
const WHAT: &str = "send (root may)";

/// A subvolume that is sent, or that the receiver has.
struct Named<'m> {
    mounted: &'m Mounted,
    info: SubvolumeInfo,
}

impl SendOrder<'_> {
    /// Has the mount of the kernel that holds the subvolumes send them into a pipe, and waits for the end. Before each, `begun` is
    /// told of it and of its parent. After a failure the stream has no end command.
    ///
    /// # Errors
    /// Directories that are no subvolumes of this mount; refusals of the kernel; a pipe without a reader.
    pub fn send_by_kernel(
        &self,
        stream: &File,
        begun: &mut dyn FnMut(&Path, Option<&Path>),
    ) -> Result<(), ControlError> {
        let parent = self.parent.map(|parent| self.named(parent)).transpose()?;
        let mut known: Vec<Named<'_>> = parent.into_iter().collect();
        for source in self.sources {
            known.push(self.named(source)?);
        }
        for (at, subvolume) in self.subvolumes.iter().enumerate() {
            let one = self.named(subvolume)?;
            let parent = match self.parent {
                Some(_) if at == 0 => known.first(),
                _ if at == 0 => None,
                _ => best_parent(&known, &one.info),
            };
            begun(one.mounted.path(), parent.map(|parent| parent.mounted.path()));
            let mut ids: Vec<u64> = known.iter().map(|one| one.info.id).collect();
            ids.sort_unstable();
            ids.dedup();
            let order = KernelSend {
                stream: stream.as_raw_fd().into(),
                parent: parent.map_or(0, |parent| parent.info.id),
                flags: self.flags_of_kernel(at),
                version: if self.version > 1 { self.version } else { 0 },
                ..KernelSend::new_zeroed()
            };
            let sent = call::send_with_sources::<verb::SendSubvolume>(&one.mounted.file, order, &ids);
            one.mounted.explain(WHAT, sent)?;
            known.push(one);
        }
        Ok(())
    }

    /// The subvolume that a directory of this mount is the root of.
    fn named<'m>(&self, mounted: &'m Mounted) -> Result<Named<'m>, ControlError> {
        if !mounted.is_subvolume_root() {
            return Err(ControlError::NotASubvolume(mounted.path.clone()));
        }
        let fsid = |one: &Mounted| one.filesystem().map(|found| found.fsid);
        let is_of_pool = match self.subvolumes.first() {
            Some(first) => mounted.is_of_kernel() && fsid(first)? == fsid(mounted)?,
            None => false,
        };
        if !is_of_pool {
            return Err(mounted.refused("send", Errno::XDEV));
        }
        Ok(Named { mounted, info: mounted.subvolume()? })
    }

    /// Flags of the stream of one of the subvolumes.
    fn flags_of_kernel(&self, at: usize) -> u64 {
        let is_last = at + 1 == self.subvolumes.len();
        let flags = [
            (self.no_data, KERNEL_SEND_NO_DATA),
            (self.compressed, KERNEL_SEND_COMPRESSED),
            (self.version > 1, KERNEL_SEND_VERSION),
            (self.one_stream && at > 0, KERNEL_SEND_NO_HEADER),
            (self.one_stream && !is_last, KERNEL_SEND_NO_END),
        ];
        flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum()
    }
}

/// The subvolume, among those that the receiver has, that another one likely differs from least: what it is a snapshot of, or
/// another snapshot of that.
fn best_parent<'k, 'm>(known: &'k [Named<'m>], of: &SubvolumeInfo) -> Option<&'k Named<'m>> {
    let source = of.parent_uuid;
    if source == [0; 16] {
        return None;
    }
    let related = known.iter().filter(|one| one.info.id != of.id);
    let related = related.filter(|one| one.info.uuid == source || one.info.parent_uuid == source);
    related.min_by_key(|one| one.info.transactions[0].abs_diff(of.transactions[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subvolumes_of_one_stream_have_one_header_and_one_end() {
        let order = |one_stream, version| SendOrder {
            subvolumes: &[],
            parent: None,
            sources: &[],
            version,
            compressed: version > 1,
            no_data: false,
            one_stream,
        };
        assert_eq!(order(false, 1).flags_of_kernel(3), 0);
        assert_eq!(order(false, 2).flags_of_kernel(0), KERNEL_SEND_VERSION | KERNEL_SEND_COMPRESSED);
        assert_eq!(order(true, 1).flags_of_kernel(0), KERNEL_SEND_NO_END);
        assert_eq!(order(true, 1).flags_of_kernel(1), KERNEL_SEND_NO_HEADER | KERNEL_SEND_NO_END);
    }
}

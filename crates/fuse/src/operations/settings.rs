//! Settings of the mount.

use super::remount::Remount;
use crate::options::MountOptions;
use brindle_fs::{Filesystem, UpkeepOwner as _};
use brindle_uapi::message::{Setting, field, text};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// The beginning of names of settings of devices that are made of others: their id and the name proper follow.
const OF_DEVICE: &str = "device/";
/// Bytes of a page of a report: what a value has room for, with a zero at its end.
const PAGE_BYTES: usize = 1000;

/// The read policy of a mount for which none is chosen.
const DEFAULT_POLICY: &str = "auto";

/// The device of a setting, and its name there.
fn of_device(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix(OF_DEVICE)?.split_once('/')
}

/// Settings of the mount, of reading, and of devices that are made of others.
#[derive(Debug)]
pub(super) struct MountSettings {
    filesystem: Arc<Filesystem>,
    remount: Arc<Remount>,
    /// Mode of defragmenting metadata, which stays as it is.
    metadata_defrag: String,
    /// Options of the mount that are not the default, without those that a remount changes.
    given: String,
    default_commit: Duration,
}

impl MountSettings {
    pub(super) fn new(filesystem: Arc<Filesystem>, remount: Arc<Remount>, options: &MountOptions) -> Self {
        Self {
            filesystem,
            remount,
            metadata_defrag: options.auto_defragment.to_string(),
            given: options.given.clone(),
            default_commit: options.default_commit_interval(),
        }
    }

    /// Options of the mount as of now that are not the default; as many as an answer has room for.
    fn mount_options(&self) -> String {
        let commit = self.remount.commit_interval();
        let commit = (commit != self.default_commit).then(|| format!("commit={}", commit.as_secs()));
        let policies = self.filesystem.pool().volume().read_setting("read_policy").unwrap_or_default();
        let policy = policies.split(['[', ']']).nth(1).filter(|chosen| *chosen != DEFAULT_POLICY);
        let policy = policy.map(|chosen| format!("read_policy={chosen}"));
        let autodefrag = self.filesystem.is_autodefrag().then(|| "autodefrag".to_owned());
        let given = self.given.split(',').filter(|word| !word.is_empty()).map(str::to_owned);
        let mut shown = String::new();
        for word in given.chain(commit).chain(policy).chain(autodefrag) {
            if shown.len() + word.len() < PAGE_BYTES {
                let comma = if shown.is_empty() { "" } else { "," };
                shown.extend([comma, &word]);
            }
        }
        shown
    }

    /// Work of `autodefrag` since the mount was made: names and numbers.
    fn autodefrag_statistics(&self) -> String {
        let numbers = self.filesystem.autodefrag_statistics().list();
        numbers.map(|(name, number)| format!("{name} {number}")).join(", ")
    }

    pub(super) fn get(&self, mut asked: Setting) -> Result<Setting, Errno> {
        let name = std::str::from_utf8(text(&asked.name)).map_err(|_| Errno::INVAL)?;
        let value = match name {
            "mount_options" => Some(self.mount_options()),
            "metadata_defrag" => Some(self.metadata_defrag.clone()),
            "autodefrag_statistics" => Some(self.autodefrag_statistics()),
            _ if name.starts_with(OF_DEVICE) => self.report_page(name),
            _ => self.remount.setting(name).or_else(|| self.filesystem.pool().volume().read_setting(name)),
        };
        let value = value.ok_or(Errno::OPNOTSUPP)?;
        asked.value = field(value.as_bytes()).ok_or(Errno::OVERFLOW)?;
        Ok(asked)
    }

    pub(super) fn set(&self, wanted: &Setting) -> Result<(), Errno> {
        let utf8 = |bytes| std::str::from_utf8(bytes).map_err(|_| Errno::INVAL);
        let (name, value) = (utf8(text(&wanted.name))?, utf8(text(&wanted.value))?);
        if self.remount.set(name, value)? {
            return Ok(());
        }
        let volume = self.filesystem.pool().volume();
        if let Some((devid, of_device)) = of_device(name) {
            let changed = volume.change_device(devid, of_device, value).ok_or(Errno::NODEV)?;
            return changed.map_err(|error| {
                tracing::warn!("{error}");
                Errno::INVAL
            });
        }
        let changed = volume.set_read_setting(name, value).ok_or(Errno::OPNOTSUPP)?;
        changed.map_err(|error| {
            tracing::warn!("{name}: {error}");
            Errno::INVAL
        })
    }

    /// Lines of the report of a device that is made of others, from the one on whose number the name ends with; as many as the
    /// answer has room for.
    fn report_page(&self, name: &str) -> Option<String> {
        let (devid, first) = of_device(name)?;
        let lines = self.filesystem.pool().volume().device_report(devid)?;
        let mut page = String::new();
        for (name, value) in lines.iter().skip(first.parse().ok()?) {
            if page.len() + name.len() + value.len() + 2 > PAGE_BYTES {
                break;
            }
            page.extend([name, " ", value, "\n"]);
        }
        Some(page)
    }
}

//! Settings of a mount of ours, and what readers wanted of its devices.

use crate::{ControlError, Mounted, call};
use brindle_uapi::message::{self, ReadsReport, Setting};
use brindle_uapi::verb;
use rustix::io::Errno;

impl Mounted {
    /// A setting, by its name.
    pub fn setting(&self, name: &str) -> Result<String, ControlError> {
        let what = "setting";
        self.only_ours(what)?;
        let mut setting = self.explain(what, named(name, ""))?;
        let answer = call::update::<verb::GetSetting>(&self.file, &mut setting);
        self.explain(what, answer)?;
        Ok(String::from_utf8_lossy(message::text(&setting.value)).into_owned())
    }

    /// Changes a setting.
    pub fn set_setting(&self, name: &str, value: &str) -> Result<(), ControlError> {
        let what = "change a setting";
        self.only_ours(what)?;
        let setting = self.explain(what, named(name, value))?;
        self.explain(what, call::set::<verb::SetSetting>(&self.file, setting))
    }

    /// Reads of the devices.
    pub fn reads(&self) -> Result<ReadsReport, ControlError> {
        let what = "what was read";
        self.only_ours(what)?;
        ReadsReport::collect(|page| self.explain(what, call::update::<verb::ReportReads>(&self.file, page)))
    }

    pub(crate) fn only_ours(&self, what: &'static str) -> Result<(), ControlError> {
        match self.is_of_kernel() {
            true => Err(ControlError::KernelMount { path: self.path.clone(), what }),
            false => Ok(()),
        }
    }
}

fn named(name: &str, value: &str) -> Result<Setting, Errno> {
    let fields = message::field(name.as_bytes()).zip(message::field(value.as_bytes()));
    fields.map(|(name, value)| Setting { name, value }).ok_or(Errno::NAMETOOLONG)
}

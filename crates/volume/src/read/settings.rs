//! Settings of the choice of mirrors and of its statistics: of a pool while it is open, by name.

use crate::read_state::Clock;
use crate::{ReadStatistics, Volume};
use brindle_ondisk::DevId;
use brindle_policy::read::{Knob, ReadSettings, RoundedUp, SettingError, SettingFacts};

/// The policy, in the kernel's syntax.
const POLICY: &str = "read_policy";
/// Counting of reads under any policy, 0 or 1.
const STATISTICS: &str = "read_statistics";
/// Counting of other processes' requests by policies that look at the devices, 0 or 1.
const HOST: &str = "read_host_stats";

impl Volume {
    /// The settings by which mirrors are chosen.
    pub fn read_settings(&self) -> ReadSettings {
        self.snapshot().choosing.settings
    }

    /// Chooses mirrors so from now on.
    pub fn set_read_settings(&self, settings: ReadSettings) {
        self.change(|pool| pool.choosing.settings = settings);
    }

    /// Chooses mirrors by the policy that a text names, as the kernel's `read_policy` takes it. What is refused changes
    /// nothing; a value that had to be rounded up is answered.
    pub fn choose_read_policy(&self, text: &str) -> Result<Option<RoundedUp>, SettingError> {
        let devids: Vec<u64> = self.devices().iter().map(|device| device.devid.get()).collect();
        let facts = SettingFacts {
            sectorsize: self.tree_context().sectorsize.into(),
            devids: &devids,
            latest_devid: self.superblock().dev_item.devid.get(),
        };
        self.change(|pool| pool.choosing.settings.choose(text, &facts))
    }

    /// A setting of reading as a text; `None` if there is none of this name.
    pub fn read_setting(&self, name: &str) -> Option<String> {
        let pool = self.snapshot();
        let settings = &pool.choosing.settings;
        match name {
            POLICY => Some(settings.to_string()),
            STATISTICS => Some(u8::from(pool.choosing.is_counted).to_string()),
            HOST => Some(u8::from(pool.choosing.asks_host).to_string()),
            _ => knob(name).map(|knob| settings.knob(knob).to_string()),
        }
    }

    /// Changes a setting of reading; `None` if there is none of this name.
    pub fn set_read_setting(&self, name: &str, value: &str) -> Option<Result<(), SettingError>> {
        match name {
            POLICY => Some(self.choose_read_policy(value).map(|rounded| {
                if let Some(RoundedUp(bytes)) = rounded {
                    tracing::warn!("{name}: '{value}' is not of whole sectors, {bytes} is taken");
                }
            })),
            STATISTICS => Some(switch(value).map(|is_on| self.set_read_statistics(is_on))),
            HOST => Some(switch(value).map(|is_on| self.set_read_host_statistics(is_on))),
            _ => {
                let knob = knob(name)?;
                Some(self.change(|pool| pool.choosing.settings.set_knob(knob, value)))
            }
        }
    }

    /// Keeps count of what readers want of the devices, whether or not the policy needs that.
    pub fn set_read_statistics(&self, is_counted: bool) {
        self.change(|pool| pool.choosing.is_counted = is_counted);
    }

    /// Adds what others want of the devices, as the host has it, to what policies know that look at what devices do.
    pub fn set_read_host_statistics(&self, is_on: bool) {
        self.change(|pool| pool.choosing.asks_host = is_on);
    }

    /// Takes the time, in nanoseconds, from here; for devices that are modelled.
    pub fn set_read_clock(&self, now: impl Fn() -> u64 + Send + Sync + 'static) {
        self.change(|pool| pool.choosing.clock = Clock::new(now));
    }

    /// Reads of each device while they were counted, by devid; and true if they are counted now.
    pub fn read_statistics(&self) -> (Vec<(DevId, ReadStatistics)>, bool) {
        let pool = self.snapshot();
        let members = pool.devices.iter().filter(|device| !device.is_intruder);
        let mut all: Vec<_> = members.map(|device| (device.devid, device.load.statistics())).collect();
        all.sort_by_key(|(devid, _)| *devid);
        (all, pool.keeps_count())
    }
}

fn switch(value: &str) -> Result<bool, SettingError> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(SettingError::Value(value.to_owned())),
    }
}

fn knob(name: &str) -> Option<Knob> {
    Knob::ALL.into_iter().find(|knob| knob.name() == name)
}

//! State of devices, for all commands that list them: missing, failing, left out of writes.

use anyhow::Result;
use brindle_admin::{ControlError, Mounted};
use brindle_tree::Pool;
use brindle_uapi::message::{DEVICE_BEHIND, DEVICE_MISSING, DEVICE_STALE, text};
use brindle_volume::DeviceStatus;
use rustix::io::Errno;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The counters in the order of the format, in words.
const NAMES: [&str; 5] = ["write", "read", "flush", "corruption", "generation"];

/// The state of one device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    name: String,
    is_missing: bool,
    /// True if it has missed transactions, and is not written.
    is_stale: bool,
    /// True if it lacks writes that it failed to take.
    is_behind: bool,
    /// Error counters since they were reset; `None` where they can't be had.
    counters: Option<[u64; 5]>,
}

/// The state of all devices, by their ids.
pub(crate) type AllHealth = BTreeMap<u64, Health>;

/// The state of the devices of a mounted pool, of the kernel's or of brindle's.
pub(crate) fn of_mounted(mounted: &Mounted) -> Result<AllHealth, ControlError> {
    let mut all = AllHealth::new();
    for info in mounted.device_infos()? {
        let name = String::from_utf8_lossy(text(&info.path)).into_owned();
        let counters = match mounted.device_statistics(info.devid, false) {
            Ok(counters) => Some(counters),
            // The kernel has none of a device that is missing.
            Err(ControlError::Refused { source: Errno::NODEV, .. }) => None,
            Err(error) => return Err(error),
        };
        let is_missing = name.is_empty() || mounted.is_missing(info.devid)?;
        all.insert(info.devid, Health { name, is_missing, counters, ..Health::default() });
    }
    if !mounted.is_of_kernel() {
        for device in mounted.space()?.devices {
            let health = all.entry(device.devid).or_default();
            health.is_missing |= device.state & DEVICE_MISSING != 0;
            health.is_stale = device.state & DEVICE_STALE != 0;
            health.is_behind = device.state & DEVICE_BEHIND != 0;
        }
    }
    Ok(all)
}

/// The state of the devices of a pool that is not mounted.
pub(crate) fn of_pool(pool: &Pool) -> Result<AllHealth> {
    let known = pool.device_statistics()?.into_iter();
    let health = known.map(|(device, counters)| {
        let health = Health { counters: Some(counters.values()), ..Health::of_status(&device) };
        (device.devid.get(), health)
    });
    Ok(health.collect())
}

impl Health {
    /// Without counters.
    pub(crate) fn of_status(device: &DeviceStatus) -> Self {
        Self {
            name: if device.missing { String::new() } else { device.name.clone() },
            is_missing: device.missing,
            is_stale: device.is_left_out(),
            is_behind: device.is_behind,
            counters: None,
        }
    }

    /// Returns true if the device is not there.
    pub(crate) fn is_missing(&self) -> bool {
        self.is_missing
    }

    /// Description of all that is wrong with it; `None` if nothing is.
    fn trouble(&self) -> Option<String> {
        let mut troubles = Vec::new();
        if self.is_missing {
            troubles.push("missing".to_owned());
        }
        if self.is_stale {
            troubles.push("left out of writes, for it has missed transactions".to_owned());
        }
        if self.is_behind {
            troubles.push("lacks writes that it failed to take".to_owned());
        }
        if let Some(counters) = self.counters.filter(|counters| *counters != [0; 5]) {
            let counted = NAMES.iter().zip(counters).map(|(name, count)| {
                let s = if count == 1 { "" } else { "s" };
                format!("{count} {name} error{s}")
            });
            let counted = counted.collect::<Vec<_>>().join(", ");
            troubles.push(format!("failing: {counted} since its counters were reset"));
        }
        (!troubles.is_empty()).then(|| troubles.join("; "))
    }

    /// One word, for programs.
    fn state(&self) -> &'static str {
        match self.counters {
            _ if self.is_missing => "missing",
            _ if self.is_stale => "left_out",
            _ if self.is_behind => "failing",
            Some(counters) if counters != [0; 5] => "failing",
            _ => "ok",
        }
    }

    /// JSON form.
    pub(crate) fn json(&self) -> Value {
        let mut value = json!({ "state": self.state(), "behind": self.is_behind });
        for (index, name) in NAMES.iter().enumerate() {
            value[format!("{name}_errors")] = self.counters.map(|counters| counters[index]).into();
        }
        value
    }
}

/// Names each device with which something is wrong, a line each.
pub(crate) fn print(out: &mut dyn Write, all: &AllHealth, indent: &str) -> io::Result<()> {
    for (devid, health) in all {
        let Some(trouble) = health.trouble() else { continue };
        match health.name.as_str() {
            "" => writeln!(out, "{indent}devid {devid}: {trouble}")?,
            name => writeln!(out, "{indent}devid {devid} ({name}): {trouble}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(health: Health) -> String {
        let mut out = Vec::new();
        print(&mut out, &AllHealth::from([(2, health)]), "").expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn devices_in_trouble_are_named_and_no_others() {
        let sound = Health { name: "/dev/sdb".to_owned(), counters: Some([0; 5]), ..Health::default() };
        assert_eq!((printed(sound.clone()).as_str(), sound.state()), ("", "ok"));
        let failing = Health { counters: Some([7, 0, 1, 0, 0]), ..sound.clone() };
        assert_eq!(
            printed(failing.clone()),
            "devid 2 (/dev/sdb): failing: 7 write errors, 0 read errors, 1 flush error, 0 corruption errors, 0 generation \
             errors since its counters were reset\n"
        );
        assert_eq!((failing.state(), &failing.json()["write_errors"]), ("failing", &json!(7)));
        let missing = Health { is_missing: true, ..Health::default() };
        assert_eq!((printed(missing.clone()).as_str(), missing.state()), ("devid 2: missing\n", "missing"));
        assert_eq!(missing.json()["write_errors"], Value::Null);
        let stale = Health { is_stale: true, ..sound };
        assert!(printed(stale.clone()).contains("left out of writes"));
        assert_eq!(stale.state(), "left_out");
    }
}

//! Read policies by name, and their values, in the syntax of the kernel's `read_policy`.

use std::fmt;

/// Policy that chooses one of several fit mirrors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReadPolicy {
    /// The mirror given by the address alone, flash before disks: for tools that read a pool once. It has no name in
    /// the settings.
    #[default]
    Runs,
    /// The mirror given by the reading process.
    Pid,
    /// The next mirror after a number of bytes.
    RoundRobin,
    /// A certain device.
    Devid,
    /// The first mirror whose queue is not full, with a penalty for mirrors that would have to seek.
    LoadRoundRobin,
    /// The mirror with the lowest recent latency.
    Latency,
    /// The mirror with the fewest requests in its queue.
    Queue,
    /// The mirror expected to answer first.
    Auto,
}

impl ReadPolicy {
    /// Policies that have a name, in the order in which they are shown.
    pub const NAMED: [Self; 7] = [
        Self::Pid,
        Self::RoundRobin,
        Self::Devid,
        Self::LoadRoundRobin,
        Self::Latency,
        Self::Queue,
        Self::Auto,
    ];

    /// Its name; the first three are the kernel's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Pid => "pid",
            Self::RoundRobin => "round-robin",
            Self::Devid => "devid",
            Self::LoadRoundRobin => "roundrobin",
            Self::Latency => "latency",
            Self::Queue => "queue",
            Self::Auto => "auto",
        }
    }

    /// Returns true if it chooses by the load of the devices, which then must be measured.
    pub const fn needs_load(self) -> bool {
        matches!(self, Self::LoadRoundRobin | Self::Latency | Self::Queue | Self::Auto)
    }

    /// Returns true if two reads of the same bytes may go to different mirrors: a prefetch must then remember its
    /// mirror.
    pub const fn is_fickle(self) -> bool {
        self.needs_load() || matches!(self, Self::RoundRobin)
    }
}

/// A number of the policy `roundrobin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    /// 1 if penalties count only on pools with both kinds of devices.
    MixedOnly,
    /// Penalty in requests for a rotating device that would have to seek.
    Rotating,
    /// Penalty in requests for any other device.
    NonRotating,
}

impl Knob {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::MixedOnly, Self::Rotating, Self::NonRotating];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MixedOnly => "roundrobin_nonlocal_inc_mixed_only",
            Self::Rotating => "roundrobin_rot_nonlocal_inc",
            Self::NonRotating => "roundrobin_nonrot_nonlocal_inc",
        }
    }
}

/// The active policy, and the values of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSettings {
    /// The policy that chooses.
    pub active: ReadPolicy,
    /// After how many bytes `round-robin` turns to the next mirror.
    pub min_contig_bytes: u64,
    /// The device of `devid`; 0 until one is set.
    pub devid: u64,
    pub(super) mixed_only: u32,
    pub(super) rotating_increment: u32,
    pub(super) nonrotating_increment: u32,
}

/// Facts that bound a setting and give its default.
#[derive(Clone, Copy, Debug)]
pub struct SettingFacts<'a> {
    /// Bytes of a sector.
    pub sectorsize: u64,
    /// The devices of the pool.
    pub devids: &'a [u64],
    /// The device of the latest superblock.
    pub latest_devid: u64,
}

/// A value is no multiple of a sector, and was rounded up to this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundedUp(pub u64);

/// Reason for refusing a setting; in the kernel, all are `EINVAL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingError {
    /// No such policy.
    Unknown(String),
    /// Not a number greater than 0, with or without a suffix.
    Value(String),
    /// This policy has no value.
    NeedsNone(ReadPolicy),
    /// The pool has no such device.
    NoDevice(u64),
}

impl std::error::Error for SettingError {}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => {
                let names = ReadPolicy::NAMED.map(ReadPolicy::name).join(", ");
                write!(f, "'{name}' is no read policy; there are {names}")
            }
            Self::Value(value) => write!(f, "'{value}' is not a number that can be set here"),
            Self::NeedsNone(policy) => write!(f, "the read policy {} takes no value", policy.name()),
            Self::NoDevice(devid) => write!(f, "the pool has no device {devid}"),
        }
    }
}

impl Default for ReadSettings {
    fn default() -> Self {
        Self {
            active: ReadPolicy::default(),
            min_contig_bytes: 256 << 10,
            devid: 0,
            mixed_only: 1,
            rotating_increment: 1,
            nonrotating_increment: 0,
        }
    }
}

impl ReadSettings {
    /// The defaults, with this policy.
    pub fn of(active: ReadPolicy) -> Self {
        Self { active, ..Self::default() }
    }

    /// Makes a policy the active one, as `NAME` or `NAME:VALUE` says; without a value, a policy that has one gets its
    /// default. What is refused changes nothing.
    pub fn choose(
        &mut self,
        text: &str,
        facts: &SettingFacts<'_>,
    ) -> Result<Option<RoundedUp>, SettingError> {
        let text = text.trim();
        let (name, value) = match text.split_once(':') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let found = ReadPolicy::NAMED.into_iter().find(|policy| policy.name() == name);
        let policy = found.ok_or_else(|| SettingError::Unknown(name.to_owned()))?;
        let number = value.map(|value| {
            let number = parse_size(value).filter(|number| *number > 0);
            number.ok_or_else(|| SettingError::Value(value.to_owned()))
        });
        let number = number.transpose()?;
        let mut rounded = None;
        match (policy, number) {
            (ReadPolicy::RoundRobin, number) => {
                let bytes = number.unwrap_or(Self::default().min_contig_bytes);
                let whole = bytes.checked_next_multiple_of(facts.sectorsize.max(1));
                let whole = whole.ok_or_else(|| SettingError::Value(value.unwrap_or_default().to_owned()))?;
                rounded = (whole != bytes).then_some(RoundedUp(whole));
                self.min_contig_bytes = whole;
            }
            (ReadPolicy::Devid, number) => {
                let devid = number.unwrap_or(facts.latest_devid);
                if !facts.devids.contains(&devid) {
                    return Err(SettingError::NoDevice(devid));
                }
                self.devid = devid;
            }
            (_, None) => {}
            (policy, Some(_)) => return Err(SettingError::NeedsNone(policy)),
        }
        self.active = policy;
        Ok(rounded)
    }

    /// A number of `roundrobin`.
    pub fn knob(&self, knob: Knob) -> u32 {
        match knob {
            Knob::MixedOnly => self.mixed_only,
            Knob::Rotating => self.rotating_increment,
            Knob::NonRotating => self.nonrotating_increment,
        }
    }

    /// Changes a number of `roundrobin`: 0 or 1 where it says yes or no.
    pub fn set_knob(&mut self, knob: Knob, value: &str) -> Result<(), SettingError> {
        let number: Option<u32> = value.trim().parse().ok();
        let refuse = || SettingError::Value(value.to_owned());
        let number = number.filter(|n| knob != Knob::MixedOnly || *n <= 1).ok_or_else(refuse)?;
        match knob {
            Knob::MixedOnly => self.mixed_only = number,
            Knob::Rotating => self.rotating_increment = number,
            Knob::NonRotating => self.nonrotating_increment = number,
        }
        Ok(())
    }

    /// Penalty on the load of a device that would have to seek.
    pub fn penalty(&self, rotating: bool, is_mixed: bool) -> u32 {
        match (self.mixed_only != 0 && !is_mixed, rotating) {
            (true, _) => 0,
            (false, true) => self.rotating_increment,
            (false, false) => self.nonrotating_increment,
        }
    }
}

/// All policies, the active one in brackets, values behind a colon: what the kernel shows.
impl fmt::Display for ReadSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, policy) in ReadPolicy::NAMED.into_iter().enumerate() {
            let name = policy.name();
            let text = match policy {
                ReadPolicy::RoundRobin => format!("{name}:{}", self.min_contig_bytes),
                ReadPolicy::Devid => format!("{name}:{}", self.devid),
                _ => name.to_owned(),
            };
            let space = if index == 0 { "" } else { " " };
            if policy == self.active { write!(f, "{space}[{text}]")? } else { write!(f, "{space}{text}")? }
        }
        Ok(())
    }
}

/// A number as the kernel takes sizes: decimal, octal after 0, hexadecimal after 0x, and one of K, M, G, T, P, E.
fn parse_size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.char_indices().next_back()? {
        (at, suffix) if !text.starts_with("0x") || !suffix.is_ascii_hexdigit() => {
            let power = "KMGTPE".find(suffix.to_ascii_uppercase());
            power.map_or((text, 0), |power| (&text[..at], 10 * (power + 1)))
        }
        _ => (text, 0),
    };
    let is_number = digits.starts_with(|first: char| first.is_ascii_digit()) && !digits.contains('+');
    let number = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None if digits.len() > 1 && digits.starts_with('0') => u64::from_str_radix(digits, 8),
        None => digits.parse(),
    };
    let number = number.ok().filter(|_| is_number)?;
    number.checked_mul(1 << shift)
}

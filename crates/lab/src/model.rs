//! Models of drives: presets, and the line by which one is chosen and changed, such as `hdd,rpm=5400,wcache=8m`.

use brindle_sim::{Drive, HardDisk, HardDiskParameters, ShingleParameters, Solid, SolidParameters};
use std::fmt;
use thiserror::Error;

/// A drive that is modelled from the start.
#[derive(Debug)]
pub struct Preset {
    /// Name in a model line.
    pub name: &'static str,
    /// Name of the one drive that its figures are of, which a model line may give in place of the name.
    pub drive: Option<&'static str>,
    /// The kind of drive.
    pub title: &'static str,
    /// Origin of its figures.
    pub source: &'static str,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes that it holds without a flush.
    pub write_cache_bytes: u64,
    /// Time that FUSE and a loop device take, by which its latencies are shortened.
    transport_ns: u64,
    kind: fn() -> Kind,
}

/// A model: a preset, and changes to it.
#[derive(Clone, Debug)]
pub struct Model {
    preset: &'static Preset,
    changes: String,
    size_bytes: u64,
    write_cache_bytes: u64,
    transport_ns: u64,
    kind: Kind,
}

/// Parameters, by the kind of drive.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Rotating(HardDiskParameters),
    Solid(SolidParameters),
}

/// A parameter that a model line can set.
#[derive(Debug)]
pub struct Key {
    /// Name in a model line.
    pub name: &'static str,
    /// Unit of its value.
    pub unit: &'static str,
    /// Meaning.
    pub about: &'static str,
    /// Nanoseconds, bytes, or 1, that a value of 1 stands for.
    factor: u64,
    /// Least and greatest value.
    range: (u64, u64),
    /// Sets it; false if this kind of drive does not have it.
    set: fn(&mut Model, u64) -> bool,
}

/// Reason for which a model line is not one.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ModelError {
    /// No preset.
    #[error("there is no model \"{0}\"; there are {names}", names = names(PRESETS.iter().map(|preset| preset.name)))]
    NoPreset(String),
    /// No parameter.
    #[error("{0} is no parameter of a model; there are {names}", names = names(KEYS.iter().map(|key| key.name)))]
    NoKey(String),
    /// A parameter of other drives.
    #[error("a drive of model {model} has no {key}")]
    NotOfThis {
        /// Name of the preset.
        model: &'static str,
        /// Name of the parameter.
        key: &'static str,
    },
    /// A value that is none.
    #[error("{word}: {key} is a number of {unit} from {least} to {most}")]
    Value {
        /// The word.
        word: String,
        /// Name of the parameter.
        key: &'static str,
        /// Its unit.
        unit: &'static str,
        /// Least value.
        least: u64,
        /// Greatest value.
        most: u64,
    },
}

fn names<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const US: u64 = 1_000;
const SECOND: u64 = 1_000_000_000;

/// Presets.
pub static PRESETS: [Preset; 7] = [
    Preset {
        name: "hdd",
        drive: None,
        title: "hard disk, 2 TB, 7200 rpm",
        source: "published figures of 7200 rpm desktop disks: 220 to 106 MB/s, 13 ms for a random read; reviews of \
                 Seagate Barracuda XT and ST2000DM008 (without its shingled writes: see smr)",
        size_bytes: 2_000_398_934_016,
        write_cache_bytes: 64 * MIB,
        transport_ns: 0,
        kind: || Kind::Rotating(HardDiskParameters::default()),
    },
    Preset {
        name: "old-hdd",
        drive: None,
        title: "hard disk, 250 GB, 7200 rpm, about 2005",
        source: "data sheets of 250 GB desktop disks: 115 to 58 MB/s, 9 ms average seek; for sensitivity",
        size_bytes: 250_059_350_016,
        write_cache_bytes: 8 * MIB,
        transport_ns: 0,
        kind: || Kind::Rotating(HardDiskParameters::old()),
    },
    Preset {
        name: "smr",
        drive: Some("st8000as0002"),
        title: "shingled hard disk that manages its bands itself, 8 TB, 5900 rpm",
        source: "Seagate Archive HDD ST8000AS0002, data sheet: 190 MB/s at most, 150 on average, 12 ms average seek, \
                 128 MiB; Aghayev and Desnoyers, Skylight, FAST '15: persistent cache of 25 GB with a map of 250000 ranges \
                 at the outer edge, bands of 15 to 40 MiB (30 here), each rewritten in 0.6 to 1.6 s, oldest writes first; \
                 idle times and the size of an append are assumed",
        size_bytes: 8_001_563_222_016,
        write_cache_bytes: 128 * MIB,
        transport_ns: 0,
        kind: || Kind::Rotating(HardDiskParameters::shingled()),
    },
    Preset {
        name: "ssd",
        drive: Some("m550"),
        title: "SATA SSD, 256 GB",
        source: "Crucial M550 256 GB: 550 and 500 MB/s, 90 and 80 k IOPS; its flush of 1 ms is assumed (0.5 to 2 ms \
                 are known)",
        size_bytes: 256_060_514_304,
        write_cache_bytes: 8 * MIB,
        transport_ns: 17 * US,
        kind: || Kind::Solid(SolidParameters::sata()),
    },
    Preset {
        name: "ssd-plp",
        drive: Some("s3700"),
        title: "SATA SSD with power-loss protection, 400 GB",
        source: "Intel DC S3700 400 GB, product specification: 500 and 460 MB/s, 75 k IOPS, 50 and 65 us; capacitors keep \
                 what it has taken, so a flush is a command (assumed: 50 us); its limit of 36 k random writes a second is \
                 not modelled",
        size_bytes: 400_088_457_216,
        write_cache_bytes: 0,
        transport_ns: 17 * US,
        kind: || {
            Kind::Solid(SolidParameters {
                read_bytes_per_second: 500_000_000,
                write_bytes_per_second: 460_000_000,
                read_ns: 50 * US,
                write_ns: 65 * US,
                commands_per_second: 75_000,
                flush_ns: 50 * US,
                ..SolidParameters::sata()
            })
        },
    },
    Preset {
        name: "nvme",
        drive: None,
        title: "NVMe SSD, 512 GB",
        source: "data sheets of PCIe 3 drives: 3.0 and 2.0 GB/s, 70 us for a read; through FUSE and a loop device it \
                 ends at about 100 k IOPS",
        size_bytes: 512_110_190_592,
        write_cache_bytes: 32 * MIB,
        transport_ns: 15 * US,
        kind: || Kind::Solid(SolidParameters::nvme()),
    },
    Preset {
        name: "nvme-consumer",
        drive: Some("samsung-980"),
        title: "NVMe SSD without power-loss protection, 500 GB",
        source: "Samsung 980 500 GB, data sheet: 3.1 and 2.6 GB/s, 17 k and 54 k IOPS one at a time; 511 to 574 synced writes \
                 of 4 KiB a second in a published run of fio, so a flush of 1.75 ms",
        size_bytes: 500_107_862_016,
        write_cache_bytes: 32 * MIB,
        transport_ns: 15 * US,
        kind: || {
            Kind::Solid(SolidParameters {
                read_bytes_per_second: 3_100_000_000,
                write_bytes_per_second: 2_600_000_000,
                read_ns: 57 * US,
                write_ns: 17 * US,
                flush_ns: 1_750 * US,
                ..SolidParameters::nvme()
            })
        },
    },
];

/// Sets a parameter of a hard disk.
macro_rules! rotating {
    ($field:ident) => {
        |model, value| model.rotating().map(|disk| disk.$field = value).is_some()
    };
}

/// Sets a parameter of a shingled disk.
macro_rules! shingled {
    ($field:ident) => {
        |model, value| model.shingles().map(|shingles| shingles.$field = value).is_some()
    };
}

/// Sets a parameter of a drive without platters.
macro_rules! solid {
    ($field:ident) => {
        |model, value| model.solid().map(|drive| drive.$field = value).is_some()
    };
}

const fn key(
    (name, unit, factor): (&'static str, &'static str, u64),
    range: (u64, u64),
    about: &'static str,
    set: fn(&mut Model, u64) -> bool,
) -> Key {
    Key { name, unit, about, factor, range, set }
}

const BYTES_MAX: u64 = 1 << 40;
const US_MAX: u64 = 10_000_000;
const SECONDS_MAX: u64 = 1_000_000;

/// Parameters that a model line can set.
pub static KEYS: [Key; 24] = [
    key(
        ("wcache", "bytes", 1),
        (0, BYTES_MAX),
        "write cache; 0 for a drive that loses nothing",
        |model, bytes| {
            model.write_cache_bytes = bytes;
            model.rotating().into_iter().for_each(|disk| disk.write_cache_bytes = bytes);
            true
        },
    ),
    key(
        ("rpm", "revolutions a minute", 1),
        (100, 100_000),
        "rotation speed",
        rotating!(revolutions_per_minute),
    ),
    key(
        ("outer", "bytes a second", 1),
        (MIB, BYTES_MAX),
        "throughput at the outer edge",
        rotating!(outer_bytes_per_second),
    ),
    key(
        ("inner", "bytes a second", 1),
        (MIB, BYTES_MAX),
        "throughput at the inner edge",
        rotating!(inner_bytes_per_second),
    ),
    key(("seek", "us", US), (1, US_MAX), "seek over a third of all tracks", |model, ns| {
        model.rotating().map(|disk| disk.seek_ns[1] = ns).is_some()
    }),
    key(("settle", "us", US), (0, US_MAX), "additional time of a write", rotating!(write_settle_ns)),
    key(("depth", "requests", 1), (1, 1024), "requests that it chooses from", |model, depth| {
        let depth = usize::try_from(depth).unwrap_or(1);
        model.rotating().map(|disk| disk.queue_depth = depth).is_some()
    }),
    key(("ahead", "bytes", 1), (0, 1 << 30), "bytes read ahead while idle", rotating!(look_ahead_bytes)),
    key(
        ("spindown", "seconds", SECOND),
        (0, SECONDS_MAX),
        "idle time after which the platters stop; 0 for never",
        |model, ns| model.rotating().map(|disk| disk.spin_down_ns = Some(ns).filter(|ns| *ns > 0)).is_some(),
    ),
    key(
        ("spinup", "seconds", SECOND),
        (0, SECONDS_MAX),
        "time that they take to start",
        rotating!(spin_up_ns),
    ),
    key(
        ("band", "bytes", 1),
        (MIB, 1 << 30),
        "band of shingled tracks, which is rewritten whole",
        shingled!(band_bytes),
    ),
    key(
        ("pcache", "bytes", 1),
        (16 * MIB, BYTES_MAX),
        "persistent cache of a shingled disk",
        shingled!(cache_bytes),
    ),
    key(
        ("pmap", "ranges", 1),
        (16, 1 << 24),
        "ranges that the persistent cache can hold",
        |model, ranges| {
            let ranges = usize::try_from(ranges).unwrap_or(usize::MAX);
            model.shingles().map(|shingles| shingles.map_entries = ranges).is_some()
        },
    ),
    key(
        ("clean", "seconds", SECOND),
        (0, SECONDS_MAX),
        "idle time after which a shingled disk rewrites bands",
        shingled!(clean_idle_ns),
    ),
    key(("read", "us", US), (0, US_MAX), "latency of a read", solid!(read_ns)),
    key(
        ("sread", "us", US),
        (0, US_MAX),
        "latency of a read that follows the last one",
        solid!(sequential_read_ns),
    ),
    key(("write", "us", US), (0, US_MAX), "latency of a write", solid!(write_ns)),
    key(("flush", "us", US), (0, US_MAX), "flush after writes", solid!(flush_ns)),
    key(("cflush", "us", US), (0, US_MAX), "flush without writes", solid!(clean_flush_ns)),
    key(
        ("rrate", "bytes a second", 1),
        (MIB, BYTES_MAX),
        "throughput of reads",
        solid!(read_bytes_per_second),
    ),
    key(
        ("wrate", "bytes a second", 1),
        (MIB, BYTES_MAX),
        "throughput of writes",
        solid!(write_bytes_per_second),
    ),
    key(("iops", "commands a second", 1), (1, 100_000_000), "commands a second", solid!(commands_per_second)),
    key(("channels", "channels", 1), (1, 1024), "channels that work side by side", |model, channels| {
        let channels = usize::try_from(channels).unwrap_or(1);
        model.solid().map(|drive| drive.channels = channels).is_some()
    }),
    key(
        ("transport", "us", US),
        (0, US_MAX),
        "time of FUSE and loop, by which latencies are shortened",
        |model, ns| {
            model.transport_ns = ns;
            true
        },
    ),
];

impl Model {
    /// Reads a model line.
    ///
    /// # Errors
    /// [`ModelError`], which names the word and the words that there are.
    pub fn parse(line: &str) -> Result<Self, ModelError> {
        let (name, changes) = line.split_once(',').unwrap_or((line, ""));
        let preset = PRESETS.iter().find(|preset| preset.name == name || preset.drive == Some(name));
        let preset = preset.ok_or_else(|| ModelError::NoPreset(name.to_owned()))?;
        let mut model = Self::of(preset);
        changes.split(',').filter(|word| !word.is_empty()).try_for_each(|word| model.set(word))?;
        model.changes = changes.to_owned();
        Ok(model)
    }

    fn of(preset: &'static Preset) -> Self {
        let Preset { size_bytes, write_cache_bytes, transport_ns, kind, .. } = *preset;
        Self { preset, changes: String::new(), size_bytes, write_cache_bytes, transport_ns, kind: kind() }
    }

    fn set(&mut self, word: &str) -> Result<(), ModelError> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let key = KEYS.iter().find(|key| key.name == name);
        let key = key.ok_or_else(|| ModelError::NoKey(name.to_owned()))?;
        let (least, most) = key.range;
        let refused =
            || ModelError::Value { word: word.to_owned(), key: key.name, unit: key.unit, least, most };
        let value = parse_number(value).filter(|value| (least..=most).contains(value)).ok_or_else(refused)?;
        if !(key.set)(self, value * key.factor) {
            return Err(ModelError::NotOfThis { model: self.preset.name, key: key.name });
        }
        Ok(())
    }

    /// The preset.
    pub fn preset(&self) -> &'static Preset {
        self.preset
    }

    /// Size of the preset, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Bytes that it holds without a flush.
    pub fn write_cache_bytes(&self) -> u64 {
        self.write_cache_bytes
    }

    /// Returns true if it has platters.
    pub fn is_rotating(&self) -> bool {
        matches!(self.kind, Kind::Rotating(_))
    }

    /// A new drive of this model, on the first bytes of which a disk of `size_bytes` lies. A disk that is smaller than
    /// its model's is on the outer tracks, as a partition would be; one that is larger has more of them.
    pub fn drive(&self, size_bytes: u64) -> Drive {
        let less = |ns: u64| ns.saturating_sub(self.transport_ns);
        match self.kind {
            Kind::Rotating(parameters) => {
                let size_bytes = size_bytes.max(parameters.size_bytes);
                let command_ns = less(parameters.command_ns);
                let parameters = HardDiskParameters { size_bytes, command_ns, ..parameters };
                Drive::HardDisk(Box::new(HardDisk::new(parameters)))
            }
            Kind::Solid(parameters) => Drive::Solid(Box::new(Solid::new(SolidParameters {
                read_ns: less(parameters.read_ns),
                sequential_read_ns: less(parameters.sequential_read_ns),
                write_ns: less(parameters.write_ns),
                flush_ns: less(parameters.flush_ns),
                clean_flush_ns: less(parameters.clean_flush_ns),
                ..parameters
            }))),
        }
    }

    fn rotating(&mut self) -> Option<&mut HardDiskParameters> {
        if let Kind::Rotating(parameters) = &mut self.kind { Some(parameters) } else { None }
    }

    fn shingles(&mut self) -> Option<&mut ShingleParameters> {
        self.rotating()?.shingles.as_mut()
    }

    fn solid(&mut self) -> Option<&mut SolidParameters> {
        if let Kind::Solid(parameters) = &mut self.kind { Some(parameters) } else { None }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.preset.name)?;
        if self.changes.is_empty() { Ok(()) } else { write!(f, ",{}", self.changes) }
    }
}

/// A number with a suffix of base 1024, if it has one.
fn parse_number(word: &str) -> Option<u64> {
    let (digits, factor) = match word.as_bytes().last()? {
        b'k' | b'K' => (&word[..word.len() - 1], KIB),
        b'm' | b'M' => (&word[..word.len() - 1], MIB),
        b'g' | b'G' => (&word[..word.len() - 1], KIB * MIB),
        _ => (word, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_sim::{DriveRequest, DriveRequestKind};

    #[test]
    fn drives_are_known_by_their_own_names() {
        let named: Vec<_> = PRESETS.iter().filter_map(|preset| Some((preset.drive?, preset.name))).collect();
        assert_eq!(named.len(), 4);
        for (drive, name) in named {
            let model = Model::parse(&format!("{drive},wcache=1m")).expect("a model");
            assert_eq!(model.to_string(), format!("{name},wcache=1m"));
        }
    }

    /// Time of one request, in nanoseconds.
    fn time_of(line: &str, kind: DriveRequestKind) -> u64 {
        let model = Model::parse(line).unwrap_or_else(|error| panic!("{error}"));
        let mut drive = model.drive(model.size_bytes());
        drive.submit(DriveRequest { id: 1, kind, at_ns: 0 });
        let mut answered = Vec::new();
        for _ in 0..1000 {
            if let Some(first) = answered.pop() {
                let brindle_sim::Completion { at_ns, .. } = first;
                return at_ns;
            }
            drive.advance(drive.next_event_ns().expect("it is at work"), &mut answered);
        }
        panic!("no answer");
    }

    const FAR: DriveRequestKind = DriveRequestKind::Read(1 << 37, 4096);

    #[test]
    fn model_line_is_a_preset_with_changes() {
        for preset in &PRESETS {
            let model = Model::parse(preset.name).expect("a preset");
            assert_eq!((model.to_string(), model.size_bytes()), (preset.name.to_owned(), preset.size_bytes));
        }
        let model = Model::parse("hdd,rpm=5400,wcache=8m").expect("as in the manual");
        assert_eq!(
            (model.write_cache_bytes(), model.to_string().as_str()),
            (8 << 20, "hdd,rpm=5400,wcache=8m")
        );
        assert!(time_of("hdd,spindown=0", FAR) < 100_000_000);
        assert!(time_of("hdd,seek=400000", FAR) > 150_000_000);
        let (plain, slow) = (time_of("ssd,transport=0", FAR), time_of("ssd,transport=0,read=5000", FAR));
        assert_eq!((slow - plain, plain - time_of("ssd", FAR)), (4_920_000, 17_000));
    }

    #[test]
    fn each_parameter_is_taken_at_its_bounds_by_a_drive_that_works() {
        for key in &KEYS {
            let mut taken = 0;
            for preset in &PRESETS {
                for value in [key.range.0, key.range.1] {
                    let line = format!("{},{}={value}", preset.name, key.name);
                    match Model::parse(&line) {
                        Ok(_) => taken += usize::from(time_of(&line, FAR) > 0),
                        Err(error) => {
                            let expected = ModelError::NotOfThis { model: preset.name, key: key.name };
                            assert_eq!(error, expected, "{line}");
                        }
                    }
                }
            }
            assert!(taken >= 2, "{}", key.name);
        }
    }

    #[test]
    fn errors_name_the_word_and_the_choice() {
        let said = |line: &str| Model::parse(line).expect_err("wrong").to_string();
        assert_eq!(
            said("floppy"),
            "there is no model \"floppy\"; there are hdd, old-hdd, smr, ssd, ssd-plp, nvme, nvme-consumer"
        );
        assert!(said("hdd,rmp=5").starts_with("rmp is no parameter of a model; there are wcache, rpm, "));
        assert_eq!(said("ssd,rpm=5400"), "a drive of model ssd has no rpm");
        assert_eq!(said("hdd,band=30m"), "a drive of model hdd has no band");
        let range = "rpm is a number of revolutions a minute from 100 to 100000";
        for word in ["rpm=5", "rpm=fast", "rpm", "rpm=", "rpm=99999999999999999999g"] {
            assert_eq!(said(&format!("hdd,{word}")), format!("{word}: {range}"));
        }
    }
}

//! Sizes, as btrfs-progs writes them.

use clap::{ArgAction, Args};

/// Format of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitMode {
    /// Plain numbers of bytes.
    Raw,
    /// The unit that fits, two decimals.
    Human(Base),
    /// One unit for all: the base to this power.
    Fixed(Base, usize),
}

/// Base of the units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// 1024: KiB, MiB.
    Binary,
    /// 1000: kB, MB.
    Decimal,
}

impl Base {
    fn value(self) -> u64 {
        match self {
            Self::Binary => 1024,
            Self::Decimal => 1000,
        }
    }

    fn names(self) -> &'static [&'static str; 7] {
        match self {
            Self::Binary => &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"],
            Self::Decimal => &["B", "kB", "MB", "GB", "TB", "PB", "EB"],
        }
    }

    /// A size of whole units of the power below, in this one: btrfs-progs divide by the base until less is left, and have the
    /// last step in a `float`.
    fn write_from(self, units_below: u64, power: usize) -> String {
        #[expect(
            clippy::cast_precision_loss,
            reason = "less than the square of the base, which a `f32` holds"
        )]
        let value = f64::from(units_below as f32 / self.value() as f32);
        format!("{value:.2}{}", self.names()[power])
    }

    /// `bytes` in the unit that is the base to this power.
    fn write(self, bytes: u64, power: usize) -> String {
        let mut divisor = 1u128;
        for _ in 0..power {
            divisor *= u128::from(self.value());
        }
        // Hundredths, rounded half to even, as printf does; 64 bits times 100 fit 128 with room to spare.
        let scaled = u128::from(bytes) * 100;
        let (whole, rest) = (scaled / divisor, 2 * (scaled % divisor));
        let is_up = rest > divisor || (rest == divisor && whole % 2 == 1);
        let hundredths = whole + u128::from(is_up);
        format!("{}.{:02}{}", hundredths / 100, hundredths % 100, self.names()[power])
    }
}

impl UnitMode {
    /// Default of btrfs-progs.
    pub(crate) const DEFAULT: Self = Self::Human(Base::Binary);

    /// `bytes` as text.
    pub(crate) fn format(self, bytes: u64) -> String {
        match self {
            Self::Raw => bytes.to_string(),
            Self::Human(base) => {
                let (mut power, mut rest, mut above) = (0, bytes, bytes);
                while rest >= base.value() {
                    above = rest;
                    rest /= base.value();
                    power += 1;
                }
                match power {
                    0 => base.write(bytes, 0),
                    power => base.write_from(above, power),
                }
            }
            Self::Fixed(base, power) => base.write(bytes, power),
        }
    }
}

/// The options that choose a unit, the same as those of btrfs-progs.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Units")]
pub(crate) struct UnitOptions {
    /// Sizes in bytes
    #[arg(long)]
    raw: bool,
    /// Sizes in the unit that fits, base 1024 (the default)
    #[arg(long)]
    human_readable: bool,
    /// Base 1024: KiB, MiB, GiB, TiB
    #[arg(long)]
    iec: bool,
    /// Base 1000: kB, MB, GB, TB
    #[arg(long)]
    si: bool,
    /// Sizes in KiB, or kB with --si
    #[arg(long)]
    kbytes: bool,
    /// Sizes in MiB, or MB with --si
    #[arg(long)]
    mbytes: bool,
    /// Sizes in GiB, or GB with --si
    #[arg(long)]
    gbytes: bool,
    /// Sizes in TiB, or TB with --si
    #[arg(long)]
    tbytes: bool,
}

impl UnitOptions {
    /// The mode that the options ask for; the largest unit wins.
    pub(crate) fn mode(self) -> UnitMode {
        let base = if self.si && !self.iec { Base::Decimal } else { Base::Binary };
        let fixed = [self.kbytes, self.mbytes, self.gbytes, self.tbytes];
        match fixed.iter().rposition(|wanted| *wanted) {
            Some(position) => UnitMode::Fixed(base, position + 1),
            None if self.raw && !self.human_readable => UnitMode::Raw,
            None => UnitMode::Human(base),
        }
    }
}

/// The same with the letters that btrfs-progs has where `-h` is no help.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Units")]
pub(crate) struct ShortUnits {
    /// Sizes in bytes
    #[arg(short = 'b', long)]
    raw: bool,
    /// Sizes in the unit that fits, base 1024 (the default)
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Sizes in the unit that fits, base 1000
    #[arg(short = 'H')]
    human_decimal: bool,
    /// Base 1024: KiB, MiB, GiB, TiB
    #[arg(long)]
    iec: bool,
    /// Base 1000: kB, MB, GB, TB
    #[arg(long)]
    si: bool,
    /// Sizes in KiB, or kB with --si
    #[arg(short, long)]
    kbytes: bool,
    /// Sizes in MiB, or MB with --si
    #[arg(short, long)]
    mbytes: bool,
    /// Sizes in GiB, or GB with --si
    #[arg(short, long)]
    gbytes: bool,
    /// Sizes in TiB, or TB with --si
    #[arg(short, long)]
    tbytes: bool,
    /// Print help
    #[arg(long, action = ArgAction::HelpLong, help_heading = "Global options")]
    help: Option<bool>,
}

impl ShortUnits {
    /// The mode that the options ask for.
    pub(crate) fn mode(self) -> UnitMode {
        let Self { raw, human_readable, human_decimal, iec, si, kbytes, mbytes, gbytes, tbytes, .. } = self;
        let si = si || human_decimal;
        UnitOptions { raw, human_readable, iec, si, kbytes, mbytes, gbytes, tbytes }.mode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn human_sizes_are_those_of_btrfs_progs() {
        let human = UnitMode::DEFAULT;
        assert_eq!(human.format(0), "0.00B");
        assert_eq!(human.format(1023), "1023.00B");
        assert_eq!(human.format(147_456), "144.00KiB");
        assert_eq!(human.format(125_829_120), "120.00MiB");
        assert_eq!(human.format(5_368_709_120), "5.00GiB");
        assert_eq!(human.format(u64::MAX), "16.00EiB");
        assert_eq!([human.format(9 << 27), human.format(11 << 27)], ["1.12GiB", "1.38GiB"]);
    }

    #[test]
    fn decimal_and_fixed_units() {
        assert_eq!(UnitMode::Human(Base::Decimal).format(147_456), "147.46kB");
        assert_eq!(UnitMode::Human(Base::Decimal).format(3_145_728), "3.14MB");
        assert_eq!(UnitMode::Fixed(Base::Binary, 1).format(125_829_120), "122880.00KiB");
        assert_eq!(UnitMode::Fixed(Base::Binary, 4).format(125_829_120), "0.00TiB");
        assert_eq!(UnitMode::Raw.format(125_829_120), "125829120");
    }

    #[test]
    fn options_choose_the_mode() {
        let of = |options: UnitOptions| options.mode();
        assert_eq!(of(UnitOptions::default()), UnitMode::DEFAULT);
        assert_eq!(of(UnitOptions { raw: true, ..Default::default() }), UnitMode::Raw);
        let options = UnitOptions { si: true, mbytes: true, ..Default::default() };
        assert_eq!(of(options), UnitMode::Fixed(Base::Decimal, 2));
    }
}

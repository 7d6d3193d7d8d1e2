//! A balance as the pool keeps it (`BALANCE_ITEM`), which lets the next program that opens the pool go on with it.
//!
//! A stock kernel that mounts the pool goes on with a balance that it finds. It knows no filter for misplaced block
//! groups: where that is set it finds a limit of none, does nothing, and removes the item; the real limit and the mark
//! are kept in fields that it does not use.

use super::{Balance, Filter};
use brindle_ondisk::item::{BalanceArgs, BalanceItem};
use brindle_ondisk::{BlockGroupType, DevId, Profile};
use std::ops::{Range, RangeInclusive};
use zerocopy::FromZeros;
use zerocopy::little_endian::U64;

/// `BTRFS_BALANCE_ARGS_*`.
const PROFILES: u64 = 1 << 0;
const USAGE: u64 = 1 << 1;
const DEVID: u64 = 1 << 2;
const DRANGE: u64 = 1 << 3;
const VRANGE: u64 = 1 << 4;
const LIMIT: u64 = 1 << 5;
const LIMIT_RANGE: u64 = 1 << 6;
const STRIPES_RANGE: u64 = 1 << 7;
const CONVERT: u64 = 1 << 8;
const SOFT: u64 = 1 << 9;
const USAGE_RANGE: u64 = 1 << 10;
/// Stands for `single`, which has no bit of its own (`BTRFS_AVAIL_ALLOC_BIT_SINGLE`).
const SINGLE: u64 = 1 << 48;
/// Mark in the first unused field: the block groups are misplaced ones.
const MISPLACED: u64 = 0x6272_696e_646c_6501;
/// The same, and no extents of block groups that stay.
const MISPLACED_GROUPS: u64 = 0x6272_696e_646c_6502;

impl Balance {
    /// Item that the pool keeps.
    pub fn to_item(&self) -> BalanceItem {
        let args =
            |filter: &Option<Filter>| filter.as_ref().map_or_else(BalanceArgs::new_zeroed, Filter::to_args);
        let flags = self.filters().fold(BlockGroupType::empty(), |flags, (content, _)| flags | content);
        BalanceItem {
            flags: U64::new(flags.bits()),
            data: args(&self.data),
            meta: args(&self.metadata),
            sys: args(&self.system),
            unused: Default::default(),
        }
    }

    /// Balance kept in an item of the pool.
    pub fn from_item(item: &BalanceItem) -> Self {
        let is_for = |content: BlockGroupType| item.flags.get() & content.bits() != 0;
        let filter = |content, args: &BalanceArgs| is_for(content).then(|| Filter::from_args(args));
        Self {
            data: filter(BlockGroupType::DATA, &item.data),
            metadata: filter(BlockGroupType::METADATA, &item.meta),
            system: filter(BlockGroupType::SYSTEM, &item.sys),
        }
    }
}

impl Filter {
    fn to_args(&self) -> BalanceArgs {
        let mut args = BalanceArgs::new_zeroed();
        let mut flags = 0;
        if let Some(profiles) = &self.profiles {
            flags |= PROFILES;
            args.profiles.set(profiles.iter().fold(0, |bits, profile| bits | bit_of(*profile)));
        }
        if let Some(usage) = &self.usage {
            if usage.start == 0 && usage.end <= 100 {
                flags |= USAGE;
                args.usage.set(usage.end.into());
            } else {
                flags |= USAGE_RANGE;
                args.usage.set(pair(usage.start, usage.end));
            }
        }
        if let Some(devid) = self.devid {
            flags |= DEVID;
            args.devid.set(devid.get());
        }
        if let Some(range) = &self.physical {
            flags |= DRANGE;
            (args.pstart, args.pend) = (range.start.into(), range.end.into());
        }
        if let Some(range) = &self.logical {
            flags |= VRANGE;
            (args.vstart, args.vend) = (range.start.into(), range.end.into());
        }
        if let Some(limit) = &self.limit {
            flags |= LIMIT_RANGE;
            args.limit.set(pair(*limit.start(), *limit.end()));
        }
        if let Some(stripes) = &self.stripes {
            flags |= STRIPES_RANGE;
            (args.stripes_min, args.stripes_max) = ((*stripes.start()).into(), (*stripes.end()).into());
        }
        if let Some(profile) = self.convert {
            flags |= CONVERT;
            args.target.set(bit_of(profile));
        }
        if self.soft {
            flags |= SOFT;
        }
        if self.misplaced {
            args.unused[0].set(if self.groups_alone { MISPLACED_GROUPS } else { MISPLACED });
            args.unused[1].set(flags);
            args.unused[2] = args.limit;
            flags = LIMIT;
            args.limit.set(0);
        }
        args.flags.set(flags);
        args
    }

    fn from_args(args: &BalanceArgs) -> Self {
        let groups_alone = args.unused[0].get() == MISPLACED_GROUPS;
        let misplaced = groups_alone || args.unused[0].get() == MISPLACED;
        let (flags, limits) = match misplaced {
            true => (args.unused[1].get(), args.unused[2].get()),
            false => (args.flags.get(), args.limit.get()),
        };
        let has = |flag: u64| flags & flag != 0;
        let all = Profile::TABLE.iter().map(|row| row.profile);
        let profiles = |bits: u64| all.clone().filter(|profile| bits & bit_of(*profile) != 0).collect();
        Self {
            profiles: has(PROFILES).then(|| profiles(args.profiles.get())),
            usage: usage_of(args, flags),
            devid: has(DEVID).then(|| DevId::new(args.devid.get())),
            physical: has(DRANGE).then(|| args.pstart.get()..args.pend.get()),
            logical: has(VRANGE).then(|| args.vstart.get()..args.vend.get()),
            stripes: has(STRIPES_RANGE).then(|| args.stripes_min.get()..=args.stripes_max.get()),
            limit: limit_of(limits, flags),
            convert: all.clone().find(|profile| has(CONVERT) && bit_of(*profile) == args.target.get()),
            soft: has(SOFT),
            misplaced,
            groups_alone,
        }
    }
}

fn usage_of(args: &BalanceArgs, flags: u64) -> Option<Range<u32>> {
    let (low, high) = parts(args.usage.get());
    if flags & USAGE_RANGE != 0 {
        Some(low..high)
    } else if flags & USAGE != 0 {
        Some(0..u32::try_from(args.usage.get()).unwrap_or(u32::MAX))
    } else {
        None
    }
}

fn limit_of(limit: u64, flags: u64) -> Option<RangeInclusive<u32>> {
    let (low, high) = parts(limit);
    if flags & LIMIT_RANGE != 0 {
        Some(low..=high)
    } else if flags & LIMIT != 0 {
        Some(0..=u32::try_from(limit).unwrap_or(u32::MAX))
    } else {
        None
    }
}

fn bit_of(profile: Profile) -> u64 {
    match profile.attributes().flag.bits() {
        0 => SINGLE,
        bits => bits,
    }
}

/// Two numbers in one field, the lower one first.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn parts(pair: u64) -> (u32, u32) {
    let low = u32::try_from(pair & u64::from(u32::MAX)).expect("32 bits");
    (low, u32::try_from(pair >> 32).expect("32 bits"))
}

//! Shortages of devices: why a pool can't lie any better than it does. None of them is a failure.

use super::{Content, TierPool};
use crate::placement::{Fit, PlacementClass};
use brindle_ondisk::Profile;
use std::collections::BTreeMap;
use std::fmt;

/// A lack of devices of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// All devices are of one class.
    OneClass(PlacementClass),
    /// The profile needs more devices.
    TooFewDevices {
        /// The content.
        content: Content,
        /// Its profile.
        profile: Profile,
        /// The class that it belongs on.
        class: PlacementClass,
        /// The number of devices of that class.
        found: usize,
    },
    /// The kernel stripes over all devices.
    Striped(Content),
    /// Data of small and marked files has fewer copies on fast devices than it has copies.
    FastData {
        /// Profile of data.
        profile: Profile,
        /// The number of fast devices.
        found: usize,
    },
}

/// The shortages of a pool, as far as contents that belong on a class are concerned.
pub fn shortages(pool: &TierPool, class: PlacementClass) -> Vec<Shortage> {
    let mut found: BTreeMap<(Content, Profile), Shortage> = BTreeMap::new();
    for chunk in &pool.chunks {
        let (content, profile) = (chunk.content(), chunk.profile());
        if content.class() == Some(class) && pool.fit(content, profile) != Fit::Whole {
            let shortage = match pool.is_striped_by_kernel(content, profile) {
                true => Shortage::Striped(content),
                false => Shortage::TooFewDevices { content, profile, class, found: pool.count(class) },
            };
            found.insert((content, profile), shortage);
        }
    }
    for chunk in pool.chunks.iter().filter(|_| pool.is_ours && class == PlacementClass::Bulk) {
        let (content, profile) = (chunk.content(), chunk.profile());
        let is_split = content == Content::Data && pool.copies_on_fast(profile).is_some();
        if is_split && !chunk.is_write_back {
            let shortage = Shortage::FastData { profile, found: pool.count(PlacementClass::Fast) };
            found.insert((content, profile), shortage);
        }
    }
    // System chunks have the profile of metadata, unless it was converted alone: one word is enough for both.
    let is_said = |(content, profile): &(Content, Profile)| {
        *content == Content::System && found.contains_key(&(Content::Metadata, *profile))
    };
    found.iter().filter(|(key, _)| !is_said(key)).map(|(_, shortage)| *shortage).collect()
}

/// All shortages of a pool.
pub fn all_shortages(pool: &TierPool) -> Vec<Shortage> {
    const CLASSES: [PlacementClass; 2] = [PlacementClass::Fast, PlacementClass::Bulk];
    match CLASSES.into_iter().find(|class| pool.count(*class) == 0) {
        Some(class) => vec![Shortage::OneClass(class.other())],
        None => CLASSES.into_iter().flat_map(|class| shortages(pool, class)).collect(),
    }
}

impl Shortage {
    /// The copies that lie on devices of the class where everything lies right, in words; `None` if that makes no
    /// difference.
    pub fn copies(&self) -> Option<String> {
        match self {
            Self::TooFewDevices { content, profile, class, found } if *content != Content::Data => {
                copies_on(*class, *profile, *found)
            }
            Self::FastData { profile, found } => copies_on(PlacementClass::Fast, *profile, *found),
            _ => None,
        }
    }

    /// The way to have all copies on devices of the class.
    pub fn remedy(&self) -> Option<String> {
        self.copies()?;
        let (class, profile, found) = match self {
            Self::TooFewDevices { profile, class, found, .. } => (*class, profile, *found),
            Self::FastData { profile, found } => (PlacementClass::Fast, profile, *found),
            Self::OneClass(_) | Self::Striped(_) => return None,
        };
        let all = usize::from(profile.attributes().devs_max);
        let (lacking, copies) = (all.saturating_sub(found), if all == 2 { "both" } else { "all" });
        let s = if lacking == 1 { "" } else { "s" };
        let place = if class == PlacementClass::Fast { "flash" } else { "disks" };
        Some(format!("{copies} copies on {place}: add {lacking} more {class} device{s}"))
    }
}

/// The copies of a profile that `found` devices of a class hold, in words.
pub(super) fn copies_on(class: PlacementClass, profile: Profile, found: usize) -> Option<String> {
    let Fit::Copies(copies) = Fit::of(profile, found) else { return None };
    let all = number(profile.attributes().devs_max.into());
    let s = if copies == 1 { "copy" } else { "copies" };
    Some(format!("{} {s} of {all} on {class} devices", number(copies)))
}

/// A small number as a word.
fn number(number: usize) -> String {
    match number {
        1 => "one".to_owned(),
        2 => "two".to_owned(),
        3 => "three".to_owned(),
        4 => "four".to_owned(),
        _ => number.to_string(),
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneClass(class) => write!(f, "there are no {} devices, all are {class}", class.other()),
            Self::Striped(content) => write!(
                f,
                "{content} of profile raid0: the kernel stripes it over all devices; `btrfs balance start -mconvert=dup` makes \
                 it one that belongs on fast devices"
            ),
            Self::FastData { profile, .. } => {
                write!(f, "data of small and marked files, profile {profile}")?;
                let (copies, remedy) = (self.copies(), self.remedy());
                let told = copies.into_iter().chain(remedy).collect::<Vec<_>>().join(", which is read; ");
                write!(f, ": {told}")
            }
            Self::TooFewDevices { content, profile, class, found } => {
                if let (Some(copies), Some(remedy)) = (self.copies(), self.remedy()) {
                    return write!(f, "{content} of profile {profile}: {copies} is right; {remedy}");
                }
                let needed = profile.attributes().devs_min;
                write!(f, "{content} of profile {profile} needs {needed} {class} devices, and there ")?;
                match found {
                    1 => f.write_str("is 1"),
                    found => write!(f, "are {found}"),
                }
            }
        }
    }
}

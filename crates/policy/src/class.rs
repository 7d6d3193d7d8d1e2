//! Classes of devices with names and ranks, within the two sides: *fast*, for metadata and small files, and *bulk*.
//!
//! The owner lists the classes of a side, the fastest first, and says of devices which one they are of. The rank of a class
//! is its place in the list of all: classes of the fast side come first. A side without a class of the owner's has one of its
//! own name, and a pool without any has exactly two. A device without a class, or with one of the side that it is not on, is of the
//! class next to the border between the sides: the last one of the fast side, or the first of the bulk side.

use crate::placement::{DataTier, PlacementClass};
use brindle_ondisk::item::{ClassEntry, ClassMember, DeviceClassesItem};
use brindle_ondisk::{Defect, Uuid, to_u64};
use std::collections::BTreeMap;
use std::fmt;

/// The most classes that an owner can list.
pub const CLASSES_MAX: usize = 8;
/// The most devices that can have a class of their own: their list is one item.
pub const MEMBERS_MAX: usize = 128;
/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 16;

/// The sides, in the order of ranks.
pub const SIDES: [PlacementClass; 2] = [PlacementClass::Fast, PlacementClass::Bulk];

/// A class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamedClass {
    /// Its name.
    pub name: String,
    /// Its side.
    pub side: PlacementClass,
}

/// Classes of the devices of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceClasses {
    /// The owner's, in the order of ranks.
    listed: Vec<NamedClass>,
    /// Name of the class of each device that has one.
    members: BTreeMap<Uuid, String>,
}

/// Reason for which classes can't be as they are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassesProblem {
    /// The item of the pool has no such form.
    Item(Defect),
    /// The item lists a side that there is not, or a fast class behind a bulk one.
    Side(u64),
    /// A name is empty, too long, a side's own, or has other characters than it may.
    Name(String),
    /// Two classes have the same name.
    Twice(String),
    /// No class has that name.
    Unknown(String),
    /// A device is of a class that is not in the list.
    Member(u64),
    /// More classes than there may be.
    TooMany(usize),
    /// More devices with classes than there may be.
    TooManyDevices(usize),
    /// Devices still are of a class that is to be taken out of the list.
    InUse(String),
}

impl fmt::Display for ClassesProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Item(defect) => write!(f, "{defect}"),
            Self::Side(found) => write!(f, "side {found} of a class is not known, or out of order"),
            Self::Name(name) => write!(
                f,
                "'{}' is no name of a class: up to {NAME_BYTES_MAX} of a-z, 0-9, '-' and '_', a letter first, and neither \
                 fast nor bulk",
                name.escape_default()
            ),
            Self::Twice(name) => write!(f, "class {name} is listed twice"),
            Self::Unknown(name) => write!(f, "there is no class '{}'", name.escape_default()),
            Self::Member(number) => write!(f, "a device is of class number {number}, which is not listed"),
            Self::TooMany(count) => write!(f, "{count} classes are more than {CLASSES_MAX}"),
            Self::TooManyDevices(count) => {
                write!(f, "{count} devices with classes are more than {MEMBERS_MAX}")
            }
            Self::InUse(name) => write!(f, "devices are of class {name}"),
        }
    }
}

impl std::error::Error for ClassesProblem {}

/// Returns true if a class can have this name.
pub fn is_class_name(name: &[u8]) -> bool {
    let is_known =
        |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    name.first().is_some_and(u8::is_ascii_lowercase)
        && name.len() <= NAME_BYTES_MAX
        && name.iter().all(is_known)
        && !SIDES.iter().any(|side| side.to_string().as_bytes() == name)
}

impl DeviceClasses {
    /// Classes of an item of the pool.
    ///
    /// # Errors
    /// An item that brindle does not write: damaged, or of another version.
    pub fn decode(data: &[u8]) -> Result<Self, ClassesProblem> {
        let item = DeviceClassesItem::parse(data).map_err(ClassesProblem::Item)?;
        let mut classes = Self::default();
        for entry in item.classes {
            let side = usize::try_from(entry.side.get()).ok().and_then(|side| SIDES.get(side).copied());
            let last = classes.listed.last().map_or(PlacementClass::Fast, |class| class.side);
            let Some(side) = side.filter(|side| *side >= last) else {
                return Err(ClassesProblem::Side(entry.side.get()));
            };
            let length = entry.name.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            let name = String::from_utf8_lossy(&entry.name[..length]).into_owned();
            classes.listed.push(NamedClass { name, side });
        }
        for member in item.members {
            let number = usize::try_from(member.class.get()).unwrap_or(usize::MAX);
            let class = classes.listed.get(number).ok_or(ClassesProblem::Member(member.class.get()))?;
            classes.members.insert(member.device, class.name.clone());
        }
        classes.validated()
    }

    /// The item; `None` if there is nothing to say.
    pub fn encode(&self) -> Option<Vec<u8>> {
        if self.listed.is_empty() {
            return None;
        }
        let entry = |class: &NamedClass| {
            let mut name = [0; NAME_BYTES_MAX];
            name.iter_mut().zip(class.name.bytes()).for_each(|(to, from)| *to = from);
            let side = SIDES.iter().position(|side| *side == class.side).unwrap_or(0);
            ClassEntry { side: to_u64(side).into(), name }
        };
        let member = |(device, name): (&Uuid, &String)| {
            let number = self.listed.iter().position(|class| class.name == *name)?;
            Some(ClassMember { device: *device, class: to_u64(number).into() })
        };
        let entries: Vec<ClassEntry> = self.listed.iter().map(entry).collect();
        let members: Vec<ClassMember> = self.members.iter().filter_map(member).collect();
        Some(DeviceClassesItem::encode(&entries, &members))
    }

    /// Lists other classes of a side, the fastest first.
    ///
    /// # Errors
    /// Names that can't be, and devices of a class that is not listed any more.
    pub fn list(&mut self, side: PlacementClass, names: &[&str]) -> Result<(), ClassesProblem> {
        let (mut fast, mut bulk): (Vec<NamedClass>, Vec<NamedClass>) =
            self.listed.iter().cloned().partition(|class| class.side == PlacementClass::Fast);
        let named = names.iter().map(|name| NamedClass { name: (*name).to_owned(), side }).collect();
        *match side {
            PlacementClass::Fast => &mut fast,
            PlacementClass::Bulk => &mut bulk,
        } = named;
        fast.extend(bulk);
        self.change(|classes| classes.listed = fast)
    }

    /// Gives a class another name. Marks of files are not changed by that.
    ///
    /// # Errors
    /// A class that there is not, and a name that can't be.
    pub fn rename(&mut self, from: &str, to: &str) -> Result<(), ClassesProblem> {
        if !self.listed.iter().any(|class| class.name == from) {
            return Err(ClassesProblem::Unknown(from.to_owned()));
        }
        self.change(|classes| {
            let names = classes.listed.iter_mut().map(|class| &mut class.name);
            names
                .chain(classes.members.values_mut())
                .filter(|name| *name == from)
                .for_each(|name| to.clone_into(name));
        })
    }

    /// Makes a device one of a class; of none by the name of a side.
    ///
    /// # Errors
    /// A class that there is not.
    pub fn assign(&mut self, device: Uuid, name: &str) -> Result<PlacementClass, ClassesProblem> {
        if let Some(side) = SIDES.into_iter().find(|side| side.to_string() == name) {
            self.members.remove(&device);
            return Ok(side);
        }
        let found = self.listed.iter().find(|class| class.name == name);
        let side = found.ok_or_else(|| ClassesProblem::Unknown(name.to_owned()))?.side;
        self.change(|classes| drop(classes.members.insert(device, name.to_owned())))?;
        Ok(side)
    }

    /// Name of a device's own class.
    pub fn class_of(&self, device: &Uuid) -> Option<&str> {
        self.members.get(device).map(String::as_str)
    }

    /// Side of a device's own class.
    pub fn side(&self, device: &Uuid) -> Option<PlacementClass> {
        let name = self.members.get(device)?;
        self.listed.iter().find(|class| class.name == *name).map(|class| class.side)
    }

    /// Forgets devices that the pool does not have any more.
    pub fn retain(&mut self, is_there: impl Fn(&Uuid) -> bool) {
        self.members.retain(|device, _| is_there(device));
    }

    fn change(&mut self, change: impl FnOnce(&mut Self)) -> Result<(), ClassesProblem> {
        let mut changed = self.clone();
        change(&mut changed);
        *self = changed.validated()?;
        Ok(())
    }

    fn validated(self) -> Result<Self, ClassesProblem> {
        for (index, class) in self.listed.iter().enumerate() {
            if !is_class_name(class.name.as_bytes()) {
                return Err(ClassesProblem::Name(class.name.clone()));
            }
            if self.listed[..index].iter().any(|other| other.name == class.name) {
                return Err(ClassesProblem::Twice(class.name.clone()));
            }
        }
        if self.listed.len() > CLASSES_MAX {
            return Err(ClassesProblem::TooMany(self.listed.len()));
        }
        if self.members.len() > MEMBERS_MAX {
            return Err(ClassesProblem::TooManyDevices(self.members.len()));
        }
        let is_listed = |name: &&String| self.listed.iter().any(|class| class.name == **name);
        match self.members.values().find(|name| !is_listed(name)) {
            Some(name) => Err(ClassesProblem::InUse(name.clone())),
            None => Ok(self),
        }
    }

    /// Returns true if the owner has listed none.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// All classes in the order of ranks, with those that sides have of themselves.
    pub fn all(&self) -> Vec<NamedClass> {
        let of_side = |side: PlacementClass| {
            let mut listed: Vec<NamedClass> =
                self.listed.iter().filter(|class| class.side == side).cloned().collect();
            if listed.is_empty() {
                listed.push(NamedClass { name: side.to_string(), side });
            }
            listed
        };
        SIDES.into_iter().flat_map(of_side).collect()
    }

    /// Rank of the first class of the bulk side.
    pub fn first_bulk_rank(&self) -> u8 {
        let fast = self.listed.iter().filter(|class| class.side == PlacementClass::Fast).count();
        u8::try_from(fast.max(1)).unwrap_or(u8::MAX)
    }

    /// Rank of a device that is on a side.
    pub fn rank(&self, device: &Uuid, side: PlacementClass) -> u8 {
        let all = self.all();
        let own = self.members.get(device);
        let own = own.and_then(|name| all.iter().position(|class| class.side == side && class.name == *name));
        let border = all.iter().filter(|class| class.side == PlacementClass::Fast).count();
        let otherwise = match side {
            PlacementClass::Fast => border - 1,
            PlacementClass::Bulk => border,
        };
        u8::try_from(own.unwrap_or(otherwise)).unwrap_or(u8::MAX)
    }

    /// Name of the class of a rank.
    pub fn name(&self, rank: u8) -> String {
        self.all().get(usize::from(rank)).map_or_else(|| rank.to_string(), |class| class.name.clone())
    }

    /// The devices that a mark names: those of a side, or of a class of the owner's.
    pub fn named(&self, name: &[u8]) -> Option<DataTier> {
        if let Some(side) = SIDES.into_iter().find(|side| side.to_string().as_bytes() == name) {
            return Some(side.into());
        }
        let rank = self.all().iter().position(|class| class.name.as_bytes() == name)?;
        Some(DataTier { side: self.all()[rank].side, rank: u8::try_from(rank).ok() })
    }
}

#[cfg(test)]
mod tests;

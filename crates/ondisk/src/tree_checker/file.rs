use super::ItemPlace;
use crate::{Defect, Item, Key};

pub(super) fn check(_place: &ItemPlace<'_>, _key: &Key, _item: &Item<'_>) -> Result<(), Defect> {
    Ok(())
}

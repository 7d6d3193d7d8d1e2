//! Options of a mount as they are shown back.

use super::{MountOptions, split, table};
use table::{Kind, Remount};

/// Options that are shown elsewhere: devices, and the source of the mount table.
const SHOWN_ELSEWHERE: [&str; 2] = ["device", "fsname"];

/// Options of these lists without which the mount would be another one: neither defaults, nor those that a later one has overruled.
/// Without those that a remount changes, of which the mount and the mount table tell.
pub(crate) fn given<S: AsRef<str>>(lists: &[S]) -> String {
    let words = lists.iter().flat_map(|list| list.as_ref().split(',')).map(str::trim);
    let mut kept: Vec<&str> = words.filter(|word| is_shown(word)).collect();
    let all = meaning(&kept);
    let mut index = 0;
    while index < kept.len() {
        let mut others = kept.clone();
        others.remove(index);
        if meaning(&others) == all {
            kept = others;
        } else {
            index += 1;
        }
    }
    kept.join(",")
}

fn is_shown(word: &str) -> bool {
    let name = split(word).0;
    table::find(name).is_some_and(|row| row.kind != Kind::Refused && row.remount == Remount::Fixed)
        && !SHOWN_ELSEWHERE.contains(&name)
}

fn meaning(words: &[&str]) -> Option<MountOptions> {
    let options = MountOptions::parse(words).ok()?;
    Some(MountOptions { first_of_mount: None, ..options })
}

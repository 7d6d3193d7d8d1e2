use super::*;
use PlacementClass::{Bulk, Fast};
use proptest::prelude::*;

fn device(number: u8) -> Uuid {
    Uuid([number; 16])
}

fn four() -> DeviceClasses {
    let mut classes = DeviceClasses::default();
    classes.list(Fast, &["nvme", "ssd"]).expect("names");
    classes.list(Bulk, &["disk", "smr"]).expect("names");
    for (number, name) in [(1, "nvme"), (2, "ssd"), (3, "disk"), (4, "smr")] {
        classes.assign(device(number), name).expect("listed");
    }
    classes
}

#[test]
fn a_pool_without_classes_has_one_of_each_side() {
    let classes = DeviceClasses::default();
    assert_eq!(classes.all().iter().map(|class| &class.name[..]).collect::<Vec<_>>(), ["fast", "bulk"]);
    assert_eq!((classes.rank(&device(1), Fast), classes.rank(&device(1), Bulk)), (0, 1));
    assert_eq!(classes.named(b"fast"), Some(Fast.into()));
    assert_eq!((classes.named(b"nvme"), classes.encode()), (None, None));
}

#[test]
fn ranks_follow_the_lists_and_a_device_of_none_is_next_to_the_border() {
    let classes = four();
    let sides = [(1, Fast), (2, Fast), (3, Bulk), (4, Bulk)];
    assert_eq!(sides.map(|(number, side)| classes.rank(&device(number), side)), [0, 1, 2, 3]);
    assert_eq!((classes.rank(&device(9), Fast), classes.rank(&device(9), Bulk)), (1, 2));
    // A hint that says otherwise counts, and the class does not.
    assert_eq!((classes.rank(&device(1), Bulk), classes.rank(&device(4), Fast)), (2, 1));
    assert_eq!(classes.named(b"smr"), Some(DataTier { side: Bulk, rank: Some(3) }));
    assert_eq!(classes.named(b"bulk"), Some(DataTier { side: Bulk, rank: None }));
    assert_eq!((classes.name(1), classes.name(77)), ("ssd".to_owned(), "77".to_owned()));
}

#[test]
fn a_side_without_a_class_of_the_owner_has_its_own() {
    let mut classes = DeviceClasses::default();
    classes.list(Bulk, &["disk", "smr"]).expect("names");
    classes.assign(device(4), "smr").expect("listed");
    assert_eq!(
        classes.all().iter().map(|class| &class.name[..]).collect::<Vec<_>>(),
        ["fast", "disk", "smr"]
    );
    assert_eq!((classes.rank(&device(1), Fast), classes.rank(&device(4), Bulk)), (0, 2));
}

#[test]
fn classes_are_renamed_and_taken_out_when_no_device_is_of_them() {
    let mut classes = four();
    classes.rename("nvme", "optane").expect("a name");
    assert_eq!((classes.rank(&device(1), Fast), classes.name(0)), (0, "optane".to_owned()));
    assert_eq!(classes.rename("nvme", "x"), Err(ClassesProblem::Unknown("nvme".to_owned())));
    assert_eq!(classes.rename("ssd", "disk"), Err(ClassesProblem::Twice("disk".to_owned())));
    assert_eq!(classes.list(Bulk, &["disk"]), Err(ClassesProblem::InUse("smr".to_owned())));
    assert_eq!(classes.assign(device(4), "bulk"), Ok(Bulk));
    assert_eq!(classes.list(Bulk, &["disk"]), Ok(()));
    assert_eq!(classes.rank(&device(4), Bulk), 2);
    assert_eq!(classes.assign(device(4), "tape"), Err(ClassesProblem::Unknown("tape".to_owned())));
    classes.retain(|uuid| *uuid == device(2));
    assert_eq!((classes.rank(&device(1), Fast), classes.rank(&device(2), Fast)), (1, 1));
}

#[test]
fn names_are_short_words_and_none_of_a_side() {
    for name in ["nvme", "a", "smr-10_tb", "abcdefghijklmnop"] {
        assert!(is_class_name(name.as_bytes()), "{name}");
    }
    for name in ["", "fast", "bulk", "NVMe", "1", "-a", "a b", "ä", "abcdefghijklmnopq", "a\0"] {
        assert!(!is_class_name(name.as_bytes()), "{name}");
        assert!(DeviceClasses::default().list(Fast, &[name]).is_err(), "{name}");
    }
    let many: Vec<String> = (0..=CLASSES_MAX).map(|number| format!("c{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(DeviceClasses::default().list(Fast, &many), Err(ClassesProblem::TooMany(CLASSES_MAX + 1)));
}

#[test]
fn damaged_items_are_refused_with_the_reason() {
    let whole = four().encode().expect("classes");
    let damaged = |at: usize, byte: u8| {
        let mut data = whole.clone();
        data[at] = byte;
        DeviceClasses::decode(&data).expect_err("damaged")
    };
    let entry = |number: usize| 24 + 24 * number;
    assert!(matches!(damaged(0, 9), ClassesProblem::Item(_)), "another version");
    assert_eq!(damaged(entry(0), 1), ClassesProblem::Side(0), "a fast class behind a bulk one");
    assert_eq!(damaged(entry(3), 7), ClassesProblem::Side(7));
    assert_eq!(damaged(entry(1) + 8, b'S'), ClassesProblem::Name("Ssd".to_owned()));
    assert_eq!(damaged(entry(4) + 16, 4), ClassesProblem::Member(4));
    assert!(damaged(entry(1) + 8, b'S').to_string().contains("'Ssd' is no name"));
    assert!(DeviceClasses::decode(&whole[..whole.len() - 1]).is_err());
}

fn word() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9_-]{0,3}"
}

proptest! {
    #[test]
    fn items_are_read_back_and_ranks_are_those_of_the_lists(
        fast in proptest::collection::vec(word(), 0..4),
        bulk in proptest::collection::vec(word(), 0..4),
        members in proptest::collection::vec((any::<u8>(), 0..8usize), 0..20),
    ) {
        let mut classes = DeviceClasses::default();
        let names = |list: &[String]| list.to_vec();
        let (fast, bulk) = (names(&fast), names(&bulk));
        let both: Vec<&String> = fast.iter().chain(&bulk).collect();
        let distinct: std::collections::BTreeSet<&&String> = both.iter().collect();
        let listed = classes
            .list(Fast, &fast.iter().map(String::as_str).collect::<Vec<_>>())
            .and_then(|()| classes.list(Bulk, &bulk.iter().map(String::as_str).collect::<Vec<_>>()));
        let is_possible = distinct.len() == both.len() && both.iter().all(|name| is_class_name(name.as_bytes()));
        prop_assert_eq!(listed.is_ok(), is_possible);
        prop_assume!(is_possible && !both.is_empty());
        let mut model = BTreeMap::new();
        for (number, class) in members {
            let name = both[class % both.len()];
            classes.assign(device(number), name).expect("listed");
            model.insert(number, name.clone());
        }
        prop_assert_eq!(&DeviceClasses::decode(&classes.encode().expect("some")).expect("whole"), &classes);
        let order: Vec<String> = classes.all().into_iter().map(|class| class.name).collect();
        for number in 0..=u8::MAX {
            for side in SIDES {
                let rank = usize::from(classes.rank(&device(number), side));
                let (own, on_side) = (model.get(&number), |name: &String| match side {
                    Fast => fast.contains(name),
                    Bulk => bulk.contains(name),
                });
                match own.filter(|name| on_side(name)) {
                    Some(name) => prop_assert_eq!(&order[rank], name),
                    None if side == Fast => prop_assert_eq!(rank + 1, fast.len().max(1)),
                    None => prop_assert_eq!(rank, fast.len().max(1)),
                }
            }
        }
    }

    #[test]
    fn no_bytes_make_decoding_panic(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = DeviceClasses::decode(&data);
    }
}

use super::*;

const A: RootId = RootId::new(256);
const B: RootId = RootId::new(257);
const C: RootId = RootId::new(258);
const BOTH: QgroupId = QgroupId::new(1 << 48 | 1);

fn ledger() -> Ledger {
    let mut ledger = Ledger::default();
    for root in [A, B, C] {
        ledger.groups.insert(QgroupId::of_subvolume(root), Group::empty());
    }
    ledger.groups.insert(BOTH, Group::empty());
    for root in [A, B] {
        ledger.relate(QgroupId::of_subvolume(root), BOTH, true);
    }
    ledger
}

fn numbers(ledger: &Ledger, id: QgroupId) -> (u64, u64) {
    let info = &ledger.groups[&id].info;
    (info.rfer.get(), info.excl.get())
}

fn of(ledger: &Ledger, root: RootId) -> (u64, u64) {
    numbers(ledger, QgroupId::of_subvolume(root))
}

#[test]
fn an_extent_is_exclusive_where_all_that_reach_it_are_members() {
    let mut ledger = ledger();
    ledger.account(10, &[], &[A]).expect("from nothing");
    ledger.account(100, &[], &[A, B]).expect("from nothing");
    ledger.account(1000, &[], &[A, C]).expect("from nothing");
    assert_eq!(of(&ledger, A), (1110, 10));
    assert_eq!(of(&ledger, B), (100, 0));
    assert_eq!(of(&ledger, C), (1000, 0));
    assert_eq!(numbers(&ledger, BOTH), (1110, 110));
    ledger.account(1000, &[A, C], &[A]).expect("was counted");
    assert_eq!((of(&ledger, A), of(&ledger, C)), ((1110, 1010), (0, 0)));
    assert_eq!(numbers(&ledger, BOTH), (1110, 1110));
}

#[test]
fn subvolumes_without_a_group_count_as_others() {
    let mut ledger = ledger();
    ledger.account(10, &[], &[A, RootId::new(999)]).expect("from nothing");
    assert_eq!(of(&ledger, A), (10, 0));
}

#[test]
fn more_than_a_group_has_can_not_be_taken_from_it() {
    let mut ledger = ledger();
    assert_eq!(ledger.account(10, &[C], &[]), Err(Underflow(QgroupId::of_subvolume(C))));
    assert_eq!(of(&ledger, C), (0, 0));
}

#[test]
fn a_snapshot_has_what_its_source_had_and_nothing_is_exclusive() {
    let mut ledger = ledger();
    ledger.account(10, &[], &[C]).expect("from nothing");
    let copy = RootId::new(259);
    ledger.groups.insert(QgroupId::of_subvolume(copy), Group::empty());
    assert!(!ledger.inherit(C, copy), "neither is part of anything");
    assert_eq!((of(&ledger, C), of(&ledger, copy)), ((10, 0), (10, 0)));
    assert!(ledger.inherit(A, copy), "the source is part of a group, the snapshot is not");
}

#[test]
fn a_group_that_joins_brings_what_it_has_alone() {
    let mut ledger = ledger();
    let id = QgroupId::of_subvolume(C);
    ledger.account(10, &[], &[C]).expect("from nothing");
    assert!(!ledger.relate(id, BOTH, true));
    assert_eq!(numbers(&ledger, BOTH), (10, 10));
    assert!(!ledger.relate(id, BOTH, false));
    assert_eq!(numbers(&ledger, BOTH), (0, 0));
    ledger.account(5, &[], &[A, C]).expect("from nothing");
    assert!(ledger.relate(id, BOTH, true), "it shares with a member");
}

#[test]
fn a_group_that_holds_another_by_two_ways_counts_it_once() {
    let mut ledger = ledger();
    let (id, top, middle) = (QgroupId::of_subvolume(C), QgroupId::new(3 << 48), QgroupId::new(2 << 48));
    for group in [top, middle] {
        ledger.groups.insert(group, Group::empty());
    }
    ledger.account(10, &[], &[C]).expect("from nothing");
    ledger.relate(middle, top, true);
    ledger.relate(id, middle, true);
    ledger.relate(id, top, true);
    assert_eq!((numbers(&ledger, middle), numbers(&ledger, top)), ((10, 10), (10, 10)));
    ledger.relate(id, middle, false);
    assert_eq!((numbers(&ledger, middle), numbers(&ledger, top)), ((0, 0), (10, 10)));
    ledger.account(10, &[C], &[]).expect("was counted");
    assert_eq!(numbers(&ledger, top), (0, 0));
}

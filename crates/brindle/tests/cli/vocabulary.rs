//! Words of JSON reports: a fact has one name and one form in all of them, as docs/user/json.md says.

use super::mount::{can_mount, unmount};
use super::status::Mixed;
use super::support::{brindle_prints, text};
use serde_json::Value;
use std::path::PathBuf;

/// Reports that keep to their version, and others with the same facts. Those that take the devices of a pool too come first.
const OF_POOLS: [&[&str]; 8] = [
    &["filesystem", "usage"],
    &["filesystem", "df"],
    &["filesystem", "show"],
    &["device", "usage"],
    &["subvolume", "list"],
    &["status"],
    &["map"],
    &["inspect-internal", "list-chunks"],
];
const OF_PATHS: [&[&str]; 3] = [&["filesystem", "du"], &["tier", "where"], &["subvolume", "show"]];

#[test]
fn reports_have_one_vocabulary() {
    let pool = Mixed::make();
    if can_mount() {
        pool.mount();
        let subvolume = pool.place().join("docs/home");
        brindle_prints(["subvolume", "create", text(&subvolume)]);
        for report in OF_POOLS.into_iter().chain(OF_PATHS) {
            let is_of_subvolume = report == ["subvolume", "show"];
            let place = if is_of_subvolume { subvolume.clone() } else { pool.place() };
            check(&pool, report, &[place]);
        }
        unmount(&pool.place());
    }
    for report in OF_POOLS.into_iter().chain([&["tier", "where", "--path", "large"][..]]) {
        check(&pool, report, &pool.images);
    }
}

/// Has the report made, and its names and values looked at.
fn check(pool: &Mixed, report: &[&str], operands: &[PathBuf]) {
    let output = pool.brindle(&[report, &["--json"]].concat(), operands);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(found["__header"]["version"], "1", "{report:?}");
    let mut wrong = Vec::new();
    look_at(&found, &mut wrong);
    assert!(wrong.is_empty(), "{report:?}: {wrong:?}\n{found:#}");
    let is_of_one_pool = !["status", "show", "list", "du"].iter().any(|word| report.contains(word));
    assert!(!is_of_one_pool || is_uuid(&found["uuid"]), "{report:?}: {found:#}");
}

fn look_at(value: &Value, wrong: &mut Vec<String>) {
    if let Value::Array(all) = value {
        all.iter().for_each(|value| look_at(value, wrong));
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        if !is_right(name, value) {
            wrong.push(format!("{name}: {value}"));
        }
        look_at(value, wrong);
    }
}

/// Returns true for a name that is not another one for the same, and a value of the form that its name promises.
fn is_right(name: &str, value: &Value) -> bool {
    let is_one_of = |words: &[&str]| value.as_str().is_some_and(|word| words.contains(&word));
    match name {
        "content" => is_one_of(&["data", "metadata", "system", "mixed"]),
        "profile" => is_one_of(&["raid1", "single", "dup"]),
        "class" => is_one_of(&["fast", "bulk"]) || value.is_null(),
        "uuid" => is_uuid(value),
        "devid" => value.is_u64(),
        "path" => value.is_string(),
        "created" | "started" | "waiting_since" => value.is_u64() || value.is_null(),
        "bytes" | "size" | "size_bytes" | "length" | "start" | "device" | "type" | "fsid" => false,
        _ => !name.ends_with("_bytes") || value.is_u64() || value.is_null(),
    }
}

fn is_uuid(value: &Value) -> bool {
    value.as_str().is_some_and(|uuid| uuid.len() == 36 && uuid.matches('-').count() == 4)
}

//! The layers: a crate imports only crates that stand before it.

use anyhow::{Context, Result};
use serde_json::Value;

/// Every crate, from the lowest layer to the highest; `docs/design/architecture.md` says what each is for.
const LAYERS: [&str; 16] = [
    "brindle-sync",
    "brindle-ondisk",
    "brindle-policy",
    "brindle-uapi",
    "brindle-device",
    "brindle-sim",
    "brindle-volume",
    "brindle-tree",
    "brindle-fs",
    "brindle-check",
    "brindle-care",
    "brindle-admin",
    "brindle-fuse",
    "brindle",
    "brindle-testing",
    "xtask",
];

/// Imports that the order allows and the design does not.
const FORBIDDEN: [(&str, &str, &str); 4] = [
    ("brindle-check", "brindle-tree", "the oracle shares no code with what it examines"),
    ("brindle-check", "brindle-fs", "the oracle shares no code with what it examines"),
    ("brindle-device", "brindle-ondisk", "a device knows nothing of btrfs"),
    ("brindle-sim", "brindle-ondisk", "a device knows nothing of btrfs"),
];

/// Complaints about the real graph of crates.
pub(crate) fn check() -> Result<Vec<String>> {
    let output = crate::cargo().args(["metadata", "--format-version=1", "--no-deps"]).output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")?;
    let mut complaints = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(layer) = layer_of(name) else {
            complaints.push(format!("{name}: no layer in xtask/src/layers.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            // What only tests use may come from anywhere.
            if dependency["kind"].as_str() == Some("dev") {
                continue;
            }
            let other = dependency["name"].as_str().unwrap_or_default();
            if layer_of(other).is_some_and(|other| other >= layer) {
                complaints.push(format!("{name} imports {other}, which lies above it"));
            }
            let rule = FORBIDDEN.iter().find(|(from, to, _)| (*from, *to) == (name, other));
            if let Some((_, _, why)) = rule {
                complaints.push(format!("{name} imports {other}: {why}"));
            }
        }
    }
    Ok(complaints)
}

fn layer_of(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| *layer == name)
}

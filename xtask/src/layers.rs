//! The layers: a crate imports only crates that stand before it.

use anyhow::{Context, Result};
use serde_json::Value;

/// Every crate, from the lowest layer to the highest; `docs/design/architecture.md` says what each is for.
const LAYERS: [&str; 26] = [
    "brindle-sync",
    "brindle-interval",
    "brindle-transport",
    "brindle-nbd",
    "brindle-tls",
    "brindle-ondisk",
    "brindle-policy",
    "brindle-stream",
    "brindle-uapi",
    "brindle-device",
    "brindle-sim",
    "brindle-cache",
    "brindle-export",
    "brindle-volume",
    "brindle-tree",
    "brindle-fs",
    "brindle-pool",
    "brindle-check",
    "brindle-care",
    "brindle-rescue",
    "brindle-admin",
    "brindle-fuse",
    "brindle-lab",
    "brindle",
    "brindle-testing",
    "xtask",
];

/// Imports that the order allows and the design does not.
const FORBIDDEN: [(&str, &str, &str); 36] = [
    ("brindle-check", "brindle-tree", "the oracle shares no code with what it examines"),
    ("brindle-check", "brindle-fs", "the oracle shares no code with what it examines"),
    ("brindle-check", "brindle-policy", "the oracle takes no decision of the engine for right"),
    ("brindle-device", "brindle-ondisk", "a device knows nothing of btrfs"),
    ("brindle-cache", "brindle-ondisk", "a cache knows nothing of btrfs"),
    ("brindle-cache", "brindle-sim", "the engine does not know the simulator"),
    ("brindle-sim", "brindle-ondisk", "a device knows nothing of btrfs"),
    ("brindle-sim", "brindle-policy", "a device knows nothing of btrfs"),
    ("brindle-policy", "brindle-sync", "a decision is a function of facts, and takes no lock"),
    ("brindle-policy", "brindle-device", "a decision is a function of facts, and does no I/O"),
    ("brindle-uapi", "brindle-ondisk", "an interface carries plain bytes and numbers"),
    ("brindle-uapi", "brindle-policy", "an interface takes no decision"),
    ("brindle-uapi", "brindle-sync", "an interface has no state"),
    ("brindle-device", "brindle-uapi", "an engine doesn't know how a mount is asked"),
    ("brindle-sim", "brindle-uapi", "an engine doesn't know how a mount is asked"),
    ("brindle-volume", "brindle-uapi", "an engine doesn't know how a mount is asked"),
    ("brindle-tree", "brindle-uapi", "an engine doesn't know how a mount is asked"),
    ("brindle-fs", "brindle-uapi", "an engine doesn't know how a mount is asked"),
    ("brindle-check", "brindle-uapi", "an engine doesn't know how a mount is asked"),
    ("brindle-care", "brindle-uapi", "an engine doesn't know how a mount is asked"),
    ("brindle-admin", "brindle-volume", "administration uses pools, not the map of their chunks"),
    ("brindle-admin", "brindle-check", "an examination is not a change"),
    ("brindle-fuse", "brindle-admin", "the server needs no client"),
    ("brindle-fuse", "brindle-device", "a mount knows files, and nothing under them"),
    ("brindle-fuse", "brindle-volume", "a mount knows files, and nothing under them"),
    ("brindle-fuse", "brindle-tree", "a mount knows files, and nothing under them"),
    ("brindle-fuse", "brindle-check", "the oracle is for pools that nothing writes"),
    ("brindle-care", "brindle-check", "the oracle judges what care writes, and takes no part in it"),
    ("brindle-rescue", "brindle-fs", "what is repaired is trees and superblocks; files are what they hold"),
    ("brindle-rescue", "brindle-uapi", "an engine doesn't know how a mount is asked"),
    ("brindle-fuse", "brindle-rescue", "a pool that is mounted is not repaired"),
    ("brindle-lab", "brindle-ondisk", "a disk knows nothing of btrfs"),
    ("brindle-lab", "brindle-volume", "a disk knows nothing of btrfs"),
    ("brindle-lab", "brindle-tree", "a disk knows nothing of btrfs"),
    ("brindle-lab", "brindle-fs", "a disk knows nothing of btrfs"),
    ("brindle-lab", "brindle-fuse", "the mount of a disk is not that of a pool"),
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

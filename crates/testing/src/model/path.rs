//! Paths in the tree.

use crate::manifest::{escape, unescape};
use std::fmt;

/// A path relative to the top of the pool, without a leading slash; the top itself is empty.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath(Vec<u8>);

/// A path as its `Debug` form writes it, so that a failure's operations can be pasted into a test.
///
/// # Panics
/// If `text` is not what [`escape`] makes.
#[must_use]
pub fn path(text: &str) -> TreePath {
    TreePath(unescape(text).expect("an escaped path"))
}

impl TreePath {
    /// From its bytes.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The top of the pool.
    #[must_use]
    pub fn top() -> Self {
        Self::default()
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns true for the top.
    #[must_use]
    pub fn is_top(&self) -> bool {
        self.0.is_empty()
    }

    /// The names on the way.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
    }

    /// Path of a name in this directory.
    #[must_use]
    pub fn join(&self, name: &[u8]) -> Self {
        let slash: &[u8] = if self.0.is_empty() { b"" } else { b"/" };
        Self([&self.0, slash, name].concat())
    }

    /// The directory and the name; `None` for the top.
    #[must_use]
    pub fn split(&self) -> Option<(Self, &[u8])> {
        if self.0.is_empty() {
            return None;
        }
        let slash = self.0.iter().rposition(|byte| *byte == b'/');
        Some(match slash {
            Some(at) => (Self(self.0[..at].to_vec()), &self.0[at + 1..]),
            None => (Self::top(), &self.0),
        })
    }

    /// Returns true if it is `other` or lies below it.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        let rest = self.0.strip_prefix(&other.0[..]);
        rest.is_some_and(|rest| rest.is_empty() || other.is_top() || rest[0] == b'/')
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "path({:?})", escape(&self.0))
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_top() { "." } else { "" })?;
        f.write_str(&escape(&self.0))
    }
}

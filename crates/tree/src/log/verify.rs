//! Comparison of the indexes of a log.

use super::Log;

impl Log {
    /// Panics unless each inode of the log has its name and index, and no others are there.
    pub(crate) fn verify(&self) {
        let state = self.state();
        assert!(
            state.synced <= state.begun,
            "sync {} is durable, and {} have begun",
            state.synced,
            state.begun
        );
        assert_eq!(state.names.len(), state.inodes.len(), "names in the log, one for each inode");
        assert_eq!(state.indexes.len(), state.inodes.len(), "indexes in the log, one for each inode");
        for ((subvolume, number), entered) in &state.inodes {
            let (parent, index, name) = entered.name.clone();
            assert!(entered.number <= state.begun + 1, "inode {number} was entered for a later sync");
            assert_eq!(
                state.names.get(&(*subvolume, parent, name)),
                Some(number),
                "a name leads to its inode"
            );
            assert_eq!(state.indexes.get(&(*subvolume, parent, index)), Some(number), "so does an index");
        }
    }
}

//! Waits for the devices: fsync of a file, commit, sync of everything.

use crate::data::output::Cause;
use crate::error::FsError;
use crate::extent::open_file::OpenFile;
use crate::log::FsLog;

impl FsLog {
    pub(crate) fn sync(&self) -> Result<(), FsError> {
        if self.core.is_only_read() {
            return Ok(());
        }
        let _stops = self.core.may_wait_for_commits();
        let written = self.data.write_back_all(None);
        // One file that can't be written is no reason not to commit the others.
        let commit = |_| {
            self.core.pool().make_write_back_room()?;
            Ok(self.core.pool().commit()?)
        };
        let committed = self.core.writing().and_then(commit);
        let lost = self.data.context.take_loss();
        written.and(lost).and(committed)
    }

    pub(crate) fn commit(&self) -> Result<(), FsError> {
        let writing = self.core.writing()?;
        let flushes = writing.options.flush_on_commit;
        let written = if flushes { self.data.write_back_all(None) } else { Ok(()) };
        self.core.pool().make_write_back_room()?;
        self.core.pool().commit()?;
        // Handles of a file that could not be written report it; the sync of other files goes on.
        if let Err(error) = written {
            tracing::warn!("{error}");
        }
        Ok(())
    }

    pub(crate) fn shutdown(&self) -> Result<(), FsError> {
        self.sync()?;
        if self.core.is_only_read() { Ok(()) } else { Ok(self.core.pool().wake_devices()?) }
    }

    pub(crate) fn sync_file(&self, file: &OpenFile) -> Result<(), FsError> {
        let _stops = self.core.may_wait_for_commits();
        let _timing = self.core.pool().time_sync();
        file.inode().data.note_sync();
        let expected = self.expected_with(file.inode());
        // Whatever fails is noted as an error of the file.
        let written = self.data.write_back_inode(file.inode(), Cause::Sync);
        self.data.take_error(file)?;
        written?;
        self.sync_inode(file.inode(), expected)
    }
}

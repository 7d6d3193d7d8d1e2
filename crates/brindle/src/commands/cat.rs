//! `brindle cat`: the contents of a file.

use crate::commands::path::PathOption;
use crate::commands::pool::PoolOptions;
use crate::output;
use anyhow::{Context, Result, bail};
use brindle_fs::FileType;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
  One file out of a pool of two devices:
    brindle cat a.img b.img --path etc/fstab

  From a snapshot, with one device lost:
    brindle cat -o degraded --subvol snapshots/monday /dev/sdb \\
        -p home/me/thesis.tex > thesis.tex

EXIT STATUS
  0  success
  1  failure; what was written before is part of the file, and right
  2  wrong usage";

/// Write the contents of a file to standard output
///
/// Every sector is verified against its checksum; a bad copy is replaced by another one, or rebuilt from
/// parity. Never writes a wrong byte: where no copy is right, it stops with an error.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct CatCommand {
    #[command(flatten)]
    path: PathOption,
    #[command(flatten)]
    pool: PoolOptions,
    /// Image files or block devices: those of one pool, in any order
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 4 << 20;

/// Runs the command.
pub(crate) fn run(command: &CatCommand) -> Result<ExitCode> {
    command.path.refuse_as_device(&command.devices)?;
    let filesystem = command.pool.open(&command.devices)?;
    let inode = command.path.resolve(&filesystem)?;
    match filesystem.attributes(inode)?.kind {
        FileType::Regular | FileType::Symlink => {}
        FileType::Directory => bail!("{}: is a directory", command.path.display()),
        _ => bail!("{}: is not a regular file", command.path.display()),
    }
    let named = || command.path.display();
    let file = filesystem.open_file(inode).with_context(named)?;
    let mut out = output::stdout();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    loop {
        let read = filesystem.read(&file, offset, &mut buffer);
        if !matches!(read, Ok(1..)) {
            // What was right before an error is written.
            out.flush()?;
        }
        let read = read.with_context(named)?;
        if read == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        out.write_all(&buffer[..read])?;
        offset += brindle_ondisk::to_u64(read);
    }
}

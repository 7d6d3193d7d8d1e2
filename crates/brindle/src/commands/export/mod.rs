//! `brindle export`: a device, or a file of a pool, shown to other programs over NBD, or as a file of a mount.

mod mounted;
mod pool_file;
mod tls;

use crate::commands::in_use::name_served;
use crate::commands::path::PathOption;
use crate::commands::pool::PoolOptions;
use crate::commands::usage::wrong_usage;
use crate::{logging, output};
use anyhow::{Context, Result};
use brindle_cache::{DiskMark, close_all, disk_mark, is_no_path, open_device, open_device_to_write};
use brindle_device::{Device, FileDevice, WritableDevice};
use brindle_export::{Export, Listener, Server};
use clap::{ArgGroup, Args};
use pool_file::PoolFile;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tls::TlsOptions;

const MANUAL: &str = "\
THE SERVER
  Prints the URI of the export when clients can connect, and serves until Ctrl-C
  or SIGTERM: requests under way are answered then, and the device is flushed. A
  second signal ends it at once.

  A write that was answered is durable after a flush on any connection, or by
  FUA. Requests for zeros become holes where the device can make them; a request
  for fast zeros is refused where it can't. Holes of an image file are told
  (base:allocation).

  At most 32 clients are served at once. Of a unix socket they must belong to
  the user of the server. A port is one of the loopback address: every user of
  this machine can connect. Other machines come through a tunnel, such as `ssh
  -L`, or a forwarder, with TLS.

TLS
  --tls-certificates names a directory with server-cert.pem and server-key.pem,
  as nbdkit and qemu have it; keys have no password. A client that does not turn
  to TLS is then told that it must, and nothing else; --tls=on serves it all the
  same, in the clear. With --tls-verify-peer a client needs a certificate of the
  authority in ca-cert.pem that is not revoked by ca-crl.pem, if that is there;
  the port of such a server is for holders of certificates alone. TLS 1.2 and
  1.3; keys that both sides share (PSK) are not supported. The files are read
  when the server starts.

A FILE
  With --mount, the device is the file `disk` in a directory, for the user that
  shows it; with --attach a loop device is on it (root), whose path is printed:
  any device is one of the kernel then, with its flushes, discards and errors.
  `brindle cache stat` and `brindle cache set` take the directory of a cache.
  The command serves it until it is unmounted, Ctrl-C or SIGTERM.

SIZE
  A device that has grown is told at its new size to clients that connect from
  then on; a file of --mount gets it with `brindle cache grow DIR`.

  With --path, a file of a pool is shown, read-only, as it is when the server
  starts; the pool must not be written meanwhile. A subvolume is chosen by
  --subvol.

EXAMPLES
    brindle export --socket /run/disk.sock disk.img
    brindle export --port 10809 --read-only /dev/sdb
    brindle export --port 10809 --tls-certificates /etc/pki/disks \\
        --tls-verify-peer /dev/sdb
    brindle export --socket /run/cached.sock cache:/dev/sda2:/dev/sdc
    brindle export --mount /run/remote --attach nbd://store.example/disk
    brindle export --socket /run/vm.sock --subvol snapshots/monday \\
        --path vm/disk.img a.img b.img

  In another terminal:
    nbdinfo 'nbd+unix:///?socket=/run/disk.sock'
    nbdcopy 'nbd+unix:///?socket=/run/disk.sock' copy.img
    qemu-img info nbd://127.0.0.1:10809
    nbdinfo 'nbds://localhost/?tls-certificates=/etc/pki/client'

EXIT STATUS
  0  ended by a signal, everything durable
  1  the device, the socket or the port can't be had, or the last flush failed;
     or dirty blocks of a cache did not get to its disk, which is said
  2  wrong usage";

const USAGE: &str = "brindle export <--socket PATH|--port N|--mount DIR> [OPTIONS] <DEVICE>...";

/// Show a device to other programs over NBD, the network block device protocol, or as a file
///
/// DEVICE is an image file, a block device, the file of a modelled disk (brindle lab disk), a cached disk (cache:SSD:DISK) or the export of
/// another server (nbd://HOST/NAME, nbd+unix:///?socket=PATH). It can't be opened twice for writing: a mounted device is refused unless the export is --read-only.
#[derive(Args, Debug)]
#[command(after_long_help = MANUAL, override_usage = USAGE, group = ArgGroup::new("place").required(true))]
pub(crate) struct ExportCommand {
    /// Listen at this unix socket, which is made; one that a killed server left is replaced
    #[arg(long, value_name = "SOCKET", group = "place")]
    socket: Option<PathBuf>,
    /// Listen at this port of 127.0.0.1; 0 for any that is free
    #[arg(long, value_name = "PORT", group = "place")]
    port: Option<u16>,
    /// Show it as the file disk in this directory, without NBD
    #[arg(long, value_name = "DIR", group = "place", conflicts_with_all = ["name", "tls_certificates", "tls"])]
    mount: Option<PathBuf>,
    /// Attach a loop device to that file (root)
    #[arg(long, conflicts_with_all = ["socket", "port"])]
    attach: bool,
    /// Name of the export; clients that give none get it as well
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    name: String,
    /// Refuse writes
    #[arg(short, long)]
    read_only: bool,
    #[command(flatten)]
    tls: TlsOptions,
    #[command(flatten)]
    path: PathOption,
    #[command(flatten)]
    pool: PoolOptions,
    /// Device; with --path those of one pool, in any order
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(command: &ExportCommand) -> Result<ExitCode> {
    let code = match &command.mount {
        Some(mountpoint) => mounted::serve(open(command)?, mountpoint, command.attach),
        None => serve(command),
    };
    // A cache is left with all of it on its disk.
    if !close_all() && code.is_ok() {
        return Ok(ExitCode::FAILURE);
    }
    code
}

fn serve(command: &ExportCommand) -> Result<ExitCode> {
    // A signal must not kill us after the socket was made.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot wait for signals")?;
    let encryption = command.tls.encryption()?;
    let Opened { target, is_host_cached } = open(command)?;
    let export = match target {
        Target::Read(device) => Export::read_only(&command.name, device)?,
        Target::Write(device) => Export::writable(&command.name, device)?,
    };
    let export = if is_host_cached { export.host_cached() } else { export };
    let listener = match (&command.socket, command.port) {
        (Some(path), _) => Listener::unix(path)?,
        (None, port) => Listener::port(port.unwrap_or_default())?,
    };
    let listener = listener.encrypted(encryption);
    let uri = listener.uri(&command.name).to_string();
    let server = Server::start(listener, export)?;
    logging::serve(uri.clone(), false)?;
    let mut out = output::stdout();
    writeln!(out, "{uri}")?;
    out.flush()?;
    signals.forever().next();
    let handle = signals.handle();
    let ender = std::thread::spawn(move || {
        let ended = server.end();
        handle.close();
        ended
    });
    if signals.forever().next().is_some() {
        logging::end();
        std::process::exit(1);
    }
    ender.join().map_err(|_| anyhow::anyhow!("the server could not be ended"))??;
    Ok(ExitCode::SUCCESS)
}

/// A device to be shown.
enum Target {
    Read(Arc<dyn Device>),
    Write(Arc<dyn WritableDevice>),
}

struct Opened {
    target: Target,
    is_host_cached: bool,
}

fn open(command: &ExportCommand) -> Result<Opened> {
    if command.path.file_name().is_some() {
        let filesystem = command.pool.open(&command.devices)?;
        let file = PoolFile::open(filesystem, &command.path)?;
        return Ok(Opened { target: Target::Read(Arc::new(file)), is_host_cached: false });
    }
    let [path] = &command.devices[..] else {
        return wrong_usage(
            "one device is exported by one server; of a pool, --path names a file".to_owned(),
        );
    };
    if is_no_path(path) {
        let target = if command.read_only {
            Target::Read(open_device(path).map_err(|error| name_served(path, error))?)
        } else {
            Target::Write(open_device_to_write(path)?)
        };
        return Ok(Opened { target, is_host_cached: false });
    }
    let device = if command.read_only { FileDevice::open(path)? } else { FileDevice::open_writable(path)? };
    if let Some(DiskMark { name, flash, .. }) = disk_mark(&device)? {
        // A cache on another machine may have it as its disk.
        tracing::warn!(
            "{path} is the disk of the flash cache {name}, and incomplete without: only cache:{flash}:{path} has everything",
            path = path.display()
        );
    }
    let is_host_cached = device.is_host_cached();
    let device = Arc::new(device);
    let target = if command.read_only { Target::Read(device) } else { Target::Write(device) };
    Ok(Opened { target, is_host_cached })
}

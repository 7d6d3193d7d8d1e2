//! Requests, answered in terms of the filesystem. Knows nodes by their number, and nothing of the transport.
//!
//! [`Operations`] is made of parts, each a type with a module, and an `impl`, of its own. A part holds those below it that it
//! needs, and knows none above; the adapter hands each request to the part that answers it.
//!
//! ```text
//! verbs        Ioctls: the table of ioctls, and the parts that answer them        names   Names: look up, make, move, remove
//! ────────────────────────────────────────────────────────────────────────────────────────────────────────
//! settings     MountSettings             pool_reports     PoolReports             openings     Openings: open, close
//! remount      Remount: rest, wake       pool_settings    PoolSettings            contents     Contents: read, write, copy
//! jobs         Jobs: balance, devices,   tree_items       TreeItems               append_only  AppendOnly: writes that it takes
//!              scrub                     device_requests  DeviceRequests          attributes   InodeAttributes
//! subvolumes   Subvolumes                quotas           Quotas                  xattrs       Xattrs
//! defragment   Defragmentation           server           MountServer             directories  Directories: list
//! streams      Streams: send, receive
//! ────────────────────────────────────────────────────────────────────────────────────────────────────────
//! durability      Durability: fsync, syncfs, and what is due before an answer    write_refusals  WriteRefusals
//! pages           KernelPages: contents that the kernel has                      privileges      Privileges
//! invalidations   Invalidations: what the kernel is told to drop                 access_times    AccessTimes
//! files           Files: open files, by handle
//! nodes           Nodes: inodes by the numbers of the kernel
//! mode            MountMode: written or not, at rest or not                    incoming  Incoming: what is received
//! ```

mod access_times;
mod append_only;
mod attributes;
mod balance;
pub(crate) mod contents;
mod defragment;
mod device_requests;
mod devices;
pub(crate) mod directories;
mod durability;
mod files;
mod incoming;
pub(crate) mod invalidations;
mod jobs;
mod long_work;
mod mode;
pub(crate) mod names;
mod nodes;
mod openings;
mod pages;
mod pool_reports;
mod pool_settings;
mod privileges;
mod quotas;
mod remount;
mod scrub;
mod server;
mod settings;
mod streams;
mod subvolumes;
mod tree_items;
pub(crate) mod verbs;
mod write_refusals;
pub(crate) mod xattrs;

use crate::options::MountOptions;
use access_times::AccessTimes;
use attributes::InodeAttributes;
use brindle_fs::{Filesystem, InodeHold};
use contents::Contents;
use defragment::Defragmentation;
use device_requests::DeviceRequests;
use directories::Directories;
use durability::Durability;
use files::Files;
use incoming::Incoming;
use invalidations::Invalidations;
use jobs::Jobs;
use mode::MountMode;
use names::Names;
use nodes::Nodes;
use openings::Openings;
use pages::KernelPages;
use pool_reports::PoolReports;
use pool_settings::PoolSettings;
use privileges::Privileges;
use quotas::Quotas;
use remount::Remount;
use server::MountServer;
use settings::MountSettings;
use std::sync::Arc;
use streams::Streams;
use subvolumes::Subvolumes;
use tree_items::TreeItems;
use verbs::Ioctls;
use write_refusals::WriteRefusals;
use xattrs::Xattrs;

/// A mounted filesystem: the parts that answer requests.
#[derive(Debug)]
pub(crate) struct Operations {
    pub(crate) mode: Arc<MountMode>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) files: Arc<Files>,
    pub(crate) invalidations: Arc<Invalidations>,
    pub(crate) pages: Arc<KernelPages>,
    pub(crate) durability: Arc<Durability>,
    pub(crate) refusals: WriteRefusals,
    pub(crate) attributes: Arc<InodeAttributes>,
    pub(crate) xattrs: Xattrs,
    pub(crate) openings: Arc<Openings>,
    pub(crate) contents: Contents,
    pub(crate) directories: Directories,
    pub(crate) names: Names,
    pub(crate) reports: Arc<PoolReports>,
    pub(crate) remount: Arc<Remount>,
    pub(crate) ioctls: Ioctls,
    jobs: Arc<Jobs>,
    streams: Arc<Streams>,
}

/// The parts that the others stand on.
struct Base {
    mode: Arc<MountMode>,
    nodes: Arc<Nodes>,
    files: Arc<Files>,
    invalidations: Arc<Invalidations>,
    pages: Arc<KernelPages>,
    durability: Arc<Durability>,
    access_times: Arc<AccessTimes>,
    privileges: Arc<Privileges>,
    attributes: Arc<InodeAttributes>,
    streams: Arc<Streams>,
}

impl Base {
    fn new(filesystem: &Arc<Filesystem>, options: &MountOptions) -> std::io::Result<Self> {
        let fs = || filesystem.clone();
        let is_written = filesystem.is_writable() && !options.read_only;
        let mode = Arc::new(MountMode::new(is_written, options.commit_interval));
        let incoming = Arc::<Incoming>::default();
        let nodes = Arc::new(Nodes::new(fs(), mode.clone(), incoming.clone()));
        let files = Arc::new(Files::new(fs(), mode.clone(), nodes.clone()));
        let invalidations = Arc::new(Invalidations::new(nodes.clone()));
        let pages = Arc::new(KernelPages::new(nodes.clone(), files.clone(), invalidations.clone()));
        let durability = Arc::new(Durability::new(
            fs(),
            nodes.clone(),
            files.clone(),
            invalidations.clone(),
            pages.clone(),
            options.synchronous,
        ));
        let access_times = Arc::new(AccessTimes::new(fs(), mode.clone(), options));
        let privileges = Arc::new(Privileges::new(fs(), invalidations.clone()));
        let attributes = Arc::new(InodeAttributes::new(
            fs(),
            nodes.clone(),
            files.clone(),
            privileges.clone(),
            durability.clone(),
            access_times.clone(),
            invalidations.clone(),
        ));
        let streams = Arc::new(Streams::new(
            fs(),
            mode.clone(),
            nodes.clone(),
            pages.clone(),
            invalidations.clone(),
            incoming,
        )?);
        Ok(Self {
            mode,
            nodes,
            files,
            invalidations,
            pages,
            durability,
            access_times,
            privileges,
            attributes,
            streams,
        })
    }
}

impl Operations {
    /// The parts, from the lowest to the highest: none knows one that comes after it.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new(filesystem: &Arc<Filesystem>, options: &MountOptions) -> std::io::Result<Self> {
        let fs = || filesystem.clone();
        let base = Base::new(filesystem, options)?;
        let Base { mode, nodes, files, invalidations, pages, durability, .. } = base;
        let Base { access_times, privileges, attributes, streams, .. } = base;
        let openings = Arc::new(Openings::new(
            fs(),
            nodes.clone(),
            files.clone(),
            invalidations.clone(),
            attributes.clone(),
        ));
        let contents = Contents::new(
            fs(),
            files.clone(),
            invalidations.clone(),
            privileges.clone(),
            durability.clone(),
            access_times.clone(),
        );
        let jobs = Arc::new(Jobs::new(filesystem, mode.clone(), options.state_directory.clone()));
        let remount = Remount::new(fs(), mode.clone(), durability.clone(), jobs.clone(), streams.clone());
        let remount = Arc::new(remount);
        let reports = Arc::new(PoolReports::new(fs()));
        let ioctls = Ioctls {
            mode: mode.clone(),
            durability: durability.clone(),
            attributes: attributes.clone(),
            subvolumes: Subvolumes::new(
                fs(),
                nodes.clone(),
                pages.clone(),
                invalidations.clone(),
                options.owners_delete_subvolumes,
            ),
            reports: reports.clone(),
            pool_settings: PoolSettings::new(fs()),
            tree_items: TreeItems::new(fs()),
            quotas: Quotas::new(fs(), nodes.clone()),
            server: MountServer::new(fs(), mode.clone(), options),
            jobs: jobs.clone(),
            streams: streams.clone(),
            settings: MountSettings::new(fs(), remount.clone(), options),
            device_requests: DeviceRequests::new(fs()),
            defragmentation: Defragmentation::new(fs(), nodes.clone()),
        };
        Ok(Self {
            refusals: WriteRefusals::new(fs(), nodes.clone(), files.clone(), invalidations.clone()),
            xattrs: Xattrs::new(fs(), nodes.clone(), privileges, durability.clone()),
            directories: Directories::new(fs(), nodes.clone(), access_times),
            names: Names::new(fs(), nodes.clone(), files.clone(), durability.clone(), openings.clone()),
            mode,
            nodes,
            files,
            invalidations,
            pages,
            durability,
            attributes,
            openings,
            contents,
            reports,
            remount,
            ioctls,
            jobs,
            streams,
        })
    }

    /// Notes that the kernel has forgotten a node this many times. Returns the hold that was kept for it, to be
    /// [released](Nodes::release).
    pub(crate) fn forget(&self, node: u64, lookups: u64) -> Option<InodeHold> {
        self.refusals.forget(node);
        self.nodes.forget(node, lookups)
    }

    /// Stops what runs, and removes what was kept for the kernel, which asks for nothing any more.
    pub(crate) fn end(&self) {
        self.streams.end();
        self.jobs.end();
        self.nodes.release_all();
    }
}

#[cfg(test)]
mod tests {
    use super::directories::{DIRECTORY_BATCH, Listed};
    use super::verbs::Ioctl;
    use super::*;
    use crate::inode_number::ROOT_NODE;
    use crate::open_files::OpenFiles;
    use crate::permission::{Caller, Ids};
    use brindle_care::mkfs::{MkfsOptions, NewDevice, mkfs};
    use brindle_device::{Device, DeviceClass, SparseDevice, WritableDevice};
    use brindle_fs::{FileType, NewInode, OpenOptions, WriteOptions};
    use brindle_ondisk::Uuid;
    use brindle_policy::balance::Balance;
    use brindle_testing::golden::Golden;
    use brindle_uapi::message::{BalanceStart, SendStart};
    use rustix::io::Errno;
    use rustix::pipe::pipe;
    use std::fs::File;
    use std::io::Write;
    use std::ops::ControlFlow;
    use std::os::fd::AsRawFd;
    use zerocopy::{FromZeros, IntoBytes};

    fn operations(golden: &Golden) -> Operations {
        let devices =
            golden.devices.iter().map(|device| Arc::new(device.clone()) as Arc<dyn Device>).collect();
        let filesystem = Filesystem::open(devices, &OpenOptions::default()).expect("a golden image");
        Operations::new(&Arc::new(filesystem), &MountOptions::default()).expect("a descriptor")
    }

    #[test]
    fn no_balance_goes_on_when_the_mount_has_ended() {
        let device = SparseDevice::new("memory".to_owned(), 1 << 30, DeviceClass::Rotating);
        let device = Arc::new(device) as Arc<dyn WritableDevice>;
        let options = MkfsOptions::new(Uuid([0x5e; 16]), [9; 16], 1_700_000_000);
        mkfs(&[NewDevice::new(Arc::clone(&device))], &options).expect("a pool");
        let fs = Filesystem::open_writable(vec![device], &OpenOptions::default(), &WriteOptions::default());
        let fs = Arc::new(fs.expect("opens"));
        let new = NewInode { mode: 0o100_644, ..NewInode::default() };
        let (_, file) = fs.create_open(fs.root(), b"file", &new).expect("room");
        fs.write(&file, 0, &vec![7; 8 << 20]).expect("room");
        fs.close_file(file).and_then(|()| fs.sync()).expect("room");
        let options = MountOptions { read_only: false, ..MountOptions::default() };
        let operations = Operations::new(&fs, &options).expect("a descriptor");
        let item = Balance::full().to_item();
        let item = item.as_bytes().try_into().expect("the size of an item");
        operations.jobs.balance.start(&BalanceStart { item, rate: 1, flags: 0 }).expect("it begins");
        assert!(operations.jobs.balance.is_running(), "it takes weeks at this rate");
        operations.end();
        assert!(!operations.jobs.balance.is_running());
    }

    #[test]
    fn no_stream_goes_on_when_the_mount_has_ended() {
        let operations = operations(&Golden::load("single"));
        let ((_stream, to_stream), (events, to_events)) = (pipe().expect("a pipe"), pipe().expect("a pipe"));
        let number = |file: &dyn AsRawFd| file.as_raw_fd().try_into().expect("an open descriptor");
        let mut start = SendStart::new_zeroed();
        (start.stream, start.events) = (number(&to_stream), number(&to_events));
        (start.version, start.count, start.ids[0]) = (1, 1, 5);
        let caller = Caller { told: Some(Ids { uid: 0, gid: 0 }), pid: std::process::id() };
        // The pipe of events is full, and stays so: the server waits.
        let filled = std::thread::spawn(move || {
            let mut to_events = File::from(to_events);
            let _ = to_events.write_all(&vec![0; 1 << 20]);
        });
        while rustix::io::ioctl_fionread(&events).expect("a pipe") < 1 << 16 {
            std::thread::yield_now();
        }
        operations.streams.send(caller, &start).expect("it begins");
        operations.end();
        drop(events);
        filled.join().expect("it ends with its reader");
    }

    /// Names, numbers and offsets of a directory, fetched in batches.
    fn listing(
        operations: &Operations,
        node: u64,
        with_attributes: bool,
        room: usize,
    ) -> Vec<(Vec<u8>, u64, u64)> {
        let mut found: Vec<(Vec<u8>, u64, u64)> = Vec::new();
        loop {
            let before = found.len();
            let offset = found.last().map_or(0, |(.., offset)| *offset);
            let mut emit = |entry: Listed<'_>| {
                if found.len() == before + room {
                    return ControlFlow::Break(());
                }
                found.push((entry.name.to_vec(), entry.ino, entry.offset));
                ControlFlow::Continue(())
            };
            operations.directories.list((node, 0), offset, with_attributes, &mut emit).expect("listing");
            if found.len() == before {
                return found;
            }
        }
    }

    #[test]
    fn a_listing_is_the_same_in_pieces_of_any_size() {
        let operations = operations(&Golden::load("big-directory"));
        let whole = listing(&operations, ROOT_NODE, false, usize::MAX);
        let directory = whole.iter().find(|(name, ..)| !name.starts_with(b".")).expect("an entry").0.clone();
        let node = operations.names.lookup(ROOT_NODE, &directory).expect("lookup").expect("it is there").ino;
        let whole = listing(&operations, node, false, usize::MAX);
        assert!(whole.len() > DIRECTORY_BATCH);
        assert_eq!((whole[0].0.as_slice(), whole[1].0.as_slice()), (&b"."[..], &b".."[..]));
        for room in [1, 2, 63, 64, 65, 1000] {
            assert_eq!(listing(&operations, node, false, room), whole);
            assert_eq!(listing(&operations, node, true, room), whole);
        }
    }

    #[test]
    fn missing_objects_give_their_error_numbers() {
        let operations = operations(&Golden::load("single"));
        assert_eq!(operations.names.lookup(ROOT_NODE, b"no such name"), Ok(None));
        assert_eq!(operations.nodes.stat(0).unwrap_err(), Errno::STALE);
        assert_eq!(operations.nodes.stat(1 << 40).unwrap_err(), Errno::STALE);
        assert_eq!(operations.nodes.stat(300 << 48 | 257).unwrap_err(), Errno::NOENT, "no such subvolume");
        assert_eq!(operations.contents.read_into(ROOT_NODE, 0, 0, &mut [0; 10]), Err(Errno::ISDIR));
        assert_eq!(operations.attributes.read_link(ROOT_NODE), Err(Errno::INVAL));
        assert_eq!(operations.xattrs.get(ROOT_NODE, b"user.none"), Err(Errno::NODATA));
        let caller = Caller { told: Some(Ids { uid: 0, gid: 0 }), pid: 0 };
        let ioctl = Ioctl { caller, node: ROOT_NODE, command: 0x1234, input: Vec::new() };
        assert_eq!(operations.ioctls.answer(None, &ioctl), Err(Errno::NOTTY));
    }

    #[test]
    fn open_files_are_bounded() {
        let operations = operations(&Golden::load("big-directory"));
        let mut left = vec![ROOT_NODE];
        let mut files = 0;
        while let Some(directory) = left.pop() {
            for (name, ..) in listing(&operations, directory, true, usize::MAX).split_off(2) {
                let stat = operations.names.lookup(directory, &name).expect("lookup").expect("it is there");
                match stat.kind {
                    FileType::Directory => left.push(stat.ino),
                    FileType::Regular => {
                        let length =
                            operations.contents.read_into(stat.ino, 0, 0, &mut [0; 100]).expect("read");
                        assert_eq!(length as u64, stat.size.min(100));
                        files += 1;
                    }
                    _ => {}
                }
            }
        }
        assert!(files > OpenFiles::CAPACITY, "{files} files");
        assert!(operations.files.unopened_count() <= OpenFiles::CAPACITY);
    }
}

//! A filesystem just good enough to be crashed, and some that are not.
//!
//! A commit writes its tree, in words, to the second device, flushes it, writes a header with the checksum of the
//! words to the first, and flushes that; both alternate between two places. What the words mean is kept beside the
//! devices, by their checksum: it is the order of writes that is under test.

use super::{CrashGuarantees, NewDevice, Subject};
use crate::manifest::Manifest;
use crate::model::{Body, Errno, Model, TreePath};
use crate::operations::{Operation, Target};
use brindle_device::{DeviceClass, DeviceError, WritableDevice};
use brindle_sim::Image;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Flaw of a toy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    /// The header may be there before the words.
    NoFlushBetween,
    /// The header is not durable when the commit returns.
    NoFlushAfter,
    /// The words lie where those of the last commit lay.
    InPlace,
    /// A sync is answered, and done by the next operation.
    LateSync,
    /// A sync, or an fsync if that is of one file, is answered and not done.
    ForgetsSync,
    /// Errors of writes are ignored.
    IgnoresErrors,
    /// Mounting wipes the headers before it writes one.
    CarelessMount,
    /// An operation has another effect than its own, crash or no crash.
    WrongAnswer,
}

/// Behaviour of a toy, right or wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToyBehaviour {
    pub(super) flaw: Flaw,
    /// Number of operations after which it commits by itself.
    pub(super) commits_after: Option<usize>,
    /// An fsync is of one file.
    pub(super) syncs_files: bool,
    /// Guarantees that it declares.
    pub(super) guarantees: CrashGuarantees,
}

type Checksum = [u8; 32];

pub(super) struct ToySubject {
    pub(super) habits: ToyBehaviour,
    /// Every tree that was ever committed.
    trees: Arc<Mutex<HashMap<Checksum, Model>>>,
}

pub(super) struct Toy {
    habits: ToyBehaviour,
    trees: Arc<Mutex<HashMap<Checksum, Model>>>,
    devices: Vec<Arc<dyn WritableDevice>>,
    generation: u64,
    model: Model,
    /// The model at the last commit.
    committed: Model,
    since_commit: usize,
    owes_commit: bool,
    is_aborted: bool,
}

const PLACE_BYTES: u64 = 1 << 20;
const MAGIC: &[u8; 8] = b"toyheads";
/// Magic, generation, length, checksum of the words; then the checksum of these.
const HEADER_BYTES: usize = 8 + 8 + 8 + 32;

struct Header {
    generation: u64,
    length: u64,
    checksum: Checksum,
}

impl ToySubject {
    pub(super) fn new(flaw: Flaw) -> Self {
        let habits = ToyBehaviour {
            flaw,
            commits_after: None,
            syncs_files: false,
            guarantees: CrashGuarantees::default(),
        };
        Self::with(habits)
    }

    pub(super) fn with(habits: ToyBehaviour) -> Self {
        Self { habits, trees: Arc::default() }
    }
}

impl Subject for ToySubject {
    type Target = Toy;

    fn make(&self) -> Vec<NewDevice> {
        let names = ["headers", "words"].map(str::to_owned);
        let devices = names.map(|name| NewDevice {
            name,
            image: Image::new(2 * PLACE_BYTES),
            class: DeviceClass::Solid,
        });
        devices.into()
    }

    fn open(&self, devices: &[Arc<dyn WritableDevice>]) -> Result<Toy, String> {
        let headers = [0, 1].map(|place| Header::read(&*devices[0], place * 4096));
        let newest = headers.into_iter().flatten().max_by_key(|header| header.generation);
        let mut toy = Toy {
            habits: self.habits,
            trees: Arc::clone(&self.trees),
            devices: devices.to_vec(),
            generation: 0,
            model: Model::new(),
            committed: Model::new(),
            since_commit: 0,
            owes_commit: false,
            is_aborted: false,
        };
        if let Some(header) = newest {
            toy.load(&header)?;
            if self.habits.flaw == Flaw::CarelessMount {
                devices[0].write_at(0, &[0; 8192]).map_err(|error| error.to_string())?;
            }
            // As a filesystem that cleans up.
            toy.commit().map_err(|error| format!("mounting: {error}"))?;
        }
        Ok(toy)
    }

    fn close(&self, mut target: Toy) -> Result<(), String> {
        target.commit().map_err(|error| error.to_string())
    }

    fn guarantees(&self) -> CrashGuarantees {
        self.habits.guarantees
    }
}

impl Toy {
    fn load(&mut self, header: &Header) -> Result<(), String> {
        let mut words = vec![0; usize::try_from(header.length).map_err(|error| error.to_string())?];
        let place = self.place(header.generation);
        self.devices[1].read_at(place, &mut words).map_err(|error| error.to_string())?;
        if Checksum::from(Sha256::digest(&words)) != header.checksum {
            return Err("the words are not those of the header".to_owned());
        }
        let trees = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
        self.model = trees.get(&header.checksum).ok_or("words that were never written")?.clone();
        self.committed = self.model.clone();
        self.generation = header.generation;
        Ok(())
    }

    fn place(&self, generation: u64) -> u64 {
        let place = if self.habits.flaw == Flaw::InPlace { 0 } else { generation % 2 };
        place * PLACE_BYTES
    }

    fn commit(&mut self) -> Result<(), Errno> {
        let model = self.model.clone();
        self.commit_model(model)
    }

    fn commit_model(&mut self, model: Model) -> Result<(), Errno> {
        if self.is_aborted {
            return Err(Errno::ReadOnly);
        }
        let written = self.write(&model);
        self.committed = model;
        self.since_commit = 0;
        match written {
            Err(_) if self.habits.flaw != Flaw::IgnoresErrors => {
                self.is_aborted = true;
                Err(Errno::Io)
            }
            _ => Ok(()),
        }
    }

    fn write(&mut self, model: &Model) -> Result<(), DeviceError> {
        // The same tree may be committed again, so its words have the generation in them.
        self.generation += 1;
        let words = format!("{}\n{}", self.generation, model.expectation().manifest()).into_bytes();
        let checksum = Checksum::from(Sha256::digest(&words));
        let trees = Arc::clone(&self.trees);
        trees.lock().unwrap_or_else(PoisonError::into_inner).insert(checksum, model.clone());
        let ignore = |result: Result<(), DeviceError>| {
            if self.habits.flaw == Flaw::IgnoresErrors { Ok(()) } else { result }
        };
        ignore(self.devices[1].write_at(self.place(self.generation), &words))?;
        if self.habits.flaw != Flaw::NoFlushBetween {
            ignore(self.devices[1].flush())?;
        }
        let header = Header { generation: self.generation, length: words.len() as u64, checksum };
        ignore(self.devices[0].write_at(self.generation % 2 * 4096, &header.bytes()))?;
        if self.habits.flaw != Flaw::NoFlushAfter {
            ignore(self.devices[0].flush())?;
        }
        if self.habits.flaw == Flaw::NoFlushBetween {
            ignore(self.devices[1].flush())?;
        }
        Ok(())
    }

    /// Makes one file durable, if the last commit knew it; everything otherwise.
    fn sync_file(&mut self, path: &TreePath) -> Result<(), Errno> {
        let now = self.model.inode(path)?.clone();
        let mut merged = self.committed.clone();
        let was_there = matches!(merged.inode(path), Ok(inode) if matches!(inode.body, Body::File(_)) && inode.nlink == 1);
        match &now.body {
            Body::File(contents) if was_there && now.nlink == 1 => {
                merged.adopt(path, &contents.to_vec())?;
                merged.set_mode(path, now.mode)?;
                merged.set_owner(path, now.uid, now.gid)?;
                for name in merged.inode(path)?.xattrs.keys().cloned().collect::<Vec<String>>() {
                    merged.remove_xattr(path, &name)?;
                }
                for (name, value) in &now.xattrs {
                    merged.set_xattr(path, name, value, crate::model::XattrRule::Any)?;
                }
                if let Some(mtime) = now.mtime {
                    merged.set_times(path, mtime)?;
                }
                if self.habits.flaw == Flaw::ForgetsSync { Ok(()) } else { self.commit_model(merged) }
            }
            _ => self.commit(),
        }
    }
}

impl Target for Toy {
    fn apply(&mut self, operation: &Operation) -> Result<(), Errno> {
        if self.is_aborted {
            return Err(Errno::ReadOnly);
        }
        if std::mem::take(&mut self.owes_commit) {
            self.commit()?;
        }
        let forgets = self.habits.flaw == Flaw::ForgetsSync && !self.habits.syncs_files;
        match operation {
            Operation::Truncate { path, .. } if self.habits.flaw == Flaw::WrongAnswer => {
                return self.model.inode(path).map(|_| ());
            }
            Operation::Sync if self.habits.flaw == Flaw::LateSync => {
                self.owes_commit = true;
                return Ok(());
            }
            Operation::Sync if forgets => return Ok(()),
            Operation::Sync => return self.commit(),
            Operation::SyncFile { path } if self.habits.syncs_files => return self.sync_file(path),
            Operation::SyncFile { path } => {
                self.model.inode(path)?;
                return self.commit();
            }
            _ => self.model.apply(operation)?,
        }
        self.since_commit += 1;
        if self.habits.commits_after.is_some_and(|most| self.since_commit >= most) {
            self.commit()
        } else {
            Ok(())
        }
    }

    fn manifest(&mut self) -> Result<Manifest, String> {
        Ok(self.model.expectation().manifest().clone())
    }

    fn contents(&mut self, path: &TreePath) -> Option<Vec<u8>> {
        self.model.contents(path).ok()
    }
}

impl Header {
    fn bytes(&self) -> Vec<u8> {
        let (generation, length) = (self.generation.to_le_bytes(), self.length.to_le_bytes());
        let fields = [&MAGIC[..], &generation, &length, &self.checksum].concat();
        let own = Sha256::digest(&fields);
        [&fields, &own[..]].concat()
    }

    fn read(device: &dyn WritableDevice, at: u64) -> Option<Self> {
        let mut bytes = [0; HEADER_BYTES + 32];
        device.read_at(at, &mut bytes).ok()?;
        let (fields, own) = bytes.split_at(HEADER_BYTES);
        if !fields.starts_with(MAGIC) || Sha256::digest(fields)[..] != *own {
            return None;
        }
        let number = |at: usize| Some(u64::from_le_bytes(fields.get(at..at + 8)?.try_into().ok()?));
        Some(Self { generation: number(8)?, length: number(16)?, checksum: fields[24..].try_into().ok()? })
    }
}

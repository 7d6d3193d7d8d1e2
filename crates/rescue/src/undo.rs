//! The undo file: old contents of every page that a repair writes, durable before the first write.
//!
//! All numbers are little-endian: the magic, a version, the number of devices and of pages; of each device its size and name; of each
//! page the number of its device, its offset and length, the SHA-256 of its new contents, and its old contents; last the SHA-256 of all
//! that.
//!
//! Undoing takes a page for whole if it has either contents, so that a repair that was interrupted, and an undoing that was, are
//! undone as well. Superblocks go first: as long as the new ones are there, so is what they point to.

use crate::error::RescueError;
use crate::patch::{Patch, Written, write};
use brindle_device::{Device, WritableDevice};
use brindle_ondisk::{ChecksumType, to_u64, to_usize};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"BRNDUNDO";
const VERSION: u32 = 1;
const HASH_BYTES: usize = 32;

/// An undo file that was read, and is whole.
#[derive(Debug)]
pub struct UndoFile {
    path: PathBuf,
    devices: Vec<RecordedDevice>,
    pages: Vec<RecordedPage>,
}

#[derive(Debug)]
struct RecordedDevice {
    name: String,
    size_bytes: u64,
}

#[derive(Debug)]
struct RecordedPage {
    device: usize,
    offset: u64,
    new: Vec<u8>,
    old: Vec<u8>,
}

/// Writes an undo file, and makes it durable.
pub(crate) fn save(
    path: &Path,
    devices: &[Arc<dyn WritableDevice>],
    patches: &[Patch],
) -> Result<(), RescueError> {
    let bytes = encode(devices, patches);
    let fill = |mut file: File| {
        file.write_all(&bytes)?;
        file.sync_all()
    };
    let make = || {
        let file = File::options().write(true).create_new(true).open(path)?;
        // Part of an undo file undoes nothing, and nothing was written yet.
        fill(file).inspect_err(|_| _ = fs::remove_file(path))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    };
    make().map_err(|source| RescueError::UndoFile { path: path.to_owned(), source })
}

fn encode(devices: &[Arc<dyn WritableDevice>], patches: &[Patch]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(to_u64(devices.len()).to_le_bytes());
    bytes.extend(to_u64(patches.len()).to_le_bytes());
    for device in devices {
        bytes.extend(device.size_bytes().to_le_bytes());
        bytes.extend(to_u64(device.name().len()).to_le_bytes());
        bytes.extend(device.name().as_bytes());
    }
    for patch in patches {
        bytes.extend(to_u64(patch.device).to_le_bytes());
        bytes.extend(patch.offset.to_le_bytes());
        bytes.extend(to_u64(patch.old.len()).to_le_bytes());
        bytes.extend(hash(&patch.new));
        bytes.extend(&patch.old);
    }
    let whole = hash(&bytes);
    bytes.extend(whole);
    bytes
}

fn hash(bytes: &[u8]) -> Vec<u8> {
    ChecksumType::Sha256.compute(bytes).as_bytes()[..HASH_BYTES].to_vec()
}

/// Rest of the bytes of an undo file.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, length: u64) -> Option<&'b [u8]> {
        let length = usize::try_from(length).ok().filter(|length| *length <= self.0.len())?;
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn device(&mut self) -> Option<RecordedDevice> {
        let size_bytes = self.number()?;
        let length = self.number()?;
        let name = String::from_utf8_lossy(self.take(length)?).into_owned();
        Some(RecordedDevice { name, size_bytes })
    }

    fn page(&mut self, devices: usize) -> Option<RecordedPage> {
        let device = self.number()?;
        let (offset, length) = (self.number()?, self.number()?);
        let new = self.take(to_u64(HASH_BYTES))?.to_vec();
        let old = self.take(length)?.to_vec();
        (device < to_u64(devices)).then(|| RecordedPage { device: to_usize(device), offset, new, old })
    }
}

impl UndoFile {
    /// Reads an undo file.
    ///
    /// # Errors
    /// A file that is no undo file, or not whole.
    pub fn read(path: &Path) -> Result<Self, RescueError> {
        let failed = |source: io::Error| RescueError::UndoFile { path: path.to_owned(), source };
        let bytes = fs::read(path).map_err(failed)?;
        let damaged = |why| RescueError::UndoDamaged { path: path.to_owned(), why };
        if !bytes.starts_with(MAGIC) {
            return Err(damaged("it is no undo file of brindle"));
        }
        let not_whole = || damaged("it is cut off, or its bytes have changed");
        let end =
            bytes.len().checked_sub(HASH_BYTES).filter(|end| *end > MAGIC.len()).ok_or_else(not_whole)?;
        if hash(&bytes[..end]) != bytes[end..] {
            return Err(not_whole());
        }
        let mut reader = Reader(&bytes[MAGIC.len()..end]);
        let version = reader.take(4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
        if version != Some(VERSION) {
            return Err(damaged("it is of a version that is not known"));
        }
        let (devices, pages) = (reader.number(), reader.number());
        let (Some(devices), Some(pages)) = (devices, pages) else { return Err(not_whole()) };
        let devices: Option<Vec<_>> = (0..devices).map(|_| reader.device()).collect();
        let devices = devices.ok_or_else(not_whole)?;
        let pages: Option<Vec<_>> = (0..pages).map(|_| reader.page(devices.len())).collect();
        let pages = pages.ok_or_else(not_whole)?;
        Ok(Self { path: path.to_owned(), devices, pages })
    }

    /// Gives the old contents back to the devices, in any order.
    ///
    /// # Errors
    /// Devices that are others, or were written since: nothing is written then.
    pub fn undo(&self, devices: &[Arc<dyn WritableDevice>]) -> Result<Written, RescueError> {
        let chosen = self.choose(devices)?;
        let mut patches = Vec::new();
        for page in &self.pages {
            let present = read(chosen[page.device].as_device(), page)?;
            if present != page.old {
                let (device, offset) = (page.device, page.offset);
                patches.push(Patch { device, offset, old: present, new: page.old.clone() });
            }
        }
        let is_superblock = |patch: &Patch| patch.superblock().is_some();
        write(&chosen, patches.iter().filter(|patch| is_superblock(patch)), |patch| &patch.new)?;
        write(&chosen, patches.iter().filter(|patch| !is_superblock(patch)), |patch| &patch.new)?;
        Ok(Written { pages: patches.len(), bytes: patches.iter().map(|patch| to_u64(patch.new.len())).sum() })
    }

    /// The device given for each that is recorded, by its size and the contents of all of its pages.
    fn choose(
        &self,
        devices: &[Arc<dyn WritableDevice>],
    ) -> Result<Vec<Arc<dyn WritableDevice>>, RescueError> {
        let needed: BTreeSet<usize> = self.pages.iter().map(|page| page.device).collect();
        if devices.len() < needed.len() {
            let (given, needed) = (devices.len(), needed.len());
            return Err(RescueError::TooFewDevices { given, needed });
        }
        let (mut chosen, mut changed) = (Vec::new(), None);
        let mut left: Vec<&Arc<dyn WritableDevice>> = devices.iter().collect();
        for (number, recorded) in self.devices.iter().enumerate() {
            if !needed.contains(&number) {
                // Nothing of it was written: any other stands for it.
                chosen.push(Arc::clone(devices.first().ok_or_else(|| self.no_devices())?));
                continue;
            }
            let mut found = None;
            for (index, device) in left.iter().enumerate() {
                if device.size_bytes() != recorded.size_bytes {
                    continue;
                }
                match self.first_other(number, device.as_device())? {
                    None => found = found.or(Some(index)),
                    Some(offset) => {
                        changed
                            .get_or_insert(RescueError::Changed { device: device.name().to_owned(), offset });
                    }
                }
            }
            let Some(index) = found else {
                let RecordedDevice { name, size_bytes } = recorded;
                let none = RescueError::NoSuchDevice { name: name.clone(), size_bytes: *size_bytes };
                return Err(changed.unwrap_or(none));
            };
            chosen.push(Arc::clone(left.swap_remove(index)));
        }
        Ok(chosen)
    }

    fn no_devices(&self) -> RescueError {
        RescueError::UndoDamaged { path: self.path.clone(), why: "no device was given to be undone" }
    }

    /// Offset of the first page of a recorded device of which another device has neither contents.
    fn first_other(&self, number: usize, device: &dyn Device) -> Result<Option<u64>, RescueError> {
        for page in self.pages.iter().filter(|page| page.device == number) {
            let present = read(device, page)?;
            if present != page.old && hash(&present) != page.new {
                return Ok(Some(page.offset));
            }
        }
        Ok(None)
    }
}

fn read(device: &dyn Device, page: &RecordedPage) -> Result<Vec<u8>, RescueError> {
    let mut bytes = vec![0; page.old.len()];
    device.read_at(page.offset, &mut bytes)?;
    Ok(bytes)
}

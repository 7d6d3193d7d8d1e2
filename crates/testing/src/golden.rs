//! The golden images: filesystems that the Linux kernel made, kept in `golden/` with the script that made
//! them, and loaded here without root and without a mount. `golden/README.md` lists what each is for.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use brindle_device::{Device, DeviceError};
use zstd::zstd_safe::DCtx;

use crate::manifest::Manifest;

/// The unit that an image in memory is kept in.
pub const BLOCK_BYTES: usize = 4096;

/// The window that `make.sh` compresses with.
const WINDOW_LOG_MAX: u32 = 27;

type Block = [u8; BLOCK_BYTES];

/// Loaded images: decompressing gigabytes of zeros takes longer than most tests, and a clone is cheap.
static LOADED: Mutex<BTreeMap<String, Arc<OnceLock<Golden>>>> = Mutex::new(BTreeMap::new());

/// Contexts of decompressors that are done: each has a window, which takes longer to get from the host than most images to read.
static CONTEXTS: Mutex<Vec<DCtx<'static>>> = Mutex::new(Vec::new());

const ZEROS: Block = [0; BLOCK_BYTES];

/// A multiple of the block.
const READ_BYTES: usize = 32 * BLOCK_BYTES;

/// One filesystem as the kernel left it, and what the kernel said was in it.
#[derive(Clone, Debug)]
pub struct Golden {
    /// The directory in `golden/`.
    pub name: String,
    /// Every device of the pool, in order of its devid.
    pub devices: Vec<SparseImage>,
    /// The tree from its root (subvolume 5), subvolumes included.
    pub manifest: Manifest,
    /// Origin of the image, and the output of `statfs` and `btrfs subvolume list`.
    pub about: About,
}

/// `NAME=VALUE` lines about an image; a name may come several times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    lines: Vec<(String, String)>,
}

/// A device in memory, of which only the blocks that are not all zero are kept. A clone is cheap, and
/// shares what neither has written since.
#[derive(Clone)]
pub struct SparseImage {
    name: String,
    devid: u64,
    size_bytes: u64,
    blocks: BTreeMap<u64, Arc<Block>>,
}

/// The names of all images, sorted.
///
/// # Panics
/// If the directory is not there.
#[must_use]
pub fn names() -> Vec<String> {
    let listing = fs::read_dir(directory()).expect("the golden images are part of the source tree");
    let mut names: Vec<String> = listing
        .map(|entry| entry.expect("the directory is readable").path())
        .filter(|path| path.join("manifest").is_file())
        .filter_map(|path| path.file_name()?.to_str().map(str::to_owned))
        .collect();
    names.sort();
    names
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

impl Golden {
    /// Loads an image by its name.
    ///
    /// # Panics
    /// If there is no such image, or it is broken: a test can do nothing better.
    #[must_use]
    pub fn load(name: &str) -> Self {
        let slot = {
            let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(loaded.entry(name.to_owned()).or_default())
        };
        let load = || Self::try_load(name).unwrap_or_else(|error| panic!("golden image {name}: {error}"));
        slot.get_or_init(load).clone()
    }

    fn try_load(name: &str) -> io::Result<Self> {
        let directory = directory().join(name);
        let mut devices = Vec::new();
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let file_name = path.file_name().unwrap_or_default().to_string_lossy();
            let devid = file_name.strip_prefix("dev").and_then(|rest| rest.strip_suffix(".img.zst"));
            if let Some(devid) = devid {
                let devid = devid.parse().map_err(io::Error::other)?;
                let kept = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let mut context = kept.unwrap_or_else(DCtx::create);
                let source = BufReader::new(File::open(&path)?);
                let mut decoder = zstd::Decoder::with_context(source, &mut context);
                decoder.window_log_max(WINDOW_LOG_MAX)?;
                devices.push(SparseImage::read(&format!("{name}/dev{devid}"), devid, decoder)?);
                CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner).push(context);
            }
        }
        devices.sort_by_key(SparseImage::devid);
        let about = About::parse(&fs::read_to_string(directory.join("about"))?);
        let mut golden = Self { name: name.to_owned(), devices, manifest: Manifest::default(), about };
        golden.manifest = golden.other_manifest("manifest")?;
        Ok(golden)
    }

    /// A further manifest that some images have: `manifest-replayed`, `manifest-seed`.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn other_manifest(&self, file_name: &str) -> io::Result<Manifest> {
        let text = fs::read_to_string(directory().join(&self.name).join(file_name))?;
        text.parse().map_err(io::Error::other)
    }

    /// The device with this devid.
    #[must_use]
    pub fn device(&self, devid: u64) -> Option<&SparseImage> {
        self.devices.iter().find(|device| device.devid == devid)
    }
}

impl About {
    fn parse(text: &str) -> Self {
        let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self { lines: text.lines().filter_map(pair).collect() }
    }

    /// The first value of a name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.lines.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Every value of a name, in order.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        self.lines.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// A value that is a number, such as those of `statfs`: `f_bsize`, `f_blocks`, `f_bfree`, `f_bavail`.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.value(name)?.parse().ok()
    }
}

impl SparseImage {
    /// A device of zeros.
    #[must_use]
    pub fn zeroed(name: &str, devid: u64, size_bytes: u64) -> Self {
        Self { name: name.to_owned(), devid, size_bytes, blocks: BTreeMap::new() }
    }

    /// Takes the whole of a stream, most of it zeros.
    ///
    /// # Errors
    /// The stream's.
    pub fn read(name: &str, devid: u64, mut stream: impl Read) -> io::Result<Self> {
        let mut image = Self::zeroed(name, devid, 0);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let length = read_up_to(&mut stream, &mut buffer)?;
            if length == 0 {
                return Ok(image);
            }
            let first = image.size_bytes / BLOCK_BYTES as u64;
            image.size_bytes += length as u64;
            for (number, bytes) in (first..).zip(buffer[..length].chunks(BLOCK_BYTES)) {
                // Comparing slices is one `memcmp`, an order of magnitude faster than a loop over bytes.
                if bytes != &ZEROS[..bytes.len()] {
                    let mut block = ZEROS;
                    block[..bytes.len()].copy_from_slice(bytes);
                    image.blocks.insert(number, Arc::new(block));
                }
            }
        }
    }

    /// The number in the file's name; that in the superblock is the same.
    #[must_use]
    pub fn devid(&self) -> u64 {
        self.devid
    }

    /// The size of the device.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Bytes of it kept in memory.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        (self.blocks.len() * BLOCK_BYTES) as u64
    }

    /// The blocks that are not all zero: each block's offset and its contents.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, &Block)> {
        self.blocks.iter().map(|(number, block)| (number * BLOCK_BYTES as u64, &**block))
    }

    /// Fills a buffer from an offset.
    ///
    /// # Errors
    /// If the range passes the end.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.check_range(offset, buffer.len())?;
        for piece in pieces(offset, buffer.len()) {
            let target = &mut buffer[piece.in_buffer..piece.in_buffer + piece.length];
            match self.blocks.get(&piece.block) {
                Some(block) => target.copy_from_slice(&block[piece.in_block..piece.in_block + piece.length]),
                None => target.fill(0),
            }
        }
        Ok(())
    }

    /// Puts bytes at an offset, for tests that damage an image.
    ///
    /// # Errors
    /// If the range passes the end.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.check_range(offset, bytes.len())?;
        for piece in pieces(offset, bytes.len()) {
            let source = &bytes[piece.in_buffer..piece.in_buffer + piece.length];
            let zeros = || Arc::new(ZEROS);
            let block = Arc::make_mut(self.blocks.entry(piece.block).or_insert_with(zeros));
            block[piece.in_block..piece.in_block + piece.length].copy_from_slice(source);
            if *block == ZEROS {
                self.blocks.remove(&piece.block);
            }
        }
        Ok(())
    }

    /// Cuts the device off.
    pub fn truncate(&mut self, size_bytes: u64) {
        self.size_bytes = self.size_bytes.min(size_bytes);
        let blocks = self.size_bytes.div_ceil(BLOCK_BYTES as u64);
        self.blocks.split_off(&blocks);
        let in_last = usize::try_from(self.size_bytes % BLOCK_BYTES as u64).expect("less than a block");
        if in_last > 0 {
            if let Some(block) = self.blocks.get_mut(&(blocks - 1)) {
                Arc::make_mut(block)[in_last..].fill(0);
            }
        }
    }

    /// Writes the image to a file, sparsely, so that it can be given to `btrfs check` or a loop device.
    ///
    /// # Errors
    /// The file's.
    pub fn write_to(&self, path: &Path) -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        let file = File::create(path)?;
        file.set_len(self.size_bytes)?;
        for (offset, block) in self.blocks() {
            let length =
                usize::try_from(self.size_bytes - offset).map_or(BLOCK_BYTES, |rest| rest.min(BLOCK_BYTES));
            file.write_all_at(&block[..length], offset)?;
        }
        Ok(())
    }

    fn check_range(&self, offset: u64, length: usize) -> Result<(), DeviceError> {
        if offset.checked_add(length as u64).is_some_and(|end| end <= self.size_bytes) {
            return Ok(());
        }
        let size_bytes = self.size_bytes;
        Err(DeviceError::BeyondEnd { device: self.name.clone(), offset, length, size_bytes })
    }
}

impl std::fmt::Debug for SparseImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, devid, size_bytes, .. } = self;
        f.debug_struct("SparseImage")
            .field("name", name)
            .field("devid", devid)
            .field("size_bytes", size_bytes)
            .field("stored_bytes", &self.stored_bytes())
            .finish_non_exhaustive()
    }
}

impl Device for SparseImage {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        Self::read_at(self, offset, buffer)
    }
}

/// The part of a range that lies in one block.
struct BlockSpan {
    block: u64,
    in_block: usize,
    in_buffer: usize,
    length: usize,
}

fn pieces(offset: u64, length: usize) -> impl Iterator<Item = BlockSpan> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let in_block = usize::try_from(at % BLOCK_BYTES as u64).expect("less than a block");
        let piece_length = (BLOCK_BYTES - in_block).min(length - done);
        let piece =
            BlockSpan { block: at / BLOCK_BYTES as u64, in_block, in_buffer: done, length: piece_length };
        done += piece_length;
        (piece_length > 0).then_some(piece)
    })
}

fn read_up_to(stream: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::{About, BLOCK_BYTES, Golden, SparseImage, names};

    const SUPERBLOCK: u64 = 0x1_0000;

    #[test]
    fn every_image_loads_and_has_superblocks() {
        assert!(names().len() > 40, "{:?}", names());
        for name in names() {
            let golden = Golden::load(&name);
            assert!(!golden.devices.is_empty(), "{name}");
            assert!(golden.manifest.entry(b"").is_some(), "{name}");
            assert_eq!(golden.about.number("f_bsize"), Some(4096), "{name}");
            for device in &golden.devices {
                let mut magic = [0; 8];
                device.read_at(SUPERBLOCK + 0x40, &mut magic).unwrap();
                assert_eq!(&magic, b"_BHRfS_M", "{device:?}");
                let mut devid = [0; 8];
                device.read_at(SUPERBLOCK + 0xc9, &mut devid).unwrap();
                assert_eq!(u64::from_le_bytes(devid), device.devid(), "{device:?}");
            }
        }
    }

    #[test]
    fn manifests_are_as_they_would_be_printed() {
        for name in ["single", "log-tree"] {
            let golden = Golden::load(name);
            let path = super::directory().join(name).join("manifest");
            let printed = golden.manifest.to_string();
            assert!(printed == std::fs::read_to_string(path).unwrap(), "{name}: make its manifest again");
        }
    }

    #[test]
    fn about_keeps_repeated_names() {
        let about = About::parse("a=1\nb=x=y\na=2\n");
        assert_eq!(about.number("a"), Some(1));
        assert_eq!(about.value("b"), Some("x=y"));
        assert_eq!(about.values("a").collect::<Vec<_>>(), ["1", "2"]);
    }

    #[test]
    fn reads_past_the_end_fail() {
        let mut image = SparseImage::zeroed("image", 1, 5000);
        assert!(image.read_at(4999, &mut [0]).is_ok());
        assert!(image.read_at(5000, &mut [0]).is_err());
        assert!(image.read_at(u64::MAX, &mut [0]).is_err());
        assert!(image.write_at(4999, b"ab").is_err());
    }

    proptest! {
        #[test]
        fn a_sparse_image_is_as_the_bytes_it_stands_for(
            writes in vec((0_usize..40_000, vec(0_u8..2, 0..9000)), 0..8),
            read in (0_usize..50_000, 0_usize..20_000),
        ) {
            let mut plain = vec![0; 50_001];
            let mut image = SparseImage::zeroed("image", 1, 50_001);
            for (offset, bytes) in &writes {
                plain[*offset..offset + bytes.len()].copy_from_slice(bytes);
                image.write_at(*offset as u64, bytes).unwrap();
            }
            let length = read.1.min(plain.len() - read.0);
            let mut found = vec![9; length];
            image.read_at(read.0 as u64, &mut found).unwrap();
            prop_assert_eq!(&found[..], &plain[read.0..read.0 + length]);

            let streamed = SparseImage::read("image", 1, &plain[..]).unwrap();
            prop_assert_eq!(streamed.size_bytes(), 50_001);
            prop_assert!(streamed.blocks().eq(image.blocks()));
            prop_assert!(image.blocks().all(|(offset, _)| offset % (BLOCK_BYTES as u64) == 0));

            image.truncate(read.0 as u64);
            let cut = SparseImage::read("image", 1, &plain[..read.0]).unwrap();
            prop_assert_eq!(image.size_bytes(), cut.size_bytes());
            let kept: Vec<_> = image.blocks().filter(|(_, block)| **block != [0; BLOCK_BYTES]).collect();
            prop_assert_eq!(kept, cut.blocks().collect::<Vec<_>>());
        }
    }
}

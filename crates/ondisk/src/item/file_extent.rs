//! Extents of files.

use super::{exact, prefix};
use crate::{Defect, Generation, Logical, to_u64};
use std::fmt;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The part that every file extent has (`btrfs_file_extent_item` up to `type`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FileExtentHeader {
    /// The transaction that made it.
    pub generation: Generation,
    /// Size of the whole extent when decompressed, in bytes.
    pub ram_bytes: U64,
    /// A [`Compression`].
    pub compression: u8,
    /// Always 0.
    pub encryption: u8,
    /// Always 0.
    pub other_encoding: U16,
    /// A [`FileExtentType`].
    pub extent_type: u8,
}
const _: () = assert!(size_of::<FileExtentHeader>() == 21);

/// The part that points to an extent on disk.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FileExtentRef {
    /// Address of the extent; 0 for a hole.
    pub disk_bytenr: Logical,
    /// Size of the whole extent on disk, in bytes.
    pub disk_num_bytes: U64,
    /// Offset in the (decompressed) extent at which this piece of the file begins, in bytes.
    pub offset: U64,
    /// The length of this piece of the file, in bytes.
    pub num_bytes: U64,
}
const _: () = assert!(size_of::<FileExtentRef>() == 32);

/// Form of an extent's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileExtentType {
    /// Contents in the item itself.
    Inline = 0,
    /// On disk.
    Regular = 1,
    /// Space on disk, to be read as zeros.
    Prealloc = 2,
}

/// Compression algorithm of the contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Compression {
    /// No compression.
    None = 0,
    /// A zlib stream.
    Zlib = 1,
    /// LZO1X in segments of a sector.
    Lzo = 2,
    /// A zstd frame.
    Zstd = 3,
}

impl Compression {
    /// The compression of a number on disk.
    pub fn from_disk(number: u8) -> Option<Self> {
        [Self::None, Self::Zlib, Self::Lzo, Self::Zstd].into_iter().find(|kind| *kind as u8 == number)
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Zlib => "zlib",
            Self::Lzo => "lzo",
            Self::Zstd => "zstd",
        })
    }
}

impl FileExtentType {
    /// The type of a number on disk.
    pub fn from_disk(number: u8) -> Option<Self> {
        [Self::Inline, Self::Regular, Self::Prealloc].into_iter().find(|kind| *kind as u8 == number)
    }
}

impl fmt::Display for FileExtentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inline => "inline",
            Self::Regular => "regular",
            Self::Prealloc => "prealloc",
        })
    }
}

/// One extent of a file.
#[derive(Clone, Copy, Debug)]
pub enum FileExtent<'a> {
    /// The contents themselves, perhaps compressed.
    Inline {
        /// The part that every file extent has.
        header: &'a FileExtentHeader,
        /// Compression of `data`.
        compression: Compression,
        /// The contents.
        data: &'a [u8],
    },
    /// A regular or preallocated extent, or a hole.
    OnDisk {
        /// The part that every file extent has.
        header: &'a FileExtentHeader,
        /// Compression of the extent.
        compression: Compression,
        /// True if it reads as zeros.
        is_prealloc: bool,
        /// Its location.
        extent: &'a FileExtentRef,
    },
}

impl<'a> FileExtent<'a> {
    pub(super) fn parse(data: &'a [u8]) -> Result<Self, Defect> {
        let (header, rest) = prefix::<FileExtentHeader>(data, "file extent is cut off")?;
        let compression = Compression::from_disk(header.compression)
            .ok_or_else(|| Defect::new("unknown compression of file extent", header.compression.into()))?;
        if header.encryption != 0 {
            return Err(Defect::expected("encryption of file extent", 0, header.encryption.into()));
        }
        if header.other_encoding.get() != 0 {
            let found = header.other_encoding.get().into();
            return Err(Defect::expected("other_encoding of file extent", 0, found));
        }
        let kind = FileExtentType::from_disk(header.extent_type)
            .ok_or_else(|| Defect::new("unknown type of file extent", header.extent_type.into()))?;
        if kind == FileExtentType::Inline {
            return Ok(Self::Inline { header, compression, data: rest });
        }
        let extent = exact(rest, "size of regular file extent")?;
        let is_prealloc = kind == FileExtentType::Prealloc;
        Ok(Self::OnDisk { header, compression, is_prealloc, extent })
    }

    /// The part that every file extent has.
    pub fn header(&self) -> &'a FileExtentHeader {
        match self {
            Self::Inline { header, .. } | Self::OnDisk { header, .. } => header,
        }
    }

    /// Bytes of the file that it covers.
    pub fn length(&self) -> u64 {
        match self {
            Self::Inline { header, compression: Compression::None, data } => {
                to_u64(data.len()).min(header.ram_bytes.get())
            }
            Self::Inline { header, .. } => header.ram_bytes.get(),
            Self::OnDisk { extent, .. } => extent.num_bytes.get(),
        }
    }
}

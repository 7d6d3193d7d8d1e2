//! Encoding of contents into pieces, which become extents.

use crate::compression::choice::CompressionChoice;
use crate::compression::compress;
use crate::compression::promise::is_promising;
use crate::data::context::Settings;
use crate::extent::COMPRESSED_MAX_BYTES;
use brindle_ondisk::item::Compression;
use brindle_ondisk::{ChecksumType, TreeContext, to_u64, to_usize};

/// Parameters for turning contents into pieces.
#[derive(Clone, Copy, Debug)]
pub struct BulkFormat {
    pub(super) sectorsize: u32,
    pub(super) checksum: ChecksumType,
    pub(super) compression: Option<CompressionChoice>,
    pub(super) max_inline_bytes: u32,
}

/// A piece of a file, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkPiece {
    /// Offset in the file, in bytes.
    pub(super) start: u64,
    /// Bytes of the file: whole sectors, unless it is inline.
    pub(super) length: u64,
    pub(super) compression: Compression,
    /// Bytes for the devices, whole sectors; or for the item, if it is inline.
    pub(super) bytes: Vec<u8>,
    pub(super) is_inline: bool,
    /// Checksums of the sectors on the devices.
    pub(super) checksums: Vec<u8>,
}

impl BulkFormat {
    /// The format of a pool that is written with these settings.
    pub(crate) fn new(pool: &TreeContext, settings: &Settings) -> Self {
        Self {
            sectorsize: pool.sectorsize,
            checksum: pool.checksum_type,
            compression: settings.compression,
            max_inline_bytes: settings.max_inline_bytes,
        }
    }

    /// Returns true if a file of this size, without holes, is kept in its item.
    pub fn is_inline(&self, size: u64) -> bool {
        size > 0 && size <= self.max_inline_bytes.into() && size < self.sectorsize.into()
    }

    /// The size of a sector: where pieces have to begin.
    pub fn sector(&self) -> u64 {
        self.sectorsize.into()
    }

    /// The same without compression, for files that must not be compressed.
    pub fn without_compression(self) -> Self {
        Self { compression: None, ..self }
    }

    /// The piece that a small file is, if it is kept in its item.
    pub fn encode_inline(&self, contents: Vec<u8>) -> BulkPiece {
        let length = to_u64(contents.len());
        let room = contents.len().saturating_sub(1);
        let small =
            self.compression.filter(|choice| choice.force || is_promising(&contents)).and_then(|choice| {
                let small =
                    compress(choice.algorithm, choice.level, &contents, room, to_usize(self.sector()));
                small.map(|bytes| (choice.algorithm, bytes))
            });
        let (compression, bytes) = small.unwrap_or((Compression::None, contents));
        BulkPiece { start: 0, length, compression, bytes, is_inline: true, checksums: Vec::new() }
    }

    /// The pieces of a part of a file that begins at `start`, with or without checksums. What is missing of the last
    /// sector is zeros.
    pub fn encode(&self, start: u64, mut contents: Vec<u8>, has_checksums: bool) -> Vec<BulkPiece> {
        let sector = to_usize(self.sector());
        contents.resize(contents.len().next_multiple_of(sector), 0);
        let mut pieces = match self.compression.filter(|_| has_checksums) {
            Some(choice) => self.compress_all(start, &contents, choice),
            None => vec![plain(start, contents)],
        };
        if has_checksums {
            for piece in &mut pieces {
                piece.checksums.reserve_exact(piece.bytes.len() / sector * self.checksum.size());
                for sector in piece.bytes.chunks(sector) {
                    piece.checksums.extend_from_slice(self.checksum.compute(sector).as_bytes());
                }
            }
        }
        pieces
    }

    fn compress_all(&self, start: u64, contents: &[u8], choice: CompressionChoice) -> Vec<BulkPiece> {
        let sector = to_usize(self.sector());
        let mut pieces: Vec<BulkPiece> = Vec::new();
        let mut at = start;
        for part in contents.chunks(to_usize(COMPRESSED_MAX_BYTES)) {
            let room = part.len() - sector;
            let is_tried = room > 0 && (choice.force || is_promising(part));
            let small =
                if is_tried { compress(choice.algorithm, choice.level, part, room, sector) } else { None };
            let length = to_u64(part.len());
            match (small, pieces.last_mut()) {
                (Some(mut bytes), _) => {
                    bytes.resize(bytes.len().next_multiple_of(sector), 0);
                    let compression = choice.algorithm;
                    let (is_inline, checksums) = (false, Vec::new());
                    pieces.push(BulkPiece { start: at, length, compression, bytes, is_inline, checksums });
                }
                (None, Some(last)) if last.compression == Compression::None => {
                    last.bytes.extend_from_slice(part);
                    last.length += length;
                }
                (None, _) => pieces.push(plain(at, part.to_vec())),
            }
            at += length;
        }
        pieces
    }
}

fn plain(start: u64, bytes: Vec<u8>) -> BulkPiece {
    let (length, compression) = (to_u64(bytes.len()), Compression::None);
    BulkPiece { start, length, compression, bytes, is_inline: false, checksums: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(compression: Option<Compression>) -> BulkFormat {
        let choice = |algorithm| CompressionChoice { algorithm, level: None, force: false };
        BulkFormat {
            sectorsize: 4096,
            checksum: ChecksumType::Crc32c,
            compression: compression.map(choice),
            max_inline_bytes: 2048,
        }
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1u64;
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_le_bytes()[7]
        };
        (0..length).map(next).collect()
    }

    #[test]
    fn incompressible_contents_stay_in_one_piece_between_compressible_ones() {
        let contents = [vec![7; 131_072], noise(262_144), vec![0; 5000]].concat();
        let pieces = format(Some(Compression::Zstd)).encode(1 << 20, contents, true);
        let kinds: Vec<_> =
            pieces.iter().map(|piece| (piece.start, piece.length, piece.compression)).collect();
        const MIB: u64 = 1 << 20;
        assert_eq!(
            kinds,
            [
                (MIB, 131_072, Compression::Zstd),
                (MIB + 131_072, 262_144, Compression::None),
                (MIB + 393_216, 8192, Compression::Zstd),
            ]
        );
        assert!(pieces.iter().all(|piece| piece.checksums.len() == piece.bytes.len() / 4096 * 4));
        assert!(pieces.iter().all(|piece| piece.bytes.len() % 4096 == 0));
    }

    #[test]
    fn small_files_go_into_the_item_and_may_be_compressed_there() {
        let format = format(Some(Compression::Zlib));
        assert!(format.is_inline(2048) && !format.is_inline(2049) && !format.is_inline(0));
        let piece = format.encode_inline(vec![b'a'; 1000]);
        assert_eq!((piece.length, piece.compression), (1000, Compression::Zlib));
        assert!(piece.bytes.len() < 100);
        let piece = format.without_compression().encode_inline(vec![b'a'; 1000]);
        assert_eq!((piece.bytes.len(), piece.compression), (1000, Compression::None));
    }

    #[test]
    fn without_checksums_nothing_is_compressed() {
        let pieces = format(Some(Compression::Lzo)).encode(0, vec![0; 100_000], false);
        assert_eq!((pieces.len(), pieces[0].bytes.len()), (1, 102_400));
        assert!(pieces[0].checksums.is_empty());
    }
}

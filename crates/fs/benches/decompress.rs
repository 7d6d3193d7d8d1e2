//! Decompression of 128 KiB extents, beside the raw library call on the same bytes.

use brindle_fs::decompress;
use brindle_ondisk::item::Compression;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::io::Write;

const EXTENT: usize = 128 << 10;
const SECTOR: usize = 4096;

/// Words in an order that repeats seldom: compresses about as text does.
fn text() -> Vec<u8> {
    let words = ["extent", "tree", "leaf", "chunk", "stripe", "mirror", "node", "item", "key", "snapshot"];
    let mut state = 1u32;
    let mut text = Vec::new();
    while text.len() < EXTENT {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.extend(words[(state >> 24) as usize % words.len()].as_bytes());
        text.push(b' ');
    }
    text.truncate(EXTENT);
    text
}

fn bench(criterion: &mut Criterion) {
    let data = text();
    let mut output = vec![0; EXTENT];
    let mut group = criterion.benchmark_group("decompress");
    group.throughput(Throughput::Bytes(EXTENT as u64));

    let compressed = zstd::bulk::compress(&data, 3).expect("compresses");
    group.bench_function("zstd", |bencher| {
        bencher.iter(|| decompress(Compression::Zstd, black_box(&compressed), &mut output, SECTOR));
    });
    let mut raw = zstd::bulk::Decompressor::new().expect("a context");
    group.bench_function("zstd, the library alone", |bencher| {
        bencher.iter(|| raw.decompress_to_buffer(black_box(&compressed), &mut output));
    });

    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(3));
    encoder.write_all(&data).expect("compresses");
    let compressed = encoder.finish().expect("compresses");
    group.bench_function("zlib", |bencher| {
        bencher.iter(|| decompress(Compression::Zlib, black_box(&compressed), &mut output, SECTOR));
    });
    let mut raw = flate2::Decompress::new(true);
    group.bench_function("zlib, the library alone", |bencher| {
        bencher.iter(|| {
            raw.reset(true);
            raw.decompress(black_box(&compressed), &mut output, flate2::FlushDecompress::Finish)
        });
    });

    let segments: Vec<Vec<u8>> =
        data.chunks(SECTOR).map(|segment| lzokay::compress::compress(segment).expect("compresses")).collect();
    let framed = frame(&segments);
    group.bench_function("lzo", |bencher| {
        bencher.iter(|| decompress(Compression::Lzo, black_box(&framed), &mut output, SECTOR));
    });
    group.bench_function("lzo, the library alone", |bencher| {
        bencher.iter(|| {
            for (segment, output) in segments.iter().zip(output.chunks_mut(SECTOR)) {
                lzokay::decompress::decompress(black_box(segment), output).expect("decompresses");
            }
        });
    });
    group.finish();
}

/// Segments in the frame that btrfs gives them.
fn frame(segments: &[Vec<u8>]) -> Vec<u8> {
    let mut framed = vec![0; 4];
    for segment in segments {
        let left = SECTOR - framed.len() % SECTOR;
        if left < 4 {
            framed.resize(framed.len() + left, 0);
        }
        framed.extend(u32::try_from(segment.len()).expect("small").to_le_bytes());
        framed.extend(segment);
    }
    let total = u32::try_from(framed.len()).expect("small").to_le_bytes();
    framed[..4].copy_from_slice(&total);
    framed
}

criterion_group!(benches, bench);
criterion_main!(benches);

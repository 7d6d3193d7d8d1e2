//! Checksums of a sector and of a node, beside the raw library call.

use brindle_ondisk::ChecksumType;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;

fn bench(criterion: &mut Criterion) {
    for size in [4 << 10, 16 << 10] {
        let data: Vec<u8> = (0..size).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect();
        let mut group = criterion.benchmark_group(format!("checksum of {size} bytes"));
        group.throughput(Throughput::Bytes(data.len() as u64));
        for kind in ChecksumType::ALL {
            group.bench_function(kind.name(), |bencher| bencher.iter(|| kind.compute(black_box(&data))));
        }
        group.bench_function("crc32c, the library alone", |bencher| {
            bencher.iter(|| crc32c::crc32c(black_box(&data)));
        });
        group.bench_function("xxhash64, the library alone", |bencher| {
            bencher.iter(|| twox_hash::XxHash64::oneshot(0, black_box(&data)));
        });
        group.bench_function("sha256, the library alone", |bencher| {
            use sha2::Digest;
            bencher.iter(|| sha2::Sha256::digest(black_box(&data)));
        });
        group.bench_function("blake2b, the library alone", |bencher| {
            bencher.iter(|| blake2b_simd::Params::new().hash_length(32).hash(black_box(&data)));
        });
        group.finish();
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);

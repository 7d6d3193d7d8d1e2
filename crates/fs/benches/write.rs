//! Writing contents to a pool in memory, without FUSE: into memory, on to the devices, and back.

use brindle_care::mkfs::{MkfsOptions, NewDevice, mkfs};
use brindle_device::{DeviceClass, SparseDevice, WritableDevice};
use brindle_fs::{Compression, CompressionChoice, Filesystem, NewInode, OpenFile, OpenOptions, WriteOptions};
use brindle_ondisk::Uuid;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::Arc;

const MIB: usize = 1 << 20;
/// Bytes that one round writes.
const ROUND: usize = 32 * MIB;

fn filesystem(compression: Option<Compression>) -> Filesystem {
    let device = Arc::new(SparseDevice::new("memory", 4 << 30, DeviceClass::Unknown));
    let options = MkfsOptions::new(Uuid([0x5e; 16]), [9; 16], 1_700_000_000);
    mkfs(&[NewDevice::new(Arc::clone(&device) as Arc<dyn WritableDevice>)], &options).expect("a pool");
    let compression = compression.map(|algorithm| CompressionChoice { algorithm, level: None, force: false });
    let write = WriteOptions { compression, ..WriteOptions::default() };
    Filesystem::open_writable(vec![device], &OpenOptions::default(), &write).expect("opens")
}

fn file(filesystem: &Filesystem) -> OpenFile {
    let new = NewInode { mode: 0o100_644, umask: 0, uid: 0, gid: 0, rdev: 0, target: None };
    let made = filesystem.create(filesystem.root(), b"file", &new).expect("creates");
    filesystem.open_file(made.id).expect("opens")
}

/// Words in an order that repeats seldom.
fn text() -> Vec<u8> {
    let words = ["extent", "tree", "leaf", "chunk", "stripe", "mirror", "node", "item", "key", "snapshot"];
    let mut state = 1u32;
    let mut text = Vec::new();
    while text.len() < MIB {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.extend(words[(state >> 24) as usize % words.len()].as_bytes());
        text.push(b' ');
    }
    text.truncate(MIB);
    text
}

fn in_order(filesystem: &Filesystem, file: &OpenFile, contents: &[u8]) {
    for number in 0..ROUND / contents.len() {
        let offset = (number * contents.len()) as u64;
        filesystem.write(file, offset, black_box(contents)).expect("writes");
    }
}

fn bench(criterion: &mut Criterion) {
    let contents = text();
    let mut group = criterion.benchmark_group("write");
    group.sample_size(10).throughput(Throughput::Bytes(ROUND as u64));
    for (name, compression) in
        [("none", None), ("zstd", Some(Compression::Zstd)), ("lzo", Some(Compression::Lzo))]
    {
        let filesystem = filesystem(compression);
        let file = file(&filesystem);
        group.bench_function(format!("1 MiB in order, written back, compression {name}"), |bencher| {
            bencher.iter(|| {
                in_order(&filesystem, &file, &contents);
                filesystem.write_back(&file).expect("writes");
            });
        });
        filesystem.commit().expect("commits");
    }
    let filesystem = filesystem(None);
    let file = file(&filesystem);
    group.bench_function("1 MiB in order, over what is dirty", |bencher| {
        bencher.iter(|| in_order(&filesystem, &file, &contents));
    });
    let mut buffer = vec![0; MIB];
    group.bench_function("1 MiB in order, read while dirty", |bencher| {
        bencher.iter(|| {
            for offset in (0..ROUND).step_by(MIB) {
                filesystem.read(&file, offset as u64, black_box(&mut buffer)).expect("reads");
            }
        });
    });
    filesystem.write_back(&file).expect("writes");
    group.bench_function("4 KiB here and there, written back", |bencher| {
        bencher.iter(|| {
            let mut at = 1u64;
            for _ in 0..ROUND / 4096 / 8 {
                at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let offset = (at >> 33) % (ROUND as u64 / 4096) * 4096;
                filesystem.write(&file, offset, black_box(&contents[..4096])).expect("writes");
            }
            filesystem.write_back(&file).expect("writes");
        });
    });
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);

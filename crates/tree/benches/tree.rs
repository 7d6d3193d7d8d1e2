//! Node search and cursor scan, in items per second.

use brindle_device::Device;
use brindle_ondisk::{Key, RootId};
use brindle_testing::golden::Golden;
use brindle_tree::{OpenOptions, Pool, Readahead};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::Arc;

fn bench(criterion: &mut Criterion) {
    let golden = Golden::load("deep-tree");
    let devices = golden.devices.into_iter().map(|device| Arc::new(device) as Arc<dyn Device>).collect();
    let pool = Pool::open(devices, &OpenOptions::default()).expect("opens");
    let root = pool.tree(RootId::FS_TREE).expect("has files");
    let mut keys = Vec::new();
    let mut cursor = pool.cursor(&root, Readahead::None);
    cursor.seek(&Key::MIN).expect("seek");
    while let Some(key) = cursor.key() {
        keys.push(key);
        cursor.next().expect("next");
    }

    let mut group = criterion.benchmark_group("tree");
    group.throughput(Throughput::Elements(keys.len() as u64));
    group.bench_function("cursor scan, warm cache", |bencher| {
        bencher.iter(|| {
            let mut cursor = pool.cursor(&root, Readahead::Forward);
            cursor.seek(&Key::MIN).expect("seek");
            let mut bytes = 0;
            while let Some((_, data)) = cursor.item() {
                bytes += data.len();
                cursor.next().expect("next");
            }
            black_box(bytes)
        });
    });
    group.bench_function("search of every key, warm cache", |bencher| {
        bencher.iter(|| {
            for key in &keys {
                let found = pool.with_item(&root, key, <[u8]>::len).expect("search");
                black_box(found);
            }
        });
    });

    let mut cursor = pool.cursor(&root, Readahead::None);
    cursor.seek(&keys[keys.len() / 2]).expect("seek");
    let (leaf, _) = cursor.leaf().expect("a leaf");
    let leaf_keys: Vec<Key> = leaf.items().iter().map(|item| item.key).collect();
    group.throughput(Throughput::Elements(leaf_keys.len() as u64));
    group.bench_function("search in one leaf", |bencher| {
        bencher.iter(|| leaf_keys.iter().filter(|key| leaf.search(key).is_ok()).count());
    });
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);

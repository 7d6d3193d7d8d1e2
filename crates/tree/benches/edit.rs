//! Changes to a tree in memory, commits not counted: an item of 100 bytes each time, in a tree of 200,000.

use brindle_care::mkfs::{MkfsOptions, NewDevice, mkfs};
use brindle_device::{DeviceClass, SparseDevice, WritableDevice};
use brindle_ondisk::{Key, KeyType, ObjectId, RootId, Uuid};
use brindle_tree::{Need, OpenOptions, Pool, Transaction, Tree, Verdict, WriterOptions};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ITEMS: u64 = 200_000;
/// Changes between two commits.
const BATCH: u64 = 10_000;
const DATA: [u8; 100] = [7; 100];

struct Bench {
    pool: Pool,
    tree: Arc<Tree>,
}

/// A key of a type that brindle does not know.
fn key(number: u64) -> Key {
    Key::new(ObjectId::new(1000 + number / 16), KeyType(7), number % 16)
}

/// Any of the items, never the same order as that of their keys.
fn somewhere(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % ITEMS
}

impl Bench {
    /// A tree of the items of even numbers.
    fn new() -> Self {
        let device = Arc::new(SparseDevice::new("memory", 4 << 30, DeviceClass::Unknown));
        let device = device as Arc<dyn WritableDevice>;
        let options = MkfsOptions::new(Uuid([0x5e; 16]), [9; 16], 1_700_000_000);
        mkfs(&[NewDevice::new(Arc::clone(&device))], &options).expect("a pool");
        let options = OpenOptions { cache_bytes: 1 << 30, ..OpenOptions::default() };
        let pool = Pool::open_writable(vec![device], &options, &WriterOptions::default()).expect("opens");
        let tree = pool.tree(RootId::FS_TREE).expect("has files");
        let items: Vec<(Key, &[u8])> = (0..ITEMS).map(|number| (key(2 * number), DATA.as_slice())).collect();
        pool.join(Need::items(1)).expect("room").insert_all(&tree, &items).expect("added");
        pool.commit().expect("committed");
        Self { pool, tree }
    }

    /// Times changes in batches, each in one transaction.
    fn time(&self, count: u64, mut change: impl FnMut(&Transaction<'_>, u64)) -> Duration {
        let mut time = Duration::ZERO;
        let mut from = 0;
        while from < count {
            let end = count.min(from + BATCH);
            let transaction = self.pool.join(Need::items(1)).expect("room");
            let start = Instant::now();
            for number in from..end {
                change(&transaction, number);
            }
            time += start.elapsed();
            drop(transaction);
            self.pool.commit().expect("committed");
            from = end;
        }
        time
    }

    /// Takes away what a run has added.
    fn tidy(&self) {
        let judge = |key: &Key, _: &[u8]| match key.offset() % 2 == 0 && *key < self::key(2 * ITEMS) {
            true => Verdict::Keep,
            false => Verdict::Remove,
        };
        let transaction = self.pool.join(Need::freeing(1)).expect("room");
        transaction.remove_range(&self.tree, &key(0), &Key::MAX, judge).expect("removed");
        drop(transaction);
        self.pool.commit().expect("committed");
    }
}

fn bench(criterion: &mut Criterion) {
    let bench = Bench::new();
    let tree = &*bench.tree;
    let mut group = criterion.benchmark_group("edit");
    group.throughput(Throughput::Elements(1)).sample_size(10);
    group.bench_function("update anywhere", |bencher| {
        bencher.iter_custom(|count| {
            bench.time(count, |transaction, number| {
                let key = key(2 * somewhere(number));
                black_box(transaction.update(tree, &key, |data| data[0] ^= 1).expect("updated"));
            })
        });
    });
    group.bench_function("insert and remove anywhere", |bencher| {
        bencher.iter_custom(|count| {
            bench.time(count, |transaction, number| {
                let key = key(2 * somewhere(number) + 1);
                transaction.insert(tree, &key, &DATA).expect("inserted");
                transaction.remove(tree, &key).expect("removed");
            })
        });
    });
    group.bench_function("insert behind the last", |bencher| {
        bencher.iter_custom(|count| {
            let time = bench.time(count, |transaction, number| {
                transaction.insert(tree, &key(2 * ITEMS + number), &DATA).expect("inserted");
            });
            bench.tidy();
            time
        });
    });
    group.bench_function("insert 100 at once behind the last, each", |bencher| {
        bencher.iter_custom(|count| {
            let time = bench.time(count.div_ceil(100), |transaction, number| {
                let first = 2 * ITEMS + 100 * number;
                let items: [(Key, &[u8]); 100] =
                    std::array::from_fn(|at| (key(first + at as u64), DATA.as_slice()));
                transaction.insert_all(tree, &items).expect("inserted");
            });
            bench.tidy();
            time
        });
    });
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);

//! Processor time of a read of a mirrored block under each read policy: devices in memory, so that only copying the
//! block and verifying nothing comes on top of the choice.

use brindle_care::mkfs::{MkfsOptions, NewDevice, mkfs};
use brindle_device::{DeviceClass, SparseDevice, WritableDevice};
use brindle_fs::{Filesystem, OpenOptions, WriteOptions};
use brindle_ondisk::{BlockGroupType, Logical, Profile, Uuid};
use brindle_volume::DataChecksums;
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::Arc;

const BLOCK_BYTES: usize = 4096;

/// Two disks and a flash device, with all data on all of them.
fn filesystem() -> Filesystem {
    let classes = [DeviceClass::Rotating, DeviceClass::Rotating, DeviceClass::Solid];
    let device = |(number, class): (usize, DeviceClass)| {
        Arc::new(SparseDevice::new(format!("memory{number}"), 1 << 30, class)) as Arc<dyn WritableDevice>
    };
    let devices: Vec<_> = classes.into_iter().enumerate().map(device).collect();
    let mut options = MkfsOptions::new(Uuid([0x5e; 16]), [9; 16], 1_700_000_000);
    (options.data, options.metadata) = (Some(Profile::Raid1c3), Some(Profile::Raid1c3));
    let new: Vec<NewDevice> = devices.iter().map(|device| NewDevice::new(Arc::clone(device))).collect();
    mkfs(&new, &options).expect("a pool");
    Filesystem::open_writable(devices, &OpenOptions::default(), &WriteOptions::default()).expect("opens")
}

fn choices(criterion: &mut Criterion) {
    let filesystem = filesystem();
    let volume = filesystem.pool().volume();
    let chunks = volume.chunks();
    let chunk = chunks.iter().find(|chunk| chunk.kind.contains(BlockGroupType::DATA)).expect("one of data");
    let (start, blocks) = (chunk.start.get(), chunk.length / BLOCK_BYTES as u64);
    let mut group = criterion.benchmark_group("read of 4 KiB");
    for policy in ["pid", "round-robin", "devid:1", "roundrobin", "latency", "queue", "auto"] {
        volume.choose_read_policy(policy).expect("a policy");
        for host in ["", ", read_host_stats"] {
            volume.set_read_host_statistics(!host.is_empty());
            let (mut number, mut buffer) = (0_u64, [0; BLOCK_BYTES]);
            group.bench_function(format!("{policy}{host}"), |bencher| {
                bencher.iter(|| {
                    number = number
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let at = Logical::new(start + (number >> 33) % blocks * BLOCK_BYTES as u64);
                    volume.read_data(at, &mut buffer, &DataChecksums::none()).expect("it is in memory");
                    black_box(buffer[0])
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, choices);
criterion_main!(benches);

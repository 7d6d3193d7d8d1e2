use super::super::view::Rate;
use super::*;
use crate::commands::device_contents::DeviceContents;
use brindle_admin::activity::CountedBy;
use brindle_admin::health::{GroupHealth, Job};
use brindle_ondisk::BlockGroupType;
use brindle_policy::placement::PlacementClass;

const GIB: u64 = 1 << 30;

fn device(devid: u64, path: &str, class: &str, state: &'static str) -> DeviceView {
    DeviceView {
        devid,
        path: path.to_owned(),
        class: Some(class.to_owned()),
        state,
        idle: Some(Duration::from_secs(3700)),
        counted_by: CountedBy::Kernel,
        rates: [Rate::default(); 4],
        in_flight: 0,
        contents: Some(DeviceContents { data_bytes: 700 * GIB, ..DeviceContents::default() }),
        total_bytes: 2000 * GIB,
        unallocated_bytes: 1300 * GIB,
    }
}

/// Two disks of which one sleeps, and an SSD that works.
fn view() -> View {
    let rate = |requests, bytes, us| Rate { requests, bytes, latency: Some(Duration::from_micros(us)) };
    let mut ssd = device(3, "/dev/disk/by-id/nvme-Samsung_SSD_980_1TB", "fast", "busy");
    ssd.rates =
        [rate(1234.5, 5.1e6, 90), rate(15_000.0, 312.4e6, 1200), rate(9.5, 0.0, 700), Rate::default()];
    ssd.in_flight = 31;
    ssd.contents =
        Some(DeviceContents { data_bytes: 0, metadata_bytes: 12 * GIB, write_back_bytes: 3 * GIB });
    ssd.unallocated_bytes = 40 * GIB;
    let group = |kind: BlockGroupType, class, used_bytes| GroupHealth {
        kind,
        class: Some(class),
        total_bytes: 700 * GIB,
        used_bytes,
    };
    View {
        now: 1_800_000_000,
        interval: Duration::from_secs(2),
        name: "tank".to_owned(),
        uuid: "u".to_owned(),
        state: "ok",
        place: "/srv/pool".to_owned(),
        server: "brindle",
        devices: vec![
            device(1, "/dev/sda", "bulk", "asleep"),
            device(2, "/dev/sdb\x1b[2J", "bulk", "missing"),
            ssd,
        ],
        groups: vec![
            group(BlockGroupType::DATA | BlockGroupType::RAID1, PlacementClass::Bulk, 600 * GIB),
            group(BlockGroupType::METADATA, PlacementClass::Fast, 7 * GIB),
        ],
        cache: Some(CacheView {
            lookups: 52_000.0,
            hit_ratio: Some(0.987),
            hit_ratio_ever: Some(0.9),
            used_bytes: 60 << 20,
            capacity_bytes: 64 << 20,
        }),
        flash_caches: vec![FlashCacheView {
            devid: 1,
            read: 3.2e6,
            hit_ratio: Some(0.75),
            hit_ratio_ever: None,
            used_bytes: 90 * GIB,
            capacity_bytes: 100 * GIB,
            dirty_bytes: 7 * GIB,
            cleaned: 0.0,
        }],
        write_back: Some(WriteBackView {
            mode: "sync".to_owned(),
            waiting_bytes: 2 * GIB,
            capacity_bytes: 40 * GIB,
            age: Some(Duration::from_secs(300)),
            destaged: 81.5e6,
        }),
        syncs: Some(SyncView {
            by_log: 480.0,
            by_commit: 0.5,
            log_writes: 120.0,
            percentiles: Some([Duration::from_micros(2048), Duration::from_micros(16_384)]),
            commits: 0.03,
            longest_commit: Duration::from_millis(1300),
        }),
        jobs: vec![Job { name: "balance".to_owned(), is_running: false, progress: Some((1, 3)) }],
    }
}

fn text(view: &View, width: usize, height: usize) -> String {
    let lines = lines(view, width, height);
    assert!(
        lines.len() <= height && lines.iter().all(|line| line.text.chars().count() <= width),
        "{lines:#?}"
    );
    lines.into_iter().map(|line| line.text + "\n").collect()
}

#[test]
fn a_terminal_of_80_columns_shows_it_all() {
    let found = text(&view(), 80, 24);
    assert!(found == include_str!("screen.txt"), "{found}");
}

#[test]
fn trouble_has_a_tone_and_a_name_cannot_move_the_cursor() {
    let found = lines(&view(), 80, 24);
    let tones: Vec<Tone> = found[3..6].iter().map(|line| line.tone).collect();
    assert_eq!(tones, [Tone::Quiet, Tone::Trouble, Tone::Plain]);
    assert!(found.iter().all(|line| !line.text.contains('\x1b')));
}

#[test]
fn any_size_has_room_for_something() {
    for (width, height) in [(0, 0), (1, 1), (20, 5), (40, 100), (300, 3)] {
        text(&view(), width, height);
    }
    let wide = text(&view(), 120, 24);
    assert!(wide.contains("3 /dev/disk/by-id/nvme-Samsung_SSD_980_1TB "), "{wide}");
}

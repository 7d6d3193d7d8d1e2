use super::*;
use crate::Model;

const MIB: u64 = 1 << 20;

fn predictions(trace: &Trace, ssd_bytes: u64) -> Vec<Prediction> {
    let (disk, ssd) = (Model::parse("hdd").expect("a model"), Model::parse("ssd").expect("a model"));
    Role::ALL.into_iter().map(|role| replay(trace, role, &disk, &ssd, ssd_bytes)).collect()
}

fn synced() -> Trace {
    let demand =
        Demand { files: 60, mean_bytes: 64 << 10, syncs_per_second: 1000, files_per_read: 0, seed: 7 };
    demand.trace()
}

#[test]
fn metadata_on_an_ssd_makes_syncs_faster_and_write_back_more_so() {
    let found = predictions(&synced(), 1 << 30);
    let time = |role: Role| found.iter().find(|it| it.role == role).expect("all roles").elapsed_ns;
    assert!(time(Role::None) > 60 * 2 * 7_000_000, "two turns of the disk for each sync: {found:#?}");
    assert!(time(Role::Metadata) * 10 < time(Role::None) * 9, "{found:#?}");
    assert!(time(Role::WriteBack) * 3 < time(Role::Metadata), "{found:#?}");
    assert!(time(Role::CacheBack) * 3 < time(Role::Metadata), "{found:#?}");
    assert!(time(Role::CacheThrough) * 10 > time(Role::None) * 9, "its writes wait for the disk: {found:#?}");
    let write_back = &found[2];
    let (bytes, ns) = write_back.destage.expect("data waits");
    assert!(bytes >= 60 * (32 << 10) && ns > 0, "{found:#?}");
    assert!(found[0].ssd.is_none());
}

#[test]
fn an_ssd_without_room_leaves_the_rest_to_the_disk() {
    let found = predictions(&synced(), MIB);
    assert_eq!(found[2].held_bytes, MIB);
    assert!(found[2].refused_bytes > 2 * MIB, "{found:#?}");
    // A cache gives up old blocks for new ones: one that has them alone writes them to the disk first.
    for cache in &found[3..] {
        assert_eq!((cache.held_bytes, cache.refused_bytes), (MIB, 0));
    }
    let wide = &predictions(&synced(), 1 << 30)[4];
    assert_eq!((wide.disks.writes, wide.disks.flushes), (0, 0), "{wide:#?}");
    let waiting = |found: &Prediction| found.destage.expect("it writes back").0;
    let written = wide.disks.written_bytes + waiting(wide);
    assert!(found[4].disks.written_bytes + waiting(&found[4]) >= written, "{:#?}", found[4]);
    assert!(waiting(&found[4]) <= MIB && found[4].disks.writes > 10, "{:#?}", found[4]);
}

#[test]
fn a_cache_serves_what_is_read_again() {
    let read = |number: u64, block: u64| TraceRequest {
        disk: 0,
        operation: TraceOperation::Read,
        offset: block * MIB,
        length: MIB,
        begin_ns: number * 1_000_000,
        end_ns: number * 1_000_000 + 500_000,
        is_metadata: false,
    };
    // More than the disk has memory for.
    let requests = (0..800).map(|number| read(number, number % 200 * 37)).collect();
    let disk = TraceDisk { name: "sda".to_owned(), size_bytes: 0, is_fast: false };
    let found = predictions(&Trace::new(vec![disk], requests, 0), 256 * MIB);
    assert_eq!((found[0].read_share, found[3].read_share), (Some(0.0), Some(0.75)));
    for cache in &found[3..] {
        assert_eq!((cache.disks.reads, cache.disks.writes), (200, 0));
        assert!(cache.waited_ns * 2 < found[0].waited_ns, "{found:#?}");
    }
}

#[test]
fn requests_at_the_same_time_stay_so_and_pauses_stay() {
    let read = |begin_ns, end_ns, offset| TraceRequest {
        disk: 0,
        operation: TraceOperation::Read,
        offset,
        length: 4096,
        begin_ns,
        end_ns,
        is_metadata: false,
    };
    let disk = TraceDisk { name: "sda".to_owned(), size_bytes: 0, is_fast: true };
    let requests =
        vec![read(0, 90_000, 0), read(10, 90_000, MIB), read(5_000_000_000, 5_000_090_000, 9 * MIB)];
    let found = &predictions(&Trace::new(vec![disk], requests, 0), MIB)[0];
    assert!((4_999_000_000..5_001_000_000).contains(&found.elapsed_ns), "{found:?}");
    assert!(found.latencies_ns[2] < 200_000, "{found:?}");
}

#[test]
fn records_and_the_text_of_blkparse_are_read() {
    let blkparse = "\
  8,0    3        1     0.000000000   697  Q  WM 2048 + 8 [kworker]
  8,0    3        2     0.000010000   697  D  WM 2048 + 8 [kworker]
  8,0    3        3     0.000510000     0  C  WM 2048 + 8 [0]
  8,0    3        4     0.000600000   697  D  FN [kworker]
  8,16   3        5     0.000610000   697  D   R 64 + 16 [cat]
  8,16   3        6     0.008610000     0  C   R 64 + 16 [0]
  8,0    3        7     0.009000000     0  C  FN 0 [0]
CPU3 (8,0):
 Reads Queued:           0,        0KiB
";
    let trace = Trace::parse(blkparse).expect("requests");
    let found: Vec<_> =
        trace.requests.iter().map(|it| (it.disk, it.operation, it.offset, it.length)).collect();
    let expected = [
        (0, TraceOperation::Write, MIB, 4096),
        (0, TraceOperation::Flush, 0, 0),
        (1, TraceOperation::Read, 32 << 10, 8192),
    ];
    assert_eq!((found.as_slice(), trace.lost, trace.elapsed_ns()), (&expected[..], 0, 8_990_000));
    assert_eq!(trace.requests.iter().map(|it| it.is_metadata).collect::<Vec<_>>(), [true, false, false]);

    let header = TraceHeader { kind: TraceHeader::KIND.to_owned(), disks: trace.disks.clone(), lost: 0 };
    let json = |value: serde_json::Result<String>| value.expect("JSON") + "\n";
    let mut text = json(serde_json::to_string(&header));
    trace.requests.iter().for_each(|request| text += &json(serde_json::to_string(request)));
    assert_eq!(Trace::parse(&text).expect("a record"), trace);
}

#[test]
fn tracepoints_are_read_as_perf_and_the_kernel_print_them() {
    // perf script --ns of Linux 6.18; a flush ends at another place than it began, and a write that it was for ends with it.
    let perf = "\
          btrfs 12660 [001] 24994.208375001:    block:block_rq_issue: 7,8 RAM 57344 () 523776 + 112 0x2,0,4 [btrfs]
     ksoftirqd/1    22 [001] 24994.208441002: block:block_rq_complete: 7,8 RAM () 523776 + 112 0x2,0,4 [0]
 my program[0]   697 [001] 24995.000000000:    block:block_rq_issue: 254,0 WSM 4096 () 0 + 8 0x2,0,4 [my program[0]]
 kworker/1:1H-kb    54 [001] 24995.720536000:    block:block_rq_issue: 7,8 FF 0 () 0 + 0 0x0,0,0 [kworker/1:1H]
     ksoftirqd/0    14 [000] 24995.720660000: block:block_rq_complete: 7,8 FF () 18446744073709551615 + 0 0x0,0,0 [0]
     ksoftirqd/0    14 [000] 24995.720662000: block:block_rq_complete: 254,0 WS () 0 + 0 0x2,0,4 [0]
     ksoftirqd/0    14 [000] 24995.720700000: block:block_rq_complete: 254,0 WSM () 0 + 8 0x2,0,4 [0]
";
    // Before Linux 6.9 there was no priority; perf tells microseconds unless told otherwise.
    let trace_file = "\
# tracer: nop
            fio-697     [001] d..1. 24994.208375: block_rq_issue: 8,0 WS 4096 () 223490 + 8 [fio]
         <idle>-0       [000] d.h1. 24994.218375: block_rq_complete: 8,0 WS () 223490 + 8 [0]
";
    let trace = Trace::parse(perf).expect("requests");
    let found: Vec<_> =
        trace.requests.iter().map(|it| (it.disk, it.operation, it.offset, it.length)).collect();
    let expected = [
        (0, TraceOperation::Read, 523_776 * 512, 57_344),
        (1, TraceOperation::Write, 0, 4096),
        (0, TraceOperation::Flush, 0, 0),
    ];
    assert_eq!((found.as_slice(), trace.lost), (&expected[..], 0));
    assert_eq!(trace.requests[0].end_ns - trace.requests[0].begin_ns, 66_001);
    assert_eq!(trace.requests.iter().map(|it| it.is_metadata).collect::<Vec<_>>(), [true, true, false]);
    let other = Trace::parse(trace_file).expect("a request");
    assert_eq!((other.requests.len(), other.elapsed_ns()), (1, 10_000_000));
    assert_eq!((other.requests[0].offset, other.disks[0].name.as_str()), (223_490 * 512, "8,0"));

    let only = trace.clone().only(&["254:0".to_owned()]).expect("there");
    assert_eq!((only.disks.len(), only.requests.len(), only.requests[0].disk), (1, 1, 0));
    let error = trace.only(&["8,0".to_owned()]).expect_err("not there").to_string();
    assert_eq!(error, "the record has no disk 8,0; there are 7,8 254,0");
}

#[test]
fn requests_at_places_that_no_disk_has_are_none() {
    let perf = "\
          fio 1 [001] 1.000000000: block:block_rq_issue: 7,8 R 4096 () 36028797018963960 + 8 [fio]
          fio 1 [001] 1.000100000: block:block_rq_complete: 7,8 R () 36028797018963960 + 8 [0]
          fio 1 [001] 2.000000000: block:block_rq_issue: 7,8 R 4096 () 8 + 8 [fio]
          fio 1 [001] 2.000100000: block:block_rq_complete: 7,8 R () 8 + 8 [0]
";
    let trace = Trace::parse(perf).expect("a request");
    assert_eq!(trace.requests.iter().map(|it| it.offset).collect::<Vec<_>>(), [4096]);
    let record = |offset: u64, length: u64| {
        let disks = trace.disks.clone();
        let header = TraceHeader { kind: TraceHeader::KIND.to_owned(), disks, lost: 0 };
        let request = TraceRequest { offset, length, ..trace.requests[0] };
        let json =
            [serde_json::to_string(&header), serde_json::to_string(&request)].map(|it| it.expect("JSON"));
        Trace::parse(&json.join("\n"))
    };
    record(1 << 40, 1 << 20).expect("a request");
    for (offset, length) in [(u64::MAX - 100, 4096), (0, 1 << 63)] {
        let error = record(offset, length).expect_err("no place").to_string();
        assert!(error.contains("a place that no disk has"), "{error}");
    }
}

#[test]
fn texts_that_are_no_records_are_refused_with_the_line() {
    let errors = [
        ("", "no request"),
        ("hello\nworld\n", "no request"),
        ("{}\n", "line 1"),
        ("{\"kind\":\"other\",\"disks\":[],\"lost\":0}\n", "line 1: the kind is"),
        ("{\"kind\":\"brindle-trace\",\"disks\":[],\"lost\":0}\n{\"disk\":0}\n", "line 2"),
        (
            "{\"kind\":\"brindle-trace\",\"disks\":[],\"lost\":0}\n{\"disk\":0,\"operation\":\"flush\",\"offset\":0,\"length\":0,\"begin_ns\":0,\"end_ns\":0,\"is_metadata\":true}\n",
            "line 2",
        ),
    ];
    for (text, expected) in errors {
        let error = Trace::parse(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

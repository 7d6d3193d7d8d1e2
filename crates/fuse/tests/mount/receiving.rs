//! Subvolumes that are being received, as other programs see them.

use crate::support::{Written, can_mount, patiently};
use brindle_admin::Mounted;
use brindle_admin::streams::{SendOrder, StreamNews};
use brindle_sim::InterruptedDevice;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::mpsc::channel;

fn open(path: &Path) -> Mounted {
    Mounted::open(path).expect("a mount of ours")
}

/// The stream of a snapshot of `live` that has another length than the snapshot before it.
fn difference(root: &Path) -> Vec<u8> {
    let top = open(root);
    top.create_subvolume(b"live").expect("room");
    for (name, length) in [("one", 1000), ("two", 9000)] {
        std::fs::write(root.join("live/file"), vec![7; length]).expect("room");
        top.snapshot(&open(&root.join("live")), name.as_bytes(), true).expect("room");
    }
    let (one, two) = (open(&root.join("one")), [open(&root.join("two"))]);
    let order = SendOrder {
        subvolumes: &two,
        parent: Some(&one),
        sources: &[],
        version: 1,
        compressed: false,
        no_data: false,
        one_stream: false,
    };
    let (mut from, _news) = top.send(&order).expect("it sends");
    let mut stream = Vec::new();
    from.read_to_end(&mut stream).expect("a stream");
    stream
}

#[test]
fn a_file_that_is_opened_before_its_snapshot_is_durable_is_whole_after_the_end() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let (device, handle) = ours.remount_on(InterruptedDevice::new);
    let root = ours.root().to_owned();
    let stream = difference(&root);
    std::fs::create_dir(root.join("in")).expect("room");
    ours.commit();
    // Nothing is left to be written: what is written next is the commit of the snapshot that the stream begins with.
    let (path, (told, tells)) = (root.join("in/two/file"), channel());
    let opens = path.clone();
    device.before_next_write(move || {
        let seen = File::open(&opens).and_then(|file| Ok((file.metadata()?.len(), file)));
        told.send(seen).expect("it is waited for");
    });
    let (mut to, mut news) = open(&root.join("in")).receive(1, false).expect("it receives");
    to.write_all(&stream).expect("it is taken");
    drop(to);
    let StreamNews::Received { name, .. } = news.take().expect("news") else { panic!("it is received") };
    assert_eq!((name.as_slice(), news.take().expect("news")), (&b"two"[..], StreamNews::Done));
    let seen = tells.try_recv().expect("the snapshot was written");
    let (length, mut early) = seen.expect("it is there before it is durable");
    assert_eq!(length, 1000);
    let whole = vec![7; 9000];
    assert_eq!(std::fs::metadata(&path).expect("there").len(), 9000);
    assert!(std::fs::read(&path).expect("there") == whole);
    let mut bytes = Vec::new();
    early.read_to_end(&mut bytes).expect("it can be read");
    assert!(bytes == whole, "{} bytes", bytes.len());
    drop((early, news));
    patiently(|| handle.unmount()).unwrap_or_else(|error| panic!("{error}"));
    handle.wait().expect("all of it is durable");
    drop(device);
    ours.check();
}

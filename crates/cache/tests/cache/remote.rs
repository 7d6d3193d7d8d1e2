//! A disk that a server has, over a connection that is lost: it is written again if the mark is there and the guard of the user consents.

use crate::world::{BLOCK, SMALL, TestClock, contents};
use brindle_cache::{create, disk_mark, open_device_to_write};
use brindle_device::{Device, DeviceClass, FileDevice, ReconnectError, ReconnectGuard, WritableDevice};
use brindle_export::{Export, Listener, Server};
use brindle_sim::{Image, ImageDevice};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A cache of a file and of an export of a disk in memory.
struct Remote {
    directory: tempfile::TempDir,
    disk: Arc<ImageDevice>,
    device: Option<Arc<dyn WritableDevice>>,
    server: Option<Server>,
}

impl Remote {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let disk = Arc::new(ImageDevice::new("disk", Image::new(SMALL.disk_bytes), DeviceClass::Rotating));
        let flash = directory.path().join("flash");
        std::fs::File::create(&flash).and_then(|file| file.set_len(SMALL.flash_bytes)).expect("room");
        let flash = Arc::new(FileDevice::open_writable(&flash).expect("ours"));
        create(flash, Arc::clone(&disk) as _, &SMALL.options(), Arc::new(TestClock::default()))
            .expect("room");
        let mut remote = Self { directory, disk, device: None, server: None };
        remote.serve();
        let path = |name| remote.directory.path().join(name).display().to_string();
        let uri = format!("nbd+unix:///disk?socket={}&x-timeout=600", path("socket"));
        let word = PathBuf::from(format!("cache:{}:{uri}", path("flash")));
        remote.device = Some(open_device_to_write(&word).expect("served"));
        remote
    }

    fn serve(&mut self) {
        let export = Export::writable("disk", Arc::clone(&self.disk) as _).expect("a name");
        let listener = Listener::unix(&self.directory.path().join("socket")).expect("a socket");
        self.server = Some(Server::start(listener, export).expect("threads"));
    }

    fn device(&self) -> &dyn WritableDevice {
        &**self.device.as_ref().expect("open")
    }

    /// Ends the server, which forgets nothing, has `meanwhile` done, and starts it again.
    fn interrupt(&mut self, meanwhile: impl FnOnce(&ImageDevice)) {
        self.server = None;
        meanwhile(&self.disk);
        self.serve();
    }
}

/// A guard that notes a byte of some blocks, and then answers.
#[derive(Debug)]
struct Witness {
    consents: bool,
    seen: Mutex<Vec<u8>>,
}

impl ReconnectGuard for Witness {
    fn admit(&self, device: &dyn Device) -> Result<Duration, ReconnectError> {
        assert_eq!(device.size_bytes(), SMALL.disk_bytes);
        for block in [100, 200] {
            let mut bytes = [0; 100];
            device.read_at(block * BLOCK - 50, &mut bytes)?;
            self.seen.lock().expect("no panic").extend([bytes[0], bytes[99]]);
        }
        let why = "it is another's".to_owned();
        if self.consents { Ok(Duration::ZERO) } else { Err(ReconnectError::Refused { why }) }
    }
}

#[test]
fn a_disk_that_comes_back_with_its_mark_is_written_again() {
    let mut remote = Remote::new();
    remote.device().write_at(100 * BLOCK, &[1; 4096]).expect("served");
    remote.interrupt(|disk| assert!(disk_mark(disk).expect("memory").is_some()));
    remote.device().change("do_sync", "1").expect("its own");
    assert_eq!(contents(&*remote.disk)[100 << 10], 1);
    remote.interrupt(|_| {});
    remote.device = None;
    assert_eq!(disk_mark(&*remote.disk).expect("memory"), None);
}

#[test]
fn a_disk_that_lost_its_mark_is_written_no_more() {
    let mut remote = Remote::new();
    remote.device().write_at(100 * BLOCK, &[1; 4096]).expect("served");
    remote.interrupt(|disk| disk.write_at(64 << 10, &[3; 4096]).expect("memory"));
    let error = remote.device().change("do_sync", "1").expect_err("others wrote it").to_string();
    assert!(error.contains("at 65536 it lacks the mark of the cache"), "{error}");
    let found = contents(&*remote.disk);
    assert_eq!((found[64 << 10], found[100 << 10]), (3, 0), "nothing was written");
}

#[test]
fn the_guard_of_the_user_sees_what_the_cache_has() {
    for consents in [true, false] {
        let mut remote = Remote::new();
        remote.device().write_at(200 * BLOCK, &[2; 1024]).expect("served");
        remote.device().change("do_sync", "1").expect("served");
        remote.device().write_at(100 * BLOCK, &[1; 1024]).expect("served");
        let witness = Arc::new(Witness { consents, seen: Mutex::default() });
        remote.device().guard_reconnects(Arc::clone(&witness) as Arc<dyn ReconnectGuard>);
        // The one block is on the flash alone, the other is the disk's.
        remote.interrupt(|disk| disk.write_at(200 * BLOCK, &[7; 1024]).expect("memory"));
        let synced = remote.device().change("do_sync", "1");
        assert_eq!(witness.seen.lock().expect("no panic")[..4], [0, 1, 0, 7]);
        assert_eq!(contents(&*remote.disk)[100 << 10], u8::from(consents));
        let said = synced.map_err(|error| error.to_string());
        assert!(
            said.as_ref().map_or_else(|said| said.contains("it is another's"), |()| consents),
            "{said:?}"
        );
    }
}

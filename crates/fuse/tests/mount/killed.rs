//! Programs that are killed while a device hangs.

use crate::support::{Written, can_mount, noise, patiently, run};
use brindle_device::{Device, DeviceError, WritableDevice};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A device that hangs when it is told to.
#[derive(Debug)]
struct HangingDevice {
    inner: Arc<dyn WritableDevice>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    hangs: bool,
    /// Number of calls that hang.
    calls: usize,
}

impl HangingDevice {
    fn new(inner: Arc<dyn WritableDevice>) -> Self {
        Self { inner, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Hangs until the return value is dropped.
    fn hang(&self) -> Hang<'_> {
        self.state().hangs = true;
        Hang(self)
    }

    fn pass(&self) {
        let mut state = self.state();
        state.calls += 1;
        self.changed.notify_all();
        let wait = self.changed.wait_while(state, |state| state.hangs);
        wait.unwrap_or_else(PoisonError::into_inner).calls -= 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Hang<'d>(&'d HangingDevice);

impl Hang<'_> {
    /// Waits until this many calls hang.
    fn wait_for(&self, calls: usize) {
        let wait = self.0.changed.wait_while(self.0.state(), |state| state.calls < calls);
        drop(wait.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Hang<'_> {
    fn drop(&mut self) {
        self.0.state().hangs = false;
        self.0.changed.notify_all();
    }
}

impl Device for HangingDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.pass();
        self.inner.read_at(offset, buffer)
    }
}

impl WritableDevice for HangingDevice {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.pass();
        self.inner.write_at(offset, bytes)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.pass();
        self.inner.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        self.inner.discard(offset, length)
    }

    fn set_size(&self, size_bytes: u64) -> Result<(), DeviceError> {
        self.inner.set_size(size_bytes)
    }
}

fn start(program: &str, arguments: &[&str], at: &Path) -> Child {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(at).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("it starts")
}

/// Kills a program, which must end though the device hangs.
fn kill(mut child: Child) {
    child.kill().expect("it is there");
    let ended = patiently(|| child.try_wait().expect("a child").ok_or("it has not ended"));
    assert!(!ended.expect("a killed program ends").success());
}

/// Number of blocks of the file that is read; more than the mount has threads.
const BLOCKS: usize = 12;
const BLOCK_BYTES: usize = 1 << 20;

fn read_block(number: usize, at: &Path) -> Child {
    let skip = format!("skip={number}");
    start("dd", &["if=file", "of=/dev/null", "bs=1M", "count=1", "iflag=direct", &skip], at)
}

#[test]
fn programs_that_are_killed_end_though_a_device_hangs() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let place = ours.root().to_owned();
    std::fs::create_dir(place.join("directory")).expect("room");
    std::fs::write(place.join("file"), noise(BLOCKS * BLOCK_BYTES, 3)).expect("room");
    let (device, handle) = ours.remount_on(HangingDevice::new);
    // What is made is in memory, and so is what is needed to find the file.
    std::fs::write(place.join("new"), "contents").expect("room");
    std::fs::File::open(place.join("file")).expect("it is there");
    {
        let hang = device.hang();
        let readers: Vec<Child> = (0..BLOCKS).map(|number| read_block(number, &place)).collect();
        hang.wait_for(8);
        readers.into_iter().for_each(kill);
    }
    {
        let hang = device.hang();
        let sync = start("btrfs", &["filesystem", "sync", "."], &place);
        hang.wait_for(1);
        // It waits for the one before.
        let next = start("btrfs", &["subvolume", "create", "subvolume"], &place);
        kill(next);
        kill(sync);
        let writer =
            start("dd", &["if=/dev/zero", "of=new", "bs=4k", "count=1", "conv=notrunc,fsync"], &place);
        kill(writer);
    }
    run(Command::new("cmp").arg("-n4").args([place.join("new"), place.join("new")]));
    assert_eq!(std::fs::read(place.join("file")).expect("it can be read").len(), BLOCKS * BLOCK_BYTES);
    assert!(!place.join("subvolume").exists(), "its maker was gone");
    handle.unmount().expect("no program is left");
    handle.wait().expect("all of it is durable");
    ours.check();
}

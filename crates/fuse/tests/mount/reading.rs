//! Mounts that are only read, of images that the kernel made.

use crate::support::{Rich, can_mount, mount_devices, mount_on, paths_below, patiently, run, scratch};
use brindle_admin::Mounted;
use brindle_device::{Device, FileDevice};
use brindle_fs::{Filesystem, OpenOptions, WriteOptions};
use brindle_fuse::{MountError, MountHandle, MountOptions};
use brindle_testing::golden::{self, Golden};
use brindle_testing::manifest::Manifest;
use brindle_testing::referee::btrfs_check;
use rustix::fs::{RawDir, SeekFrom};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Numbers of inodes in subvolumes carry the subvolume in their high bits.
const INODE_BITS: u64 = (1 << 48) - 1;

fn our_manifest(root: &Path) -> Manifest {
    let manifest = Manifest::of_directory(root).expect("our tree can be read");
    let plain = manifest.entries().cloned().map(|mut entry| {
        entry.ino = entry.ino.map(|ino| ino & INODE_BITS);
        entry
    });
    plain.collect()
}

#[test]
fn everything_is_as_the_kernel_shows_it() {
    if !can_mount() {
        return;
    }
    let rich = Rich::make();
    let ours = rich.mount("ours");
    let kernel = Manifest::of_directory(&rich.kernel).expect("the kernel's tree can be read");
    assert!(kernel.len() > 2000);
    let differences = kernel.diff_strict(&our_manifest(ours.mountpoint()));
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    compare_space(&rich.kernel, ours.mountpoint());
    compare_stat(&rich.kernel, ours.mountpoint());
    let below = |root: &Path, path: &str| root.join(path);
    for path in ["plain/sparse", "plain/large", "plain/empty", "plain/small", "plain/deep/deeper/zstd"] {
        let maps = [&rich.kernel, ours.mountpoint()].map(|root| data_map(&below(root, path)));
        assert_eq!(maps[0], maps[1], "{path}");
    }
}

fn compare_space(kernel: &Path, ours: &Path) {
    let [a, b] = [kernel, ours].map(|path| rustix::fs::statfs(path).expect("statfs"));
    assert_eq!(
        (a.f_bsize, a.f_blocks, a.f_bfree, a.f_bavail, a.f_files, a.f_ffree, a.f_namelen),
        (b.f_bsize, b.f_blocks, b.f_bfree, b.f_bavail, b.f_files, b.f_ffree, b.f_namelen),
    );
}

/// Compares attributes that a manifest does not hold: blocks, unique numbers, the numbers that listings show.
fn compare_stat(kernel: &Path, ours: &Path) {
    let mut seen: HashMap<u64, (u64, u64)> = HashMap::new();
    for path in paths_below(kernel) {
        let relative = path.strip_prefix(kernel).expect("below");
        let (a, b) = (
            path.symlink_metadata().expect("stat"),
            ours.join(relative).symlink_metadata().expect("our stat"),
        );
        let shown = relative.display();
        assert_eq!((a.blocks(), a.blksize(), a.rdev()), (b.blocks(), b.blksize(), b.rdev()), "{shown}");
        // The places of missing subvolumes are all number 2, and made up by the kernel when it is asked.
        if a.ino() != 2 {
            assert_eq!((a.atime(), a.atime_nsec()), (b.atime(), b.atime_nsec()), "{shown}");
            // Two inodes are one if the kernel says so.
            let first = *seen.entry(b.ino()).or_insert((a.dev(), a.ino()));
            assert_eq!(first, (a.dev(), a.ino()), "{shown} shares its number");
        }
    }
    for directory in ["", "plain", "sub", "sub/inner", "plain/writable/deep"] {
        let directory = ours.join(directory);
        let listed = listing(&directory, &mut [MaybeUninit::uninit(); 8192]);
        let number = |path: PathBuf| path.symlink_metadata().expect("stat").ino();
        assert_eq!(listed[0], (b".".to_vec(), number(directory.clone())));
        let parent = if directory == ours.join("") { directory.clone() } else { directory.join("..") };
        assert_eq!(listed[1], (b"..".to_vec(), number(parent)), "{}", directory.display());
        for (name, shown) in &listed[2..] {
            let name = String::from_utf8(name.clone()).expect("our names are text");
            assert_eq!(*shown, number(directory.join(name)));
        }
    }
}

/// Ranges of data.
fn data_map(path: &Path) -> Vec<(u64, u64)> {
    let file = File::open(path).expect("open");
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(data) => {
                at = rustix::fs::seek(&file, SeekFrom::Hole(data)).expect("every data has an end");
                found.push((data, at));
            }
            Err(Errno::NXIO) => return found,
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
}

/// Names and numbers in the order of the directory, fetched with a buffer of this size.
fn listing(directory: &Path, buffer: &mut [MaybeUninit<u8>]) -> Vec<(Vec<u8>, u64)> {
    let directory = File::open(directory).expect("open");
    let mut entries = RawDir::new(&directory, buffer);
    let mut found = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry.expect("entry");
        found.push((entry.file_name().to_bytes().to_vec(), entry.ino()));
    }
    found
}

#[test]
fn a_listing_goes_on_where_it_stopped() {
    if !can_mount() {
        return;
    }
    let rich = Rich::make();
    let ours = rich.mount("ours");
    let (many, kernels) = (ours.mountpoint().join("many"), rich.kernel.join("many"));
    let names =
        |listed: &[(Vec<u8>, u64)]| -> Vec<Vec<u8>> { listed.iter().map(|(name, _)| name.clone()).collect() };
    let whole = names(&listing(&kernels, &mut vec![MaybeUninit::uninit(); 65536]));
    assert_eq!(whole.len(), 2003);
    assert_eq!(names(&listing(&many, &mut [MaybeUninit::uninit(); 200])), whole, "a tiny buffer");
    assert_eq!(names(&listing(&many, &mut [MaybeUninit::uninit(); 200])), whole, "and again, from memory");
    assert_eq!(names(&listing(&many, &mut vec![MaybeUninit::uninit(); 1 << 20])), whole, "a huge one");
    // From every hundredth place.
    let directory = File::open(&many).expect("open");
    let mut cookies = Vec::new();
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&directory, &mut buffer);
    while let Some(entry) = entries.next() {
        cookies.push(entry.expect("entry").next_entry_cookie());
    }
    for (index, cookie) in cookies.iter().enumerate().step_by(100) {
        rustix::fs::seek(&directory, SeekFrom::Start(*cookie)).expect("seek");
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut rest = RawDir::new(&directory, &mut buffer);
        let next = rest.next().map(|entry| entry.expect("entry").file_name().to_bytes().to_vec());
        assert_eq!(next.as_ref(), whole.get(index + 1));
    }
}

#[test]
fn golden_images_are_as_the_kernel_left_them() {
    if !can_mount() {
        return;
    }
    let scratch = scratch();
    for name in golden::names() {
        let golden = Golden::load(&name);
        let devices =
            golden.devices.iter().map(|device| Arc::new(device.clone()) as Arc<dyn Device>).collect();
        let at = scratch.path().join(&name);
        std::fs::create_dir(&at).expect("directory");
        let handle = mount_devices(devices, &at, &MountOptions::default());
        let differences = golden.manifest.diff_strict(&our_manifest(&at));
        assert!(differences.is_empty(), "{name}: {}", differences.join("\n"));
        // A child that another test starts has our files open, for a moment.
        wait_until("an end to the use", || handle.unmount().is_ok());
        handle.wait().expect("a clean end");
    }
}

#[test]
fn eight_threads_read_what_the_kernel_reads() {
    if !can_mount() {
        return;
    }
    let rich = Rich::make();
    let ours = rich.mount("ours");
    let files: Vec<_> = paths_below(&rich.kernel)
        .into_iter()
        .filter(|path| path.symlink_metadata().expect("stat").is_file())
        .collect();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (files, rich, ours) = (&files, &rich, ours.mountpoint());
            scope.spawn(move || {
                // A small generator of numbers, seeded by the thread.
                let mut state = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(thread + 1);
                let mut next = move |below: u64| {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 33) % below.max(1)
                };
                for _ in 0..400 {
                    let path = &files[usize::try_from(next(files.len() as u64)).expect("small")];
                    let theirs = File::open(path).expect("open");
                    let relative = path.strip_prefix(&rich.kernel).expect("below");
                    let ours = File::open(ours.join(relative)).expect("open ours");
                    let size = theirs.metadata().expect("stat").len();
                    let offset = next(size + 10);
                    let mut buffers = [vec![1; 100_000], vec![2; 100_000]];
                    let lengths = [
                        theirs.read_at(&mut buffers[0], offset).expect("read"),
                        ours.read_at(&mut buffers[1], offset).expect("read ours"),
                    ];
                    assert_eq!(lengths[0], lengths[1], "{} at {offset}", relative.display());
                    assert!(
                        buffers[0][..lengths[0]] == buffers[1][..lengths[1]],
                        "{} at {offset}",
                        relative.display()
                    );
                }
            });
        }
    });
}

#[test]
fn a_busy_mount_stays_until_it_is_free() {
    if !can_mount() {
        return;
    }
    let rich = Rich::make();
    let handle = rich.mount("ours");
    let unmount = handle.unmount_handle();
    let file = File::open(handle.mountpoint().join("plain/large")).expect("open");
    assert!(matches!(unmount.unmount(), Err(MountError::Kernel(brindle_transport::MountError::Busy(_)))));
    assert_eq!(std::fs::read(handle.mountpoint().join("plain/small")).expect("it still answers"), b"hello");
    drop(file);
    wait_until("an end to the use", || unmount.unmount().is_ok());
    handle.wait().expect("a clean end");
    unmount.unmount().expect("nothing left to do");
}

#[test]
fn a_detached_mount_serves_its_last_user() {
    if !can_mount() {
        return;
    }
    let rich = Rich::make();
    let handle = rich.mount("ours");
    let mut file = File::open(handle.mountpoint().join("plain/small")).expect("open");
    handle.unmount_handle().detach().expect("detached");
    assert!(std::fs::read_dir(handle.mountpoint()).expect("the directory below").next().is_none());
    let mut text = String::new();
    file.read_to_string(&mut text).expect("still served");
    assert_eq!(text, "hello");
    drop(file);
    handle.wait().expect("a clean end");
}

/// The kernel gives the device number of a mount that is gone to the next one.
#[test]
fn a_mount_that_has_the_number_of_one_that_is_gone_is_left_alone() {
    if !can_mount() {
        return;
    }
    let rich = Rich::make();
    let gone = rich.mount("first");
    let gone_handle = gone.unmount_handle();
    patiently(|| {
        let output = Command::new("umount").arg(gone.mountpoint()).output().expect("it starts");
        output.status.success().then_some(()).ok_or(output)
    })
    .expect("nothing uses it");
    let second = rich.mount("second");
    gone_handle.unmount().expect("nothing to do");
    gone_handle.detach().expect("nothing to do");
    gone.wait().expect("a clean end");
    assert!(is_mounted(second.mountpoint()));
    drop(second);
}

#[test]
fn others_may_unmount() {
    if !can_mount() {
        return;
    }
    let rich = Rich::make();
    for (name, program) in [("a", vec!["umount"]), ("b b", vec!["fusermount3", "-u"])] {
        let handle = rich.mount(name);
        let mut unmount = Command::new(program[0]);
        unmount.args(&program[1..]).arg(handle.mountpoint());
        wait_until("an end to the use", || unmount.output().expect("it starts").status.success());
        handle.wait().expect("a clean end");
    }
    // Dropped without a word.
    let handle = rich.mount("c");
    let at = handle.mountpoint().to_owned();
    drop(handle);
    assert!(std::fs::read_dir(at).expect("the directory below").next().is_none());
}

#[test]
fn writes_are_refused() {
    if !can_mount() {
        return;
    }
    let rich = Rich::make();
    let handle = rich.mount("ours");
    let at = |path: &str| handle.mountpoint().join(path);
    let refused = |error: std::io::Error| assert_eq!(Errno::from_io_error(&error), Some(Errno::ROFS));
    refused(File::create(at("new")).expect_err("create"));
    refused(std::fs::create_dir(at("new")).expect_err("mkdir"));
    refused(std::fs::remove_file(at("plain/small")).expect_err("unlink"));
    refused(std::fs::remove_dir(at("plain/deep/deeper")).expect_err("rmdir"));
    refused(std::fs::rename(at("plain"), at("other")).expect_err("rename"));
    refused(std::fs::hard_link(at("plain/small"), at("other")).expect_err("link"));
    refused(std::os::unix::fs::symlink("x", at("other")).expect_err("symlink"));
    refused(
        std::fs::set_permissions(at("plain/large"), rich.kernel.metadata().expect("stat").permissions())
            .expect_err("chmod"),
    );
    let written = File::options().write(true).open(at("plain/large")).and_then(|file| file.write_at(b"x", 0));
    refused(written.expect_err("write"));
}

#[test]
fn damaged_data_is_an_error() {
    if !can_mount() {
        return;
    }
    let rich = Rich::make();
    run(Command::new("umount").arg(&rich.kernel));
    let mut image = std::fs::read(&rich.image).expect("image");
    // The file is found by what it holds.
    let handle = rich.mount("before");
    let contents = std::fs::read(handle.mountpoint().join("plain/large")).expect("whole");
    drop(handle);
    let at =
        image.windows(4096).position(|window| window == &contents[8192..12288]).expect("it lies somewhere");
    image[at + 100] ^= 1;
    std::fs::write(&rich.image, &image).expect("write");
    let handle = rich.mount("after");
    let file = File::open(handle.mountpoint().join("plain/large")).expect("open");
    let mut buffer = [0; 4096];
    let error = file.read_at(&mut buffer, 8192).expect_err("a bad checksum");
    assert_eq!(Errno::from_io_error(&error), Some(Errno::IO));
    assert_eq!(std::fs::read(handle.mountpoint().join("plain/small")).expect("others are whole"), b"hello");
}

#[test]
fn impossible_mounts_are_explained() {
    if !can_mount() {
        return;
    }
    let rich = Rich::make();
    let filesystem = || {
        let device: Arc<dyn Device> = Arc::new(FileDevice::open(&rich.image).expect("image"));
        Arc::new(Filesystem::open(vec![device], &OpenOptions::default()).expect("filesystem"))
    };
    let fails =
        |at: &Path| brindle_fuse::mount(filesystem(), at, &MountOptions::default()).expect_err("impossible");
    assert!(matches!(fails(Path::new("/nowhere/at/all")), MountError::NoMountpoint(_)));
    assert!(matches!(fails(&rich.image), MountError::NotADirectory(_)));
    assert!(matches!(fails(&rich.image.join("below")), MountError::NotADirectory(_)));
    let options = MountOptions { read_only: false, ..MountOptions::default() };
    let error = brindle_fuse::mount(filesystem(), &rich.directory("at"), &options).expect_err("impossible");
    assert!(matches!(error, MountError::NotWritable), "{error}");
}

/// Not a test but what another process runs, told by its environment what to serve; does nothing otherwise.
#[test]
fn server() {
    let (Some(image), Some(at)) = (std::env::var_os("TEST_IMAGE"), std::env::var_os("TEST_MOUNTPOINT"))
    else {
        return;
    };
    let has = |word: &str| std::env::var("TEST_OPTIONS").is_ok_and(|options| options.contains(word));
    let (image, open) = (Path::new(&image), OpenOptions::default());
    let filesystem = if has("rw") {
        let device = Arc::new(FileDevice::open_writable(image).expect("image"));
        Filesystem::open_writable(vec![device], &open, &WriteOptions::default())
    } else {
        Filesystem::open(vec![Arc::new(FileDevice::open(image).expect("image"))], &open)
    };
    let filesystem = Arc::new(filesystem.expect("filesystem"));
    let options = MountOptions {
        read_only: !has("rw"),
        allow_other: has("allow_other"),
        auto_unmount: has("auto_unmount"),
        ..MountOptions::default()
    };
    match brindle_fuse::mount(filesystem, Path::new(&at), &options) {
        Ok(handle) => MountHandle::wait(handle).expect("a clean end"),
        Err(error) => {
            eprintln!("refused: {error}");
            std::process::exit(3);
        }
    }
}

/// Entry point of another process, told where to make a subvolume.
#[test]
fn client() {
    if let Some(place) = std::env::var_os("TEST_PARENT").map(PathBuf::from) {
        let parent = Mounted::open(&place).expect("a mount of ours");
        parent.create_subvolume(b"sub").expect("made");
        let source = Mounted::open(&place.join("sub")).expect("the source");
        parent.snapshot(&source, b"snapshot", true).expect("made");
        parent.delete_subvolume(b"snapshot").expect("deleted");
    }
}

const NOBODY: u32 = 65534;

/// Lets ordinary users open `/dev/fuse`, as they can on any system that udev looks after, until dropped.
struct OpenToAll {
    mode: u32,
    _alone: MutexGuard<'static, ()>,
}

const DEVICE: &str = "/dev/fuse";

impl OpenToAll {
    fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mode = std::fs::metadata(DEVICE).expect("stat").mode() & 0o7777;
        let guard = Self { mode, _alone: alone };
        guard.set(0o666);
        guard
    }

    fn set(&self, mode: u32) {
        std::fs::set_permissions(DEVICE, std::fs::Permissions::from_mode(mode)).expect("chmod");
    }
}

impl Drop for OpenToAll {
    fn drop(&mut self) {
        self.set(self.mode);
    }
}

/// A command that runs [`server`], as an ordinary user if so wished.
fn server_command(rich: &Rich, at: &Path, options: &str, as_unprivileged: bool) -> Command {
    // The build directory may be closed to others.
    let program = rich.scratch.path().join("server");
    if !program.exists() {
        std::fs::copy(std::env::current_exe().expect("ourselves"), &program).expect("copy");
    }
    let mut command = if as_unprivileged {
        std::os::unix::fs::chown(at, Some(NOBODY), Some(NOBODY)).expect("chown");
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.args(["--exact", "reading::server", "--nocapture"]);
    command.env("TEST_IMAGE", &rich.image).env("TEST_MOUNTPOINT", at).env("TEST_OPTIONS", options);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < end, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns true if a mount is in the table, whichever user may look inside.
fn is_mounted(at: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    table.lines().any(|line| line.split(' ').nth(1) == at.to_str() && line.contains(" fuse.brindle "))
}

#[test]
fn a_killed_server_leaves_a_mount_that_can_be_removed() {
    if !can_mount() {
        return;
    }
    let rich = Rich::make();
    let at = rich.directory("ours");
    let mut server = server_command(&rich, &at, "", false).spawn().expect("server");
    wait_until("the mount", || at.join("plain").exists());
    server.kill().expect("kill");
    server.wait().expect("dead");
    // By rings it takes the kernel a moment.
    let error = || std::fs::read_dir(&at).err().and_then(|error| Errno::from_io_error(&error));
    wait_until("the end of the connection", || error() == Some(Errno::NOTCONN));
    let device: Arc<dyn Device> = Arc::new(FileDevice::open(&rich.image).expect("image"));
    let filesystem = Arc::new(Filesystem::open(vec![device], &OpenOptions::default()).expect("filesystem"));
    let error = brindle_fuse::mount(filesystem, &at, &MountOptions::default()).expect_err("in the way");
    assert!(matches!(error, MountError::DeadMount(_)), "{error}");
    run(Command::new("fusermount3").arg("-u").arg(&at));
    assert!(std::fs::read_dir(&at).expect("the directory below").next().is_none());
}

#[test]
fn a_killed_server_with_auto_unmount_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let rich = Rich::make();
    let at = rich.directory("ours");
    let mut server = server_command(&rich, &at, "auto_unmount", false).spawn().expect("server");
    wait_until("the mount", || at.join("plain").exists());
    server.kill().expect("kill");
    server.wait().expect("dead");
    wait_until("the end of the mount", || !is_mounted(&at));
}

#[test]
fn a_killed_server_of_an_ordinary_user_leaves_nothing_either() {
    if !can_mount() {
        return;
    }
    let _open = OpenToAll::new();
    let rich = Rich::make();
    let at = rich.directory("ours");
    let mut server = server_command(&rich, &at, "auto_unmount", true).spawn().expect("server");
    wait_until("the mount", || is_mounted(&at));
    server.kill().expect("kill");
    server.wait().expect("dead");
    wait_until("the end of the mount", || !is_mounted(&at));
    // One that ends as it should leaves alone what is mounted there next.
    let server = server_command(&rich, &at, "auto_unmount", true).spawn().expect("server");
    wait_until("the mount", || is_mounted(&at));
    // It is in the table before its server answers.
    run(as_unprivileged("cat").arg(at.join("plain/small")));
    run(as_unprivileged("fusermount3").arg("-u").arg(&at));
    let next = server_command(&rich, &at, "", true).spawn().expect("server");
    assert!(server.wait_with_output().expect("server").status.success());
    wait_until("the next mount", || is_mounted(&at));
    run(as_unprivileged("cat").arg(at.join("plain/small")));
    run(as_unprivileged("fusermount3").arg("-u").arg(&at));
    assert!(next.wait_with_output().expect("server").status.success());
}

#[test]
fn an_ordinary_user_may_mount() {
    if !can_mount() {
        return;
    }
    let _open = OpenToAll::new();
    let rich = Rich::make();
    let at = rich.directory("ours");
    let server = server_command(&rich, &at, "", true).spawn().expect("server");
    wait_until("the mount", || is_mounted(&at));
    // Others may not look, not even root; the user may.
    let error = std::fs::read_dir(&at).expect_err("not ours");
    assert_eq!(Errno::from_io_error(&error), Some(Errno::ACCESS));
    let mut read = as_unprivileged("cat");
    let output = run(read.arg(at.join("plain/small")));
    assert_eq!(output.stdout, b"hello");
    run(as_unprivileged("fusermount3").arg("-u").arg(&at));
    let output = server.wait_with_output().expect("server");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn an_ordinary_user_may_write_and_make_subvolumes() {
    if !can_mount() {
        return;
    }
    let _open = OpenToAll::new();
    let mut rich = Rich::make();
    run(Command::new("umount").arg(&rich.kernel));
    // A pool of the user's own.
    rich.image = rich.scratch.path().join("own");
    run(Command::new("truncate").args(["-s", "512M"]).arg(&rich.image));
    let root = rich.directory("root");
    std::os::unix::fs::chown(&root, Some(NOBODY), Some(NOBODY)).expect("chown");
    run(Command::new("mkfs.btrfs").arg("-q").arg("--rootdir").arg(&root).arg(&rich.image));
    std::os::unix::fs::chown(&rich.image, Some(NOBODY), Some(NOBODY)).expect("chown");
    let at = rich.directory("ours");
    let server = server_command(&rich, &at, "rw", true).spawn().expect("server");
    wait_until("the mount", || is_mounted(&at));
    let mut client = as_unprivileged(rich.scratch.path().join("server").to_str().expect("text"));
    run(client.args(["--exact", "reading::client"]).env("TEST_PARENT", &at));
    run(as_unprivileged("sh")
        .args(["-c", "cd $0 && echo hello >sub/file && mkdir sub/d && ln sub/file sub/link"])
        .arg(&at));
    run(as_unprivileged("fusermount3").arg("-u").arg(&at));
    let output = server.wait_with_output().expect("server");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    btrfs_check(&rich.image).expect("btrfs-progs").unwrap_or_else(|said| panic!("{said}"));
    let handle = mount_on(&rich.image, &rich.directory("again"), &MountOptions::default());
    let file = handle.mountpoint().join("sub/file");
    assert_eq!(std::fs::read(&file).expect("read"), b"hello\n");
    let stat = file.metadata().expect("stat");
    assert_eq!((stat.uid(), stat.nlink()), (NOBODY, 2));
}

#[test]
fn an_ordinary_user_is_told_what_is_forbidden() {
    if !can_mount() {
        return;
    }
    let allows = std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    let _open = OpenToAll::new();
    let rich = Rich::make();
    if !allows.lines().any(|line| line.trim() == "user_allow_other") {
        let output =
            server_command(&rich, &rich.directory("a"), "allow_other", true).output().expect("server");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("refused: allow_other: an ordinary user"), "{said}");
    }
    let at = rich.directory("b");
    let mut command = server_command(&rich, &at, "", true);
    std::os::unix::fs::chown(&at, Some(0), Some(0)).expect("chown");
    let said = command.output().expect("server").stderr;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("refused:") && said.contains("not permitted"), "{said}");
}

fn as_unprivileged(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", program]);
    command
}

#[test]
fn permissions_and_access_lists_are_honoured() {
    if !can_mount() {
        return;
    }
    let rich = Rich::make();
    let options = MountOptions { allow_other: true, ..MountOptions::default() };
    let handle = mount_on(&rich.image, &rich.directory("ours"), &options);
    for root in [rich.kernel.as_path(), handle.mountpoint()] {
        let may_read = |path: &str| {
            let output = as_unprivileged("cat").arg(root.join(path)).output().expect("cat");
            output.status.success()
        };
        assert!(may_read("plain/acl"), "{}: the list allows it", root.display());
        assert!(!may_read("plain/private"), "{}: nobody but root", root.display());
        assert!(may_read("plain/large"), "{}: everybody", root.display());
    }
}

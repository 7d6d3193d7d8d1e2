//! Mounts that are written: the same operations on ours and on the kernel's must have the same outcomes and leave
//! the same behind, then and after a remount, and `btrfs check` must find nothing.

use crate::support::{KernelMount, Written, can_mount, noise, patiently, run, writable_options};
use brindle_device::FileDevice;
use brindle_fs::{Compression, CompressionChoice, WriteOptions};
use brindle_fuse::{MountError, MountOptions};
use brindle_sim::Fault;
use brindle_testing::manifest::Manifest;
use rustix::fs::{AtFlags, CWD, FallocateFlags, IFlags, Mode, OFlags, RenameFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;
use std::fmt::Debug;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Does things in a directory, and notes how each turned out.
struct Recorder {
    root: PathBuf,
    outcomes: Vec<String>,
}

impl Recorder {
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn note<T: Debug>(&mut self, what: &str, outcome: Result<T, impl Into<std::io::Error>>) {
        let outcome = match outcome {
            Ok(value) => format!("{value:?}"),
            Err(error) => {
                let error = error.into();
                Errno::from_io_error(&error).map_or_else(|| error.to_string(), |errno| format!("{errno:?}"))
            }
        };
        self.outcomes.push(format!("{what}: {outcome}"));
    }

    fn shell(&mut self, script: &str) {
        let output = Command::new("sh").args(["-c", script]).current_dir(&self.root).output().expect("sh");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        self.outcomes.push(format!("{script}: {:?} {said}", output.status.code()));
    }
}

fn open(path: &Path, flags: OFlags) -> std::io::Result<File> {
    Ok(rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o640))?.into())
}

fn names(r: &mut Recorder) {
    let (a, b) = (r.at("a"), r.at("dir/b"));
    r.note("mkdir", std::fs::create_dir(r.at("dir")));
    r.note("mkdir again", std::fs::create_dir(r.at("dir")));
    r.note("mkdir nowhere", std::fs::create_dir(r.at("none/dir")));
    r.note("write", std::fs::write(&a, b"first"));
    r.note("exclusive", open(&a, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY).map(drop));
    r.note("link", std::fs::hard_link(&a, &b));
    r.note("link again", std::fs::hard_link(&a, &b));
    r.note("link count", a.metadata().map(|stat| stat.nlink()));
    r.note("link a directory", std::fs::hard_link(r.at("dir"), r.at("dir2")));
    r.note("symlink", symlink("../a", r.at("dir/link")));
    r.note("read link", std::fs::read_link(r.at("dir/link")));
    r.note("through it", std::fs::read(r.at("dir/link")));
    r.note("empty symlink", symlink("", r.at("empty-link")));
    r.note("rmdir full", std::fs::remove_dir(r.at("dir")));
    r.note("unlink a directory", rustix::fs::unlink(r.at("dir")));
    r.note("rmdir a file", rustix::fs::rmdir(&a));
    r.note("long name", std::fs::write(r.at(&"n".repeat(255)), b"long"));
    r.note("too long", std::fs::write(r.at(&"n".repeat(256)), b"long"));
    r.note("unlink", std::fs::remove_file(&a));
    r.note("link count", b.metadata().map(|stat| stat.nlink()));
    r.note("gone", std::fs::read(&a));
    r.note("directory links", r.at("dir").metadata().map(|stat| stat.nlink()));
    r.shell("mkfifo fifo; mknod null c 1 3; mknod block b 259 70000; stat -c '%F %t %T %a' fifo null block");
    r.shell(
        "for i in $(seq 300); do echo $i >dir/file-$i; done; ls dir | wc -l; rm dir/file-1*; ls dir | sort",
    );
}

fn renames(r: &mut Recorder) {
    let rename = |r: &mut Recorder, from: &str, to: &str, flags| {
        let outcome = rustix::fs::renameat_with(CWD, r.at(from), CWD, r.at(to), flags);
        r.note(&format!("{from} to {to} {flags:?}"), outcome);
    };
    let plain = RenameFlags::empty();
    r.shell("mkdir -p r/one/deep r/two/full; echo 1 >r/x; echo 2 >r/y; echo 3 >r/two/full/z; ln r/x r/same");
    rename(r, "r/x", "r/y", RenameFlags::NOREPLACE);
    rename(r, "r/x", "r/fresh", RenameFlags::NOREPLACE);
    rename(r, "r/fresh", "r/one/moved", plain);
    rename(r, "r/one/moved", "r/y", RenameFlags::EXCHANGE);
    rename(r, "r/y", "r/two", RenameFlags::EXCHANGE);
    rename(r, "r/one", "r/one/deep/below", plain);
    rename(r, "r/same", "r/one/moved", plain);
    rename(r, "r/one/deep", "r/two", plain);
    rename(r, "r/one", "r/y", plain);
    rename(r, "r/none", "r/y", plain);
    rename(r, "r/one/deep", "r/empty", plain);
    rename(r, "r/y", "r/empty", plain);
    r.shell(
        "mkdir white; chmod 2777 white; chgrp 4242 white; setfacl -d -m u:1234:rwx white; touch white/a; \
             chown 1000 white/a; setpriv --reuid=1000 --regid=1001 --clear-groups python3 -c 'import ctypes; \
             print(ctypes.CDLL(None).renameat2(-100, b\"white/a\", -100, b\"white/b\", 4))'; \
             stat -c '%F %a %u %g %t %T' white/a white/b; getfacl -n white/a; rm -r white",
    );
    r.shell("find r | sort; find r -type f | sort | xargs cat; stat -c %h r/* r/empty/*");
}

fn contents(r: &mut Recorder) {
    let path = r.at("contents");
    let flags = OFlags::CREATE | OFlags::RDWR;
    let file = open(&path, flags).expect("create");
    r.note("write", file.write_at(&noise(300_000, 1), 0));
    r.note("inside", file.write_at(b"overwritten", 12_345));
    r.note("behind the end", file.write_at(&noise(5000, 2), 1_000_001));
    r.note("cut", file.set_len(900_003));
    r.note("grow", file.set_len(2_000_000));
    r.note(
        "punch",
        rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 50_000, 100_000),
    );
    r.note("zero", rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 1_500_000, 700_000));
    r.note("allocate", rustix::fs::fallocate(&file, FallocateFlags::empty(), 2_500_000, 100_000));
    r.note("keep size", rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 4_000_000, 4096));
    r.note("size", file.metadata().map(|stat| stat.len()));
    r.note("data behind a hole", rustix::fs::seek(&file, SeekFrom::Data(100_000)));
    r.note("hole", rustix::fs::seek(&file, SeekFrom::Hole(1000)));
    r.note("behind it all", rustix::fs::seek(&file, SeekFrom::Data(10_000_000)));
    // What is in the page cache only is data, too.
    r.note("write far behind", file.write_at(&noise(10_000, 3), 8_192_000));
    r.note("data that is not written back", rustix::fs::seek(&file, SeekFrom::Data(5_000_000)));
    r.note("the hole behind it", rustix::fs::seek(&file, SeekFrom::Hole(8_192_000)));
    r.note("cut again", file.set_len(5_000_000));
    let mut added = open(&path, OFlags::WRONLY | OFlags::APPEND).expect("append");
    r.note("append", added.write_all(b"the end"));
    r.note("sync", file.sync_all());
    r.note("data sync", file.sync_data());
    let marked = open(&r.at("marked"), flags).expect("create");
    for flag in [IFlags::APPEND, IFlags::IMMUTABLE] {
        r.note("write before it is marked", marked.write_at(&noise(10_000, 4), 100));
        r.note("mark", rustix::fs::ioctl_setflags(&marked, flag));
        r.note("sync what is marked", marked.sync_all());
        r.note("change it", std::fs::set_permissions(r.at("marked"), PermissionsExt::from_mode(0o600)));
        r.note("unmark", rustix::fs::ioctl_setflags(&marked, IFlags::empty()));
    }
    drop(marked);
    let copy = open(&r.at("copy"), flags).expect("create");
    let (mut from, mut to) = (0, 0);
    let copied = rustix::fs::copy_file_range(&file, Some(&mut from), &copy, Some(&mut to), 1 << 20);
    r.note("copy", copied.map(|length| length > 0));
    let (mut from, mut to) = (777, 100_001);
    r.note("crooked copy", rustix::fs::copy_file_range(&file, Some(&mut from), &copy, Some(&mut to), 5000));
    drop((file, added, copy));
    r.note("truncated by open", open(&r.at("copy"), OFlags::WRONLY | OFlags::TRUNC).map(drop));
    r.note("empty", r.at("copy").metadata().map(|stat| stat.len()));
    r.shell(
        "cksum contents; dd if=contents of=direct bs=64k oflag=direct conv=fsync status=none; cksum direct",
    );
    r.shell("python3 -c 'import mmap,os; f=open(\"mapped\",\"w+b\"); f.truncate(70000); m=mmap.mmap(f.fileno(),70000); \
             m[100:105]=b\"hello\"; m[69995:]=b\"world\"; m.flush(); m.close()'; cksum mapped");
    // Used after its last name has gone.
    let mut file = open(&r.at("orphan"), flags).expect("create");
    r.note("unlink", std::fs::remove_file(r.at("orphan")));
    r.note("write without a name", file.write_all(&noise(10_000, 3)));
    let mut held = Vec::new();
    r.note("seek", rustix::fs::seek(&file, SeekFrom::Start(0)));
    r.note("read without a name", file.read_to_end(&mut held));
    r.note("links", file.metadata().map(|stat| stat.nlink()));
}

fn attributes(r: &mut Recorder) {
    let path = r.at("attributes");
    std::fs::write(&path, b"x").expect("write");
    r.note("chmod", std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4751)));
    r.note("chown", std::os::unix::fs::chown(&path, Some(1000), Some(1001)));
    r.shell(
        "stat -c '%a %u %g' attributes; chmod 6777 attributes; setpriv --reuid=65534 --clear-groups \
             sh -c 'echo more >>attributes'; stat -c '%a %s' attributes",
    );
    r.shell("chmod 6777 attributes; setpriv --reuid=65534 --clear-groups sh -c ': >attributes'; stat -c '%a %s' attributes");
    r.shell(
        "mkdir group; chmod 2775 group; chgrp 4242 group; mkdir group/below; touch group/file; \
             stat -c '%a %g' group/below group/file",
    );
    r.shell(
        "as() { setpriv --reuid=1000 --regid=1001 --groups=1002 \"$@\"; }; mkdir sgid; chmod 2777 sgid; chgrp 4242 sgid; \
             for mode in 2644 2755; do for change in 'chmod '$mode 'chgrp 1002' 'setfacl -m u:77:r' 'truncate -s 3'; do \
             touch sgid/f; chown 1000:4242 sgid/f; chmod $mode sgid/f; as $change sgid/f; stat -c %a sgid/f; done; \
             chmod $mode sgid/f; chgrp 1002 sgid/f; as chmod $mode sgid/f; stat -c %a sgid/f; \
             as sh -c 'echo x >>sgid/f'; stat -c %a sgid/f; chgrp 4242 sgid/f; chmod $mode sgid/f; \
             as sh -c 'echo x >>sgid/f'; stat -c %a sgid/f; done; \
             as python3 -c 'import os; os.umask(0); os.close(os.open(\"sgid/made\", os.O_CREAT, 0o2775)); os.mkdir(\"sgid/dir\", 0o2775)'; \
             stat -c '%a %u %g' sgid/made sgid/dir; rm -r sgid",
    );
    let set = |r: &mut Recorder, name: &str, value: &[u8], flags| {
        let outcome = rustix::fs::setxattr(r.at("attributes"), name, value, flags);
        r.note(&format!("setxattr {name} {flags:?}"), outcome);
    };
    set(r, "user.one", b"1", XattrFlags::empty());
    set(r, "user.one", b"2", XattrFlags::CREATE);
    set(r, "user.two", b"2", XattrFlags::REPLACE);
    set(r, "user.one", &noise(3000, 9), XattrFlags::REPLACE);
    set(r, "user.large", &noise(20_000, 9), XattrFlags::empty());
    set(r, "user.empty", b"", XattrFlags::empty());
    set(r, "trusted.secret", b"x", XattrFlags::empty());
    set(r, "nonsense.name", b"x", XattrFlags::empty());
    r.note("removexattr", rustix::fs::removexattr(&path, "user.empty"));
    r.note("removexattr again", rustix::fs::removexattr(&path, "user.empty"));
    r.shell(
        "setfacl -m u:1234:rw,g:77:r attributes; stat -c %a attributes; getfacl -n attributes; \
             chmod 640 attributes; getfacl -n attributes",
    );
    r.shell(
        "mkdir acl; setfacl -d -m u:1234:rwx,o::- acl; umask 077; mkdir acl/below; touch acl/file; \
             getfacl -n acl/below acl/file; stat -c %a acl/below acl/file",
    );
    r.shell("touch flags; chattr +i flags; lsattr flags | cut -c1-22; echo x >flags; rm -f flags; chattr -i flags; rm flags");
    r.shell("touch append; chattr +a append; echo x >>append; echo y >append; cat append; chattr -a append");
    r.shell("touch -d '1999-12-31 23:59:59.25 UTC' attributes; stat -c '%Y %y' attributes");
    r.shell("df --output=source . >/dev/null; stat -f -c '%S %l' .");
}

/// Everything, in a directory of its own.
/// Files without a name (`O_TMPFILE`), and the names that they get.
fn unnamed(r: &mut Recorder) {
    let directory = r.at("unnamed");
    r.note("mkdir", std::fs::create_dir(&directory));
    let make = |flags| open(&directory, OFlags::TMPFILE | flags);
    let name = |file: &File, name: &str| {
        let held = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, &*held, CWD, directory.join(name), AtFlags::SYMLINK_FOLLOW)
    };
    let shape = |file: &File| {
        file.metadata().map(|stat| (stat.nlink(), stat.mode(), stat.len(), stat.uid(), stat.gid()))
    };
    r.note("unnamed to read", make(OFlags::RDONLY).map(drop));
    r.note("unnamed in a file", open(&r.at("dir/b"), OFlags::TMPFILE | OFlags::RDWR).map(drop));
    let file = make(OFlags::RDWR).expect("it can be made");
    r.note("unnamed", shape(&file));
    r.note("write", file.write_all_at(&noise(100_000, 3), 0));
    r.note("xattr", rustix::fs::fsetxattr(&file, "user.a", b"value", XattrFlags::empty()));
    r.note("chmod", file.set_permissions(std::fs::Permissions::from_mode(0o4755)));
    r.note("sync", file.sync_all());
    r.note("nothing is listed", std::fs::read_dir(&directory).map(Iterator::count));
    r.note("name", name(&file, "named"));
    r.note("name again", name(&file, "named"));
    r.note("another name", name(&file, "named-too"));
    r.note("named", shape(&file));
    r.note("read", std::fs::read(directory.join("named")).map(|bytes| bytes == noise(100_000, 3)));
    r.note("unlink", std::fs::remove_file(directory.join("named-too")));
    drop(file);
    let alone = make(OFlags::RDWR | OFlags::EXCL).expect("it can be made");
    r.note("exclusive", name(&alone, "never"));
    let lost = make(OFlags::WRONLY).expect("it can be made");
    r.note("named and lost", name(&lost, "lost").and_then(|()| rustix::fs::unlink(directory.join("lost"))));
    r.note("no name any more", name(&lost, "found"));
}

fn exercise(root: &Path) -> Vec<String> {
    let root = root.join("work");
    std::fs::create_dir(&root).expect("directory");
    let mut recorder = Recorder { root, outcomes: Vec::new() };
    names(&mut recorder);
    renames(&mut recorder);
    contents(&mut recorder);
    attributes(&mut recorder);
    unnamed(&mut recorder);
    // Times depend on the clock.
    recorder.shell("find . -exec touch -h -d '2001-02-03 04:05:06 UTC' {} +");
    recorder.outcomes
}

fn assert_same(kernel: &[String], ours: &[String]) {
    let differences: Vec<String> = kernel
        .iter()
        .zip(ours)
        .filter(|(a, b)| a != b)
        .map(|(a, b)| format!("kernel {a}\nours   {b}"))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
    assert_eq!(kernel.len(), ours.len());
}

fn portable(root: &Path) -> Manifest {
    Manifest::of_directory(&root.join("work")).expect("the tree can be read").portable()
}

fn assert_no_differences(kernel: &Manifest, ours: &Manifest, when: &str) {
    let differences = kernel.diff(ours);
    assert!(differences.is_empty(), "{when}: {}", differences.join("\n"));
}

#[test]
fn operations_turn_out_as_the_kernels_do() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("1G");
    let reference = ours.scratch.path().join("reference");
    run(Command::new("truncate").args(["-s", "1G"]).arg(&reference));
    run(Command::new("mkfs.btrfs").arg("-q").arg(&reference));
    let kernel = KernelMount::of(&reference, &ours.directory("kernel"), "rw");
    assert_same(&exercise(&kernel.at), &exercise(ours.root()));
    let expected = portable(&kernel.at);
    assert!(expected.len() > 200);
    assert_no_differences(&expected, &portable(ours.root()), "while mounted");
    ours.remount();
    assert_no_differences(&expected, &portable(ours.root()), "after a remount");
    ours.finish();
    let seen = KernelMount::of(&ours.image, &ours.directory("seen"), "ro");
    assert_no_differences(&expected, &portable(&seen.at), "by the kernel");
}

#[test]
fn compressed_and_unchecked_files_too() {
    if !can_mount() {
        return;
    }
    let compression = |algorithm| Some(CompressionChoice { algorithm, level: None, force: true });
    let usual = WriteOptions::default;
    let choices = [
        WriteOptions { compression: compression(Compression::Zstd), ..usual() },
        WriteOptions { compression: compression(Compression::Lzo), ..usual() },
        WriteOptions { nodatacow: true, nodatasum: true, ..usual() },
        WriteOptions { max_inline_bytes: 0, ..usual() },
    ];
    for write in choices {
        let mut ours = Written::make_with("1G", &write, &writable_options());
        exercise(ours.root());
        let expected = portable(ours.root());
        ours.finish();
        let seen = KernelMount::of(&ours.image, &ours.directory("seen"), "ro");
        assert_no_differences(&expected, &portable(&seen.at), &format!("{write:?}"));
    }
}

#[test]
fn eight_threads_write_at_once() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("2G");
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let root = ours.root().to_owned();
            scope.spawn(move || {
                let own = root.join(format!("thread-{thread}"));
                std::fs::create_dir(&own).expect("directory");
                for number in 0..200u64 {
                    let length = usize::try_from(number * 977 % 70_000).expect("small");
                    let bytes = noise(length, thread * 1000 + number);
                    std::fs::write(own.join(format!("file-{number}")), &bytes).expect("write");
                    // All in one directory, and away again.
                    let shared = root.join(format!("shared-{thread}-{number}"));
                    std::fs::hard_link(own.join(format!("file-{number}")), &shared).expect("link");
                    if number % 3 == 0 {
                        std::fs::remove_file(&shared).expect("unlink");
                    }
                    if number % 50 == 49 {
                        File::open(own.join("file-1")).expect("open").sync_all().expect("fsync");
                    }
                }
            });
        }
    });
    for thread in 0..8u64 {
        for number in 0..200u64 {
            let length = usize::try_from(number * 977 % 70_000).expect("small");
            let path = ours.root().join(format!("thread-{thread}/file-{number}"));
            assert!(std::fs::read(path).expect("read") == noise(length, thread * 1000 + number));
        }
    }
    let expected = Manifest::of_directory(ours.root()).expect("tree").portable();
    ours.finish();
    assert_no_differences(&expected, &ours.seen_by_kernel().portable(), "by the kernel");
}

#[test]
fn readers_find_the_data_that_writers_have_in_the_page_cache() {
    const PAGE: u64 = 4096;
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("1G");
    // More than there are threads to serve them.
    std::thread::scope(|scope| {
        for thread in 0..16u64 {
            let path = ours.root().join(format!("file-{thread}"));
            scope.spawn(move || {
                let file = open(&path, OFlags::CREATE | OFlags::RDWR).expect("create");
                let reader = File::open(&path).expect("open");
                for number in 0..40u64 {
                    let at = (number * 16 + thread % 8) * PAGE;
                    file.write_all_at(&noise(1000, number), at).expect("write");
                    let start = at.saturating_sub(3 * PAGE);
                    assert_eq!(rustix::fs::seek(&reader, SeekFrom::Data(start)).expect("data"), at);
                    assert_eq!(rustix::fs::seek(&reader, SeekFrom::Hole(at)).expect("end"), at + 1000);
                }
            });
        }
    });
    ours.finish();
}

#[test]
fn a_full_pool_says_so_and_recovers() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("256M");
    let chunk = noise(1 << 20, 5);
    let mut written = 0;
    let error = loop {
        let path = ours.root().join(format!("file-{written}"));
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&path)?;
            file.write_all(&chunk)?;
            file.sync_all()
        };
        match write() {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 256, "it is not that large");
    };
    assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC), "after {written} MiB");
    assert!(written > 50, "only {written} MiB fit");
    for number in 0..=written {
        std::fs::remove_file(ours.root().join(format!("file-{number}"))).ok();
    }
    // The kernel forgets the inodes behind the program's back, and their room is there after that.
    let contents = noise(20 << 20, 6);
    let again = || {
        let file = File::create(ours.root().join("again"))?;
        file.write_all_at(&contents, 0).and_then(|()| file.sync_all())
    };
    patiently(again).expect("there is room again");
    ours.finish();
}

#[test]
fn a_mounted_pool_is_taken() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let error = FileDevice::open_writable(&ours.image).expect_err("taken");
    assert!(error.to_string().contains("in use"), "{error}");
    ours.finish();
    drop(FileDevice::open_writable(&ours.image).expect("free again"));
}

#[test]
fn fsynced_data_survives_without_an_unmount() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    std::fs::create_dir(ours.root().join("directory")).expect("directory");
    let file = File::create(ours.root().join("directory/file")).expect("create");
    file.write_all_at(&noise(100_000, 4), 0).and_then(|()| file.sync_all()).expect("durable");
    // The image as it is now, with the mount still there; the kernel replays the log, which it does not on a loop device that is read-only.
    let crashed = ours.scratch.path().join("crashed");
    run(Command::new("cp").arg("--sparse=auto").args([&ours.image, &crashed]));
    let kernel = KernelMount::of(&crashed, &ours.directory("kernel"), "rw");
    let found = std::fs::read(kernel.at.join("directory/file")).expect("it is there");
    assert!(found == noise(100_000, 4));
    drop((kernel, file));
    ours.finish();
}

#[test]
fn files_that_go_leave_nothing_for_a_sync_to_complain_of() {
    if !can_mount() {
        return;
    }
    let mut written = Written::make("300M");
    let root = File::open(written.root()).expect("a mount");
    for name in ["removed", "replaced", "new"] {
        std::fs::write(written.root().join(name), name).expect("room");
    }
    // The kernel writes back the times of both when they are no longer visible.
    std::fs::remove_file(written.root().join("removed")).expect("it is there");
    std::fs::rename(written.root().join("new"), written.root().join("replaced")).expect("they are there");
    rustix::fs::syncfs(&root).expect("nothing is wrong");
    drop(root);
    written.finish();
}

#[test]
fn numbers_and_space_are_told_truly() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let path = ours.root().join("file");
    std::fs::write(&path, noise(1 << 20, 7)).expect("write");
    let ino = path.metadata().expect("stat").ino();
    File::open(&path).expect("open").sync_all().expect("sync");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let stat = path.metadata().expect("stat");
    assert_eq!((stat.ino(), stat.blocks()), (ino, 2048));
    let times = rustix::fs::statat(CWD, &path, AtFlags::empty()).expect("stat");
    assert!(times.st_mtime > 1_600_000_000);
    ours.finish();
}

#[test]
fn a_write_error_ends_all_writing_and_keeps_the_last_commit() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    std::fs::write(ours.root().join("before"), noise(50_000, 1)).expect("write");
    let (device, handle) = ours.remount_faulty();
    let root = ours.root().to_owned();
    let other = File::create(root.join("other")).expect("in memory");
    let file = File::create(root.join("lost")).expect("in memory");
    file.sync_all().expect("nothing has failed yet");
    // Contents alone are refused: where mkfs.btrfs puts the first 8 MiB for them.
    device.inject(Fault::WritesWithin(13 << 20..21 << 20));
    file.write_all_at(&noise(50_000, 2), 0).expect("in memory");
    let error = file.sync_all().expect_err("it can't be durable");
    assert_eq!(Errno::from_io_error(&error), Some(Errno::IO), "{error}");
    drop(file);
    device.heal();
    let mounted = brindle_admin::Mounted::open(&root).expect("ours");
    assert_eq!(mounted.server().expect("it answers").is_writable, 0);
    let why = mounted.read_only_reason().expect("it answers").expect("it is read-only");
    assert!(why.contains("contents were lost") && why.contains("writing"), "{why}");
    drop(mounted);
    // Writes that the kernel still takes through open files are lost, with an error.
    let written = other.write_all_at(b"late", 0).and_then(|()| other.sync_all());
    written.expect_err("nothing is written any more");
    let told = other.write_at(b"later", 0).expect_err("known before it is taken");
    assert_eq!(Errno::from_io_error(&told), Some(Errno::ROFS), "{told}");
    drop(other);
    File::open(&root).expect("open").sync_all().expect_err("it can't be durable");
    let refused =
        |error: std::io::Error| assert_eq!(Errno::from_io_error(&error), Some(Errno::ROFS), "{error}");
    refused(File::create(root.join("after")).expect_err("read-only"));
    refused(std::fs::remove_file(root.join("before")).expect_err("read-only"));
    refused(File::options().write(true).open(root.join("before")).expect_err("read-only"));
    assert!(std::fs::read(root.join("before")).expect("it can be read") == noise(50_000, 1));
    patiently(|| handle.unmount()).expect("it does not stay busy");
    let error = handle.wait().expect_err("what was written is lost");
    assert!(matches!(error, MountError::Lost(_)), "{error}");
    drop(device);
    ours.check();
    // The fsync has left a log, which the kernel has to replay.
    let kernel = KernelMount::of(&ours.image, &ours.directory("kernel"), "rw");
    assert!(std::fs::read(kernel.at.join("before")).expect("read") == noise(50_000, 1));
}

#[test]
fn removed_files_cause_no_error_at_the_next_sync() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    for length in [1, 5000, 3 << 20] {
        std::fs::write(ours.root().join("file"), noise(length, 1)).expect("write");
        std::fs::remove_file(ours.root().join("file")).expect("unlink");
        // Unreported errors are reported to the next opener.
        let root = File::open(ours.root()).expect("open");
        rustix::fs::syncfs(&root).expect("nothing went wrong");
    }
    ours.finish();
}

#[test]
fn commits_come_by_themselves() {
    if !can_mount() {
        return;
    }
    let options = MountOptions { commit_interval: std::time::Duration::from_secs(1), ..writable_options() };
    let mut ours = Written::make_with("512M", &WriteOptions::default(), &options);
    std::fs::write(ours.root().join("file"), noise(50_000, 1)).expect("write");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(120);
    loop {
        std::thread::sleep(std::time::Duration::from_millis(500));
        let copy = ours.scratch.path().join("copy");
        run(Command::new("cp").arg("--sparse=auto").args([&ours.image, &copy]));
        let at = ours.scratch.path().join("kernel");
        std::fs::create_dir_all(&at).expect("directory");
        let kernel = KernelMount::of(&copy, &at, "ro");
        let found = std::fs::read(kernel.at.join("file")).is_ok_and(|bytes| bytes == noise(50_000, 1));
        drop(kernel);
        if found {
            break;
        }
        assert!(std::time::Instant::now() < end, "no commit came");
    }
    ours.finish();
}

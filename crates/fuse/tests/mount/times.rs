//! Times of files that programs write through the page cache: those that the kernel shows are those that stay.

use crate::support::{KernelMount, Written, can_mount, noise, run};
use rustix::fs::{AtFlags, CWD, FallocateFlags, StatxFlags, copy_file_range, fallocate};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

type Times = (i64, i64, i64, i64);

fn times_of(metadata: &std::fs::Metadata) -> Times {
    (metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec())
}

fn shown(path: &Path) -> Times {
    times_of(&path.metadata().expect("stat"))
}

/// The same once the kernel has forgotten what it knew of the file.
fn shown_afresh(path: &Path) -> Times {
    std::fs::write("/proc/sys/vm/drop_caches", "2").expect("root may");
    shown(path)
}

#[test]
fn the_time_of_scattered_pages_is_that_of_the_last_write() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let path = ours.root().join("f");
    let file = File::create(&path).expect("create");
    for page in 0..2000 {
        file.write_all_at(b"x", page * 8192).expect("write");
    }
    let expected = times_of(&file.metadata().expect("stat"));
    // The kernel tells the time while the last pages are still under way.
    rustix::fs::syncfs(&file).expect("synced");
    drop(file);
    assert_eq!(shown_afresh(&path), expected, "while mounted");
    ours.remount();
    assert_eq!(shown(&path), expected, "after a remount");
    ours.finish();
}

#[test]
fn files_that_are_cut_and_written_within_a_tick_keep_the_time_that_was_shown() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let mut expected = Vec::new();
    for number in 0..60 {
        let path = ours.root().join(format!("cut-{number}"));
        std::fs::write(&path, noise(5000, number)).expect("write");
        let mut file = File::options().write(true).open(&path).expect("open");
        file.set_len(10).expect("cut");
        file.write_all(b"new contents").expect("write");
        expected.push((path, times_of(&file.metadata().expect("stat"))));
    }
    ours.remount();
    for (path, times) in &expected {
        assert_eq!(shown(path), *times, "{}", path.display());
    }
    ours.finish();
}

/// The kernel stamps a file by its coarse clock, and tells a time once: a change in the same tick must not leave a time
/// of the server's own.
#[test]
fn changes_past_the_cache_within_a_tick_keep_the_time_that_was_shown() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    std::fs::write(ours.root().join("source"), noise(70_000, 1)).expect("write");
    let source = File::open(ours.root().join("source")).expect("open");
    let mut expected = Vec::new();
    for number in 0..40 {
        let path = ours.root().join(format!("changed-{number}"));
        let file = File::create(&path).expect("create");
        fallocate(&file, FallocateFlags::empty(), 0, 100_000).expect("allocated");
        fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096, 8192)
            .expect("punched");
        drop(file);
        let copy = ours.root().join(format!("copy-{number}"));
        let target = File::create(&copy).expect("create");
        for piece in 0..2 {
            let mut offsets = (piece * 4096, piece * 4096);
            copy_file_range(&source, Some(&mut offsets.0), &target, Some(&mut offsets.1), 4096)
                .expect("copied");
        }
        drop(target);
        expected.extend([path, copy].map(|path| (times_of(&path.metadata().expect("stat")), path)));
    }
    drop(source);
    ours.remount();
    for (times, path) in &expected {
        assert_eq!(shown(path), *times, "{}", path.display());
    }
    ours.finish();
}

#[test]
fn every_way_to_write_leaves_the_time_that_was_shown() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let script = r#"
        echo a >plain; : >>empty; echo b >>plain
        cp plain copied; dd if=/dev/zero of=large bs=1M count=20 status=none; truncate -s 3M large
        fallocate -l 100000 allocated; fallocate -p -o 4096 -l 8192 allocated
        echo c >moved; mv moved there; ln there linked; chmod 600 linked; setfattr -n user.a -v 1 plain
        mkdir directory; touch directory/a; touch -d '2001-02-03 04:05:06.7' copied
        python3 -c 'import mmap; f=open("large","r+b"); m=mmap.mmap(f.fileno(),0); m[5]=1; m.flush(); f.close()'
        for i in 1 2 3 4 5 6 7 8; do echo $i >many-$i; echo more >>many-$i; done"#;
    let list = "find . -printf '%p %T@ %C@\\n' | sort";
    let said = |script: &str| {
        let output = Command::new("sh").args(["-ec", script]).current_dir(ours.root()).output().expect("sh");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    said(script);
    let expected = said(list);
    ours.remount();
    let output = Command::new("sh").args(["-ec", list]).current_dir(ours.root()).output().expect("sh");
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    let differences: Vec<(&str, &str)> =
        expected.lines().zip(found.lines()).filter(|(before, after)| before != after).collect();
    assert!(differences.is_empty(), "{differences:#?}");
    ours.finish();
}

#[test]
fn a_directory_shows_at_once_that_its_flags_have_changed() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let path = ours.directory("directory");
    let mut before = shown(&path);
    for flags in ["+A", "-A", "+D"] {
        run(Command::new("chattr").arg(flags).arg(&path));
        let after = shown(&path);
        assert!(after.2 > before.2 || after.2 == before.2 && after.3 > before.3, "{flags}: {after:?}");
        before = after;
    }
    assert_eq!(shown_afresh(&path), before);
    ours.finish();
}

/// The time of birth, where it is told.
fn birth(path: &Path) -> Option<(i64, u32)> {
    let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let told = rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, flags).expect("statx");
    let is_told = told.stx_mask & StatxFlags::BTIME.bits() != 0;
    is_told.then_some((told.stx_btime.tv_sec, told.stx_btime.tv_nsec))
}

#[test]
fn the_time_of_birth_is_told_and_stays() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let paths = ["file", "directory", "link"].map(|name| ours.root().join(name));
    std::fs::write(&paths[0], b"born").expect("room");
    std::fs::create_dir(&paths[1]).expect("room");
    std::os::unix::fs::symlink("file", &paths[2]).expect("room");
    let births = paths.each_ref().map(|path| birth(path).expect("it is told"));
    let born = std::fs::symlink_metadata(&paths[2]).expect("stat");
    assert_eq!(births[2], (born.ctime(), u32::try_from(born.ctime_nsec()).expect("it fits")));
    std::fs::write(&paths[0], b"changed").expect("room");
    std::fs::write(paths[1].join("inside"), b"changed").expect("room");
    for path in &paths {
        rustix::fs::chownat(CWD, path, None, None, AtFlags::SYMLINK_NOFOLLOW).expect("root may");
    }
    assert_eq!(paths.each_ref().map(|path| birth(path).expect("it is told")), births);
    ours.remount();
    assert_eq!(paths.each_ref().map(|path| birth(path).expect("it is told")), births);
    ours.finish();
    let kernel = KernelMount::of(&ours.image, &ours.directory("kernel"), "ro");
    let seen = ["file", "directory", "link"].map(|name| birth(&kernel.at.join(name)).expect("it is told"));
    assert_eq!(seen, births);
}

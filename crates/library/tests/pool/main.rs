//! Pools on image files, used by path.

mod like_std;

use brindle_care::mkfs::{MkfsOptions, NewDevice, mkfs};
use brindle_device::{FileDevice, WritableDevice};
use brindle_ondisk::{Profile, Uuid};
use brindle_pool::{AttributeChange, ErrorKind, FileType, Pool, SubvolumeChoice};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};
use tempfile::TempDir;

/// Image files with an empty pool on them: metadata and data in raid1 if there are several.
struct Images {
    _directory: TempDir,
    paths: Vec<PathBuf>,
}

impl Images {
    fn new(count: usize) -> Self {
        let directory = TempDir::new().expect("a directory");
        let paths: Vec<PathBuf> =
            (0..count).map(|index| directory.path().join(format!("{index}.img"))).collect();
        for path in &paths {
            fs::File::create(path).and_then(|file| file.set_len(512 << 20)).expect("an image");
        }
        let open = |path: &PathBuf| {
            NewDevice::new(
                Arc::new(FileDevice::open_writable(path).expect("opens")) as Arc<dyn WritableDevice>
            )
        };
        let mut options = MkfsOptions::new(Uuid([0x5e; 16]), [9; 16], 1_700_000_000);
        if count > 1 {
            (options.data, options.metadata) = (Some(Profile::Raid1), Some(Profile::Raid1));
        }
        mkfs(&paths.iter().map(open).collect::<Vec<_>>(), &options).expect("a pool");
        Self { _directory: directory, paths }
    }

    fn writable(&self) -> Pool {
        Pool::options().write(true).open(&self.paths).expect("opens")
    }

    fn readable(&self) -> Pool {
        Pool::open(&self.paths).expect("opens")
    }

    /// Copies of the images as they are now, as a crash would leave them.
    fn cut(&self) -> Self {
        let directory = TempDir::new().expect("a directory");
        let copy = |path: &PathBuf| {
            let to = directory.path().join(path.file_name().expect("has one"));
            fs::copy(path, &to).expect("room");
            to
        };
        Self { paths: self.paths.iter().map(copy).collect(), _directory: directory }
    }
}

fn kind<T>(result: Result<T, brindle_pool::Error>) -> ErrorKind {
    result.err().expect("refused").kind()
}

#[test]
fn files_are_written_and_read_by_path() {
    let images = Images::new(3);
    let pool = images.writable();
    pool.create_dir_all("/srv/notes/old").expect("room");
    pool.write("srv/notes/today", b"buy a disk").expect("room");
    pool.symlink("notes", "srv/link").expect("room");
    pool.symlink("/srv/link/today", "now").expect("room");
    pool.hard_link("now", "srv/second").expect("a name of the symbolic link itself");
    assert_eq!(pool.read("srv/link/../notes/./today").expect("there"), b"buy a disk");
    assert_eq!(pool.read("now").expect("two links on the way"), b"buy a disk");
    assert_eq!(pool.read_link("srv/second").expect("a link"), PathBuf::from("/srv/link/today"));
    let mut file = pool.open_file("now").expect("there");
    file.seek(SeekFrom::End(0)).expect("a place");
    file.write_all(b", or two").expect("room");
    file.seek(SeekFrom::Start(4)).expect("a place");
    let mut text = String::new();
    file.read_to_string(&mut text).expect("text");
    assert_eq!((text.as_str(), file.len()), ("a disk, or two", 18));
    pool.remove_file("srv/notes/today").expect("there");
    file.seek(SeekFrom::Start(0)).expect("a place");
    assert_eq!(file.read(&mut [0; 3]).expect("it keeps its inode"), 3);
    file.close().expect("nothing was lost");
    pool.rename("srv/notes", "srv/papers").expect("there");
    pool.set_metadata("srv/papers", &AttributeChange { mode: Some(0o700), ..AttributeChange::default() })
        .expect("ours");
    pool.set_xattr("srv/papers", "user.colour", Some(b"brindle")).expect("room");
    pool.create_subvolume("home").expect("room");
    pool.write("home/kept", vec![7; 300_000]).expect("room");
    pool.snapshot("home", "home.yesterday", true).expect("room");
    pool.remove_file("home/kept").expect("there");
    pool.close().expect("all durable");

    let pool = images.readable();
    let names: Vec<String> = pool
        .read_dir("srv")
        .expect("there")
        .map(|entry| entry.expect("readable").name().display().to_string())
        .collect();
    assert_eq!(names, ["link", "second", "papers"]);
    let papers = pool.metadata("srv/papers/").expect("there");
    assert_eq!((papers.kind, papers.mode & 0o7777), (FileType::Directory, 0o700));
    assert_eq!(pool.xattrs("srv/papers").expect("readable")[0].value, b"brindle");
    assert_eq!(pool.read("home.yesterday/kept").expect("in the snapshot"), vec![7; 300_000]);
    assert_eq!(kind(pool.read("home/kept")), ErrorKind::NotFound);
    assert_eq!(kind(pool.write("new", b"")), ErrorKind::ReadOnly);
    let options = Pool::options().subvolume(SubvolumeChoice::Path(b"home.yesterday".to_vec()));
    let inside = options.open(&images.paths).expect("opens");
    assert_eq!(inside.read("../../kept").expect("nothing is above the root").len(), 300_000);
}

#[test]
fn a_pool_that_is_dropped_has_lost_nothing() {
    let images = Images::new(2);
    let pool = images.writable();
    let mut file = pool.create_file("a").expect("room");
    file.write_all(b"contents").expect("room");
    // The file keeps the pool.
    drop(pool);
    file.write_all(b" and more").expect("room");
    let again = Pool::options().write(true).open(&images.paths);
    assert_eq!(kind(again), ErrorKind::Busy);
    drop(file);
    assert_eq!(images.readable().read("a").expect("there"), b"contents and more");
}

#[test]
fn synced_files_are_there_after_a_crash() {
    let images = Images::new(2);
    // No commit comes by itself between a sync and the crash.
    let options = Pool::options().write(true).commit_interval(Duration::from_secs(3600));
    let pool = options.open(&images.paths).expect("opens");
    pool.write("before", b"a commit").expect("room");
    pool.sync().expect("durable");
    let mut file = pool.create_new_file("after").expect("room");
    file.write_all(b"a sync").expect("room");
    file.sync().expect("durable");
    pool.write("never", b"synced").expect("room");
    let cut = images.cut();
    let read = |ignore| Pool::options().ignore_log(ignore).open(&cut.paths).expect("opens");
    let before = cut.paths.iter().map(|path| fs::read(path).expect("readable")).collect::<Vec<_>>();
    assert_eq!(read(false).read("after").expect("in the log"), b"a sync");
    assert_eq!(kind(read(false).read("never")), ErrorKind::NotFound);
    assert_eq!(kind(read(true).read("after")), ErrorKind::NotFound);
    assert_eq!(read(true).warnings().len(), 1, "the log");
    let after = cut.paths.iter().map(|path| fs::read(path).expect("readable")).collect::<Vec<_>>();
    assert!(before == after, "reading writes nothing");
    assert_eq!(cut.writable().read("after").expect("replayed"), b"a sync");
}

#[test]
fn errors_have_kinds_and_name_the_path() {
    let images = Images::new(1);
    let pool = images.writable();
    pool.write("file", b"x").expect("room");
    pool.create_dir("dir").expect("room");
    pool.symlink("round", "round").expect("room");
    let cases = [
        (kind(pool.read("file/x")), ErrorKind::NotADirectory),
        (kind(pool.read("file/")), ErrorKind::NotADirectory),
        (kind(pool.read("dir")), ErrorKind::IsADirectory),
        (kind(pool.read("round")), ErrorKind::Loop),
        (kind(pool.read("no/way")), ErrorKind::NotFound),
        (kind(pool.create_dir("/")), ErrorKind::Exists),
        (kind(pool.create_dir("dir")), ErrorKind::Exists),
        (kind(pool.create_new_file("file")), ErrorKind::Exists),
        (kind(pool.create_file("new/")), ErrorKind::IsADirectory),
        (kind(pool.snapshot("dir", "snap", false)), ErrorKind::Invalid),
        (kind(pool.remove_dir("/")), ErrorKind::Busy),
        (kind(Pool::open(["/nonexistent/disk.img"])), ErrorKind::NotFound),
    ];
    for (index, (found, wanted)) in cases.into_iter().enumerate() {
        assert_eq!(found, wanted, "case {index}");
    }
    let error = pool.read("no/way").expect_err("not there");
    assert_eq!(error.to_string(), "no/way: no such file or directory");
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::NotFound);
    let mut file = pool.create_file("large").expect("room");
    let full = loop {
        if let Err(error) = file.write_all(&[5; 1 << 20]) {
            break error;
        }
    };
    assert!(matches!(full.kind(), io::ErrorKind::StorageFull | io::ErrorKind::WriteZero), "{full}");
}

//! Inodes without a name that the kernel still knows.

use crate::support::{Written, can_mount, patiently, run};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// The inodes that the image marks as having no name, as of the next commit.
fn orphans(ours: &Written) -> usize {
    ours.commit();
    let dump = run(Command::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "5"]).arg(&ours.image));
    String::from_utf8_lossy(&dump.stdout).matches("ORPHAN_ITEM").count()
}

#[test]
fn files_without_a_name_go_when_the_kernel_forgets_them() {
    const DIRECTORIES: usize = 20;
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let stand_in = |number: usize| {
        let directory = ours.root().join(number.to_string());
        std::fs::create_dir(&directory).expect("mkdir");
        let mut child = Command::new("sh")
            .args(["-c", "echo there; read end; stat -c %h ."])
            .current_dir(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh");
        let mut said = BufReader::new(child.stdout.take().expect("piped"));
        said.read_line(&mut String::new()).expect("it is there");
        std::fs::remove_dir(&directory).expect("empty");
        (child, said)
    };
    let standing: Vec<_> = (0..DIRECTORIES).map(stand_in).collect();
    assert_eq!(orphans(&ours), DIRECTORIES);
    for (mut child, mut said) in standing {
        drop(child.stdin.take());
        let mut links = String::new();
        said.read_line(&mut links).expect("it is asked");
        assert_eq!(links, "0\n");
        child.wait().expect("it ends");
    }
    patiently(|| match orphans(&ours) {
        0 => Ok(()),
        left => Err(left),
    })
    .expect("nothing is kept that the kernel does not know");
    // Names that nothing uses leave nothing either.
    for number in 0..DIRECTORIES {
        let path = ours.root().join(format!("file{number}"));
        std::fs::write(&path, [7; 10_000]).expect("write");
        std::fs::remove_file(&path).expect("unlink");
    }
    patiently(|| match orphans(&ours) {
        0 => Ok(()),
        left => Err(left),
    })
    .expect("nothing is kept that the kernel does not know");
    ours.finish();
}

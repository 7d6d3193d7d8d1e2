//! The kernel and btrfs-progs as judges of what was repaired.

use crate::chunk_kernel::Loops;
use crate::damages::DAMAGES;
use brindle_device::{FileDevice, WritableDevice};
use brindle_testing::damage::Victim;
use brindle_testing::referee::btrfs_check;
use std::slice::from_ref;
use std::sync::Arc;

#[test]
fn a_repaired_pool_is_clean_to_the_referee_and_mounted() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        assert!(std::env::var_os("CI").is_none(), "a skip is a failure");
        return;
    }
    let directory = tempfile::tempdir().expect("temporary directory");
    let place = directory.path().join("mount");
    std::fs::create_dir(&place).expect("new");
    for (number, damage) in DAMAGES.iter().enumerate() {
        let mut victim = Victim::load("dup");
        (damage.make)(&mut victim);
        let image = directory.path().join("image");
        victim.images()[0].write_to(&image).expect("room");
        {
            let device: Arc<dyn WritableDevice> = Arc::new(FileDevice::open_writable(&image).expect("ours"));
            let (patient, _) = crate::support::rehearsed(&[device]);
            patient.carry_out(&directory.path().join(number.to_string())).expect("works");
        }
        let checked = btrfs_check(&image).expect("btrfs-progs are installed");
        checked.unwrap_or_else(|said| panic!("{}: {said}", damage.name));
        // The kernel is to forget the device afterwards, and no device of a test that runs beside this one.
        Loops::of(from_ref(&image)).mount(&place, |place| {
            let written = std::fs::write(place.join("written by the kernel"), vec![7; 100_000]);
            written.unwrap_or_else(|error| panic!("{}: {error}", damage.name));
        });
        let checked = btrfs_check(&image).expect("btrfs-progs are installed");
        checked.unwrap_or_else(|said| panic!("{}, written by the kernel: {said}", damage.name));
    }
}

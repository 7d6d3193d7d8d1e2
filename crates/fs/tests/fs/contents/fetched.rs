//! Bytes that were fetched before they are read, handed out where they lie.

use crate::simulated::Layout;
use brindle_fs::{FileBytes, Filesystem, NewInode, OpenOptions, WriteOptions};
use brindle_ondisk::Profile;
use brindle_sim::Random;

const BYTES: usize = 8 << 20;
const PIECE: usize = 256 << 10;

fn joined(bytes: &FileBytes) -> Vec<u8> {
    bytes.parts().flatten().copied().collect()
}

#[test]
fn bytes_handed_out_are_the_contents_and_stay_while_the_file_changes() {
    let layout = Layout { devices: 2, data: Profile::Raid0, metadata: Profile::Raid1, ..Layout::of(0) };
    let devices = layout.new_devices();
    let fs = Filesystem::open_writable(devices, &OpenOptions::default(), &WriteOptions::default());
    let fs = fs.expect("a pool");
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let id = fs.create(fs.root(), b"file", &new).expect("room").id;
    let mut random = Random::new(11);
    let mut contents = vec![0; BYTES];
    random.fill(&mut contents);
    {
        let file = fs.open_file(id).expect("there");
        fs.write(&file, 0, &contents).expect("room");
        fs.sync().expect("durable");
    }
    let (mut kept, mut in_parts) = (Vec::new(), 0);
    for round in 0..12 {
        let file = fs.open_file(id).expect("there");
        for at in (0..BYTES).step_by(PIECE) {
            let bytes = fs.read_bytes(&file, at as u64, PIECE).expect("readable");
            let expected = &contents[at..BYTES.min(at + PIECE)];
            assert!(joined(&bytes) == expected, "round {round}, from {at} on");
            in_parts += u32::from(bytes.parts().count() > 1);
            if random.chance(1, 8) {
                kept.push((bytes, expected.to_vec()));
            }
            if random.chance(1, 6) {
                let mut written = vec![0; 1 + random.index(100_000)];
                random.fill(&mut written);
                let place = random.index(BYTES - written.len());
                fs.write(&file, place as u64, &written).expect("room");
                contents[place..place + written.len()].copy_from_slice(&written);
            }
            match random.index(20) {
                0 => fs.write_back(&file).expect("room"),
                1 => fs.sync_file(&file).expect("durable"),
                2 => fs.sync().expect("durable"),
                _ => {}
            }
        }
        fs.write_back(&file).expect("room");
    }
    assert!(in_parts > 20, "strips of two devices: {in_parts}");
    for (bytes, expected) in &kept {
        assert!(joined(bytes) == *expected, "memory of a fetch does not change");
    }
}

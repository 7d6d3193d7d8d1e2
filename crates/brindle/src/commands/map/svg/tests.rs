use super::*;
use brindle_ondisk::{DevId, Logical, Profile};

const MIB: u64 = 1 << 20;

fn piece(start: u64, length: u64, kind: PieceKind) -> Piece {
    Piece {
        start: start * MIB,
        length_bytes: length * MIB,
        kind,
        profile: Profile::Raid1,
        logical: Logical::new(start * MIB),
        group_bytes: length * MIB,
        used_bytes: length * MIB / 4,
        is_misplaced: false,
    }
}

fn strip(devid: u64, total: u64, pieces: Vec<Piece>) -> Strip {
    Strip { devid: DevId::new(devid), total_bytes: total * MIB, pieces }
}

fn labelled(strip: Strip, name: &str) -> Labelled {
    Labelled { strip, name: name.to_owned(), class: "bulk".to_owned() }
}

/// Names of elements that are open at the end; panics where one ends that is not open.
fn open_elements(document: &str) -> Vec<String> {
    let mut open: Vec<String> = Vec::new();
    for tag in document.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag ends");
        let name = tag.split([' ', '/']).find(|part| !part.is_empty()).expect("a name").to_owned();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    open
}

#[test]
fn a_picture_is_well_formed_whatever_the_names_and_has_each_device() {
    let bad = Piece { is_misplaced: true, ..piece(30, 10, PieceKind::Data) };
    let strips = vec![
        labelled(strip(1, 100, vec![piece(1, 10, PieceKind::Metadata), bad]), "/dev/<a&\"\u{1}>"),
        labelled(strip(2, 1, Vec::new()), "missing"),
    ];
    let text = Picture { title: "Pool <x>".to_owned(), strips }.draw();
    assert!(open_elements(&text).is_empty());
    assert!(
        text.contains("/dev/&lt;a&amp;&quot;?&gt;") && text.contains("<title id=\"title\">Pool &lt;x&gt;")
    );
    assert_eq!(text.matches("class=\"free\"").count(), 3, "a strip a device, and the legend");
    assert_eq!(text.matches("class=\"bad\"").count(), 2, "a misplaced block, and the legend");
    // A small device can be seen beside a large one.
    assert!(text.contains("width=\"96\" height=\"44\"><title>unallocated"), "{text}");
    let empty = Picture { title: String::new(), strips: Vec::new() }.draw();
    assert!(open_elements(&empty).is_empty());
}

#[test]
fn thin_neighbours_of_a_kind_become_one_block_and_nothing_is_drawn_twice() {
    let many: Vec<Piece> = (0..2000).map(|at| piece(at, 1, PieceKind::Data)).collect();
    let found = blocks(&strip(1, 2000, many), 11_520);
    assert!(
        (300..=480).contains(&found.len()) && found.iter().map(|block| block.pieces).sum::<u64>() == 2000,
        "{}",
        found.len()
    );
    assert!(found.windows(2).all(|pair| pair[0].x + pair[0].width <= pair[1].x), "they do not overlap");
    assert!(found.iter().all(|block| block.used_bytes * 4 == block.group_bytes));
    let mixed =
        vec![piece(0, 1, PieceKind::Data), piece(1, 1, PieceKind::Metadata), piece(2, 1, PieceKind::Data)];
    assert_eq!(blocks(&strip(1, 2000, mixed), 11_520).len(), 3);
    let apart = vec![piece(0, 1, PieceKind::Data), piece(500, 1, PieceKind::Data)];
    assert_eq!(blocks(&strip(1, 2000, apart), 11_520).len(), 2, "there is a gap");
    let beyond = blocks(&strip(1, 10, vec![piece(8, 100, PieceKind::Data)]), 1000);
    assert_eq!((beyond[0].x, beyond[0].width), (800, 200), "a device that has shrunk");
}

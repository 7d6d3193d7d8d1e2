use super::*;

const SECTOR: usize = 4096;

fn sample(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| if at % 7 == 0 { b'a' } else { u8::try_from(at / 64 % 251).expect("small") })
        .collect()
}

const ALGORITHMS: [Compression; 3] = [Compression::Zlib, Compression::Lzo, Compression::Zstd];

fn compressed(algorithm: Compression, data: &[u8]) -> Vec<u8> {
    compress(algorithm, None, data, data.len() * 2 + 100, SECTOR).expect("there is room")
}

#[test]
fn compressed_data_comes_back_with_padding_ignored_and_zeros_after_it() {
    for algorithm in ALGORITHMS {
        for length in [1, 100, SECTOR - 1, SECTOR, SECTOR + 1, 128 << 10] {
            let data = sample(length);
            let mut input = compressed(algorithm, &data);
            input.resize(input.len().next_multiple_of(SECTOR), 0);
            let mut output = vec![0xff; length + 10];
            decompress(algorithm, &input, &mut output, SECTOR).expect("decompresses");
            assert_eq!(output[..length], data, "{algorithm} {length}");
            assert!(output[length..].iter().all(|byte| *byte == 0), "{algorithm} {length}");
        }
    }
}

#[test]
fn a_smaller_buffer_takes_the_begin() {
    for algorithm in ALGORITHMS {
        let data = sample(3 * SECTOR);
        let mut output = vec![0; 2 * SECTOR];
        decompress(algorithm, &compressed(algorithm, &data), &mut output, SECTOR).expect("decompresses");
        assert_eq!(output, data[..2 * SECTOR], "{algorithm}");
    }
}

#[test]
fn a_stream_that_ends_too_soon_is_an_error() {
    for algorithm in ALGORITHMS {
        let input = compressed(algorithm, &sample(10 * SECTOR));
        let mut output = vec![0; 10 * SECTOR];
        let cut = &input[..input.len() / 2];
        decompress(algorithm, cut, &mut output, SECTOR).expect_err("half is missing");
    }
}

proptest::proptest! {
    #[test]
    fn arbitrary_bytes_are_refused_or_read_never_worse(
        input: Vec<u8>,
        length in 0usize..70_000,
        algorithm in 0usize..3,
    ) {
        let mut output = vec![0; length];
        let _ = decompress(ALGORITHMS[algorithm], &input, &mut output, SECTOR);
    }
}

#[test]
fn zstd_gets_no_window_larger_than_an_extent() {
    // Magic number, no content size, the window; then one block of 2^17 equal bytes.
    let frame =
        |window_log: u8| [0x28, 0xb5, 0x2f, 0xfd, 0x00, (window_log - 10) << 3, 0x03, 0x00, 0x10, 0xaa];
    let mut output = vec![0; 1 << 17];
    decompress(Compression::Zstd, &frame(17), &mut output, 4096).expect("the window of an extent");
    assert!(output.iter().all(|byte| *byte == 0xaa));
    let error = decompress(Compression::Zstd, &frame(18), &mut output, 4096).expect_err("a larger one");
    assert!(error.to_string().contains("requires too much memory"), "{error}");
}

#[test]
fn compression_that_gains_nothing_is_given_up() {
    let data = sample(32 * SECTOR);
    for algorithm in ALGORITHMS {
        let length = compressed(algorithm, &data).len();
        for level in [None, Some(0), Some(127), Some(-128)] {
            let exact = compress(algorithm, level, &data, data.len(), SECTOR).expect("fits").len();
            assert!(
                compress(algorithm, level, &data, exact + 512, SECTOR).is_some(),
                "{algorithm} {level:?}"
            );
            assert!(compress(algorithm, level, &data, exact - 1, SECTOR).is_none(), "{algorithm} {level:?}");
        }
        assert!(length < data.len() / 2, "{algorithm}: {length}");
    }
}

#[test]
fn no_length_of_an_lzo_segment_lies_across_the_border_of_a_sector() {
    // Contents of every kind of size; the frame is read here by its rules alone.
    for seed in 0..200usize {
        let data: Vec<u8> = (0..32 * SECTOR)
            .map(|at| if at % (7 + seed) < 3 + seed % 5 { ((at * at) >> 5).to_le_bytes()[0] } else { 0 })
            .collect();
        let framed = compressed(Compression::Lzo, &data);
        let number =
            |at: usize| u32::from_le_bytes(*framed[at..].first_chunk().expect("four bytes")) as usize;
        assert_eq!(number(0), framed.len());
        let (mut at, mut segments) = (4, 0);
        while at < framed.len() {
            if SECTOR - at % SECTOR < 4 {
                at = at.next_multiple_of(SECTOR);
            }
            assert_eq!(at / SECTOR, (at + 3) / SECTOR);
            at += 4 + number(at);
            segments += 1;
        }
        assert_eq!((at, segments), (framed.len(), 32));
        let mut output = vec![1; data.len()];
        decompress(Compression::Lzo, &framed, &mut output, SECTOR).expect("decompresses");
        assert_eq!(output, data);
    }
}

proptest::proptest! {
    #[test]
    fn everything_comes_back(
        parts in proptest::collection::vec((proptest::prelude::any::<u8>(), 1usize..3000, 0usize..2), 1..40),
        algorithm in 0usize..3,
        level in -20i8..20,
    ) {
        let mut data = Vec::new();
        for (byte, length, kind) in parts {
            let byte_at = |at: usize| if kind == 0 { byte } else { ((at * at * 31) >> 3).to_le_bytes()[0] ^ byte };
            data.extend((0..length).map(byte_at));
        }
        data.truncate(128 << 10);
        let algorithm = ALGORITHMS[algorithm];
        let input = compress(algorithm, Some(level), &data, data.len() * 2 + 100, SECTOR).expect("there is room");
        let mut output = vec![9; data.len()];
        decompress(algorithm, &input, &mut output, SECTOR).expect("decompresses");
        proptest::prop_assert_eq!(output, data);
    }
}

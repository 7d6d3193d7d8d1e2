use super::*;
use std::io::Write;

const SECTOR: usize = 4096;

fn sample(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| if at % 7 == 0 { b'a' } else { u8::try_from(at / 64 % 251).expect("small") })
        .collect()
}

fn zlib(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}

fn lzo(data: &[u8]) -> Vec<u8> {
    let mut framed = vec![0; 4];
    for segment in data.chunks(SECTOR) {
        let compressed = lzokay::compress::compress(segment).expect("compresses");
        let left = SECTOR - framed.len() % SECTOR;
        if left < 4 {
            framed.resize(framed.len() + left, 0);
        }
        framed.extend(u32::try_from(compressed.len()).expect("small").to_le_bytes());
        framed.extend(compressed);
    }
    let total = u32::try_from(framed.len()).expect("small").to_le_bytes();
    framed[..4].copy_from_slice(&total);
    framed
}

fn zstd(data: &[u8]) -> Vec<u8> {
    ::zstd::bulk::compress(data, 3).expect("compresses")
}

type Compress = fn(&[u8]) -> Vec<u8>;

fn every_algorithm() -> [(Compression, Compress); 3] {
    [(Compression::Zlib, zlib), (Compression::Lzo, lzo), (Compression::Zstd, zstd)]
}

#[test]
fn what_was_compressed_comes_back_with_padding_ignored_and_zeros_behind() {
    for (algorithm, compress) in every_algorithm() {
        for length in [1, 100, SECTOR - 1, SECTOR, SECTOR + 1, 128 << 10] {
            let data = sample(length);
            let mut input = compress(&data);
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
    for (algorithm, compress) in every_algorithm() {
        let data = sample(3 * SECTOR);
        let mut output = vec![0; 2 * SECTOR];
        decompress(algorithm, &compress(&data), &mut output, SECTOR).expect("decompresses");
        assert_eq!(output, data[..2 * SECTOR], "{algorithm}");
    }
}

#[test]
fn a_stream_that_ends_too_soon_is_an_error() {
    for (algorithm, compress) in every_algorithm() {
        let input = compress(&sample(10 * SECTOR));
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
        let _ = decompress(every_algorithm()[algorithm].0, &input, &mut output, SECTOR);
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

//! Well-known formats on a device, found by their magic numbers.

use brindle_cache::DISK_MAGIC;
use brindle_device::{Device, DeviceError};

/// Name of the format of the SSD of a cache.
pub const FLASH_CACHE: &str = "a flash cache, the SSD of cache:SSD:DISK";

/// Name of the format of images of qemu.
pub const QCOW2: &str = "a qcow2 image";

/// A format and where its magic number is.
struct Signature {
    format: &'static str,
    offset: u64,
    magic: &'static [u8],
}

const fn row(format: &'static str, offset: u64, magic: &'static [u8]) -> Signature {
    Signature { format, offset, magic }
}

/// The first that fits is named, so what says more comes first.
#[rustfmt::skip]
const SIGNATURES: [Signature; 27] = [
    row(FLASH_CACHE,                                                    0, b"BrndlFC\0"),
    row("half of a flash cache: it is the disk of cache:SSD:DISK",      0, &DISK_MAGIC),
    row("a btrfs filesystem",         0x1_0040,  b"_BHRfS_M"),
    row("a btrfs filesystem",         0x400_0040, b"_BHRfS_M"),
    row("an ext2/3/4 filesystem",     0x438,     &[0x53, 0xef]),
    row(QCOW2,                        0,         b"QFI\xfb"),
    row("an XFS filesystem",          0,         b"XFSB"),
    row("a bcachefs filesystem",      4096 + 24, &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef]),
    row("a bcache device",            4096 + 24, &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81]),
    row("an F2FS filesystem",         1024,      &[0x10, 0x20, 0xf5, 0xf2]),
    row("an EROFS filesystem",        1024,      &[0xe2, 0xe1, 0xf5, 0xe0]),
    row("a squashfs filesystem",      0,         b"hsqs"),
    row("a LUKS volume",              0,         b"LUKS\xba\xbe"),
    row("an LVM physical volume",     512 + 24,  b"LVM2 001"),
    row("a member of a Linux RAID",   4096,      &[0xfc, 0x4e, 0x2b, 0xa9]),
    row("a member of a Linux RAID",   0,         &[0xfc, 0x4e, 0x2b, 0xa9]),
    row("swap space",                 4086,      b"SWAPSPACE2"),
    row("a JFS filesystem",           0x8000,    b"JFS1"),
    row("a ReiserFS filesystem",      0x1_0034,  b"ReIsEr"),
    row("an ISO 9660 filesystem",     0x8001,    b"CD001"),
    row("a UDF filesystem",           0x8001,    b"BEA01"),
    row("an NTFS filesystem",         3,         b"NTFS    "),
    row("an exFAT filesystem",        3,         b"EXFAT   "),
    row("a FAT filesystem",           82,        b"FAT32"),
    row("a FAT filesystem",           54,        b"FAT1"),
    row("a GPT partition table",      512,       b"EFI PART"),
    row("a partition table",          510,       &[0x55, 0xaa]),
];

/// Name of the format on the device, if it is a known one.
///
/// # Errors
/// A device that can't be read.
pub fn find(device: &dyn Device) -> Result<Option<&'static str>, DeviceError> {
    for signature in &SIGNATURES {
        let mut found = [0; 16];
        let found = &mut found[..signature.magic.len()];
        let end = signature.offset + found.len() as u64;
        if end > device.size_bytes() {
            continue;
        }
        device.read_at(signature.offset, found)?;
        if found == signature.magic {
            return Ok(Some(signature.format));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_device::{DeviceClass, SparseDevice, WritableDevice};

    #[test]
    fn every_signature_is_found_and_zeros_are_none() {
        for signature in &SIGNATURES {
            let device = SparseDevice::new("device", 80 << 20, DeviceClass::Unknown);
            assert_eq!(find(&device).expect("memory"), None);
            device.write_at(signature.offset, signature.magic).expect("within");
            assert_eq!(find(&device).expect("memory"), Some(signature.format));
        }
    }

    #[test]
    fn a_device_that_ends_before_it_has_no_signature() {
        assert_eq!(find(&SparseDevice::new("tiny", 3, DeviceClass::Unknown)).expect("memory"), None);
    }
}

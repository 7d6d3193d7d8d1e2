#!/usr/bin/env python3
"""block_group_tree.py IMAGE: gives a filesystem fresh from mkfs a block group tree, which mkfs.btrfs 6.2 cannot
make; the kernel writes everything after that. Only for one device, single profiles, CRC-32C, a free space tree,
and trees of one leaf each, as mkfs makes them. All is rewritten in place, in the same generation."""

import struct
import sys

SUPERBLOCKS = (0x10000, 0x4000000)
EXTENT_TREE, FREE_SPACE_TREE, BLOCK_GROUP_TREE = 2, 10, 11
ROOT_ITEM, METADATA_ITEM, BLOCK_GROUP_ITEM, FREE_SPACE_EXTENT, CHUNK_ITEM = 132, 169, 192, 199, 228
METADATA = 4
HEADER, ITEM = 101, 25


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
    return struct.pack("<I", crc ^ 0xFFFFFFFF)


def table_entry(value):
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value


TABLE = [table_entry(value) for value in range(256)]


class Image:
    def __init__(self, path):
        self.file = open(path, "r+b")
        self.superblock = bytearray(self.read_physical(SUPERBLOCKS[0], 4096))
        self.node_size = struct.unpack_from("<I", self.superblock, 148)[0]
        # The system chunk array has one chunk, which holds the chunk tree, which has them all.
        array = self.superblock[811:811 + struct.unpack_from("<I", self.superblock, 160)[0]]
        self.chunks = [(array[:17], array[17:])]
        _, items = self.leaf(self.field(88))
        self.chunks = [(raw, chunk) for raw, chunk in items if raw[8] == CHUNK_ITEM]

    def field(self, offset):
        return struct.unpack_from("<Q", self.superblock, offset)[0]

    def set_field(self, offset, value):
        struct.pack_into("<Q", self.superblock, offset, value)

    def read_physical(self, offset, length):
        self.file.seek(offset)
        return self.file.read(length)

    def physical(self, logical):
        for raw, chunk in self.chunks:
            start = key_of(raw)[2]
            length, = struct.unpack_from("<Q", chunk, 0)
            if start <= logical < start + length:
                return logical - start + struct.unpack_from("<Q", chunk, 48 + 8)[0]
        raise LookupError(logical)

    def leaf(self, logical):
        """The header, and a list of [key, data]."""
        block = self.read_physical(self.physical(logical), self.node_size)
        count, level = struct.unpack_from("<IB", block, 96)
        assert level == 0, "a tree of more than one leaf"
        items = []
        for slot in range(count):
            at = HEADER + slot * ITEM
            offset, size = struct.unpack_from("<II", block, at + 17)
            items.append([block[at:at + 17], block[HEADER + offset:HEADER + offset + size]])
        return block[:HEADER], items

    def write_leaf(self, header, logical, owner, items):
        block = bytearray(self.node_size)
        block[:HEADER] = header
        struct.pack_into("<Q", block, 48, logical)
        struct.pack_into("<QI", block, 88, owner, len(items))
        end = self.node_size - HEADER
        for slot, (key, data) in enumerate(sorted(items, key=lambda item: key_of(item[0]))):
            end -= len(data)
            at = HEADER + slot * ITEM
            block[at:at + ITEM] = key + struct.pack("<II", end, len(data))
            block[HEADER + end:HEADER + end + len(data)] = data
        block[:4] = crc32c(block[32:])
        self.file.seek(self.physical(logical))
        self.file.write(block)

    def write_superblocks(self):
        for offset in SUPERBLOCKS:
            self.set_field(48, offset)
            self.superblock[:4] = crc32c(self.superblock[32:])
            self.file.seek(offset)
            self.file.write(self.superblock)


def key_of(raw):
    return struct.unpack("<QBQ", raw)


def key(*parts):
    return struct.pack("<QBQ", *parts)


def convert(image):
    generation, root_tree = image.field(72), image.field(80)
    root_header, roots = image.leaf(root_tree)
    root_of = {key_of(raw)[0]: item for raw, item in roots if raw[8] == ROOT_ITEM}
    leaf_of = {root: struct.unpack_from("<Q", item, 176)[0] for root, item in root_of.items()}

    extent_header, extents = image.leaf(leaf_of[EXTENT_TREE])
    groups = [item for item in extents if item[0][8] == BLOCK_GROUP_ITEM]
    extents = [item for item in extents if item[0][8] != BLOCK_GROUP_ITEM]
    # The first free block of the metadata block group becomes the new leaf.
    group = next(item for item in groups if struct.unpack_from("<Q", item[1], 16)[0] & METADATA)
    start, _, length = key_of(group[0])
    free_header, free = image.leaf(leaf_of[FREE_SPACE_TREE])
    space = next(item for item in free if item[0][8] == FREE_SPACE_EXTENT
                 and start <= key_of(item[0])[0] < start + length and key_of(item[0])[2] > image.node_size)
    new, _, free_length = key_of(space[0])
    space[0] = key(new + image.node_size, FREE_SPACE_EXTENT, free_length - image.node_size)
    used, chunk_objectid, flags = struct.unpack("<QQQ", group[1])
    group[1] = struct.pack("<QQQ", used + image.node_size, chunk_objectid, flags)
    # One reference, a tree block, inline TREE_BLOCK_REF of the new tree.
    extents.append([key(new, METADATA_ITEM, 0), struct.pack("<QQQBQ", 1, generation, 2, 176, BLOCK_GROUP_TREE)])
    root_item = bytearray(root_of[FREE_SPACE_TREE])
    struct.pack_into("<Q", root_item, 176, new)
    roots.append([key(BLOCK_GROUP_TREE, ROOT_ITEM, 0), bytes(root_item)])

    image.write_leaf(extent_header, new, BLOCK_GROUP_TREE, groups)
    image.write_leaf(extent_header, leaf_of[EXTENT_TREE], EXTENT_TREE, extents)
    image.write_leaf(free_header, leaf_of[FREE_SPACE_TREE], FREE_SPACE_TREE, free)
    image.write_leaf(root_header, root_tree, 1, roots)
    image.set_field(120, image.field(120) + image.node_size)
    image.set_field(180, image.field(180) | 1 << 3)  # BTRFS_FEATURE_COMPAT_RO_BLOCK_GROUP_TREE
    image.write_superblocks()
    image.file.close()


convert(Image(sys.argv[1]))

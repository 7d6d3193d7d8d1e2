# Writes through the page cache and past it to one file at once, each synced: halves of the blocks belong to one writer each,
# other blocks to both. Prints the number of blocks that are wrong in the end.
import mmap
import os
import threading

BLOCK, BLOCKS, ROUNDS = 4096, 64, 30

cached = os.open("both", os.O_CREAT | os.O_RDWR)
os.pwrite(cached, bytes(3 * BLOCKS * BLOCK), 0)
os.fsync(cached)
# Opened last: it is the one by which the kernel writes pages back.
direct = os.open("both", os.O_RDWR | os.O_DIRECT)


def fill(file, byte, first):
    page = mmap.mmap(-1, BLOCK)
    for round in range(ROUNDS):
        page.seek(0)
        page.write(bytes([byte + round]) * BLOCK)
        for block in range(BLOCKS):
            os.pwrite(file, page, (first + block) * BLOCK)
            os.pwrite(file, page, (2 * BLOCKS + block) * BLOCK)
        os.fsync(file)


writers = [
    threading.Thread(target=fill, args=(cached, 0, 0)),
    threading.Thread(target=fill, args=(direct, 100, BLOCKS)),
]
for writer in writers:
    writer.start()
for writer in writers:
    writer.join()
wrong = 0
for block in range(2 * BLOCKS):
    byte = ROUNDS - 1 if block < BLOCKS else 100 + ROUNDS - 1
    wrong += os.pread(cached, BLOCK, block * BLOCK) != bytes([byte]) * BLOCK
print("wrong", wrong)

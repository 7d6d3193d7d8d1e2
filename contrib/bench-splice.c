// What it would be worth to answer reads by splice(2): processor time to bring a file that is in the page cache to another file,
// verified on the way, a MiB at a time.
//
//   copy    read into a buffer, checksum the buffer, write the buffer: as the mount does it
//   splice  checksum a mapping of the file, splice its pages into a pipe, and from there into the target
//   read, map: the first half of each, without the write
//
//   cc -O2 -msse4.2 -o bench-splice contrib/bench-splice.c
//   ./bench-splice FILE TARGET copy|splice|read|map      (FILE of a GiB or more, TARGET on a tmpfs)
#define _GNU_SOURCE
#include <fcntl.h>
#include <nmmintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { TOTAL = 1 << 30, PIECE = 1 << 20, SECTOR = 4096 };

static void check(int is_good, const char *what) {
    if (!is_good) {
        perror(what);
        exit(1);
    }
}

// CRC32C in three streams side by side, as libraries do it; the sums are only to cost what they cost.
static uint64_t checksum(const uint8_t *bytes) {
    const uint64_t *words = (const uint64_t *)bytes;
    const size_t third = SECTOR / sizeof *words / 3;
    uint64_t a = 0, b = 0, c = 0;
    for (size_t at = 0; at < third; at++) {
        a = _mm_crc32_u64(a, words[at]);
        b = _mm_crc32_u64(b, words[third + at]);
        c = _mm_crc32_u64(c, words[2 * third + at]);
    }
    return a ^ b ^ c;
}

static uint64_t checksums(const uint8_t *bytes) {
    uint64_t sum = 0;
    for (size_t at = 0; at < PIECE; at += SECTOR)
        sum ^= checksum(bytes + at);
    return sum;
}

static void splice_piece(int from, off_t offset, int pipes[2], int to) {
    size_t left = PIECE;
    loff_t source = offset, target = 0;
    while (left > 0) {
        ssize_t taken = splice(from, &source, pipes[1], NULL, left, 0);
        check(taken > 0, "splice from the file");
        left -= taken;
        while (taken > 0) {
            ssize_t given = splice(pipes[0], NULL, to, &target, taken, 0);
            check(given > 0, "splice to the target");
            taken -= given;
        }
    }
}

int main(int count, char **words) {
    if (count != 4)
        return fprintf(stderr, "usage: %s FILE TARGET copy|splice|read|map\n", words[0]), 2;
    const char *way = words[3];
    int is_mapped = !strcmp(way, "splice") || !strcmp(way, "map");
    int is_written = !strcmp(way, "splice") || !strcmp(way, "copy");
    int from = open(words[1], O_RDONLY), to = open(words[2], O_RDWR | O_CREAT, 0600), pipes[2];
    check(from >= 0 && to >= 0 && !ftruncate(to, PIECE) && !pipe(pipes), "open");
    fcntl(pipes[0], F_SETPIPE_SZ, 2 * PIECE);
    uint8_t *buffer = aligned_alloc(2 * PIECE, 2 * PIECE);
    check(buffer != NULL, "memory");
    madvise(buffer, 2 * PIECE, MADV_HUGEPAGE);
    memset(buffer, 1, PIECE);
    uint8_t *map = mmap(NULL, TOTAL, PROT_READ, MAP_SHARED, from, 0);
    check(map != MAP_FAILED, "mmap");

    uint64_t sum = 0;
    for (off_t offset = 0; offset < TOTAL; offset += PIECE) {
        if (is_mapped) {
            check(!madvise(map + offset, PIECE, MADV_POPULATE_READ), "populate");
            sum ^= checksums(map + offset);
            if (is_written)
                splice_piece(from, offset, pipes, to);
        } else {
            check(pread(from, buffer, PIECE, offset) == PIECE, "read");
            sum ^= checksums(buffer);
            if (is_written)
                check(pwrite(to, buffer, PIECE, 0) == PIECE, "write");
        }
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double seconds = used.ru_utime.tv_sec + used.ru_stime.tv_sec +
                     (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("%s %.3f s of a processor (%llx)\n", way, seconds, (unsigned long long)sum);
    return 0;
}

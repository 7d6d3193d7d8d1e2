// A client of RocksDB that counts: `write PATH` writes one key after the other, each synced, and prints the number of each when it
// is acknowledged; `verify PATH COUNT` has RocksDB verify its checksums, and fails unless the first COUNT keys are there.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include <rocksdb/db.h>

static std::string key_of(uint64_t number) {
    char text[32];
    std::snprintf(text, sizeof text, "%016llu", static_cast<unsigned long long>(number));
    return text;
}

static std::string contents(uint64_t number) {
    std::string text;
    for (int times = 0; times < 40; times++) text += std::to_string(number) + ":";
    return text;
}

static void must(const rocksdb::Status& status) {
    if (!status.ok()) {
        std::cerr << status.ToString() << "\n";
        std::exit(1);
    }
}

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    rocksdb::Options options;
    options.create_if_missing = true;
    // Small, so that tables are written and compacted under load.
    options.write_buffer_size = 256 << 10;
    options.paranoid_checks = true;
    rocksdb::DB* opened = nullptr;
    must(rocksdb::DB::Open(options, argv[2], &opened));
    std::unique_ptr<rocksdb::DB> database(opened);
    if (std::string(argv[1]) == "write") {
        rocksdb::WriteOptions synced;
        synced.sync = true;
        for (uint64_t number = 1;; number++) {
            must(database->Put(synced, key_of(number), contents(number)));
            std::cout << number << std::endl;
        }
    }
    must(database->VerifyChecksum());
    const uint64_t acknowledged = std::strtoull(argv[3], nullptr, 10);
    std::unique_ptr<rocksdb::Iterator> all(database->NewIterator(rocksdb::ReadOptions()));
    uint64_t number = 0;
    for (all->SeekToFirst(); all->Valid(); all->Next()) {
        number++;
        if (all->key() != key_of(number) || all->value() != contents(number)) {
            std::cerr << "key " << number << " is " << all->key().ToString() << "\n";
            return 1;
        }
    }
    must(all->status());
    if (number < acknowledged) {
        std::cerr << acknowledged << " keys were acknowledged, " << number << " are there\n";
        return 1;
    }
    return 0;
}

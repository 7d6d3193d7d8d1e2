# brindle: `make demo` shows it at work, `make test` is all that CI runs. Both install what they lack.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# What the tests and the demo use beside the Rust toolchain.
PACKAGES := acl attr btrfs-progs e2fsprogs fio fuse3 g++ gcc libc6-dev libnbd-bin make python3 time util-linux xfsprogs zstd
CARGO_DENY_VERSION := 0.20.2
# What `make programs` runs on mounts, beside those.
PROGRAM_PACKAGES := dpkg git librocksdb-dev postgresql python3-lmdb rsync sqlite3 tar
PREFIX ?= /usr/local
SBIN ?= /sbin

.PHONY: help packages build demo test install programs fuzz bench golden clean

help: ## List what can be made
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

packages: ## Install the Debian packages that are missing, or name them
	@contrib/packages.sh $(PACKAGES)

build: packages ## Build brindle, optimised
	cargo build --release --package brindle

demo: build ## A pool of mixed devices on image files: made, mounted, listed, copied out, checked
	@BRINDLE=target/release/brindle contrib/demo.sh

test: packages ## Everything that CI runs
	@command -v cargo-deny >/dev/null || cargo install --locked --version $(CARGO_DENY_VERSION) cargo-deny
	cargo xtask ci

install: build ## Install brindle, its man pages and the helpers of mount(8) and umount(8), below PREFIX (/usr/local) and SBIN (/sbin)
	install -D -m 755 target/release/brindle $(DESTDIR)$(PREFIX)/bin/brindle
	rm -rf target/man && mkdir -p target/man && target/release/brindle man target/man
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(SBIN)
	install -m 644 target/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	ln -sf $(PREFIX)/bin/brindle $(DESTDIR)$(SBIN)/mount.fuse.brindle
	ln -sf $(PREFIX)/bin/brindle $(DESTDIR)$(SBIN)/umount.fuse.brindle
	ln -sf $(PREFIX)/bin/brindle $(DESTDIR)$(SBIN)/umount.fuseblk.brindle

programs: build ## Real programs on writable mounts, in several settings; databases killed and cut (root, about twelve minutes)
	@contrib/packages.sh $(PROGRAM_PACKAGES)
	@BRINDLE=target/release/brindle contrib/programs.sh
	@BRINDLE=target/release/brindle contrib/databases.py

fuzz: packages ## Ten minutes of each fuzz target
	cargo xtask fuzz-all 600

bench: build ## The comparisons of docs/dev/benchmarks.md (root, about ten minutes)
	@BRINDLE=target/release/brindle contrib/bench.sh

golden: packages ## Make the golden images anew (root)
	crates/testing/golden/make.sh

clean: ## Remove what was built
	cargo clean

# brindle: `make demo` shows it at work, `make test` is all that CI runs. Both install what they lack.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# What a build needs beside the Rust toolchain.
BUILD_PACKAGES := gcc libc6-dev make
# What the tests and the demo use beside that.
PACKAGES := $(BUILD_PACKAGES) acl attr btrfs-progs e2fsprogs fio fuse3 g++ libnbd-bin mandoc nbdkit python3 qemu-utils time util-linux xfsprogs zstd
CARGO_DENY_VERSION := 0.20.2
# What `make programs` runs on mounts, beside those.
PROGRAM_PACKAGES := dpkg git librocksdb-dev postgresql python3-lmdb rsync sqlite3 systemd tar udev
# What `make ceph` runs, beside those.
CEPH_PACKAGES := ceph-common ceph-mgr ceph-mon ceph-osd qemu-block-extra
# What `make deb` and `make package-test` use.
DEB_PACKAGES := binutils debootstrap dpkg-dev
PREFIX ?= /usr/local
SBIN ?= /sbin
UNITS ?= $(PREFIX)/lib/systemd/system
# Given as empty by a packager that keeps the symbols for a package of their own.
STRIP ?= --strip

.PHONY: help packages build demo test install uninstall stage deb package-test programs ceph fuzz bench golden clean

help: ## List what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

packages: ## Install the Debian packages that are missing, or name them
	@contrib/packages.sh $(PACKAGES)

build: ## Build brindle, optimised
	@contrib/packages.sh $(BUILD_PACKAGES)
	cargo build --release --locked --package brindle
	contrib/notices.sh >target/release/THIRD-PARTY.new
	mv target/release/THIRD-PARTY.new target/release/THIRD-PARTY

target/release/brindle target/release/THIRD-PARTY:
	$(MAKE) build

demo: packages build ## A pool of mixed devices on image files: made, mounted, listed, copied out, checked
	@BRINDLE=target/release/brindle contrib/demo.sh

test: packages ## Everything that CI runs
	@command -v cargo-deny >/dev/null || cargo install --locked --version $(CARGO_DENY_VERSION) cargo-deny
	cargo xtask ci

install: target/release/brindle target/release/THIRD-PARTY ## Install what was built, below PREFIX (/usr/local) and SBIN (/sbin), with man pages, completions, a unit, rules for udev and the licences of all crates
	contrib/install.sh "$(DESTDIR)" $(PREFIX) $(SBIN) $(UNITS) $(STRIP)

uninstall: ## Remove what `make install` put there
	contrib/install.sh --remove "$(DESTDIR)" $(PREFIX) $(SBIN) $(UNITS)

stage: target/release/brindle target/release/THIRD-PARTY ## The files of a package, below target/stage
	rm -rf target/stage
	@ZSH_COMPLETIONS=/usr/share/zsh/vendor-completions RULES=/usr/lib/udev/rules.d contrib/install.sh target/stage /usr /usr/sbin /usr/lib/systemd/system

deb: build ## A Debian package in target/deb
	@contrib/packages.sh $(DEB_PACKAGES)
	contrib/deb.sh

package-test: deb ## Install the package in a clean Debian, try it, and remove it (root, two minutes, network)
	contrib/package-test.sh

programs: packages build ## Real programs on writable mounts, in several settings; databases killed and cut (root, about twelve minutes)
	@contrib/packages.sh $(PROGRAM_PACKAGES)
	@BRINDLE=target/release/brindle contrib/programs.sh
	@BRINDLE=target/release/brindle contrib/databases.py
	@BRINDLE=target/release/brindle contrib/fstab.sh
	@BRINDLE=target/release/brindle contrib/units.sh

ceph: packages build ## Ceph above brindle and below it, killed, cut and hung (root, about twenty minutes)
	@contrib/packages.sh $(CEPH_PACKAGES)
	@BRINDLE=target/release/brindle contrib/ceph.py
	cargo test --package brindle-lab --lib rados

fuzz: packages ## Ten minutes of each fuzz target
	cargo xtask fuzz-all 600

bench: packages build ## The comparisons of docs/dev/benchmarks.md (root, about ten minutes)
	@BRINDLE=target/release/brindle contrib/bench.sh

golden: packages ## Make the golden images anew (root)
	crates/testing/golden/make.sh

clean: ## Remove what was built
	cargo clean

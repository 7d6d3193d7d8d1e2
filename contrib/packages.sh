#!/usr/bin/env bash
# Installs the Debian packages that are missing; names them when it may not.
set -euo pipefail

missing=()
for package in "$@"; do
    if [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
        missing+=("$package")
    fi
done
if ! command -v cargo >/dev/null; then
    echo "brindle needs a Rust toolchain, 1.85 or later: no cargo in PATH" >&2
    exit 1
fi
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
    echo "please install what provides these Debian packages: ${missing[*]}" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "please install as root: apt-get install ${missing[*]}" >&2
    exit 1
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null

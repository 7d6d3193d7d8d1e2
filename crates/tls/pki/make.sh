#!/bin/bash
# Makes the certificates of the tests, in this directory: made by OpenSSL 3.0.19, valid for a century. Their keys guard nothing.
set -euo pipefail
cd "$(dirname "$0")"
begin=20200101000000Z end=21200101000000Z
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

key() {
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2> "$work/said"
}

# authority NAME
authority() {
    mkdir -p "$work/$1"
    touch "$work/$1/index"
    echo 01 | tee "$work/$1/serial" > "$work/$1/crlnumber"
    cat > "$work/$1/config" << END
[ca]
default_ca = authority
[authority]
dir = $work/$1
database = $work/$1/index
serial = $work/$1/serial
crlnumber = $work/$1/crlnumber
crl_extensions = revocations
new_certs_dir = $work/$1
certificate = $work/$1/cert
private_key = $work/$1/key
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
[revocations]
authorityKeyIdentifier = keyid
[authority_cert]
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign, cRLSign
[server]
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost, IP:127.0.0.1, IP:::1
[client]
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
END
    key "$work/$1/key"
    openssl req -new -key "$work/$1/key" -subj "/CN=$1" -out "$work/$1/request"
    openssl ca -batch -notext -selfsign -config "$work/$1/config" -extensions authority_cert -startdate $begin -enddate $end \
        -in "$work/$1/request" -out "$work/$1/cert" 2> "$work/said"
}

# certificate AUTHORITY KIND FILE
certificate() {
    key "$3-key.pem"
    openssl req -new -key "$3-key.pem" -subj "/CN=$2 of $1" -out "$work/request"
    openssl ca -batch -notext -config "$work/$1/config" -extensions "$2" -startdate $begin -enddate $end \
        -in "$work/request" -out "$3-cert.pem" 2> "$work/said"
}

rm -rf server client bare stranger revoking
mkdir server client bare stranger revoking
authority disks
authority strangers
certificate disks server server/server
certificate disks client client/client
for directory in server client bare revoking; do
    cp "$work/disks/cert" $directory/ca-cert.pem
done
# An authority that has revoked the client and the server.
cp server/server-*.pem client/client-*.pem revoking/
openssl ca -config "$work/disks/config" -revoke client/client-cert.pem 2> "$work/said"
openssl ca -config "$work/disks/config" -revoke server/server-cert.pem 2> "$work/said"
openssl ca -config "$work/disks/config" -gencrl -crldays 36500 -out revoking/ca-crl.pem 2> "$work/said"
# An authority that nobody here trusts, and those that it knows.
cp "$work/strangers/cert" stranger/ca-cert.pem
certificate strangers server stranger/server
certificate strangers client stranger/client

#!/bin/sh
# Certificates for an encrypted SuperLink and a key for each site.
#
#     sh make_certificates.sh FOLDER ADDRESS SITE...
#
# ADDRESS is how sites reach the SuperLink, such as DNS:learn.example.org or
# IP:127.0.0.1. In earnest, each site makes its own key and sends the .pub file only.
set -eu
folder=$1 address=$2
shift 2
mkdir -p "$folder"
cd "$folder"
umask 077

# 1. A certificate authority of your own: ca.key stays with you, ca.crt goes to all.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -days 365 \
    -keyout ca.key -out ca.crt -subj "/CN=skslot federation CA" \
    -addext "basicConstraints=critical,CA:TRUE" \
    -addext "keyUsage=critical,keyCertSign,cRLSign"

# 2. The key of the SuperLink, and its certificate, which names its address.
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes \
    -keyout server.key -out server.csr -subj "/CN=skslot SuperLink"
cat > server.ext <<END
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth
subjectAltName=$address
END
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 \
    -extfile server.ext -out server.pem

# 3. At each site: a key pair. Only SITE.key.pub is sent to the server, to be registered.
for site in "$@"; do
    ssh-keygen -q -t ecdsa -b 384 -N "" -C "$site" -f "$site.key"
done

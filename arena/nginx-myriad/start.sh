#!/bin/sh
# Starts Myriad behind nginx, fills in nginx's configuration and becomes nginx. Myriad is its child, and ends with it.
#
#   start.sh MYRIAD
set -eu
cd "$(dirname "$0")"
myriad=$1
host=${HOST:-127.0.0.1}
port=${PORT:-9000}
# The same port at another address of this machine: it is free where nginx's own is.
behind=127.0.0.2:$port
run=$PWD/target/run-$port
mkdir -p "$run"

"$myriad" arena --attached-to $$ -- "$myriad" serve --dev --listen "$behind" --compression off --ping-interval 0 \
    --message-bytes-max 131072 --drain 1s --log warn &

# Two workers for two cores, or as many as the crowd needs descriptors.
workers=${PROCESSES:-1}
[ "$workers" -ge 2 ] || workers=2
# Source addresses, each for 20,000 connections.
count=$((${CONNECTIONS:-20000} * ${PROCESSES:-1} / 20000 + 1))
sources=
number=1
while [ "$number" -lt "$count" ]; do
    sources="$sources        $((100 / count))% 127.0.1.$number;\n"
    number=$((number + 1))
done
sources="$sources        * 127.0.1.$count;"
sed -e "s|@RUN@|$run|g" \
    -e "s|@USER@|$(id -un)|" \
    -e "s|@HOST@|$host|g" \
    -e "s|@PORT@|$port|g" \
    -e "s|@BEHIND@|$behind|" \
    -e "s|@SOURCES@|$sources|" \
    -e "s|@CERTIFICATE@|$TLS_CERTIFICATE|" \
    -e "s|@KEY@|$TLS_KEY|" \
    -e "s|@WORKERS@|$workers|" \
    -e "s|@DESCRIPTORS@|$(ulimit -n)|g" \
    nginx.conf.in > "$run/nginx.conf"
exec nginx -p "$run" -e stderr -c "$run/nginx.conf"

#!/bin/sh
# Fills in the configuration and becomes nginx.
set -eu
cd "$(dirname "$0")"
run=$PWD/target/run-${PORT:-9000}
mkdir -p "$run"
sed -e "s|@RUN@|$run|g" \
    -e "s|@USER@|$(id -un)|" \
    -e "s|@HOST@|${HOST:-127.0.0.1}|g" \
    -e "s|@PORT@|${PORT:-9000}|g" \
    -e "s|@PROCESSES@|${PROCESSES:-1}|" \
    -e "s|@DESCRIPTORS@|$(ulimit -n)|g" \
    -e "s|@SHARED_MB@|$((64 + ${CONNECTIONS:-20000} * ${PROCESSES:-1} / 1000))|" \
    nginx.conf.in > "$run/nginx.conf"
exec nginx -p "$run" -e stderr -c "$run/nginx.conf"

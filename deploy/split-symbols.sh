#!/bin/sh
# deploy/split-symbols.sh BINARY FOLDER
#
# Puts a stripped copy of BINARY into FOLDER, and its symbols beside it as NAME.debug. A backtrace, perf and gdb find the symbols by the
# copy's .gnu_debuglink: in the same folder, in .debug/ below it, or in /usr/lib/debug. Needs objcopy, which is in binutils.
set -eu
[ $# -eq 2 ] || { echo "usage: $0 BINARY FOLDER" >&2; exit 2; }
name=$(basename "$1")
mkdir -p "$2"
objcopy --only-keep-debug "$1" "$2/$name.debug"
chmod -x "$2/$name.debug"
objcopy --strip-all "$1" "$2/$name"
# The link has the name alone and a checksum, so both files may move together.
(cd "$2" && objcopy --add-gnu-debuglink="$name.debug" "$name")

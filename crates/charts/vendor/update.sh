#!/bin/sh
# Replaces the vendored Chart.js by another version: vendor/update.sh VERSION
set -eu
version=${1:?"say which version of chart.js"}
vendor=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
tar xzf "$(npm pack --silent "chart.js@$version")"
# The library contains this package of another author.
colour=$(node -p 'require("./package/package.json").dependencies["@kurkle/color"]')
mkdir colour
tar xzf "$(npm pack --silent "@kurkle/color@$colour" | tail -n 1)" -C colour
rm -rf "$vendor"/chart.js-*
target=$vendor/chart.js-$version
mkdir "$target"
cp package/dist/chart.umd.min.js package/LICENSE.md "$target/"
cp colour/package/LICENSE.md "$target/LICENSE-kurkle-color.md"
cd "$target"
sha256sum chart.umd.min.js > SHA256SUMS
echo "Now change the version in src/library.rs and vendor/README.md, and run the tests."

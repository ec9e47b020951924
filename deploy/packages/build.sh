#!/bin/sh
# deploy/packages/build.sh PROGRAM FOLDER
#
# Makes a .deb, a .rpm and an archive of a compiled PROGRAM, in FOLDER. Beside them it puts the program without symbols and its symbols, as
# deploy/split-symbols.sh makes them.
#
# VERSION       the version of the packages     [default: the program's]
# MAINTAINER    NAME <ADDRESS> of who makes them
# RUNNABLE      the same version for this machine, where PROGRAM is for another: it writes the manual pages    [default: PROGRAM]
# NFPM          the tool that makes packages of both kinds: `make nfpm` builds it    [default: nfpm]
# SOURCE_DATE_EPOCH  seconds since 1970 that the packages have as their date    [default: of the commit, or now]
#
# Needs objcopy and objdump (binutils), which know PROGRAM's architecture.
set -eu
[ $# -eq 2 ] || { echo "usage: $0 PROGRAM FOLDER" >&2; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
program=$1
runnable=$(realpath "${RUNNABLE:-$program}")
mkdir -p "$2"
folder=$(realpath "$2")
here=$root/deploy/packages

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
umask 022

"$root/deploy/split-symbols.sh" "$program" "$folder"
cp "$folder/$(basename "$program")" "$stage/myriad"

VERSION=${VERSION:-$("$runnable" --version | cut -d' ' -f2)}
MAINTAINER=${MAINTAINER:-Authors of Myriad <authors@myriad.invalid>}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2> /dev/null || date +%s)}
case $(objdump -f "$stage/myriad" | sed -n 's/^architecture: \([^,]*\),.*/\1/p') in
i386:x86-64) ARCHITECTURE=amd64 ;;
aarch64) ARCHITECTURE=arm64 ;;
*) echo "$0: $program is for no architecture that packages are made for" >&2; exit 1 ;;
esac

# The oldest C library that has every symbol the program wants. A static program wants none.
glibc=$(objdump -T "$stage/myriad" 2> /dev/null | grep -o 'GLIBC_[0-9.]*' | cut -d_ -f2 | sort -Vu | tail -n 1)
needed=$(objdump -p "$stage/myriad" | sed -n 's/^ *NEEDED *//p')
DEB_C_LIBRARY=${glibc:+libc6 (>= $glibc)}
RPM_C_LIBRARY=${glibc:+libc.so.6(GLIBC_$glibc)(64bit)}
case $needed in
*libgcc_s.so.1*) DEB_GCC_LIBRARY=libgcc-s1 RPM_GCC_LIBRARY='libgcc_s.so.1()(64bit)' ;;
*) DEB_GCC_LIBRARY='' RPM_GCC_LIBRARY='' ;;
esac
export VERSION MAINTAINER SOURCE_DATE_EPOCH ARCHITECTURE DEB_C_LIBRARY RPM_C_LIBRARY DEB_GCC_LIBRARY RPM_GCC_LIBRARY

# One unit for both ways to install: by hand into /usr/local, by a package into /usr.
sed 's|/usr/local/bin/|/usr/bin/|' "$root/deploy/myriad.service" > "$stage/myriad.service"
cp "$here/sysusers.conf" "$here/myriad.toml" "$here/copyright" "$root/LICENSE" "$stage"
mkdir "$stage/docs" "$stage/deb" "$stage/rpm" "$stage/completions"
cp "$root"/docs/*.md "$stage/docs"
for script in deb/postinst rpm/post rpm/postun; do
    { echo '#!/bin/sh'; echo 'set -e'; cat "$here/setup.sh" "$here/$script"; } > "$stage/$script"
done
for script in deb/prerm deb/postrm rpm/preun; do
    { echo '#!/bin/sh'; echo 'set -e'; cat "$here/$script"; } > "$stage/$script"
done

"$runnable" man "$stage/man"
gzip -9n "$stage"/man/*
"$runnable" completions bash > "$stage/completions/myriad.bash"
"$runnable" completions zsh > "$stage/completions/_myriad"
"$runnable" completions fish > "$stage/completions/myriad.fish"

gzip -9nc "$root/CHANGELOG.md" > "$stage/changelog.gz"
cat > "$stage/changelog.yaml" <<EOF
- semver: $VERSION
  date: $(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
  packager: $MAINTAINER
  deb: {urgency: medium, distributions: [unstable]}
  changes:
    - note: /usr/share/doc/myriad/changelog.gz says what has changed.
EOF

cd "$stage"
# A program that needs no library of the system runs on each Linux, so its archive says so.
archive=myriad-$VERSION-linux-$ARCHITECTURE${glibc:+-glibc$glibc}
[ -n "$glibc" ] || archive=$archive-static
tar --create --gzip --sort=name --owner=root:0 --group=root:0 --mtime="@$SOURCE_DATE_EPOCH" --transform="s|^|$archive/|" \
    --file "$folder/$archive.tar.gz" myriad myriad.service myriad.toml sysusers.conf LICENSE man completions docs
for kind in deb rpm; do
    "${NFPM:-nfpm}" package --config "$here/nfpm.yaml" --packager "$kind" --target "$folder"
done

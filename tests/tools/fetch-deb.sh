#!/bin/sh
# Fetches a package from a component that /etc/apt may not name, and unpacks it; nothing is installed and /etc/apt stays
# as it is.
#
# usage: fetch-deb.sh COMPONENT PACKAGE FOLDER
# FOLDER then has its files in root/ and the package's version in the file version.
set -eu
component=$1 package=$2 folder=$3
[ -e "$folder/.done" ] && exit 0

mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
apt=$(cd "$folder/apt" && pwd)
. /etc/os-release

# The mirror that this machine uses for its own release.
mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' |
    awk -v suite="$VERSION_CODENAME" '$2 == suite { print $1; exit }')
[ -n "$mirror" ] || { echo "fetch-deb.sh: no mirror of $VERSION_CODENAME in /etc/apt; run apt-get update" >&2; exit 1; }

key=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$key" ] || { echo "fetch-deb.sh: $key is missing; install debian-archive-keyring" >&2; exit 1; }
echo "deb [signed-by=$key] $mirror $VERSION_CODENAME $component" > "$apt/sources.list"

private() {
    apt-get -q -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt/cache" "$@"
}
private update
(cd "$folder" && rm -f ./*.deb && private download "$package" && dpkg-deb -x ./*.deb root &&
    dpkg-deb -f ./*.deb Version > version && rm -f ./*.deb)
rm -rf "$apt"
touch "$folder/.done"

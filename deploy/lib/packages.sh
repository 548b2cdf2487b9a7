# Sourced by deploy/build and tests/run.

# install_packages FILE: installs the Debian packages that FILE lists and that are missing. Talks only when there is work.
install_packages() {
  local wanted missing=() package
  mapfile -t wanted < <(grep -v '^#' "$1")
  for package in "${wanted[@]}"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  if ! command -v apt-get >/dev/null; then
    echo "These Debian packages are needed and this is not a Debian system: ${missing[*]}" >&2
    return 1
  fi
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "Run as root once: apt-get install ${missing[*]}" >&2; return 1; }
    as_root=(sudo)
  fi
  echo "== installing ${#missing[@]} Debian packages: ${missing[*]}" >&2
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q update >&2 &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "${missing[@]}" >&2
}

# build_jobs: how many compilers fit this machine: one a core, and 1.5 GiB of memory each.
build_jobs() {
  local by_memory
  by_memory=$(awk '/MemAvailable/ {print int($2 / 1572864)}' /proc/meminfo)
  local jobs
  jobs=$(nproc)
  [ "$by_memory" -lt "$jobs" ] && jobs=$by_memory
  [ "$jobs" -lt 1 ] && jobs=1
  echo "$jobs"
}

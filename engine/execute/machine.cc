#include "engine/execute/machine.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <thread>

namespace assay {
namespace {

// The number after `key` in /proc/meminfo, in bytes; -1 where absent.
int64_t meminfo_bytes(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string word;
  int64_t kib = 0;
  while (file >> word) {
    if (word == key && file >> kib) return kib * 1024;
  }
  return -1;
}

// A control group (version 2) value; -1 where there is none or it says "max".
int64_t cgroup_number(const char* path) {
  std::ifstream file(path);
  int64_t value = -1;
  return file >> value ? value : -1;
}

int32_t cgroup_cpus() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0.0, period = 0.0;
  if (!(file >> quota >> period) || period <= 0.0) return INT32_MAX;
  return std::max(1, static_cast<int32_t>(std::ceil(quota / period)));
}

}  // namespace

int32_t usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int32_t cpus = static_cast<int32_t>(std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cpus = CPU_COUNT(&set);
  return std::max(1, std::min(cpus, cgroup_cpus()));
}

int64_t available_memory_bytes() {
  int64_t available = meminfo_bytes("MemAvailable:");
  if (available < 0) available = int64_t{1} << 30;
  const int64_t limit = cgroup_number("/sys/fs/cgroup/memory.max");
  const int64_t used = cgroup_number("/sys/fs/cgroup/memory.current");
  if (limit >= 0 && used >= 0) available = std::min(available, std::max<int64_t>(0, limit - used));
  return available;
}

}  // namespace assay

#include "server/ops/process_stats.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace assay {
namespace {

double boot_time_s() {
  std::ifstream file("/proc/stat");
  for (std::string key; file >> key;) {
    double value = 0.0;
    if (key == "btime" && file >> value) return value;
  }
  return 0.0;
}

int64_t count_open_fds() {
  std::error_code error;
  std::filesystem::directory_iterator entries("/proc/self/fd", error);
  return error ? 0 : std::distance(std::filesystem::begin(entries), std::filesystem::end(entries));
}

}  // namespace

ProcessStats read_process_stats() {
  ProcessStats stats;
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t after_name = text.rfind(')');
  if (after_name != std::string::npos) {
    // Fields from the third on, numbered as in proc(5).
    std::istringstream fields(text.substr(after_name + 1));
    std::string field;
    const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
    for (int number = 3; fields >> field && number <= 24; ++number) {
      if (number == 14 || number == 15) stats.cpu_seconds += std::stod(field) / ticks;
      if (number == 20) stats.threads = std::stoll(field);
      if (number == 22) stats.start_time_s = boot_time_s() + std::stod(field) / ticks;
      if (number == 23) stats.virtual_bytes = std::stoll(field);
      if (number == 24) stats.resident_bytes = std::stoll(field) * sysconf(_SC_PAGESIZE);
    }
  }
  stats.open_fds = count_open_fds();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) stats.max_fds = static_cast<int64_t>(limit.rlim_cur);
  return stats;
}

}  // namespace assay

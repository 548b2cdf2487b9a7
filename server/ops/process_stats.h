// What the operating system says of this process (from /proc).
#pragma once

#include <cstdint>

namespace assay {

struct ProcessStats {
  double cpu_seconds = 0.0;
  double start_time_s = 0.0;  // since 1970
  int64_t resident_bytes = 0;
  int64_t virtual_bytes = 0;
  int64_t open_fds = 0;
  int64_t max_fds = 0;
  int64_t threads = 0;
};

ProcessStats read_process_stats();

}  // namespace assay

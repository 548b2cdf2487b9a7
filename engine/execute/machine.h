// What this process may use of the machine: affinity and control groups count, not only the hardware.
#pragma once

#include <cstdint>

namespace assay {

int32_t usable_cpus();             // >= 1
int64_t available_memory_bytes();  // free or reclaimable now, within the control group's limit

}  // namespace assay

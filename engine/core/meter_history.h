// The meter's tallies as the host knows them: totals since start, and worst values over the last minute.
//
// Owns: copies of numbers that the executor keeps on its device. Threads: due and take by the engine thread, snapshot
// by any. Errors: none.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/api/meters.h"
#include "kernels/kv/meter.h"

namespace assay {

class MeterHistory {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  MeterHistory(int32_t num_layers, int32_t num_heads) : num_layers_(num_layers), num_heads_(num_heads) {}

  bool due(TimePoint now) const;  // a second has passed since the last take
  // `heads`: [layer][query head] as Executor::read_head_meters gives them, or empty.
  void take(const std::vector<kv::HeadMeter>& heads, TimePoint now);
  MeterSnapshot snapshot(TimePoint now) const;

 private:
  // Worst values of a slice of time: twelve of five seconds each make the last minute.
  static constexpr std::chrono::seconds kSlotLength{5};
  static constexpr size_t kNumSlots = 13;  // the running one and twelve before it
  struct Slot {
    int64_t number = -1;  // since the clock's epoch
    std::vector<float> worst;
  };
  static int64_t slot_number(TimePoint time) { return time.time_since_epoch() / kSlotLength; }

  void take_head(size_t index, const kv::HeadMeter& head, Slot& slot);

  const int32_t num_layers_, num_heads_;
  std::optional<TimePoint> last_take_;  // engine thread
  mutable std::mutex mutex_;            // what follows
  MeterSnapshot totals_;                // recent_worst is filled in by snapshot()
  std::array<Slot, kNumSlots> slots_;
};

}  // namespace assay

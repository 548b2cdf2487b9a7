// Gathers the events of one generation into whole choices, for replies that are not streamed.
//
// Threads: one owner.
#pragma once

#include <string>
#include <vector>

#include "server/service/generation.h"
#include "server/service/text_event.h"

namespace assay {

class Collector {
 public:
  explicit Collector(int num_choices);

  void add(TextEvent&& event);

  // One event per choice with everything in it. With more than `n` sequences per prompt, the n of the highest mean log
  // probability stay, best first, and are numbered anew.
  std::vector<TextEvent> choices(const Generation& generation, int n, int sequences_per_prompt);

 private:
  std::vector<TextEvent> choices_;
};

}  // namespace assay

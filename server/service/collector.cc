#include "server/service/collector.h"

#include <algorithm>
#include <iterator>

namespace assay {

Collector::Collector(int num_choices) : choices_(num_choices) {
  for (int i = 0; i < num_choices; ++i) choices_[i].choice = i;
}

void Collector::add(TextEvent&& event) {
  TextEvent& choice = choices_.at(event.choice);
  choice.text += event.text;
  if (event.prompt_scores != nullptr) choice.prompt_scores = std::move(event.prompt_scores);
  std::move(event.scores.begin(), event.scores.end(), std::back_inserter(choice.scores));
  choice.token_ids.insert(choice.token_ids.end(), event.token_ids.begin(), event.token_ids.end());
  choice.completion_tokens = event.completion_tokens;
  if (event.finish) {
    choice.finish = event.finish;
    choice.stop_reason = std::move(event.stop_reason);
  }
}

std::vector<TextEvent> Collector::choices(const Generation& generation, int n, int sequences_per_prompt) {
  if (sequences_per_prompt == n) return std::move(choices_);
  std::vector<TextEvent> best;
  for (size_t first = 0; first < choices_.size(); first += sequences_per_prompt) {
    const auto begin = choices_.begin() + static_cast<std::ptrdiff_t>(first);
    std::stable_sort(begin, begin + sequences_per_prompt, [&](const TextEvent& a, const TextEvent& b) {
      return generation.mean_logprob(a.choice) > generation.mean_logprob(b.choice);
    });
    std::move(begin, begin + n, std::back_inserter(best));
  }
  for (size_t i = 0; i < best.size(); ++i) best[i].choice = static_cast<int32_t>(i);
  return best;
}

}  // namespace assay

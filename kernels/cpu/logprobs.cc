#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/sampling.h"

namespace assay {
namespace {

struct Scored {
  float logit;
  int32_t id;
};

bool better(const Scored& a, const Scored& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

double log_sum_exp(std::span<const float> logits, float max_logit) {
  double sum = 0.0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit - max_logit));
  return static_cast<double>(max_logit) + std::log(sum);
}

// The best `count`, best first: a heap of the best seen so far, its worst on top.
std::vector<Scored> best_of(std::span<const float> logits, size_t count) {
  std::vector<Scored> heap;
  count = std::min(count, logits.size());
  for (size_t id = 0; id < logits.size() && count > 0; ++id) {
    const Scored scored{logits[id], static_cast<int32_t>(id)};
    if (heap.size() == count && !better(scored, heap.front())) continue;
    if (heap.size() == count) {
      std::pop_heap(heap.begin(), heap.end(), better);
      heap.pop_back();
    }
    heap.push_back(scored);
    std::push_heap(heap.begin(), heap.end(), better);
  }
  std::sort(heap.begin(), heap.end(), better);
  return heap;
}

int32_t rank_of(std::span<const float> logits, int32_t token) {
  const float logit = logits[static_cast<size_t>(token)];
  const auto middle = logits.begin() + token;
  const auto at_least = std::count_if(logits.begin(), middle, [&](float x) { return x >= logit; });
  const auto more = std::count_if(middle, logits.end(), [&](float x) { return x > logit; });
  return static_cast<int32_t>(1 + at_least + more);
}

}  // namespace

void fill_logprobs(std::span<const float> logits, LogprobsRow& row) {
  if (row.num_top < 0) return;
  row.top.clear();
  row.finite = std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); });
  if (!row.finite) return;
  const double norm = log_sum_exp(logits, *std::max_element(logits.begin(), logits.end()));
  const auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - norm); };
  row.logprob = logprob(logits[static_cast<size_t>(row.token)]);
  row.rank = rank_of(logits, row.token);
  for (const Scored& s : best_of(logits, static_cast<size_t>(row.num_top))) {
    row.top.emplace_back(s.id, logprob(s.logit));
  }
}

}  // namespace assay

#include "kernels/cpu/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace assay {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

struct Candidate {
  float logit;
  int32_t id;
};

bool better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

bool all_finite(std::span<const float> logits) {
  float zero = 0.0f;
  for (float logit : logits) zero += logit * 0.0f;  // NaN as soon as one is NaN or infinite
  return zero == 0.0f;
}

void apply_repetition_penalty(const SamplingRow& rules, std::vector<float>& logits) {
  if (rules.repetition_penalty == 1.0f) return;
  std::unordered_set<int32_t> seen(rules.prompt.begin(), rules.prompt.end());
  seen.insert(rules.output.begin(), rules.output.end());
  for (int32_t id : seen) {
    float& logit = logits[static_cast<size_t>(id)];
    logit = logit > 0.0f ? logit / rules.repetition_penalty : logit * rules.repetition_penalty;
  }
}

void apply_output_penalties(const SamplingRow& rules, std::vector<float>& logits) {
  if (rules.presence_penalty == 0.0f && rules.frequency_penalty == 0.0f) return;
  std::unordered_map<int32_t, int32_t> counts;
  for (int32_t id : rules.output) ++counts[id];
  for (const auto& [id, count] : counts) {
    logits[static_cast<size_t>(id)] -= rules.presence_penalty + rules.frequency_penalty * static_cast<float>(count);
  }
}

bool changes_logits(const SamplingRow& rules) {
  return !rules.logit_bias.empty() || !rules.forbidden.empty() || rules.repetition_penalty != 1.0f ||
         rules.presence_penalty != 0.0f || rules.frequency_penalty != 0.0f;
}

void change_logits(const SamplingRow& rules, std::vector<float>& logits) {
  for (const auto& [id, bias] : rules.logit_bias) logits[static_cast<size_t>(id)] += bias;
  apply_repetition_penalty(rules, logits);
  apply_output_penalties(rules, logits);
  for (int32_t id : rules.forbidden) logits[static_cast<size_t>(id)] = kForbidden;
}

int32_t largest(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Relative weight of a logit at the temperature; 1 at the maximum. No overflow at any temperature > 0.
struct Weight {
  double max_logit, temperature;
  double operator()(float logit) const { return std::exp((static_cast<double>(logit) - max_logit) / temperature); }
};

int32_t draw_from_all(std::span<const float> logits, const Weight& weight, double uniform) {
  double total = 0.0;
  for (float logit : logits) total += weight(logit);
  double left = uniform * total;
  int32_t last = kNoToken;
  for (size_t id = 0; id < logits.size(); ++id) {
    const double w = weight(logits[id]);
    if (w <= 0.0) continue;
    last = static_cast<int32_t>(id);
    left -= w;
    if (left < 0.0) break;
  }
  return last;
}

std::vector<Candidate> candidates_over(std::span<const float> logits, const Weight& weight, float min_p) {
  std::vector<Candidate> candidates;
  for (size_t id = 0; id < logits.size(); ++id) {
    const double w = weight(logits[id]);
    if (w > 0.0 && w >= static_cast<double>(min_p)) candidates.push_back({logits[id], static_cast<int32_t>(id)});
  }
  return candidates;
}

// Sorts and keeps the best `count`.
void keep_best(std::vector<Candidate>& candidates, size_t count) {
  count = std::min(count, candidates.size());
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count), candidates.end(),
                    better);
  candidates.resize(count);
}

// The shortest best-first prefix with at least top_p of the mass. Sorts only as far as needed.
void keep_nucleus(std::vector<Candidate>& candidates, const Weight& weight, float top_p) {
  double total = 0.0;
  for (const Candidate& c : candidates) total += weight(c.logit);
  double mass = 0.0;
  size_t sorted = 0, kept = 0;
  while (kept < candidates.size()) {
    if (kept == sorted) {
      sorted = std::min(candidates.size(), std::max<size_t>(64, 8 * sorted));
      std::partial_sort(candidates.begin() + static_cast<std::ptrdiff_t>(kept),
                        candidates.begin() + static_cast<std::ptrdiff_t>(sorted), candidates.end(), better);
    }
    mass += weight(candidates[kept++].logit);
    if (mass >= static_cast<double>(top_p) * total) break;
  }
  candidates.resize(kept);
}

int32_t draw_from(const std::vector<Candidate>& candidates, const Weight& weight, double uniform) {
  double total = 0.0;
  for (const Candidate& c : candidates) total += weight(c.logit);
  double left = uniform * total;
  for (const Candidate& c : candidates) {
    left -= weight(c.logit);
    if (left < 0.0) return c.id;
  }
  return candidates.back().id;
}

int32_t choose(std::span<const float> logits, const SamplingRow& rules) {
  const int32_t best = largest(logits);
  const float max_logit = logits[static_cast<size_t>(best)];
  if (!std::isfinite(max_logit)) return kNoToken;
  if (rules.temperature <= 0.0f) return best;
  const Weight weight{max_logit, rules.temperature};
  const double uniform = uniform_random(rules.seed, rules.draw);
  const bool filtered = rules.top_k > 0 || rules.top_p < 1.0f || rules.min_p > 0.0f;
  if (!filtered) return draw_from_all(logits, weight, uniform);
  std::vector<Candidate> candidates = candidates_over(logits, weight, rules.min_p);
  if (rules.top_k > 0) keep_best(candidates, static_cast<size_t>(rules.top_k));
  if (rules.top_p < 1.0f) keep_nucleus(candidates, weight, rules.top_p);
  return draw_from(candidates, weight, uniform);
}

}  // namespace

double uniform_random(uint64_t seed, uint64_t draw) {
  uint32_t counter[4] = {static_cast<uint32_t>(draw), static_cast<uint32_t>(draw >> 32), 0, 0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0], b = uint64_t{0xCD9E8D57u} * counter[2];
    const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
                              static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    std::copy(next, next + 4, counter);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  const uint64_t bits = (uint64_t{counter[1]} << 32 | counter[0]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

int32_t sample_row(std::span<const float> logits, const SamplingRow& rules) {
  if (!all_finite(logits)) return kNoToken;
  if (!changes_logits(rules)) return choose(logits, rules);
  std::vector<float> changed(logits.begin(), logits.end());
  change_logits(rules, changed);
  return choose(changed, rules);
}

}  // namespace assay

#include "kernels/cpu/attention_log.h"

#include <algorithm>
#include <cmath>

namespace assay {
namespace {

// Of each weight, as the kernel adds it up: its exponential and its part in a moved maximum.
constexpr double kWeightError = 0x1p-15;

}  // namespace

AttentionLog::AttentionLog(int32_t pairs, int32_t tokens) {
  const size_t size = static_cast<size_t>(pairs) * static_cast<size_t>(tokens);
  memory_.resize(5 * size);
  float* at = memory_.data();
  view_ = {tokens, at, at + size, at + 2 * size, at + 3 * size, at + 4 * size};
}

std::vector<double> served_weights(const AttentionLogView& log, int32_t pair) {
  const float* weight = log.weight + int64_t{pair} * log.tokens;
  const float* max = log.max + int64_t{pair} * log.tokens;
  const double largest = *std::max_element(max, max + log.tokens);
  std::vector<double> weights(static_cast<size_t>(log.tokens));
  double sum = 0;
  for (size_t t = 0; t < weights.size(); ++t) {
    weights[t] = static_cast<double>(weight[t]) * std::exp(static_cast<double>(max[t]) - largest);
    sum += weights[t];
  }
  for (double& w : weights) w /= sum;
  return weights;
}

std::vector<kv::GatePage> page_contributions(const AttentionLogView& log, int32_t pair, int32_t page_tokens,
                                             int32_t stored, bool smaller) {
  const std::vector<double> weights = served_weights(log, pair);
  const float* radius = (smaller ? log.other : log.radius) + int64_t{pair} * log.tokens;
  const float* rho = log.rho + int64_t{pair} * log.tokens;
  std::vector<kv::GatePage> pages(static_cast<size_t>((stored + page_tokens - 1) / page_tokens));
  for (int32_t t = 0; t < stored; ++t) {
    kv::GatePage& page = pages[static_cast<size_t>(t / page_tokens)];
    page.mass += weights[static_cast<size_t>(t)];
    page.radius = radius[t] <= page.radius ? page.radius : radius[t];  // a NaN stays
    page.value_error += weights[static_cast<size_t>(t)] * static_cast<double>(rho[t]);
  }
  return pages;
}

float page_bound(const AttentionLogView& log, int32_t pair, int32_t page_tokens, int32_t stored, bool smaller) {
  std::vector<kv::PageRadius<double>> pages;
  double mass = 0;
  for (const kv::GatePage& page : page_contributions(log, pair, page_tokens, stored, smaller)) {
    if (!kv::is_finite(page.radius) || !kv::is_finite(page.mass)) return kv::infinity();
    pages.push_back({page.mass, static_cast<double>(page.radius)});
    mass += page.mass;
  }
  const float* radius = (smaller ? log.other : log.radius) + int64_t{pair} * log.tokens;
  double own = 0;
  for (int32_t t = stored; t < log.tokens; ++t) {
    if (!kv::is_finite(radius[t])) return kv::infinity();
    own = std::max(own, static_cast<double>(radius[t]));
  }
  pages.push_back({std::max(0.0, 1.0 - mass), own});
  kv::sort_by_radius(pages.data(), static_cast<int>(pages.size()));
  const double bound = kv::page_worst_case(pages.data(), static_cast<int>(pages.size()), kWeightError);
  return static_cast<float>(bound * (1.0 + 0x1p-22));
}

}  // namespace assay

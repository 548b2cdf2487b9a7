#include "kernels/cpu/attention_log.h"

#include <algorithm>
#include <cmath>

namespace assay {
namespace {

// Relative error of each weight as the kernel adds it up: its exponential, and a factor for each time the maximum moved or
// parts were merged.
double weight_error(int32_t serial_terms) {
  return 0x1p-15 + 2.0 * serial_terms * 0x1p-24;
}

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
    page.radius = kv::is_finite(radius[t]) ? std::max(page.radius, radius[t]) : kv::infinity();
    page.value_error += weights[static_cast<size_t>(t)] * static_cast<double>(rho[t]);
  }
  return pages;
}

float page_bound(const AttentionLogView& log, int32_t pair, int32_t page_tokens, int32_t stored, int32_t serial_terms,
                 bool smaller) {
  std::vector<kv::PageRadius<double>> pages;
  for (const kv::GatePage& page : page_contributions(log, pair, page_tokens, stored, smaller)) {
    pages.push_back({page.mass, static_cast<double>(page.radius)});
  }
  const std::vector<double> weights = served_weights(log, pair);
  const float* radius = (smaller ? log.other : log.radius) + int64_t{pair} * log.tokens;
  kv::PageRadius<double> own{0, 0};
  for (int32_t t = stored; t < log.tokens; ++t) {
    own.mass += weights[static_cast<size_t>(t)];
    own.radius = kv::is_finite(radius[t]) ? std::max(own.radius, static_cast<double>(radius[t])) : INFINITY;
  }
  pages.push_back(own);
  for (const kv::PageRadius<double>& page : pages) {
    if (!(page.radius <= static_cast<double>(kv::kLargestRadius)) || !kv::is_finite(page.mass)) return kv::infinity();
  }
  kv::sort_by_radius(pages.data(), static_cast<int>(pages.size()));
  const double bound = kv::page_worst_case(pages.data(), static_cast<int>(pages.size()), weight_error(serial_terms));
  return static_cast<float>(bound * (1.0 + 0x1p-22));
}

}  // namespace assay

// Bounds of total variation against adversaries: logits, radii and errors within the radii are chosen to hurt; the
// truth is computed in long double.
#include <cmath>
#include <numeric>

#include "engine/verify/tally.h"
#include "kernels/kv/bounds.h"

namespace assay {
namespace {

using kv::BoundKind;
using kv::MeterInputs;
using kv::MeterSums;

struct Tokens {
  std::vector<float> logit, radius;
  std::vector<long double> error;  // |error| <= radius
};

std::vector<float> hostile_logits(TrialRandom& random, size_t count) {
  std::vector<float> logits(count);
  const double spread = random.below(4) == 0 ? 0.0 : 4 * random.uniform();
  for (float& logit : logits) logit = static_cast<float>(spread * random.normal());
  if (random.below(2) == 0) logits[0] += static_cast<float>(25 * random.uniform());            // one dominates
  if (random.below(3) == 0) logits.back() = logits[0] - static_cast<float>(random.uniform());  // or two
  return logits;
}

std::vector<float> hostile_radii(TrialRandom& random, size_t count) {
  std::vector<float> radii(count);
  const double size = std::pow(10.0, random.below(6) == 0 ? -15 + 15 * random.uniform() : -4 + 5 * random.uniform());
  const uint64_t shape = random.below(5);
  for (float& radius : radii) {
    double c = size;  // equal
    if (shape == 1) c = size * (1 + 0.01 * random.uniform());
    if (shape == 2) c = size * random.uniform();
    if (shape == 3) c = random.uniform() < 0.4 ? 0 : size * std::pow(10.0, -3 * random.uniform());  // some are exact
    radius = static_cast<float>(std::min(c, 60.0));
  }
  if (shape == 4) radii.back() = static_cast<float>(60 * random.uniform());  // one is huge
  return radii;
}

// The worst errors are -c on a set of large radii and +c elsewhere.
std::vector<long double> hostile_errors(TrialRandom& random, const Tokens& tokens) {
  std::vector<size_t> order(tokens.radius.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (tokens.radius[a] != tokens.radius[b]) return tokens.radius[a] > tokens.radius[b];
    return tokens.logit[a] < tokens.logit[b];
  });
  const size_t raised = random.below(order.size() + 1);
  const bool inside = random.below(4) == 0;
  std::vector<long double> errors(order.size());
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const long double c = tokens.radius[order[rank]] * (inside ? static_cast<long double>(random.uniform()) : 1.0L);
    errors[order[rank]] = rank < raised ? -c : c;
  }
  return errors;
}

Tokens hostile_tokens(TrialRandom& random) {
  const size_t count = 1 + random.below(random.below(8) == 0 ? 40 : 8);
  Tokens tokens{hostile_logits(random, count), hostile_radii(random, count), {}};
  tokens.error = hostile_errors(random, tokens);
  return tokens;
}

// TV of softmax(logit - error) against softmax(logit). With shift = e^-error - 1, p_t - p^_t = p^_t (shift_t - mean) /
// (1 + mean) cancels nothing for small errors; where 1 + mean is small, the distributions themselves are subtracted.
long double true_tv(const Tokens& tokens) {
  const long double top = *std::max_element(tokens.logit.begin(), tokens.logit.end());
  const size_t count = tokens.logit.size();
  std::vector<long double> served(count), shift(count);
  long double served_sum = 0, shift_sum = 0, exact_sum = 0;
  for (size_t t = 0; t < count; ++t) {
    served[t] = std::exp(tokens.logit[t] - top);
    shift[t] = std::expm1(-tokens.error[t]);
    served_sum += served[t];
    shift_sum += served[t] * shift[t];
    exact_sum += served[t] * std::exp(-tokens.error[t]);
  }
  const long double mean = shift_sum / served_sum;
  long double distance = 0;
  for (size_t t = 0; t < count; ++t) {
    distance += mean > -0.5L ? served[t] / served_sum * std::fabs(shift[t] - mean) / (1 + mean)
                             : std::fabs(served[t] * std::exp(-tokens.error[t]) / exact_sum - served[t] / served_sum);
  }
  return distance / 2;
}

// The sums as kernels make them: base-2 exponentials good to two units, 2^x - 1 instead of expm1.
MeterSums<float> kernel_sums(const Tokens& tokens, TrialRandom& random) {
  constexpr float kLog2E = 1.44269504f;
  const auto exponential = [&](float x) {
    return std::exp2(x) * (1 + static_cast<float>(static_cast<int>(random.below(5)) - 2) * 0x1p-23f);
  };
  MeterSums<float> sums;
  sums.logit_max = *std::max_element(tokens.logit.begin(), tokens.logit.end());
  for (size_t t = 0; t < tokens.logit.size(); ++t) {
    const float p = exponential(tokens.logit[t] * kLog2E - sums.logit_max * kLog2E);
    const float growth = exponential(tokens.radius[t] * kLog2E) - 1.0f;
    sums.weight += p;
    sums.b1 += p * growth;
    sums.b2 += p * growth * growth;
    sums.radius_max = std::max(sums.radius_max, tokens.radius[t]);
  }
  return sums;
}

float page_bound(const Tokens& tokens) {
  const float top = *std::max_element(tokens.logit.begin(), tokens.logit.end());
  std::vector<kv::PageRadius<float>> pages;
  for (size_t t = 0; t < tokens.logit.size(); ++t) pages.push_back({std::exp(tokens.logit[t] - top), tokens.radius[t]});
  const int count = static_cast<int>(pages.size());
  kv::sort_by_radius(pages.data(), count);
  return kv::page_worst_case(pages.data(), count, kv::Raise<float>::kExponential);
}

// A formula that was proposed and is wrong: weighted dispersion of the radii plus a second-order term. With equal radii
// the first vanishes, but errors of opposite sign still move TV in first order.
VerifyCheck counterexample() {
  VerifyCheck check{"counterexample",
                    "the rejected formula is below the true TV at p = (1/2, 1/2), c = 0.1; the meter is not"};
  const Tokens tokens{{0.0f, 0.0f}, {0.1f, 0.1f}, {0.1f, -0.1f}};
  const long double c = tokens.radius[0], truth = true_tv(tokens);
  const long double rejected = 0.5L * std::exp(2 * c) * c * std::expm1(c);
  MeterSums<float> sums;
  for (int t = 0; t < 2; ++t) kv::add_token(sums, tokens.logit[t], tokens.radius[t], 0.0f);
  count(check, truth, kv::meter(kv::meter_inputs(sums, 2), BoundKind::kBest, 0.0f).tv);
  check.violations += !(rejected < truth);
  ++check.checks;
  return check;
}

}  // namespace

std::vector<VerifyCheck> verify_bounds(const VerifyOptions& options) {
  VerifyCheck e{"bound.e_form", "TV <= (A^2 - 1) / 2"}, inverse{"bound.inverse", "TV <= 1 - 1/A"},
      half{"bound.tanh", "TV <= tanh(C / 2)"}, f{"bound.f", "TV <= F(A, C)"}, g{"bound.g", "TV <= G(A, C, sigma)"},
      page{"bound.page", "TV <= page-level worst case"}, best{"meter", "TV <= the reported meter"};
  TrialRandom random(options.seed);
  for (int64_t trial = 0; trial < options.trials; ++trial) {
    const Tokens tokens = hostile_tokens(random);
    const long double truth = true_tv(tokens);
    const MeterInputs<float> in = kv::meter_inputs(kernel_sums(tokens, random), static_cast<int>(tokens.logit.size()));
    count(best, truth, kv::meter(in, BoundKind::kBest, 0.0f).raw);
    count(half, truth, kv::tanh_half(in.c));
    count(page, truth, page_bound(tokens));
    if (!kv::is_finite(in.b1))
      continue;  // the sums left the arithmetic: the meter says infinity, nothing else is asked
    count(e, truth, kv::e_form(in.b1));
    count(inverse, truth, kv::one_minus_inverse(in.b1));
    count(f, truth, kv::box_bound(in.b1, in.c));
    count(g, truth, kv::box_bound(in.b1, in.c, in.sigma));
  }
  return {counterexample(), e, inverse, half, f, g, page, best};
}

}  // namespace assay

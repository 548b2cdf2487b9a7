// Rotation and balance: the identities they rest on, to the rounding that the margins promise.
#include <cmath>

#include "engine/verify/rows.h"
#include "engine/verify/tally.h"
#include "kernels/kv/row_transform.h"

namespace assay {
namespace {

using Row = std::vector<float>;

std::vector<double> difference(const Row& a, const std::vector<double>& b) {
  std::vector<double> out(a.size());
  for (size_t i = 0; i < a.size(); ++i) out[i] = static_cast<double>(a[i]) - b[i];
  return out;
}

std::vector<double> as_double(const Row& x) {
  return std::vector<double>(x.begin(), x.end());
}

}  // namespace

std::vector<VerifyCheck> verify_transform(const VerifyOptions& options) {
  VerifyCheck forward{"rotation", "the float rotation is R x to its margin"},
      back{"rotation.back", "rotating back is R^T x to its margin"},
      logit{"balance", "q.k is unchanged by balance and rotation to their margins"};
  TrialRandom random(options.seed + 1);
  const int64_t trials = std::max<int64_t>(options.trials / 100, 1);
  for (int64_t trial = 0; trial < trials; ++trial) {
    const int d = kVerifiedHeadDims[trial % 3];
    Row signs(static_cast<size_t>(d));
    kv::rotation_signs(d, signs.data());
    const Row lambda = hostile_lambda(random, d), key = hostile_row(random, d), query = hostile_row(random, d);
    const double margin = kv::rotation_margin(d);

    Row there = key, home = key;
    kv::rotate(signs.data(), there.data(), d);
    count(forward, norm(difference(there, rotated(signs, as_double(key)))), margin * norm(as_double(key)));
    kv::rotate_back(signs.data(), home.data(), d);
    count(back, norm(difference(home, rotated_back(signs, as_double(key)))), margin * norm(as_double(key)));

    // |q'.k' - q.k| <= (2 g + g^2) |q'| |k'| of the exact transforms, in which each side errs by g of its norm.
    const kv::RowTransform transform{.head_dim = d, .signs = signs.data(), .lambda = lambda.data()};
    Row k(key.size()), q(key.size());
    kv::transform_key(transform, key.data(), k.data());
    kv::transform_query(transform, query.data(), q.data());
    std::vector<double> exact_k(key.size()), exact_q(key.size());
    for (size_t c = 0; c < key.size(); ++c) {
      exact_k[c] = static_cast<double>(key[c]) / lambda[c];
      exact_q[c] = static_cast<double>(query[c]) * lambda[c];
    }
    count(logit, std::fabs(dot(q, k) - dot(query, key)), margin * (2 + margin) * norm(exact_q) * norm(exact_k));
  }
  return {forward, back, logit};
}

}  // namespace assay

#include "tests/certify/independent.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace assay::independent {

namespace {

template <class Function>
Real expectation(const Tokens& tokens, Function value) {
  return std::accumulate(tokens.begin(), tokens.end(), Real{0},
                         [&](Real sum, const auto& token) { return sum + token.first * value(token.second); });
}

// p(T) - p^(T) when token i belongs to T to the degree member[i]: errors -c inside, +c outside.
Real gain(const Tokens& tokens, const std::vector<Real>& member) {
  Real inside = 0, outside = 0, mass = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto& [weight, radius] = tokens[i];
    inside += member[i] * weight * std::exp(radius);
    outside += (1 - member[i]) * weight * std::exp(-radius);
    mass += member[i] * weight;
  }
  return inside / (inside + outside) - mass;
}

template <class Visit>
void for_each_set(size_t count, Visit visit) {
  std::vector<Real> member(count);
  for (size_t bits = 0; bits < (size_t{1} << count); ++bits) {
    for (size_t i = 0; i < count; ++i) member[i] = (bits >> i) & 1 ? 1 : 0;
    visit(member);
  }
}

// Largest gain when token i's degree varies over [0, 1]; the gain is concave in it.
Real best_degree(const Tokens& tokens, std::vector<Real> member, size_t i) {
  Real low = 0, high = 1;
  const auto at = [&](Real degree) {
    member[i] = degree;
    return gain(tokens, member);
  };
  for (int step = 0; step < 90; ++step) {
    const Real third = (high - low) / 3;
    (at(low + third) < at(high - third) ? low : high) += at(low + third) < at(high - third) ? third : -third;
  }
  return at((low + high) / 2);
}

// TV of the best completion when the raised set has mass m: its share h of A goes as near to A/2 as it may.
Real with_raised_mass(Real m, Real a, Real c, Real sigma) {
  const Real rest = 1 - m, top = std::exp(c);
  const Real reach = std::isinf(sigma) ? a + top : sigma * std::sqrt(m * rest);
  const Real low = std::max({m, a - rest * top, m * a - reach});
  const Real high = std::min({m * top, a - rest, m * a + reach});
  if (!(low <= high)) return 0;
  const Real h = std::clamp(a / 2, low, high);
  const Real product = h * (a - h);
  return product / (product + rest * rest) - m;
}

}  // namespace

Real mean_growth(const Tokens& tokens) {
  return expectation(tokens, [](Real c) { return std::exp(c); });
}

Real mean_shrink(const Tokens& tokens) {
  return expectation(tokens, [](Real c) { return std::exp(-c); });
}

Real deviation(const Tokens& tokens) {
  const Real mean = mean_growth(tokens);
  return std::sqrt(expectation(tokens, [mean](Real c) { return (std::exp(c) - mean) * (std::exp(c) - mean); }));
}

Real largest_radius(const Tokens& tokens) {
  Real largest = 0;
  for (const auto& token : tokens) largest = std::max(largest, token.second);
  return largest;
}

Real total_variation(const Tokens& tokens, const std::vector<Real>& errors) {
  Real normaliser = 0, distance = 0;
  for (size_t i = 0; i < tokens.size(); ++i) normaliser += tokens[i].first * std::exp(-errors[i]);
  for (size_t i = 0; i < tokens.size(); ++i) {
    distance += std::fabs(tokens[i].first * std::exp(-errors[i]) / normaliser - tokens[i].first);
  }
  return distance / 2;
}

Real worst_over_sets(const Tokens& tokens) {
  Real best = 0;
  for_each_set(tokens.size(), [&](const std::vector<Real>& member) { best = std::max(best, gain(tokens, member)); });
  return best;
}

Real worst_over_fractions(const Tokens& tokens) {
  Real best = worst_over_sets(tokens);
  for_each_set(tokens.size(), [&](const std::vector<Real>& member) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (member[i] == 0) best = std::max(best, best_degree(tokens, member, i));
    }
  });
  return best;
}

Real worst_in_box(Real a, Real c, Real sigma) {
  constexpr int kCells = 3000;
  Real low = std::log(Real{1e-22L}), high = 0, best = 0;
  for (int zoom = 0; zoom < 8; ++zoom) {
    const Real width = (high - low) / kCells;
    Real where = low;
    for (int cell = 0; cell <= kCells; ++cell) {
      const Real value = with_raised_mass(std::exp(low + cell * width), a, c, sigma);
      if (value > best) {
        best = value;
        where = low + cell * width;
      }
    }
    low = where - 2 * width;
    high = std::min(Real{0}, where + 2 * width);
  }
  return best;
}

}  // namespace assay::independent
